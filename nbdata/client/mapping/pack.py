"""A pack with what only this process has: the caller's code, which changes samples, or standard input or output."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextlib import ExitStack

from nbdata.client.in_process import InProcessRun, Progress
from nbdata.client.mapping.commands import CommandChanger, ManyChanger, folders_of
from nbdata.client.mapping.functions import FunctionChanger
from nbdata.client.mapping.ordered import Sample, changed
from nbdata.client.mapping.source import ChosenSource, MappedSource
from nbdata.client.mapping.streams import StandardInput, StandardOutput
from nbdata.client.opened import Opened
from nbdata.client.shard_writer import ShardWriter
from nbdata.errors import BadOption, NotFound
from nbdata.redaction import redacted
from nbdata.report import Plan, Report, Row, Rows
from nbdata.sizes import counted, format_size
from nbdata.threads import processors
from nbdata.verbs.changing import MAP_SAMPLES
from nbdata.verbs.ends import ends_of
from nbdata.verbs.pack import STDIN, STDOUT, Pack
from nbdata.verbs.shard_target import ShardTarget

__all__ = ["MappedPack"]

_REPLACING = "--overwrite always"


class MappedPack(InProcessRun):
    """A pack that this process carries out.

    Parameters
    ----------
    operation : Pack
    """

    def __init__(self, operation: Pack) -> None:
        self._operation = operation
        self._source_end, self._target_end = ends_of(
            operation.places(), operation.storage_options, operation.target_options, operation.fs
        )
        self.again = f"run it again with {_REPLACING} to start over"
        if operation.target == STDOUT:
            self.again = "a stream does not resume: run it again from its beginning"
            return
        self._target = ShardTarget(
            target=operation.target,
            shard_size=operation.most_bytes,
            shard_samples=operation.shard_samples,
            overwrite=operation.overwrite == "always",
            verify=operation.verify,
            storage_options=self._target_end.options or None,
            fs=operation.fs if self._target_end.takes_fs else None,
            concurrency=operation.concurrency,
        )

    def plan(self) -> Plan:
        """Count the samples that would be packed; for shards without an index, only the shards."""
        operation, out = self._operation, Plan("pack", *self._places())
        if operation.source == STDIN:
            raise BadOption("standard input cannot be read twice, so there is no plan", remedy="Leave -n out")
        with MappedSource(operation, self._source_end, quiet=True) as source:
            if operation.target != STDOUT:
                source.refuse_own(Opened(self._target))
                with ShardWriter(self._target, {}, replacing=_REPLACING):
                    pass  # existing shards are looked at, and nothing is written
            known = source.known
            if known is None:
                count, size = source.shards
                out.actions["read"] = [count, size]
                out.notes.append("how many samples there are shows while the shards are read")
            else:
                out.details["samples"] = known[0]
                if operation.map is None and operation.map_many is None:
                    out.actions["pack"] = [known[0], known[1]]
                    return out
                out.actions["map"] = [known[0], known[1]]
                out.notes.append(
                    f"{counted(known[0], 'samples', 'are')} to be changed; what that makes of them is not known before"
                )
        return out

    def perform(self, progress: Progress) -> Report:
        """Read, change and write the samples."""
        with ExitStack() as stack:
            made = self._made(stack)  # first, because it may fork
            source = stack.enter_context(self._source(quiet=progress.quiet))
            writer = self._writer(source)
            stack.enter_context(writer)
            left_out = 0
            for samples in stack.enter_context(contextlib.closing(made(source))):
                left_out += not samples
                for sample in samples:
                    writer.write(sample)
                if progress.is_due:
                    progress.tell(
                        f"pack: {counted(writer.samples, 'samples')} so far, {format_size(writer.bytes)}"
                    )
            if not writer.samples:
                raise NotFound(
                    f"--map left all {counted(source.given, 'samples')} out: nothing is written",
                    path=self._places()[0],
                )
            writer.close()
            return self._report(source, writer, left_out)

    def _report(self, source: ChosenSource, writer: ShardWriter | StandardOutput, left_out: int) -> Report:
        shards = writer.shards
        report = Report(
            "pack",
            *self._places(),
            counts={"packed": len(shards)},
            files=len(shards),
            bytes=sum(shard.size for shard in shards),
            notes=[
                f"{counted(writer.samples, 'samples')} in {counted(len(shards), 'shards')}",
                *source.notes(),
                *(writer.notes() if isinstance(writer, StandardOutput) else ()),
            ],
            details={"samples": writer.samples},
        )
        if self._operation.map_many is not None:
            report.notes.append(f"--map-many got {counted(source.given, 'samples')}")
        elif left_out:
            report.notes.append(f"--map left out {left_out:,} of {counted(source.given, 'samples')}")
        rows = [Row(shard.name, "packed", shard.size, {"samples": shard.samples}) for shard in shards]
        report.rows = Rows(len(rows), lambda _: (rows, None))
        return report

    def _places(self) -> tuple[str, str]:
        source, target = self._operation.places()
        return redacted(source), redacted(target)

    def _source(self, *, quiet: bool) -> ChosenSource:
        if self._operation.source == STDIN:
            return StandardInput(self._operation)
        return MappedSource(self._operation, self._source_end, quiet=quiet)

    def _writer(self, source: ChosenSource) -> ShardWriter | StandardOutput:
        if self._operation.target == STDOUT:
            return StandardOutput()
        if isinstance(source, MappedSource):
            source.refuse_own(Opened(self._target))
        return ShardWriter(self._target, {}, replacing=_REPLACING)

    def _made(self, stack: ExitStack) -> Callable[[ChosenSource], Generator[list[Sample], None, None]]:
        """Return a function that yields what becomes of the samples; its workers end with the stack."""
        operation = self._operation
        workers = operation.map_workers or processors()
        if operation.map_many is not None:
            many = stack.enter_context(ManyChanger(operation.map_words, workers))
            most = operation.map_samples or MAP_SAMPLES
            return lambda source: changed(folders_of(source, most), many)
        if operation.map is None:
            return lambda source: ([sample] for sample in source)
        if callable(operation.map):
            functions = FunctionChanger(operation.map, workers, operation.seed)
            stack.callback(functions.stop)
            return lambda source: changed(source, functions)
        commands = stack.enter_context(CommandChanger(operation.map_words, workers))
        return lambda source: changed(source, commands)
