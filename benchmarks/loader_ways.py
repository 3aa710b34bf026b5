"""One way to feed training from a store, in its own process; ``make bench-loaders`` runs it.

``python benchmarks/loader_ways.py WAY --url s3://bucket/prefix/ …`` reads the samples ``NUMBER.jpg`` + ``NUMBER.cls``
once in shuffled order, and prints the cost as JSON. Each way is a map-style data set in PyTorch's own DataLoader. Peers
are used as their documentation shows, with the number of parallel requests at which they perform best here.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from measure import process_cpu
from torch.utils.data import BatchSampler, DataLoader, Dataset

FIELDS = ("jpg", "cls")
SEED = 5
# Number of objects that the home-made sampler fetches with one call of s5cmd.
A_CALL = 500


class _Fetched(Dataset[Any]):
    """A data set that fetches the samples of a whole batch at once, if the library can."""

    def __init__(self, url: str, names: list[str]) -> None:
        self.bucket, _, self.prefix = url.removeprefix("s3://").partition("/")
        self.names = names
        self._pid = 0

    def __len__(self) -> int:
        return len(self.names)

    def open(self) -> None:
        """Create a client; each process has its own."""

    def fetch(self, keys: list[str]) -> list[bytes]:
        """Return the objects with these keys."""
        raise NotImplementedError

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[str, bytes, bytes]]:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self.open()
        names = [self.names[index] for index in indices]
        found = iter(self.fetch([f"{self.prefix}{name}.{field}" for name in names for field in FIELDS]))
        return [(name, next(found), next(found)) for name in names]


class _Boto3(_Fetched):
    """Fetches one object after the other."""

    def open(self) -> None:
        import boto3

        self.client = boto3.client("s3")

    def fetch(self, keys: list[str]) -> list[bytes]:
        return [self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys]


class _Obstore(_Fetched):
    """Fetches a batch with one ``asyncio.gather``."""

    def open(self) -> None:
        from obstore.store import S3Store

        self.store = S3Store(
            self.bucket,
            endpoint=os.environ["AWS_ENDPOINT_URL"],
            region="us-east-1",
            client_options={"allow_http": True},
        )
        self.loop = asyncio.new_event_loop()

    def fetch(self, keys: list[str]) -> list[bytes]:
        import obstore

        async def one(key: str) -> bytes:
            return bytes(await (await obstore.get_async(self.store, key)).bytes_async())

        async def every() -> list[bytes]:
            return await asyncio.gather(*map(one, keys))

        return self.loop.run_until_complete(every())


class _S3Torch(_Fetched):
    """Fetches with 16 threads, because the readers of Amazon's connector block."""

    def open(self) -> None:
        from s3torchconnector._s3client import S3Client, S3ClientConfig

        config = S3ClientConfig(force_path_style=True)
        self.client = S3Client("us-east-1", endpoint=os.environ["AWS_ENDPOINT_URL"], s3client_config=config)
        self.pool = ThreadPoolExecutor(16)

    def fetch(self, keys: list[str]) -> list[bytes]:
        return list(self.pool.map(lambda key: self.client.get_object(self.bucket, key).read(), keys))


def _litdata(url: str, names: list[str]) -> Dataset[Any]:
    from litdata import StreamingRawDataset
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # no option allows a server without TLS

    class Grouped(StreamingRawDataset):  # type: ignore[misc]
        def setup(self, files: list[Any]) -> list[list[Any]]:
            of = {file.path.rpartition("/")[2]: file for file in files}
            return [[of[f"{name}.{field}"] for field in FIELDS] for name in names]

        def __getitems__(self, indices: list[int]) -> list[tuple[str, bytes, bytes]]:
            found = super().__getitems__(indices)
            return [(names[index], *map(bytes, one)) for index, one in zip(indices, found, strict=True)]

    # Its look-ahead is made for sequential reads, and costs time in shuffled order.
    return Grouped(url, cache_dir=tempfile.mkdtemp(), max_prefetch=0)


class _Sampler:
    """The home-made sampler: it fetches the objects of the next samples with one call of s5cmd, then yields them."""

    def __init__(self, url: str, names: list[str], order: list[int], folder: str) -> None:
        self.url, self.names, self.order, self.folder = url, names, order, folder

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        for begin in range(0, len(self.order), A_CALL // 2):
            chunk = self.order[begin : begin + A_CALL // 2]
            wanted = [f"{self.names[index]}.{field}" for index in chunk for field in FIELDS]
            lines = "".join(f"cp {self.url}{name} {self.folder}/{name}\n" for name in wanted)
            s5cmd = str(Path(sys.executable).with_name("s5cmd"))
            subprocess.run([s5cmd, "run"], input=lines, text=True, check=True, stdout=subprocess.DEVNULL)
            yield from chunk


class _Staged(Dataset[Any]):
    """The files that the sampler has fetched; each file is deleted when it is read."""

    def __init__(self, names: list[str], folder: str) -> None:
        self.names, self.folder = names, folder

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[str, bytes, bytes]:
        name = self.names[index]
        places = [Path(self.folder, f"{name}.{field}") for field in FIELDS]
        found = [place.read_bytes() for place in places]
        for place in places:
            place.unlink()
        return (name, found[0], found[1])


class _Mounted(Dataset[Any]):
    """Files of a mount, which is a process of its own."""

    def __init__(self, url: str, names: list[str]) -> None:
        import nbdata
        from nbdata.space.mounts import Note

        self.names, self.folder = names, tempfile.mkdtemp()
        self._mount = nbdata.mount(url, self.folder)
        self.process = Note.all()[-1].process
        os.listdir(self.folder)  # as the other ways know their objects

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[str, bytes, bytes]:
        name = self.names[index]
        found = [Path(self.folder, f"{name}.{field}").read_bytes() for field in FIELDS]
        return (name, found[0], found[1])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mount": None}


def _nbdata(options: argparse.Namespace, **more: Any) -> Any:
    import nbdata
    from nbdata.loaders.pytorch import SampleDataset

    ahead = more.pop("ahead", options.ahead)
    samples = nbdata.samples(options.url, refresh="never", **more)
    data = SampleDataset(samples, lambda sample: (sample["__key__"], sample["jpg"], sample["cls"]))
    batches = samples.batch_sampler(options.batch, shuffle=True, seed=SEED, ahead=ahead or 0)
    return DataLoader(data, batch_sampler=batches, num_workers=options.workers, collate_fn=list)


def count_requests(options: argparse.Namespace) -> None:
    """Read all windows of 8 samples in the order of their keys, and print the number of requests."""
    import nbdata
    from nbdata.reading import fetcher

    asked, read = 0, fetcher.Read

    def counted(*args: Any) -> Any:
        nonlocal asked
        asked += 1
        return read(*args)

    fetcher.Read = counted  # type: ignore[assignment,misc]
    windows = nbdata.samples(options.url, verify="none").windows(8)
    got = sum(1 for _ in windows.stream())
    print(json.dumps({"windows": got, "requests": asked}))


def loader_of(options: argparse.Namespace, names: list[str]) -> Any:
    """Return an iterable of the batches of a way."""
    order = random.Random(SEED).sample(range(len(names)), len(names))
    if options.way == "s5cmd-sampler":
        folder = tempfile.mkdtemp(dir="/dev/shm")
        sampler = _Sampler(options.url, names, order, folder)
        return DataLoader(
            _Staged(names, folder),
            options.batch,
            sampler=sampler,
            num_workers=options.workers,
            collate_fn=list,
        )
    if options.way.startswith("nbdata"):
        more: dict[str, Any] = {} if options.way == "nbdata-verified" else {"verify": "none"}
        if options.way == "nbdata-no-ahead":
            more["ahead"] = 0
        return _nbdata(options, **more)
    kinds: dict[str, Callable[[str, list[str]], Dataset[Any]]] = {
        "boto3": _Boto3,
        "obstore": _Obstore,
        "s3torchconnector": _S3Torch,
        "litdata": _litdata,
        "mount": _Mounted,
    }
    data = kinds[options.way](options.url, names)
    batches = BatchSampler(order, options.batch, drop_last=False)
    return DataLoader(data, batch_sampler=batches, num_workers=options.workers, collate_fn=list)


def compute(seconds: float) -> None:
    """Simulate a training step in plain Python, which holds the interpreter."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(1000))


def main() -> None:
    """Run one way and print its cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way")
    parser.add_argument("--url", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--ahead", type=int, default=8)
    parser.add_argument("--step", type=float, default=0.0, help="seconds of plain Python in each step")
    parser.add_argument("--take", type=int, default=0, help="end after so many samples; 0: all")
    options = parser.parse_args()
    if options.way == "windows":
        count_requests(options)
        return
    names = [f"{number:05}" for number in range(options.count)]
    if options.way.startswith("nbdata"):
        import nbdata

        nbdata.samples(options.url).close()  # builds the index, which the other tools do not need
    loader = loader_of(options, names)
    seen, steps = [], []
    mount = getattr(loader.dataset, "process", 0)
    mounted = process_cpu(mount)
    before, began = os.times(), time.perf_counter()
    last = began
    for batch in loader:
        if options.step:
            compute(options.step)
        seen += batch
        now = time.perf_counter()
        steps.append(now - last)
        last = now
        if options.take and len(seen) >= options.take:
            break
    wall = last - began
    mounted = process_cpu(mount) - mounted
    del loader  # ends the workers, so that their CPU time counts
    used = os.times()
    cpu = sum(used[:4]) - sum(before[:4]) + mounted
    digest = hashlib.sha256()
    for name, *fields in sorted(seen):
        digest.update(name.encode())
        for field in fields:
            digest.update(hashlib.md5(field).digest())
    print(
        json.dumps(
            {
                "samples": len(seen),
                "wall": wall,
                "cpu": cpu,
                "step": statistics.mean(steps),
                "deviation": statistics.pstdev(steps),
                "digest": digest.hexdigest(),
            }
        )
    )
    for left in Path("/dev/shm").glob("tmp*"):
        shutil.rmtree(left, ignore_errors=True)


if __name__ == "__main__":
    main()
