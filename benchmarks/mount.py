"""Compares a mount of nbdata with those of rclone and s3fs (the program, not the library of that name), on one server.

Run with ``make bench-mount``; ``ARGS="--only cp"`` selects rows, and ``--scale 0.1`` takes a tenth of the data. Each
run has a mount of its own, so nothing is remembered from the run before. Ways run in turn; the figures are medians of
the runs, and what each way reads is compared with what was put. Peers have the options that their manuals recommend
for this work. The CPU seconds of the mount, of the program that reads, and of the server are reported apart.

s3fs keeps all that it reads of an open file on the disk, as much as that is, and fetches more than is asked for.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from line import Line
from listing import ListServer
from measure import BIN, machine_cpu, process_cpu

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.space.mounts import Note

WAYS = ("nbdata", "rclone", "s3fs")
BUCKET, MIB = "bench-mount", 1 << 20
# Milliseconds in each direction of the line that some rows use.
_AWAY = 10
# Bytes of the small files.
_SMALL = {"10 KB": 10_240, "100 KB": 102_400}
# Bytes of each of the files that are open at the same time, and of a read of them.
_MANY, _STEP = 2 * MIB, 256 << 10


@dataclass
class Work:
    """A row of the table: what is done with which folder of the bucket."""

    name: str
    work: str
    folder: str
    threads: int = 1
    count: int = 0
    away: bool = False
    lists: str = ""
    cached: bool = False
    ways: tuple[str, ...] = WAYS


@dataclass
class Run:
    """The cost of one run: wall seconds, CPU seconds of mount, reader and server, peak bytes of the mount."""

    wall: float
    mount: float
    reader: float
    server: float
    memory: int
    others: float
    digest: str = field(default="", repr=False)


# -- the ways to mount -------------------------------------------------------------------------------------------------


@contextmanager
def _nbdata(url: str, folder: Path, cache: Path | None, verify: str = "auto") -> Iterator[int]:
    more = {} if cache is None else {"cache": "8GB", "cache_dir": str(cache)}
    with nbdata.mount(url, str(folder), verify=verify, **more):
        yield next(note.process for note in Note.all() if note.folder == str(folder) and note.lives)


@contextmanager
def _not_verified(url: str, folder: Path, cache: Path | None) -> Iterator[int]:
    with _nbdata(url, folder, cache, "none") as process:
        yield process


@contextmanager
def _rclone(url: str, folder: Path, cache: Path | None, jumps: bool = False) -> Iterator[int]:
    folder.mkdir()
    # Parallel chunks of a file, the largest read-ahead, and no HEAD for each file, as its manual says of S3.
    command = [
        str(BIN / "rclone"),
        "mount",
        ":s3:" + url.removeprefix("s3://"),
        str(folder),
        "--config=/dev/null",
    ]
    command += [
        "--read-only",
        "--use-server-modtime",
        "--no-checksum",
        "--attr-timeout=60s",
        "--dir-cache-time=1h",
    ]
    command += ["--poll-interval=0", "--max-read-ahead=1Mi", "--allow-non-empty"]
    if cache is None:
        command += ["--vfs-cache-mode=off"]
    else:
        command += ["--vfs-cache-mode=full", f"--cache-dir={cache}", "--vfs-cache-max-size=8Gi"]
    if jumps:  # parallel chunks would be fetched for each jump
        command += ["--vfs-read-chunk-size=128Ki", "--vfs-read-chunk-streams=0", "--buffer-size=0"]
    else:
        command += ["--vfs-read-chunk-size=4Mi", "--vfs-read-chunk-streams=16", "--buffer-size=16Mi"]
    endpoint = {
        "RCLONE_S3_PROVIDER": "SeaweedFS",
        "RCLONE_S3_ENV_AUTH": "true",
        "RCLONE_S3_ENDPOINT": os.environ["AWS_ENDPOINT_URL"],
        "RCLONE_S3_NO_CHECK_BUCKET": "true",
    }
    with _other(command, folder, endpoint) as process:
        yield process


@contextmanager
def _s3fs(url: str, folder: Path, cache: Path | None) -> Iterator[int]:
    folder.mkdir()
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    options = ["ro", f"url={os.environ['AWS_ENDPOINT_URL']}", "use_path_request_style", "parallel_count=20"]
    options += [
        "multipart_size=52",
        "multireq_max=100",
        "max_stat_cache_size=200000",
        "stat_cache_expire=900",
    ]
    options += ["enable_noobj_cache", "max_dirty_data=-1"]
    options += [] if cache is None else [f"use_cache={cache}"]
    command = ["s3fs", f"{bucket}:/{prefix}", str(folder), "-f", "-o", ",".join(options)]
    with _other(command, folder, {}) as process:
        yield process


@contextmanager
def _other(command: list[str], folder: Path, more: dict[str, str]) -> Iterator[int]:
    environment = {**os.environ, **more}
    environment.pop("AWS_CA_BUNDLE", None)  # rclone does not start with it
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(command, env=environment, stdout=told, stderr=told)
        try:
            end = time.monotonic() + 60
            while not os.path.ismount(folder):
                if process.poll() is not None or time.monotonic() > end:
                    told.seek(0)
                    raise RuntimeError(f"{command[0]} does not mount: {told.read()[-1000:]!r}")
                time.sleep(0.02)
            yield process.pid
        finally:
            subprocess.run(["umount", folder], check=False)
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
            folder.rmdir()


@contextmanager
def _rclone_for_jumps(url: str, folder: Path, cache: Path | None) -> Iterator[int]:
    with _rclone(url, folder, cache, jumps=True) as process:
        yield process


MOUNTS = {
    "nbdata": _nbdata,
    "nbdata, verify none": _not_verified,
    "rclone": _rclone,
    "rclone for jumps": _rclone_for_jumps,
    "s3fs": _s3fs,
}


# -- the work ----------------------------------------------------------------------------------------------------------


def _sequential(work: Work, folder: Path, _: Path) -> str:
    """Read files at the same time, 1 MiB at a time."""

    def read(name: str) -> str:
        digest = hashlib.blake2b(digest_size=8)
        buffer = bytearray(MIB)
        with open(folder / name, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                if work.count:  # the runs whose bytes are compared, not those that are measured
                    digest.update(memoryview(buffer)[:count])
        return digest.hexdigest()

    with ThreadPoolExecutor(work.threads) as pool:
        return " ".join(pool.map(read, sorted(n for n in os.listdir(folder) if n.startswith("large"))))


def _random(work: Work, folder: Path, _: Path) -> str:
    """Read pieces of 64 KiB at random places of one file."""
    size, digest = (folder / "large-0").stat().st_size, hashlib.blake2b(digest_size=8)
    chance = random.Random(5)
    places = [chance.randrange(0, size - 65_536) for _ in range(work.count)]
    handle = os.open(folder / "large-0", os.O_RDONLY)

    def read(at: int) -> bytes:
        data = b""
        while len(data) < 65_536 and (more := os.pread(handle, 65_536 - len(data), at + len(data))):
            data += more
        return data

    with ThreadPoolExecutor(work.threads) as pool:
        for data in pool.map(read, places):
            digest.update(data)
    os.close(handle)
    return digest.hexdigest()


def _copy(_: Work, folder: Path, target: Path) -> str:
    subprocess.run(["cp", "-r", folder, target], check=True)
    return ""


def _ls(_: Work, folder: Path, __: Path) -> str:
    told = subprocess.run(["ls", "-l", folder], check=True, stdout=subprocess.PIPE).stdout
    names = [line.split()[-1] for line in told.splitlines()[1:]]
    return f"{len(names)} {hashlib.md5(b' '.join(sorted(names))).hexdigest()}"


def _find(_: Work, folder: Path, __: Path) -> str:
    told = subprocess.run(
        ["find", folder, "-type", "f", "-size", "+0", "-name", "object*", "-printf", "%P %s\n"],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return f"{told.count(10)} {hashlib.md5(b' '.join(sorted(told.splitlines()))).hexdigest()}"


def _many(_: Work, folder: Path, __: Path) -> str:
    """Open many files, and read them forward, a little of each in turn."""
    handles = [
        os.open(folder / name, os.O_RDONLY) for name in sorted(os.listdir(folder)) if name.endswith("bin")
    ]
    digest = hashlib.blake2b(digest_size=8)
    for step in range(_MANY // _STEP):
        for handle in handles:
            digest.update(os.pread(handle, _STEP, step * _STEP))
    for handle in handles:
        os.close(handle)
    return f"{len(handles)} {digest.hexdigest()}"


WORK: dict[str, Callable[[Work, Path, Path], str]] = {
    "sequential": _sequential,
    "random": _random,
    "cp": _copy,
    "ls": _ls,
    "find": _find,
    "many": _many,
}


# -- the bench ---------------------------------------------------------------------------------------------------------


class Bench:
    """A server with the data, and the folder for mounts and copies."""

    def __init__(self, folder: Path, server: EmbeddedServer, options: argparse.Namespace) -> None:
        self.folder, self.server, self.options = folder, server, options
        self._numbers = iter(range(1 << 30))
        server.create_bucket(BUCKET)
        import boto3

        self.client = boto3.client("s3")

    def put(self, works: list[Work]) -> None:
        """Put the data of these works, which stays on the disk, too."""
        for name in {work.folder for work in works if not work.lists}:
            place = self.folder / "data" / name
            place.mkdir(parents=True)
            if name in _SMALL:
                for number in range(max(8, int(2000 * self.options.scale))):
                    (place / f"{number:05}.bin").write_bytes(random.randbytes(_SMALL[name]))
            elif name == "many":
                for number in range(max(8, int(500 * self.options.scale))):
                    (place / f"{number:05}.bin").write_bytes(random.randbytes(_MANY))
            else:
                files = 4 if name == "four" else 1
                for number in range(files):
                    with open(place / f"large-{number}", "wb") as file:
                        for _ in range(max(2, int(1024 * self.options.scale)) // files):
                            file.write(random.randbytes(MIB))
            with ThreadPoolExecutor(4) as pool:
                list(
                    pool.map(
                        lambda p: self.client.upload_file(str(p), BUCKET, f"{p.parent.name}/{p.name}"),
                        place.iterdir(),
                    )
                )

    def compare(self, work: Work) -> None:
        """Run each way in turn, and print a line for each."""
        with ExitStack() as stack:
            url, place, servers = self.server.url, f"s3://{BUCKET}/{work.folder}", [self.server.pid]
            if work.lists:
                lists = stack.enter_context(
                    ListServer(work.count, per_folder=1000 if work.work == "find" else 0)
                )
                url, place, servers = lists.url, lists.place, [lists.process.pid]
            if work.away:
                line = stack.enter_context(Line(url, _AWAY, 0))
                servers.append(line.process.pid)
                url = line.url
            kept = dict(os.environ)
            os.environ["AWS_ENDPOINT_URL"] = url
            caches: dict[str, Path | None] = dict.fromkeys(work.ways)
            for way in work.ways if work.cached else ():
                caches[way] = stack.enter_context(_temporary(self.folder)) / "cache"
                if way != "local disk":
                    caches[way].mkdir()  # type: ignore[union-attr]
                    self.run(way, work, place, servers, caches[way])  # fills it
            runs: dict[str, list[Run]] = {way: [] for way in work.ways}
            for _ in range(self.options.rounds):
                for way in work.ways:
                    runs[way].append(self.run(way, work, place, servers, caches[way]))
            os.environ.clear()
            os.environ.update(kept)
        found = {run.digest for each in runs.values() for run in each}
        assert len(found) == 1, f"the ways differ: {found}"
        for way in work.ways:
            _print(work.name, way, runs)

    def run(self, way: str, work: Work, url: str, servers: list[int], cache: Path | None) -> Run:
        """Mount, do the work, and unmount."""
        number = next(self._numbers)
        folder, target = self.folder / f"mount-{number}", self.folder / f"copy-{number}"
        with ExitStack() as stack:
            pid = 0
            if way == "local disk":
                folder = self.folder / "data" / work.folder
            else:
                pid = stack.enter_context(MOUNTS[way](url, folder, cache))
            os.sync()
            if work.cached:
                Path("/proc/sys/vm/drop_caches").write_text("1")  # from the disk, not from memory
            before = process_cpu(pid), sum(map(process_cpu, servers)), machine_cpu(), os.times()
            digest = WORK[work.work](work, folder, target)
            after = process_cpu(pid), sum(map(process_cpu, servers)), machine_cpu(), os.times()
            peak = _peak(pid) if pid else 0
        if work.work == "cp":
            self._same(target, self.folder / "data" / work.folder)
            subprocess.run(["rm", "-r", target], check=True)
        mount, server, machine = (after[i] - before[i] for i in range(3))  # type: ignore[operator]
        reader = sum(after[3][:4]) - sum(before[3][:4])
        lasted = after[3].elapsed - before[3].elapsed
        others = max(0.0, machine - mount - server - reader) / lasted
        return Run(lasted, mount, reader, server, peak, others, digest)

    def _same(self, copy: Path, source: Path) -> None:
        names = sorted(os.listdir(source))
        assert sorted(n for n in os.listdir(copy) if not n.startswith(".")) == names, "names differ"
        _, other, failed = filecmp.cmpfiles(copy, source, names, shallow=False)
        assert not other, f"these differ: {other[:5]}"
        assert not failed, f"these cannot be read: {failed[:5]}"


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        yield Path(name)


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _print(name: str, way: str, runs: dict[str, list[Run]]) -> None:
    ours = next(iter(runs.values()))
    middle = {
        what: statistics.median(getattr(run, what) for run in runs[way])
        for what in ("wall", "mount", "reader", "server", "memory", "others")
    }
    ratio = statistics.median(run.wall / our.wall for our, run in zip(ours, runs[way], strict=True))
    print(
        f"| {name} | {way} | {middle['wall']:.2f} s | {ratio:.2f} | {middle['mount']:.2f} s | {middle['reader']:.2f} s "
        f"| {middle['server']:.2f} s | {middle['memory'] / 1e6:,.0f} MB | {middle['others']:.2f} |",
        flush=True,
    )


def works(scale: float) -> list[Work]:
    """Return all rows."""

    def some(count: int) -> int:
        return max(8, int(count * scale))

    size = f"{max(2, int(1024 * scale)):,} MiB"
    jumps = ("nbdata", "rclone for jumps", "s3fs")
    both = ("nbdata", "nbdata, verify none", *WAYS[1:])
    rows = [
        Work(f"read of {size} in one file", "sequential", "one", ways=both),
        Work(f"read of {size} in four files at once", "sequential", "four", threads=4, ways=both),
    ]
    for away, where in ((False, ""), (True, ", 20 ms away")):
        rows += [
            Work(f"cp -r of {some(2000):,} × {small}{where}", "cp", small, away=away)
            for small in ("10 KB", "100 KB")
        ]
    return [
        *rows,
        Work(
            f"{some(1000):,} random 64 KiB of {size}, 1 thread", "random", "one", count=some(1000), ways=jumps
        ),
        Work(
            f"{some(1000):,} random 64 KiB of {size}, 16 threads",
            "random",
            "one",
            threads=16,
            count=some(1000),
            ways=jumps,
        ),
        Work(f"ls -l of {some(10_000):,} names", "ls", "", lists="flat", count=some(10_000)),
        Work(
            f"find over {some(100_000):,} files in folders of 1,000",
            "find",
            "",
            lists="deep",
            count=some(100_000),
        ),
        Work(
            f"second read of {size} through a cache on the disk",
            "sequential",
            "one",
            cached=True,
            ways=("nbdata", "local disk", *WAYS[1:]),
        ),
        Work(f"{some(500)} files of 2 MiB open at once, 256 KiB of each in turn", "many", "many"),
    ]


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the data; 1: a file of 1 GiB")
    parser.add_argument("--only", default="", help="only rows whose name has this in it")
    parser.add_argument("--ways", default="", help="only these ways, with commas between")
    options = parser.parse_args()
    chosen = [work for work in works(options.scale) if options.only in work.name]
    os.environ["GOMEMLIMIT"] = "2GiB"  # without it, SeaweedFS took up to 20 GB
    with tempfile.TemporaryDirectory(prefix="nbdata-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        for variable in ("RUNTIME", "STATE"):
            os.environ[f"NBDATA_{variable}_DIR"] = f"{folder}/{variable.lower()}"
        server = EmbeddedServer.start(folder / "server", kind="seaweedfs", private=False)
        stack.enter_context(server)
        os.environ.update(server.environment())
        bench = Bench(folder, server, options)
        bench.put(chosen)
        print(
            "| work | way | wall | its wall over nbdata's | CPU, mount | CPU, reader | CPU, server "
            "| memory of the mount | cores that others used |\n" + "|---" * 9 + "|",
            flush=True,
        )
        for work in chosen:
            if options.ways:
                work.ways = tuple(way for way in work.ways if way in options.ways.split(","))
            bench.compare(work)


if __name__ == "__main__":
    sys.exit(main())
