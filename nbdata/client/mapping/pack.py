"""``pack`` with ``map``: this process reads the samples, changes them with the caller's code, and writes them."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack

from nbdata.client.in_process import InProcessRun, Progress
from nbdata.client.mapping.commands import CommandChanger
from nbdata.client.mapping.functions import FunctionChanger
from nbdata.client.mapping.ordered import Changer, changed
from nbdata.client.mapping.source import MappedSource
from nbdata.client.opened import Opened
from nbdata.client.shard_writer import ShardWriter
from nbdata.errors import NotFound
from nbdata.redaction import redacted
from nbdata.report import Plan, Report, Row, Rows
from nbdata.sizes import counted, format_size
from nbdata.threads import processors
from nbdata.verbs.ends import ends_of
from nbdata.verbs.pack import Pack
from nbdata.verbs.shard_target import ShardTarget

__all__ = ["MappedPack"]

_REPLACING = "--overwrite always"


class MappedPack(InProcessRun):
    """A pack that this process carries out.

    Parameters
    ----------
    operation : Pack
    """

    again = f"run it again with {_REPLACING} to start over"

    def __init__(self, operation: Pack) -> None:
        self._operation = operation
        self._source_end, self._target_end = ends_of(
            operation.places(), operation.storage_options, operation.target_options, operation.fs
        )
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
        """Count the samples that would be changed; for shards without an index, only the shards."""
        out = Plan("pack", *self._places())
        with self._source(quiet=True) as source:
            source.refuse_own(Opened(self._target))
            with ShardWriter(self._target, {}, replacing=_REPLACING):
                pass  # existing shards are looked at, and nothing is written
            known = source.known
            if known is None:
                count, size = source.shards
                out.actions["read"] = [count, size]
                out.notes.append("how many samples there are shows while the shards are read")
            else:
                out.actions["map"] = [known[0], known[1]]
                out.details["samples"] = known[0]
                out.notes.append(
                    f"{counted(known[0], 'samples', 'are')} to be changed; what that makes of them is not known before"
                )
        return out

    def perform(self, progress: Progress) -> Report:
        """Read, change and write the samples."""
        with ExitStack() as stack:
            changer = self._changer(stack)  # first, because it may fork
            source = stack.enter_context(self._source(quiet=progress.quiet))
            source.refuse_own(Opened(self._target))
            writer = stack.enter_context(ShardWriter(self._target, {}, replacing=_REPLACING))
            results = stack.enter_context(contextlib.closing(changed(source, changer)))
            read = left_out = 0
            for made in results:
                read += 1
                left_out += not made
                for sample in made:
                    writer.write(sample)
                if progress.is_due:
                    progress.tell(
                        f"pack: {counted(writer.samples, 'samples')} so far, {format_size(writer.bytes)}"
                    )
            if not writer.samples:
                raise NotFound(
                    f"--map left all {counted(read, 'samples')} out: nothing is written",
                    path=self._places()[0],
                )
            writer.close()
            return self._report(source, writer, read, left_out)

    def _report(self, source: MappedSource, writer: ShardWriter, read: int, left_out: int) -> Report:
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
            ],
            details={"samples": writer.samples},
        )
        if left_out:
            report.notes.append(f"--map left out {left_out:,} of {counted(read, 'samples')}")
        rows = [Row(shard.name, "packed", shard.size, {"samples": shard.samples}) for shard in shards]
        report.rows = Rows(len(rows), lambda _: (rows, None))
        return report

    def _places(self) -> tuple[str, str]:
        source, target = self._operation.places()
        return redacted(source), redacted(target)

    def _source(self, *, quiet: bool) -> MappedSource:
        return MappedSource(self._operation, self._source_end, quiet=quiet)

    def _changer(self, stack: ExitStack) -> Changer:
        """Return the workers that change samples; they end with the stack."""
        operation = self._operation
        workers = operation.map_workers or processors()
        if callable(operation.map):
            functions = FunctionChanger(operation.map, workers, operation.seed)
            stack.callback(functions.stop)
            return functions
        return stack.enter_context(CommandChanger(operation.map_words, workers))
