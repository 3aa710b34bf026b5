"""``md5check --write sidecars``: write ``NAME.md5`` beside each file, like ``md5sum NAME > NAME.md5`` in its folder.

Sidecars are independent: one that contradicts its file is left as it is and reported, unless ``--overwrite always``
is given, and the others are written. On the local disk they get their names like pulled files: complete, and durable in
batches.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Callable, Iterator
from functools import partial

from nbdata.disk import disk_error
from nbdata.engine.check.checksum_writing import ChecksumWriting, writing_algorithm
from nbdata.engine.check.datasets import DataSet
from nbdata.engine.check.rows import HashRow
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.run import Run
from nbdata.errors import NbdataError, NotFound
from nbdata.integrity.checksum_files import Entry, format_checksums, parse_checksums
from nbdata.redaction import redacted
from nbdata.report import Plan, Report
from nbdata.sizes import counted
from nbdata.stores.local import LocalStore
from nbdata.transfer.committer import Committer, PendingFile
from nbdata.transfer.names import unrepresentable
from nbdata.transfer.retry import retrying
from nbdata.transfer.worker_pool import run_units
from nbdata.verbs.md5check import Md5check
from nbdata.verification.hashing import biggest_first, hashing_workers, note_size

__all__ = ["perform", "plan"]

# A sidecar is one line; a larger file is something else.
_LARGEST = 64 << 10


def plan(run: Run, op: Md5check, data: DataSet) -> Plan:
    """Plan which files to hash, and find existing sidecars; reads no data.

    Raises
    ------
    NotFound
        If there are no files.
    """
    algorithm = writing_algorithm(op)
    out = Plan("md5check", *op.places())
    out.details = {
        "folder": data.folder.key,
        "place": data.folder.place,
        "algorithm": algorithm,
        "biggest": 0,
        "left_out": data.left_out,
    }
    rows = run.row_file("plan")
    for entry in data.selected(op, (), []):
        sidecar = f"{entry.path}.{algorithm}"
        item = HashRow(entry.path, "hash", entry.info, sidecar=data.sources.get(sidecar))
        if reason := unrepresentable(entry.path) or unrepresentable(sidecar):
            item = HashRow(entry.path, "unrepresentable", entry.info, reason=reason)
        else:
            note_size(out, item.size)
        out.count(item.action, item.size)
        rows.add(item.row())
    rows.close()
    out.rows = rows.rows()
    if not out.files:
        raise NotFound(
            "there are no files to write sidecars of",
            path=redacted(op.source),
            remedy="Check PATH and the filters",
        )
    out.notes += data.left_out
    out.notes.append(f"each digest would be written to NAME.{algorithm} beside the file")
    return out


def perform(run: Run, op: Md5check, planned: Plan) -> Report:
    """Hash the files, and write the sidecars that do not contradict existing ones."""
    return _Writing(run, op, planned).run_all()


class _Writing(ChecksumWriting):
    """Makes the sidecars of one data set."""

    def __init__(self, run: Run, op: Md5check, planned: Plan) -> None:
        super().__init__(run, op, planned)
        self.folder: str = planned.details["folder"]
        self.committer: Committer | None = None
        self.waiting: dict[str, tuple[Outcome, HashRow, dict[str, str]]] = {}

    def run_all(self) -> Report:
        with contextlib.ExitStack() as stack:
            if isinstance(self.store, LocalStore):
                umask = self.run.context.umask
                root = "/" + self.folder
                self.committer = stack.enter_context(
                    Committer(
                        root,
                        self.run.control,
                        umask=umask,
                        committed=self._committed,
                        opened=self.run.folders,
                    )
                )
            run_units(
                self.run.control, self._units(), workers=hashing_workers(self.op.concurrency, self.store)
            )
            if self.committer is not None:
                self.committer.flush()
        counts = self.results.counts
        written = sum(counts.get(name, 0) for name in ("hashed", "replaced"))
        if counts.keys() & {"mismatch", "conflict"}:
            self.results.notes.append(
                "sidecars with other digests were left unchanged; if the files are right, "
                "--overwrite always replaces them"
            )
        place = self.plan.details["place"]
        if written:
            self.results.notes.append(
                f"wrote {counted(written, 'sidecars')}, NAME.{self.algorithm}, in {place}"
            )
        return self.results.report(algorithm=self.algorithm, written=place if written else "")

    def _units(self) -> Iterator[Callable[[], None]]:
        for row in map(HashRow.of, biggest_first(self.plan)):
            if row.action == "hash":
                yield partial(self._one, row)
            else:
                self.left_out(row)

    def _one(self, row: HashRow) -> None:
        try:
            existing = self._said(row)
            hashed = self.hashed(row)
        except Exception as error:
            self.results.fail(row.path, error, size=row.size)
            return
        sidecar, got = f"{row.path}.{self.algorithm}", hashed.digests[0]
        detail = {"got": got, "algorithm": self.algorithm}
        self.run.control.advance(files=1)
        if existing == got:
            self.results.add(
                row.path, Outcome.OK, hashed.size, moved=True, **detail, expected=got, source=sidecar
            )
        elif existing is None or self.op.overwrite == "always":
            if existing:
                detail["before"] = existing
            try:
                self._write(
                    row, sidecar, got, Outcome.HASHED if existing is None else Outcome.REPLACED, detail
                )
            except Exception as error:
                self.results.fail(row.path, error, size=row.size)
        elif existing:
            place = self.plan.details["place"] + sidecar
            self.contradicted(row.path, hashed.size, place, got=got, expected=existing)
        else:
            reason = f"{posixpath.basename(sidecar)} exists, but is not a sidecar of this file"
            self.results.add(row.path, Outcome.CONFLICT, hashed.size, moved=True, **detail, reason=reason)
            self.run.control.advance(failures=1)

    def _said(self, row: HashRow) -> str | None:
        """The digest in the existing sidecar; empty if it has none for this file, None if there is no sidecar."""
        there = row.sidecar
        if there is None:
            return None
        if there.size > _LARGEST:
            return ""
        content = retrying(self.run.control, lambda: self.store.read_bytes(there.key))
        parsed = parse_checksums(content, algorithm=self.algorithm)
        if parsed.problems or len(parsed.entries) != 1:
            return ""
        (entry,) = parsed.entries
        own = entry.name is None or posixpath.basename(entry.name) == posixpath.basename(row.path)
        return entry.digest if own and entry.algorithm == self.algorithm else ""

    def _write(
        self, row: HashRow, sidecar: str, digest: str, outcome: Outcome, detail: dict[str, str]
    ) -> None:
        line = format_checksums([Entry(posixpath.basename(row.path), self.algorithm, digest)])
        content = line.encode("utf-8", "surrogateescape")
        if self.committer is None:
            self.write_object(self.folder + sidecar, content)
            self.results.add(row.path, outcome, row.size, moved=True, **detail)
            return
        final, staging = self.committer.target.prepare(sidecar)
        fd, temporary = self.committer.target.temporary(staging)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(content)
            self.committer.target.set_mode(fd, final)
            written = os.fstat(fd)
        except OSError as error:
            if isinstance(error, NbdataError):
                raise
            raise disk_error(error, final) from error
        finally:
            os.close(fd)
        self.waiting[sidecar] = outcome, row, detail
        self.committer.commit(PendingFile(sidecar, temporary, final, len(content), written))

    def _committed(self, batch: list[PendingFile]) -> None:
        """Record files that are durable under their final names; runs in the committer's thread."""
        for file in batch:
            outcome, row, detail = self.waiting.pop(file.path)
            if file.error is not None:
                self.results.fail(row.path, file.error)
            else:
                self.results.add(row.path, outcome, row.size, moved=True, **detail)
