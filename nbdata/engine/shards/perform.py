"""Plan and perform the verb shards."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from nbdata.archives.decompress import open_decompressed
from nbdata.archives.forward_reader import ForwardReader
from nbdata.engine.job.dealing import Dealer
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.shards.dealt import DealtShards, shards_in
from nbdata.engine.shards.found import Found
from nbdata.engine.shards.promised import PromisedBody
from nbdata.errors import BadOption
from nbdata.formats.sample_index import SampleIndex
from nbdata.formats.shards import APART, LeftOut, sums_in
from nbdata.reading.fetcher import WIDTH
from nbdata.reading.shards.content import Bodies
from nbdata.reading.shards.indexing import STREAM, Indexing, index_path, refuse_compressed
from nbdata.reading.shards.listing import are_shards, fingerprint_elsewhere, shards_of
from nbdata.reading.source_file import SourceFile, fingerprint_of
from nbdata.redaction import redacted
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted, format_size
from nbdata.verbs.shards import Shards

__all__ = ["perform", "plan"]

# Bytes of shards to read ahead.
_AHEAD = 64 << 20
# Number of fields that a report names.
_NAMED = 10


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
    assert isinstance(run.operation, Shards)
    shards = run.kept if run.as_part is None else shards_in(run, planned.rows)
    assert isinstance(shards, list)
    return _Looking(run, run.operation, shards, planned).run_all()


class _Looking:
    """Reads all shards of one run and collects the results."""

    def __init__(self, run: Run, op: Shards, shards: list[SourceFile], planned: Plan) -> None:
        self._run, self._op, self._shards, self._plan = run, op, shards, planned
        self._results = Results(run)
        self._source = op.samples()
        self._bodies = Bodies(
            run.control,
            shards,
            lambda shard: run.open(shard.place).store,
            verify=self._source.verify,
            width=op.concurrency or WIDTH,
            ahead_bytes=_AHEAD,
        )
        self._found = Found()

    def run_all(self) -> Report:
        try:
            if self._run.dealer is not None:
                self._deal(self._run.dealer)
            elif self._op.action == "index":
                self._index()
            else:
                for number, shard in enumerate(self._shards):
                    self._look(number, shard)
        finally:
            self._bodies.close()
        found = self._found
        if self._run.as_part is not None:  # the whole job sums up
            self._run.as_part.details = vars(found)
            return self._results.report()
        self._say()
        return self._results.report(
            samples=found.samples,
            fields=dict(sorted(found.fields.items())),
            left_out=found.left_out,
            left_out_names=found.left_out_names,
        )

    def _deal(self, dealer: Dealer) -> None:
        """Have the workers of a cluster read the shards, and make one index of theirs if that is asked for."""
        indexing = None
        if self._op.action == "index":
            refuse_compressed(self._shards, STREAM)
            indexing = Indexing()
        dealt = DealtShards(self._run, self._plan, self._results, self._shards, self._found, indexing)
        try:
            dealer.deal(dealt)
        finally:
            dealt.close()
        if indexing is not None:
            self._take(self._saved(indexing))

    def _look(self, number: int, shard: SourceFile) -> None:
        self._bodies.coming = lambda: range(number + 1, len(self._shards))
        found, left_out, samples = self._found, LeftOut(), 0

        def note(name: str, why: str) -> None:
            left_out.add(name, why)
            found.apart += why == APART

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
                            found.count(name, size)
                        if not samples % 100:
                            self._run.control.checkpoint()
                    if not read.prove():
                        found.doubtful.append(shard.url)
        except Exception as error:
            self._results.fail(shard.url, error, size=shard.size, samples=samples)
        else:
            detail: dict[str, Any] = {"left out": left_out.names} if left_out.count else {}
            verified = bool(body.proven) and self._source.verify != "none"
            found.unproven += not body.proven
            self._results.add(shard.url, Outcome.OK, shard.size, samples=samples, verified=verified, **detail)
            self._run.control.advance(files=1, bytes=max(0, shard.size))
        found.samples += samples
        found.leave_out(left_out.count, [f"{shard.url}: {name}" for name in left_out.names])

    def _index(self) -> None:
        """Make the index; as a part, make that of these shards and send it."""
        refuse_compressed(self._shards, STREAM)
        indexing, part = Indexing(), self._run.as_part
        first = int(self._plan.rows[0].path) if part is not None else 0
        indexing.read(self._shards, self._bodies, progress=self._told, first=first)
        if part is not None:
            part.data = b"".join(indexing.pieces())
        else:
            self._take(self._saved(indexing))
        for shard in self._shards:
            self._results.add(shard.url, Outcome.OK, shard.size)
            self._run.control.advance(files=1, bytes=max(0, shard.size))

    def _saved(self, indexing: Indexing) -> SampleIndex:
        path = index_path(self._source, self._run)
        return indexing.save(
            self._run.context, path, fingerprint_of(self._shards), fingerprint_elsewhere(self._shards)
        )

    def _take(self, index: SampleIndex) -> None:
        found = self._found
        found.fields = {name: [count, size] for name, (count, size) in index.counts.items()}
        found.samples, found.unproven = len(index), index.about["unproven"]
        found.left_out, found.left_out_names = index.about["left_out"], index.about["left_out_names"]

    def _told(self, text: str) -> None:
        self._run.control.checkpoint()

    def _say(self) -> None:
        notes, found = self._results.notes, self._found
        notes.append(f"{counted(found.samples, 'samples')} in {counted(len(self._shards), 'shards')}")
        most = sorted(found.fields.items(), key=lambda item: (-item[1][0], item[0]))[:_NAMED]
        named = [f"{name or 'no extension'} {count:,} ({format_size(size)})" for name, (count, size) in most]
        if named:
            notes.append(", ".join(named) + (", …" if len(found.fields) > _NAMED else ""))
        if found.left_out:
            names = ", ".join(found.left_out_names[:3])
            notes.append(
                f"{counted(found.left_out, 'members', 'are')} in no sample, or only in part: {names}"
            )
        if found.apart:
            notes.append(
                f"{counted(found.apart, 'members', 'are')} not beside the others of their sample: "
                "sort the tar by name (tar --sort=name), or pack the samples anew"
            )
        if found.doubtful:
            names = ", ".join(found.doubtful[:3]) + (", …" if len(found.doubtful) > 3 else "")
            notes.append(
                f"the ETag of {counted(len(found.doubtful), 'shards')} is not that in the index, which does not say "
                f"the size of the parts: {names}"
            )
        if found.unproven and self._source.verify != "none":
            notes.append(f"{counted(found.unproven, 'shards')} had no checksum in the store to compare with")
