"""One consumer of a bounded cache; prints its results as one line of JSON.

`benchmarks/cache_stream.py` runs it as a separate process. The consumer ``ours`` loops over `nbdata.cache_stream`. The
consumer ``homemade`` is the pipeline that people write themselves. Its producer thread copies one item after the other
with s3fs into a cache folder, adds a copy to the count when it is complete, and sleeps while the cache is full. Its
consumer uses one item and deletes it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import resource
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# Seconds for which the home-made producer sleeps while its cache is full.
FULL = 0.05


def ours(options: argparse.Namespace) -> Iterator[list[Path]]:
    """Yield the files of each item, through nbdata."""
    import nbdata

    for item in nbdata.cache_stream(
        options.url,
        cache_dir=options.cache,
        max_size=options.limit,
        by=options.by,
        verify=options.verify,
        quiet=True,
    ):
        yield [Path(path) for path in item.files]


class HomeMade:
    """The home-made pipeline: a producer thread, a queue, and a count of the bytes in the cache."""

    def __init__(self, options: argparse.Namespace) -> None:
        import s3fs

        self.options = options
        self.fs = s3fs.S3FileSystem()
        self.source = options.url.removeprefix("s3://").rstrip("/")
        self.used, self.lock = 0, threading.Lock()
        self.ready: queue.Queue[tuple[list[Path], int] | None] = queue.Queue()
        threading.Thread(target=self.produce, daemon=True).start()

    def produce(self) -> None:
        """Copy the items one after the other."""
        for name, keys in self.names():
            while self.used >= self.options.limit:
                time.sleep(FULL)
            local = Path(self.options.cache, name)
            local.mkdir()
            if keys is None:
                self.fs.get(f"{self.source}/{name}/", f"{local}/", recursive=True)
            else:
                self.fs.get(keys, [str(local / key.rpartition("/")[2]) for key in keys])
            files = sorted(path for path in local.rglob("*") if path.is_file())
            size = sum(path.stat().st_size for path in files)
            with self.lock:
                self.used += size
            self.ready.put((files, size))
        self.ready.put(None)

    def names(self) -> Iterator[tuple[str, list[str] | None]]:
        """Yield folders, or samples with their keys."""
        found = sorted(self.fs.ls(self.source, detail=False))
        if self.options.by == "folder":
            yield from ((key.rstrip("/").rpartition("/")[2], None) for key in found)
            return
        samples: dict[str, list[str]] = {}
        for key in found:
            samples.setdefault(key.rpartition("/")[2].partition(".")[0], []).append(key)
        yield from samples.items()

    def items(self) -> Iterator[list[Path]]:
        """Yield the files of each item, and delete them when the next item is requested."""
        while (got := self.ready.get()) is not None:
            files, size = got
            yield files
            shutil.rmtree(files[0].parent)
            with self.lock:
                self.used -= size


def homemade(options: argparse.Namespace) -> Iterator[list[Path]]:
    """Yield the files of each item, through the home-made pipeline."""
    yield from HomeMade(options).items()


def sleep(seconds: float) -> None:
    """Simulate work that leaves the interpreter free, as a GPU does."""
    time.sleep(seconds)


def compute(seconds: float) -> None:
    """Work in plain Python for this many seconds of the thread's CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def cpu() -> float:
    """CPU seconds of this process and its ended children."""
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in both)


def main() -> None:
    """Consume all items and print the results."""
    sides: dict[str, Callable[[argparse.Namespace], Iterator[list[Path]]]] = {
        "ours": ours,
        "homemade": homemade,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=sides)
    parser.add_argument("--url", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--limit", type=int, required=True)
    parser.add_argument("--by", choices=("folder", "sample"), required=True)
    parser.add_argument("--work", choices=("sleep", "compute"), required=True)
    parser.add_argument("--each", type=float, required=True)
    parser.add_argument("--verify", default="auto")
    parser.add_argument("--digest", action="store_true", help="hash what is seen instead of working")
    options = parser.parse_args()
    if options.side == "ours":  # import time is not measured
        import nbdata  # noqa: F401
    else:
        import s3fs  # noqa: F401
    work = {"sleep": sleep, "compute": compute}[options.work]
    seen: list[str] = []
    waited, count, before, began = 0.0, 0, cpu(), time.monotonic()
    items = sides[options.side](options)
    while True:
        asked = time.monotonic()
        files = next(items, None)
        waited += time.monotonic() - asked
        if files is None:
            break
        count += 1
        if options.digest:
            seen += [f"{path.name} {hashlib.md5(path.read_bytes()).hexdigest()}" for path in files]
        else:
            work(options.each)
    wall = time.monotonic() - began
    digest = hashlib.sha256("\n".join(sorted(seen)).encode()).hexdigest()
    told = {"items": count, "wall": wall, "waited": waited, "cpu": cpu() - before, "digest": digest}
    print(json.dumps(told), flush=True)
    os._exit(0)  # a normal exit would wait for s3fs's own thread


if __name__ == "__main__":
    main()
