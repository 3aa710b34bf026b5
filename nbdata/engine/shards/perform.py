"""Plan and perform the verb shards."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import replace
from typing import Any

from nbdata.archives.decompress import open_decompressed
from nbdata.archives.forward_reader import ForwardReader
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.shards.promised import PromisedBody
from nbdata.errors import BadOption
from nbdata.formats.shards import APART, LeftOut, sums_in
from nbdata.reading.fetcher import WIDTH
from nbdata.reading.shards.content import Bodies
from nbdata.reading.shards.indexing import index_of, index_path
from nbdata.reading.shards.listing import are_shards, shards_of
from nbdata.reading.source_file import SourceFile, fingerprint_of
from nbdata.redaction import redacted
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted, format_size
from nbdata.verbs.samples import SampleSource
from nbdata.verbs.shards import Shards

__all__ = ["perform", "plan"]

# Bytes of shards to read ahead.
_AHEAD = 64 << 20
# Number of fields, and of members in no sample, that a report names.
_NAMED = 10
# Most bytes of names of fields that are counted one by one, each with its counts; and the name for all others.
_NAMES, _EACH_NAME, _OTHERS = 32 << 20, 256, "(other names)"


def plan(run: Run) -> Plan:
    """Find the shards; reads their listing."""
    op = run.operation
    assert isinstance(op, Shards)
    source = op.samples()
    if not are_shards(source.sources):
        raise BadOption(
            "SOURCE names no shards",
            path=redacted(source.place),
            remedy="Name them, as in s3://bucket/train-{000000..000099}.tar or s3://bucket/train-*.tar; `samples` "
            "looks at folders of files",
        )
    shards = shards_of(replace(run, operation=source))
    run.kept = shards
    out, rows = Plan("shards", op.places()[0]), run.row_file("plan")
    for shard in shards:
        out.files += 1
        out.bytes += max(0, shard.size)
        out.count("read", max(0, shard.size))
        rows.add(Row(shard.url, "read", shard.size, {}))
    rows.close()
    out.rows = rows.rows()
    return out


def perform(run: Run, planned: Plan) -> Report:
    """Read all shards."""
    del planned
    assert isinstance(run.operation, Shards)
    assert isinstance(run.kept, list)
    return _Looking(run, run.operation, run.kept).run_all()


class _Looking:
    """Reads all shards of one run and collects the results."""

    def __init__(self, run: Run, op: Shards, shards: list[SourceFile]) -> None:
        self._run, self._op, self._shards, self._results = run, op, shards, Results(run)
        self._source = op.samples()
        self._bodies = Bodies(
            run.control,
            shards,
            lambda shard: run.open(shard.place).store,
            verify=self._source.verify,
            width=op.concurrency or WIDTH,
            ahead_bytes=_AHEAD,
        )
        self._samples = self._unproven = 0
        self._counts, self._sizes = Counter[str](), Counter[str]()
        self._room = _NAMES
        self._left_out = LeftOut()
        self._apart = 0  # members whose sample ended before them
        self._doubtful: list[str] = []  # shards whose JSON index holds no comparable checksum

    def run_all(self) -> Report:
        try:
            if self._op.action == "index":
                self._index(self._source)
            else:
                for number, shard in enumerate(self._shards):
                    self._look(number, shard)
        finally:
            self._bodies.close()
        self._say()
        fields = {name: [count, self._sizes[name]] for name, count in sorted(self._counts.items())}
        return self._results.report(
            samples=self._samples,
            fields=fields,
            left_out=self._left_out.count,
            left_out_names=self._left_out.names,
        )

    def _look(self, number: int, shard: SourceFile) -> None:
        self._bodies.coming = lambda: range(number + 1, len(self._shards))
        left_out, samples = LeftOut(), 0

        def note(name: str, why: str) -> None:
            left_out.add(name, why)
            self._apart += why == APART

        try:
            body = self._bodies.open(number)
            promised = shard if self._source.verify != "none" else shard._replace(promised=None)
            with contextlib.closing(body), contextlib.closing(PromisedBody(body, promised)) as read:
                stream, _ = open_decompressed(read, name=shard.url, max_window=self._op.max_window)
                reader = ForwardReader(stream, shard.url, 0)
                with contextlib.closing(reader), contextlib.closing(stream):
                    for _, fields, _ in sums_in(reader, note):
                        samples += 1
                        for name, (size, _) in fields.items():
                            self._count(name, size)
                        if not samples % 100:
                            self._run.control.checkpoint()
                    if not read.prove():
                        self._doubtful.append(shard.url)
        except Exception as error:
            self._results.fail(shard.url, error, size=shard.size, samples=samples)
        else:
            detail: dict[str, Any] = {"left out": left_out.names} if left_out.count else {}
            verified = bool(body.proven) and self._source.verify != "none"
            self._unproven += not body.proven
            self._results.add(shard.url, Outcome.OK, shard.size, samples=samples, verified=verified, **detail)
            self._run.control.advance(files=1, bytes=max(0, shard.size))
        self._samples += samples
        self._left_out.count += left_out.count
        room = _NAMED - len(self._left_out.names)
        self._left_out.names += [f"{shard.url}: {name}" for name in left_out.names[:room]]

    def _count(self, name: str, size: int) -> None:
        if name not in self._counts:
            taken = _EACH_NAME + 4 * len(name)
            if self._room < taken:
                name = _OTHERS
            else:
                self._room -= taken
        self._counts[name] += 1
        self._sizes[name] += size

    def _index(self, source: SampleSource) -> None:
        path = index_path(source, self._run)
        index = index_of(
            self._run.context,
            path,
            self._shards,
            self._bodies,
            fingerprint=fingerprint_of(self._shards),
            progress=self._told,
        )
        for name, (count, size) in index.counts.items():
            self._counts[name], self._sizes[name] = count, size
        self._samples, self._unproven = len(index), index.about["unproven"]
        self._left_out = LeftOut(index.about["left_out"], index.about["left_out_names"])
        for shard in self._shards:
            self._results.add(shard.url, Outcome.OK, shard.size)
            self._run.control.advance(files=1, bytes=max(0, shard.size))

    def _told(self, text: str) -> None:
        self._run.control.checkpoint()

    def _say(self) -> None:
        notes = self._results.notes
        notes.append(f"{counted(self._samples, 'samples')} in {counted(len(self._shards), 'shards')}")
        named = [
            f"{name or 'no extension'} {count:,} ({format_size(self._sizes[name])})"
            for name, count in self._counts.most_common(_NAMED)
        ]
        if named:
            notes.append(", ".join(named) + (", …" if len(self._counts) > _NAMED else ""))
        if self._left_out.count:
            names = ", ".join(self._left_out.names[:3])
            notes.append(
                f"{counted(self._left_out.count, 'members', 'are')} in no sample, or only in part: {names}"
            )
        if self._apart:
            notes.append(
                f"{counted(self._apart, 'members', 'are')} not beside the others of their sample: "
                "sort the tar by name (tar --sort=name), or pack the samples anew"
            )
        if self._doubtful:
            names = ", ".join(self._doubtful[:3]) + (", …" if len(self._doubtful) > 3 else "")
            notes.append(
                f"the ETag of {counted(len(self._doubtful), 'shards')} is not that in the index, which does not say "
                f"the size of the parts: {names}"
            )
        if self._unproven and self._source.verify != "none":
            notes.append(f"{counted(self._unproven, 'shards')} had no checksum in the store to compare with")
