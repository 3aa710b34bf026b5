"""The verb serve_samples: decodes samples in a process of its own, and hands batches to several trainers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import Operation, function_of, slots
from nbdata.option import argument, option
from nbdata.protocols import Job
from nbdata.report import Plan

__all__ = ["ServeSamples", "serve_samples"]

_MOST_WORKERS = 256


@dataclass(frozen=True)
class ServeSamples(Operation):
    """Trainers get the batches by ``nbdata.loaders.service.Client``, with the path that is printed at the start.
    A Ctrl-C ends the service. SOURCE is what ``samples`` reads, with credentials from the environment. For
    other loaders and storage options there is ``nbdata.loaders.service.serve``.

    A batch counts as used when its consumer asks for the next one. Batches of a consumer that dies are dealt
    again. Only processes of this user are served on ipc; tcp is encrypted, and needs a copy of the printed file.
    """

    verb: ClassVar[str] = "serve_samples"
    summary: ClassVar[str] = "Read and decode samples once, and serve the batches to several trainers."
    examples: ClassVar[tuple[str, ...]] = (
        "serve_samples s3://bucket/images/ --batch 64 --shuffle --transform train:load --workers 4",
        "serve_samples s3://bucket/images/ --batch 64 --mode broadcast --consumers 2",
        "serve_samples 's3://bucket/train-{000000..000099}.tar' --batch 64 --listen tcp://127.0.0.1:5555",
    )

    source: str | tuple[str, ...] = argument(
        "URL or path of a folder, of tar shards or of FFRecord files, as for samples.",
        kind="places",
        metavar="SOURCE",
    )
    batch: int = option(1, "Number of samples in a batch.", kind="count", metavar="N", expected="at least 1")
    transform: str | None = option(
        None,
        "A function that makes an element of a batch from a sample. The module may lie in the working folder. Default: "
        "a batch is a list of samples.",
        metavar="MODULE:FUNCTION",
    )
    shuffle: bool = option(
        False, "Read the samples in a random order, another one in each epoch.", kind="flag"
    )
    seed: int = option(0, "Seed of the random order.", kind="count", metavar="N")
    workers: int = option(0, "Number of processes that read and decode.", kind="count", metavar="N")
    mode: str = option(
        "share",
        "share: each batch goes to one consumer; broadcast: each batch goes to all of them.",
        choices=("share", "broadcast"),
    )
    consumers: int = option(
        1, "How many consumers must ask for an epoch before it begins.", kind="count", metavar="N"
    )
    ahead: int = option(
        256 << 20,
        "Maximum bytes of batches that are ready or not acknowledged; at least one batch for each consumer.",
        kind="size",
        metavar="SIZE",
    )
    listen: str = option(
        "ipc",
        "Where to listen. ipc: for processes of this user on this machine; tcp://HOST:PORT: encrypted.",
        metavar="ipc|tcp://HOST:PORT",
    )
    name: str = option("samples", "Name of the service; each that runs has another one.", metavar="NAME")
    state: str | None = option(
        None,
        "File that records which batches were used: a service that starts with it goes on where it stopped.",
        kind="path",
        metavar="FILE",
    )

    def check(self) -> None:
        super().check()
        for name in ("batch", "consumers", "ahead"):
            if getattr(self, name) < 1:
                raise BadOption(f"--{name}: {getattr(self, name)} is too little", expected="at least 1")
        if self.workers > _MOST_WORKERS:
            raise BadOption(f"--workers: {self.workers} is out of range", expected=f"0 to {_MOST_WORKERS}")
        if self.transform is not None:
            module, colon, function = self.transform.partition(":")
            names = [*module.split("."), *function.split(".")]
            if not (colon and all(map(str.isidentifier, names))):
                raise BadOption(
                    f"--transform: {self.transform!r} names no function",
                    expected="MODULE:FUNCTION, such as train:load",
                )

    @property
    def sources(self) -> tuple[str, ...]:
        """All sources."""
        return (self.source,) if isinstance(self.source, str) else self.source

    def places(self) -> tuple[str, str]:
        return self.sources[0], ""

    def plan(self) -> Plan:
        raise BadOption("serve_samples has no plan: it moves nothing", remedy="Leave --dry-run out")

    def start(self) -> Job:
        raise BadOption(
            "serve_samples cannot run in the background: it serves until Ctrl-C",
            remedy="Leave --background out; nohup, or a separate terminal, keeps it running",
        )

    def run(self, *, quiet: bool = False) -> Any:
        """Serve until Ctrl-C."""
        return slots.service(self, quiet)


serve_samples = function_of(ServeSamples)
