"""Ranks that train with samples and end in many ways: ``python rank_ends.py URL FILES CACHE RANKS ENDS``.

They end ENDS times, in all ways in turn, or if it is empty once in each of a few ways. PyTorch is imported once; each
rank is a child of a fork, and ends as any program does. Prints a line for each rank that ended in another way than it
should, or that had something left: a thread, a socket, a word on standard error.
"""

from __future__ import annotations

import atexit
import itertools
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

_BEFORE: set[str] = set()


def _sockets() -> set[str]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:  # the folder that is being listed
            continue
    return {link for link in found if link.startswith("socket:")}


def _say_what_is_left() -> None:
    """Say on standard error what is left after all other callbacks; the threads of PyTorch's queues do not count."""
    threads = {thread.name for thread in threading.enumerate()} - {"MainThread", "QueueFeederThread"}
    group = {"WORLD_SIZE"} <= os.environ.keys()  # a process group has sockets of its own
    sockets = set() if group else _sockets() - _BEFORE
    if threads or sockets:
        print(f"left: {sorted(threads)} {sorted(sockets)}", file=sys.stderr, flush=True)


atexit.register(_say_what_is_left)  # before all imports that register something, so it comes last

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import nbdata  # noqa: E402
from nbdata.loaders import webdataset  # noqa: E402
from nbdata.loaders.pytorch import SampleLoader, SampleStream  # noqa: E402


class Way(NamedTuple):
    """How a rank trains and ends."""

    kind: str
    workers: int
    end: str


KINDS, ENDS = ("loader", "stream", "source", "cache", "files"), ("normally", "by sys.exit", "by an error")
WAYS = [Way(*way) for way in itertools.product(KINDS, (0, 2), ENDS)]
# Those that `make test` takes: what is left is left by the process that reads, which a worker ends in another way.
SHORT = [Way(kind, 0, end) for kind, end in zip(KINDS, itertools.cycle(ENDS[1:]))]
BATCH, STEPS = 3, 2

held: list[Any] = []  # as the globals of a notebook or a script


def one(_sample: Any) -> int:
    """Return the same for each sample."""
    return 1


def ones(samples: list[Any]) -> torch.Tensor:
    """Return a batch."""
    return torch.ones(len(samples))


class Meant(Exception):
    """Ends a rank."""


def _say_what_is_not_meant(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if kind is not Meant:
        sys.__excepthook__(kind, error, trace)


def loader_of(way: Way, url: str, files: str, cache: str) -> Any:
    """Return the loader of a way."""
    options = {"cache": "20MB", "cache_dir": cache} if way.kind == "cache" else {}
    samples = nbdata.samples(files if way.kind == "files" else url, quiet=True, **options)
    if way.kind == "stream":
        return DataLoader(SampleStream(samples, one, shuffle=True), BATCH, num_workers=way.workers)
    if way.kind == "source":
        source = webdataset.source(samples, shuffle=True)
        return DataLoader(source, BATCH, num_workers=way.workers, collate_fn=ones)
    return SampleLoader(samples, BATCH, shuffle=True, transform=one, num_workers=way.workers)


def train(way: Way, *places: str) -> None:
    """Train until the end of the epoch, or of a way that ends in its middle."""
    sys.excepthook = _say_what_is_not_meant
    loader = loader_of(way, *places)
    model: Any = torch.nn.Linear(1, 1)
    if dist.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    batches = iter(loader)
    held.extend((loader, batches))
    for step, _ in zip(itertools.count(1), batches, strict=False):
        model(torch.ones(1, 1)).sum().backward()
        if step == STEPS and way.end == "by sys.exit":
            sys.exit()
        if step == STEPS and way.end == "by an error":
            raise Meant
    if dist.is_initialized():
        dist.destroy_process_group()


def _forked(ranks: int, said: list[IO[bytes]]) -> Iterator[int]:
    """Fork the ranks; yield their process ids in the parent. Each child returns from here at once."""
    # The ranks find one another by a file: a port that is chosen here could be another's by then.
    meeting = f"{tempfile.gettempdir()}/ranks-{secrets.token_hex(8)}"
    for rank in range(ranks):
        said.append(tempfile.TemporaryFile())  # noqa: SIM115
        pid = os.fork()
        if pid:
            yield pid
            continue
        os.dup2(said[-1].fileno(), 2)
        os.environ["RANK"] = str(rank)
        if ranks > 1:
            os.environ["WORLD_SIZE"] = str(ranks)
            dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        yield 0
        return


def main(ranks: int, ways: list[Way]) -> Way | None:
    """End in each way; return the way of a child, or None in the parent once all have ended."""
    torch.set_num_threads(1)
    _BEFORE.update(_sockets())
    for way in ways:
        said: list[IO[bytes]] = []
        children = []
        for pid in _forked(ranks, said):
            if not pid:
                return way
            children.append(pid)
        for rank, (pid, words) in enumerate(zip(children, said, strict=True)):
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            words.seek(0)
            text = words.read().decode(errors="replace")
            words.close()
            if code != (way.end == "by an error") or text:
                print(f"{tuple(way)}: rank {rank} of {ranks} ended with {code}: {text}", flush=True)
    return None


if __name__ == "__main__":
    *_places, _ranks, _ends = sys.argv[1:]
    _ways = list(itertools.islice(itertools.cycle(WAYS), int(_ends))) if _ends else SHORT
    if (_way := main(int(_ranks), _ways)) is not None:
        train(_way, *_places)
