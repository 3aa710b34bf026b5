"""One piece of work with one file system, in its own process; ``make bench-files`` runs it.

``python benchmarks/file_ways.py WAY WORK`` prints the cost as JSON. Wall and CPU seconds exclude imports, and include
the first connections. With ``--compare`` the digest counts, not the cost, because hashing takes time. Each library has
options that suit the work.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

KIB, MIB = 1 << 10, 1 << 20
# Names in the bucket of the benchmark, and the shape of the zarr array: 2,000 chunks of 102,400 bytes.
SMALL, BIG, PARQUET, CSV, ZARR = "small", "big.bin", "table.parquet", "table.csv", "array.zarr"
ROWS, COLUMNS, CHUNK = 50, 40, 160
# Bytes of the ranges and of the random reads.
RANGE = 64 * KIB
# Requests at a time, where a library lets its user choose.
_WIDTH = 64


class Way:
    """How one library does the work; fsspec's calls, where a subclass does not say otherwise.

    Parameters
    ----------
    bucket : str
        Where the data is.
    """

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.fs = self.file_system()

    def file_system(self, **options: Any) -> Any:
        """Return the library's file system."""
        raise NotImplementedError

    def find(self, folder: str) -> Iterable[str]:
        """Return the names of all objects below a folder."""
        return self.fs.find(folder)  # type: ignore[no-any-return]

    def cat(self, paths: list[str]) -> Iterable[Any]:
        """Return whole objects."""
        found = self.fs.cat(paths)
        return [found[path] for path in paths]

    def ranges(self, path: str, starts: list[int]) -> Iterable[Any]:
        """Return ranges of an object."""
        ends = [start + RANGE for start in starts]
        return self.fs.cat_ranges([path] * len(starts), starts, ends, on_error="raise")  # type: ignore[no-any-return]

    def open(self, path: str) -> Any:
        """Open a file to read it from its first byte to its last."""
        return self.fs.open(path, "rb")

    def open_at_random(self, path: str) -> Any:
        """Open a file to read it here and there."""
        return self.fs.open(path, "rb")

    def create(self, path: str) -> Any:
        """Open a file to write it."""
        return self.fs.open(path, "wb")

    def for_tables(self) -> Any:
        """Return the file system that pandas reads Parquet files through."""
        return self.fs

    def for_zarr(self) -> Any:
        """Return a file system whose methods are asynchronous."""
        return self.file_system(asynchronous=True)

    def sequential(self, path: str) -> Iterator[Any]:
        """Yield an object, one MiB at a time."""
        with self.open(path) as file:
            while data := file.read(MIB):
                yield data


class Nbdata(Way):
    """nbdata, as it is by default."""

    options: dict[str, Any] = {}  # noqa: RUF012

    def file_system(self, **_options: Any) -> Any:
        import nbdata

        return nbdata.filesystem("s3://", **self.options)

    def for_zarr(self) -> Any:
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

        return AsyncFileSystemWrapper(self.fs, asynchronous=True)


class NotVerified(Nbdata):
    """nbdata, as unsafe as its peers."""

    options = {"verify": "none"}  # noqa: RUF012


class Samples(Nbdata):
    """`nbdata.samples`, which fetches an object as a whole."""

    def sequential(self, path: str) -> Iterator[Any]:
        import nbdata

        with nbdata.samples(f"s3://{path}", **self.options) as samples:
            (found,) = samples.fetch([0])
            yield from (data for data in found.values() if not isinstance(data, str))


class S3fs(Way):
    """s3fs, with as many connections as it has requests."""

    def file_system(self, **options: Any) -> Any:
        import s3fs

        return s3fs.S3FileSystem(
            endpoint_url=os.environ["AWS_ENDPOINT_URL"],
            config_kwargs={"max_pool_connections": _WIDTH},
            use_listings_cache=False,
            **options,
        )

    def open_at_random(self, path: str) -> Any:
        return self.fs.open(path, "rb", cache_type="none")


class Obstore(Way):
    """obstore's store for fsspec."""

    def file_system(self, **options: Any) -> Any:
        from obstore.fsspec import FsspecStore

        config = {
            "endpoint": os.environ["AWS_ENDPOINT_URL"],
            "region": "us-east-1",
            "virtual_hosted_style_request": False,
        }
        return FsspecStore("s3", config=config, client_options={"allow_http": True}, **options)  # type: ignore[call-overload]

    def open(self, path: str) -> Any:
        return self.fs.open(path, "rb", buffer_size=8 * MIB)

    def open_at_random(self, path: str) -> Any:
        return self.fs.open(path, "rb", buffer_size=RANGE)


class Arrow(Way):
    """pyarrow's file system: through fsspec's wrapper, or as it is where that is faster or usual."""

    def file_system(self, **_options: Any) -> Any:
        from fsspec.implementations.arrow import ArrowFSWrapper
        from pyarrow.fs import S3FileSystem

        scheme, _, place = os.environ["AWS_ENDPOINT_URL"].partition("://")
        self.native = S3FileSystem(
            access_key=os.environ["AWS_ACCESS_KEY_ID"],
            secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=place,
            scheme=scheme,
            region="us-east-1",
        )
        return ArrowFSWrapper(self.native)

    def cat(self, paths: list[str]) -> Iterable[Any]:
        def read(path: str) -> Any:
            with self.native.open_input_stream(path, compression=None) as file:
                return file.read()

        with ThreadPoolExecutor(_WIDTH) as pool:
            return list(pool.map(read, paths))

    def ranges(self, path: str, starts: list[int]) -> Iterable[Any]:
        with self.native.open_input_file(path) as file, ThreadPoolExecutor(_WIDTH) as pool:
            return list(pool.map(lambda start: file.read_at(RANGE, start), starts))

    def open(self, path: str) -> Any:
        return self.native.open_input_stream(path, compression=None, buffer_size=8 * MIB)

    def for_tables(self) -> Any:
        return self.native


WAYS: dict[str, Callable[[str], Way]] = {
    "nbdata": Nbdata,
    "nbdata-not-verified": NotVerified,
    "samples": Samples,
    "s3fs": S3fs,
    "obstore": Obstore,
    "pyarrow": Arrow,
}


def _places(count: int, size: int) -> list[int]:
    return [random.Random(number).randrange(size - RANGE) for number in range(count)]


def find(way: Way, _options: argparse.Namespace) -> Iterator[Any]:
    """List all objects."""
    for name in sorted(way.find(f"{way.bucket}/many")):
        yield f"{name}\n".encode()


def cat(way: Way, options: argparse.Namespace) -> Iterator[Any]:
    """Read many small objects."""
    yield from way.cat([f"{way.bucket}/{SMALL}/{number:05}" for number in range(options.count)])


def ranges(way: Way, options: argparse.Namespace) -> Iterator[Any]:
    """Read ranges of one object."""
    yield from way.ranges(f"{way.bucket}/{BIG}", _places(options.count, options.size))


def parquet(way: Way, _options: argparse.Namespace) -> Iterator[Any]:
    """Read two of eight columns of a Parquet file."""
    import pandas as pd

    columns = ["b", "f"]
    table = pd.read_parquet(f"{way.bucket}/{PARQUET}", columns=columns, filesystem=way.for_tables())
    for name in columns:
        yield table[name].to_numpy().tobytes()


def csv(way: Way, _options: argparse.Namespace) -> Iterator[Any]:
    """Read a CSV file."""
    import pandas as pd

    with way.open(f"{way.bucket}/{CSV}") as file:
        table = pd.read_csv(file)
    for name in table:
        yield table[name].to_numpy().tobytes()


def array(way: Way, _options: argparse.Namespace) -> Iterator[Any]:
    """Read a zarr array."""
    import zarr
    from zarr.storage import FsspecStore

    zarr.config.set({"async.concurrency": _WIDTH, "threading.max_workers": _WIDTH})
    store = FsspecStore(way.for_zarr(), read_only=True, path=f"{way.bucket}/{ZARR}")
    yield zarr.open_array(store, mode="r")[:].tobytes()  # type: ignore[union-attr, call-overload]


def sequential(way: Way, _options: argparse.Namespace) -> Iterator[Any]:
    """Read one large object, one MiB at a time."""
    yield from way.sequential(f"{way.bucket}/{BIG}")


def at_random(way: Way, options: argparse.Namespace) -> Iterator[Any]:
    """Read 64 KiB here and there, with a file for each thread."""

    def some(starts: list[int]) -> list[bytes]:
        found = []
        with way.open_at_random(f"{way.bucket}/{BIG}") as file:
            for start in starts:
                file.seek(start)
                found.append(file.read(RANGE))
        return found

    starts = _places(options.count, options.size)
    parts = [starts[number :: options.threads] for number in range(options.threads)]
    with ThreadPoolExecutor(options.threads) as pool:
        for found in pool.map(some, parts):
            yield from found


def write(way: Way, options: argparse.Namespace) -> Iterator[Any]:
    """Write one large object, one MiB at a time."""
    block = random.Random(1).randbytes(MIB)
    with way.create(f"{way.bucket}/written") as file:
        for number in range(options.size // MIB):
            data = number.to_bytes(8, "big") + block[8:]
            file.write(data)
            yield data


WORKS = {
    "find": find,
    "cat": cat,
    "ranges": ranges,
    "parquet": parquet,
    "csv": csv,
    "zarr": array,
    "sequential": sequential,
    "random": at_random,
    "write": write,
}


def _imports(work: str) -> None:
    """Import what the work needs, which is not what is compared."""
    if work in ("parquet", "csv"):
        import pandas as pd  # noqa: F401
        import pyarrow.dataset
        import pyarrow.parquet  # noqa: F401
    if work == "zarr":
        import zarr  # noqa: F401


def main() -> None:
    """Do the work once and print its cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("work", choices=WORKS)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--count", type=int, default=0, help="objects or ranges")
    parser.add_argument("--size", type=int, default=0, help="bytes of the large object")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args()
    _imports(options.work)
    way = WAYS[options.way](options.bucket)
    digest, size = hashlib.md5(), 0
    before, began = os.times(), time.perf_counter()
    for data in WORKS[options.work](way, options):
        size += len(data)
        if options.compare:
            digest.update(data)
    wall, used = time.perf_counter() - began, os.times()
    peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    cost = {"wall": wall, "cpu": sum(used[:4]) - sum(before[:4]), "memory": int(peak) * KIB}
    print(json.dumps({**cost, "size": size, "digest": digest.hexdigest()}), flush=True)


if __name__ == "__main__":
    main()
