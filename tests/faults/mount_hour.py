"""``make mount-hour``: a DataLoader reads files of a mount again and again, while its store is killed every minute.

Each file that was read is the right one, or there was an error; and the memory of the mount's process stays as it is.
``ARGS="--minutes N --every SECONDS --seed N"`` selects how long, and how often the store is killed. With
``--cache SIZE`` the mount keeps so much on the disk; it should be less than all files have. Exit status 1 if a file
was wrong, if nothing could be read after the store had come back, if the memory grew, or if the cache is larger.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import zlib
from pathlib import Path
from typing import Any

# Appended to the path: `tests` is found in the checkout, but nbdata is the installed one.
sys.path.append(str(Path(__file__).parents[2]))

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.sizes import parse_size
from nbdata.space.mounts import Note
from tests import isolation
from tests.conftest import client_of
from tests.slow import take

# Small files, that are read ahead, and large ones, with their bytes.
FILES = [(f"small/{number:03}", 100_000) for number in range(300)]
FILES += [(f"large/{number:02}", 6_000_000) for number in range(20)]
# The memory of the last quarter may be this many times that of the second one.
GROWTH = 1.2
_RIGHT, _ERROR, _WRONG = range(3)
_BATCH, _SAMPLES = 8, 60
# What the notes of a cache may take of the disk beside its blocks.
_NOTES = 1 << 20


class Files:
    """A dataset that reads a file of the mount, and says whether it was right.

    Parameters
    ----------
    folder : Path
    sums : list of int
        The CRC-32 of each file.
    """

    def __init__(self, folder: Path, sums: list[int]) -> None:
        self._folder, self._sums = folder, sums

    def __len__(self) -> int:
        return len(self._sums)

    def __getitem__(self, number: int) -> int:
        try:
            with open(self._folder / FILES[number][0], "rb", buffering=0) as file:
                data = b"".join(iter(lambda: file.read(1 << 20), b""))
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # so that it is read again
        except OSError:
            return _ERROR
        return _RIGHT if zlib.crc32(data) == self._sums[number] else _WRONG


class Store:
    """A store that is killed, and starts again on its folder and port.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = self._started()
        self.url = self.server.url
        self.kills = 0

    def _started(self) -> EmbeddedServer:
        return EmbeddedServer.start(self._folder, kind="seaweedfs", private=False)

    def kill(self, away: float) -> None:
        """Kill it, and start it again after so many seconds."""
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.stop()
        self.kills += 1
        take(away)
        self.server = self._started()
        if self.server.url != self.url:
            raise RuntimeError(f"the store came back at {self.server.url}, and was at {self.url}")


class Watch:
    """What is seen of the mount: samples of its memory, and of what was read.

    Parameters
    ----------
    process : int
        The mount's.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self.counts = [0, 0, 0]
        self.memory = list[int]()

    def sample(self) -> int:
        """Note the memory of the mount's process, in KiB, and return it."""
        text = Path(f"/proc/{self._process}/status").read_text()
        self.memory.append(int(text.split("\nVmRSS:")[1].split()[0]))
        return self.memory[-1]

    def growth(self) -> float:
        """Return how many times the memory of the second quarter the last one has."""
        quarter = max(1, len(self.memory) // 4)
        return statistics.median(self.memory[-quarter:]) / statistics.median(
            self.memory[quarter : 2 * quarter]
        )


def _read(watch: Watch, files: Files, ended: threading.Event, seed: int) -> None:
    import torch
    from torch.utils.data import DataLoader

    torch.manual_seed(seed)
    loader: Any = DataLoader(files, _BATCH, shuffle=True, num_workers=2, persistent_workers=True)  # type: ignore[arg-type]
    while not ended.is_set():
        for batch in loader:
            for outcome in batch.tolist():
                watch.counts[outcome] += 1
            if ended.is_set():
                break


def _keep_killing(store: Store, ended: threading.Event, every: float, source: random.Random) -> None:
    while not ended.wait(every):
        store.kill(source.uniform(1, 15))


def _run(store: Store, folder: Path, options: argparse.Namespace) -> int:
    client, source, sums = client_of(store.server), random.Random(options.seed), list[int]()
    client.create_bucket(Bucket="hour")
    for name, size in FILES:
        data = source.randbytes(size)
        sums.append(zlib.crc32(data))
        client.put_object(Bucket="hour", Key=f"data/{name}", Body=data)
    client.close()
    cache = folder / "cache"
    kept: Any = {} if options.cache is None else {"cache": options.cache, "cache_dir": str(cache)}
    with nbdata.mount("s3://hour/data", str(folder / "mount"), max_age=30, **kept) as mount:
        (note,) = [one for one in Note.all() if one.folder == mount.folder]
        watch, ended = Watch(note.process), threading.Event()
        killer = threading.Thread(
            target=_keep_killing, args=(store, ended, options.every, source), daemon=True
        )
        watching = threading.Thread(target=_tell, args=(watch, store, ended, options.minutes), daemon=True)
        killer.start()
        watching.start()
        with contextlib.suppress(KeyboardInterrupt):
            _read(watch, Files(Path(mount.folder), sums), ended, options.seed)
        ended.set()
        watching.join()
        killer.join()
        again = [Files(Path(mount.folder), sums)[number] for number in range(len(FILES))]
        right, errors, wrong = watch.counts
        back, growth = again.count(_RIGHT) == len(again), watch.growth()
        used = sum(path.stat().st_blocks for path in cache.rglob("*") if path.is_file()) * 512
    print(f"{right:,} files right, {errors:,} errors, {wrong:,} wrong, {store.kills} kills of the store")
    print(
        f"afterwards {'all files are right' if back else f'{again.count(_RIGHT)} of {len(again)} are right'}"
    )
    print(f"memory of the last quarter / of the second one: {growth:.2f} (at most {GROWTH})")
    if options.cache is not None:
        print(f"the cache: {used:,} bytes of the disk, of {options.cache}")
    too_much = options.cache is not None and used > parse_size(options.cache) + _NOTES
    return 1 if wrong or not right or not back or growth > GROWTH or too_much else 0


def _tell(watch: Watch, store: Store, ended: threading.Event, minutes: float) -> None:
    """Print a line for each sample, and end the run."""
    print(f"{'minute':>7}{'right':>10}{'errors':>10}{'wrong':>7}{'kills':>7}{'MiB':>7}", flush=True)
    for number in range(1, _SAMPLES + 1):
        if ended.wait(minutes * 60 / _SAMPLES):
            return
        size = watch.sample() >> 10
        right, errors, wrong = watch.counts
        if number % max(1, round(_SAMPLES / minutes)) == 0:
            minute = number * minutes / _SAMPLES
            print(f"{minute:7.1f}{right:10,}{errors:10,}{wrong:7,}{store.kills:7}{size:7,}", flush=True)
    ended.set()


def main() -> int:
    """Run it, and return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=60, help="seconds between two kills of the store")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--cache", metavar="SIZE", help="keep so much on the disk, as 60MB (default: nothing)"
    )
    options = parser.parse_args()
    isolation.isolate()  # a private runtime folder, without the user's own settings
    os.environ["NBDATA_STALL_TIMEOUT"] = "10"
    try:
        with tempfile.TemporaryDirectory(prefix="nbdata-hour-") as name:
            store = Store(Path(name, "store"))
            try:
                os.environ.update(store.server.environment())
                return _run(store, Path(name), options)
            finally:
                store.server.stop()
    finally:
        isolation.pytest_unconfigure()


if __name__ == "__main__":
    raise SystemExit(main())
