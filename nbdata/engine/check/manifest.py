"""``md5check --write``: write a manifest of the current files; for sidecars see `nbdata.engine.check.sidecars`.

The digests of an existing manifest are not dropped or contradicted, as they may be the only evidence of damage.
Its files are checked, and it is extended only if none of them differs or is missing, unless ``--overwrite always``
is given. Lines of files that the options leave out are kept.
"""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterator
from functools import partial

from nbdata.engine.check.checksum_writing import ChecksumWriting, writing_algorithm
from nbdata.engine.check.datasets import DataSet
from nbdata.engine.check.rows import HashRow
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.run import Run
from nbdata.engine.planning.remote_target import is_another
from nbdata.engine.planning.rows import detail_of, info_of
from nbdata.errors import AccessDenied, BadOption, NbdataError, NotFound
from nbdata.integrity.checksum_files import MAX_SIZE, Entry, format_checksums, parse_checksums
from nbdata.integrity.checksum_names import algorithm_in, is_checksum_file, owner_of
from nbdata.redaction import redacted
from nbdata.report import Plan, Report, Row
from nbdata.sizes import counted
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.names import unrepresentable
from nbdata.transfer.retry import retrying
from nbdata.transfer.worker_pool import run_units
from nbdata.verbs.md5check import Md5check
from nbdata.verification.hashing import biggest_first, hashing_workers, note_size

__all__ = ["perform", "plan"]


def plan(run: Run, op: Md5check, data: DataSet) -> Plan:
    """Plan which files to hash, and which an existing manifest names; reads no data.

    Raises
    ------
    BadOption
        If the existing manifest has lines that could not be kept, or the next check would not find one of this name.
    NotFound
        If there are no files.
    """
    name, algorithm = _name_of(op, data)
    there = _there(run, data, name)
    before = {} if there is None else _before(run, op, data, name, algorithm, there)
    out = Plan("md5check", *op.places())
    out.details = {
        "key": data.folder.key + name,
        "place": data.folder.place + name,
        "algorithm": algorithm,
        "biggest": 0,
        "left_out": data.left_out,
        "there": None if there is None else [there.size, detail_of(there)],
    }
    rows = run.row_file("plan")
    gone: list[str] = []
    for entry in data.selected(op, before.keys() - data.names - data.sources.keys(), gone):
        reason = unrepresentable(entry.path)
        if reason:  # our own parser of manifests would refuse or misread it
            item = HashRow(entry.path, "unrepresentable", entry.info, reason=reason)
        else:
            item = HashRow(entry.path, "hash", entry.info, before.pop(entry.path, ""))
            note_size(out, item.size)
        out.count(item.action, item.size)
        rows.add(item.row())
    for path in gone:
        del before[path]
        action = "drop" if op.overwrite == "always" else "missing"
        out.count(action, 0)
        rows.add(HashRow(path, action, reason=f"is missing, and {name} names it").row())
    for path, digest in before.items():
        out.count("keep", 0)
        rows.add(HashRow(path, "keep", expected=digest).row())
    rows.close()
    out.rows = rows.rows()
    if not out.files:
        raise NotFound(
            "there are no files to write a manifest of",
            path=redacted(op.source),
            remedy="Check PATH and the filters",
        )
    out.notes += data.left_out
    out.notes.append(f"the digests would be written to {out.details['place']}")
    return out


def _name_of(op: Md5check, data: DataSet) -> tuple[str, str]:
    """The manifest's name, and the algorithm of its digests."""
    if op.write is True:
        algorithm = writing_algorithm(op)
        return f"{data.single}.{algorithm}" if data.single else f"{algorithm.upper()}SUMS", algorithm
    name = str(op.write)
    if not is_checksum_file(name):
        raise BadOption(
            f"--write: {name!r} is not a name for checksums, so the next check would treat it as data",
            expected="a name such as MD5SUMS, md5sum.txt, checksums.txt or data.md5",
        )
    named = algorithm_in(name)
    algorithm = writing_algorithm(op) if op.algorithm != "auto" else named or "md5"
    if named not in (None, algorithm):
        raise BadOption(
            f"--write: {name!r} means {named}, but --algorithm says {algorithm}",
            remedy="Leave one of them out",
        )
    return name, algorithm


def _there(run: Run, data: DataSet, name: str) -> ObjectInfo | None:
    """The existing manifest."""
    there = data.sources.get(name)
    if there is None and data.single:  # only some names of its folder were looked up
        return _head(run, data.folder.store, data.folder.key + name)
    return there


def _head(run: Run, store: Store, key: str) -> ObjectInfo | None:
    with contextlib.suppress(NotFound, AccessDenied):
        return retrying(run.control, lambda: store.head(key))
    return None


def _before(
    run: Run, op: Md5check, data: DataSet, name: str, algorithm: str, manifest: ObjectInfo
) -> dict[str, str]:
    """Path and digest of each line of the existing manifest; empty if it cannot be kept and may be overwritten."""
    content = b""
    if manifest.size <= MAX_SIZE:
        content = retrying(run.control, lambda: data.folder.store.read_bytes(manifest.key))
    parsed = parse_checksums(content, algorithm=algorithm)
    lines: dict[str, str] = {}
    good = manifest.size <= MAX_SIZE and not parsed.problems
    for entry in parsed.entries:
        if entry.name is None and owner_of(name) is None:
            good = False
            continue
        path = posixpath.normpath(entry.name or owner_of(name) or "")
        good = good and entry.algorithm == algorithm and unrepresentable(path) is None
        if op.write is True and data.single:  # a sidecar, for this file alone
            good = good and path == data.single
        good = good and lines.setdefault(path, entry.digest) == entry.digest
    if good:
        return lines
    if op.overwrite == "always":
        return {}
    raise BadOption(
        f"{name} exists, and some of its lines cannot be kept", path=data.folder.place + name,
        remedy="Move it away, or use --overwrite always, and run the command again",
    )  # fmt: skip


def perform(run: Run, op: Md5check, planned: Plan) -> Report:
    """Hash the files, and write the manifest if it does not contradict an existing one."""
    return _Writing(run, op, planned).run_all()


class _Writing(ChecksumWriting):
    """Makes one manifest."""

    def __init__(self, run: Run, op: Md5check, planned: Plan) -> None:
        super().__init__(run, op, planned)
        self.place: str = planned.details["place"]
        self.lines: dict[str, str] = {}
        self.new = False
        self.always = op.overwrite == "always"

    def run_all(self) -> Report:
        run_units(self.run.control, self._units(), workers=hashing_workers(self.op.concurrency, self.store))
        written = ""
        if self.results.counts.keys() & {Outcome.FAILED, Outcome.MISMATCH, Outcome.MISSING}:
            self.results.notes.append(
                f"{self.place} was not written, because of the failures; if the files are right, "
                "--overwrite always does"
            )
        elif not self.new:
            self.results.notes.append(f"{self.place} has all these digests already, and was left unchanged")
        elif self._is_changed():
            changed = NbdataError(
                "it was written by another program while the files were read, and was left as it is",
                path=self.place, remedy="Run the command again",
            )  # fmt: skip
            self.results.fail(posixpath.basename(self.place), changed)
        else:
            self._write()
            written = self.place
            self.results.notes.append(
                f"wrote {self.place}: {counted(len(self.lines), 'digests')} by {self.algorithm}"
            )
        return self.results.report(algorithm=self.algorithm, written=written)

    def _units(self) -> Iterator[Callable[[], None]]:
        for row in map(HashRow.of, biggest_first(self.plan)):
            if row.action == "hash":
                yield partial(self._hash, row)
            elif row.action == "missing":
                self.results.fail(
                    row.path,
                    NotFound("the file is missing", path=row.path),
                    outcome=Outcome.MISSING,
                    reason=row.reason,
                )
            elif row.action == "keep":
                self.lines[row.path] = row.expected
            elif row.action == "drop":
                self.new = True
                self.results.add(row.path, Outcome.DROPPED, reason=row.reason)
            else:
                self.left_out(row)

    def _hash(self, row: HashRow) -> None:
        try:
            hashed = self.hashed(row)
        except Exception as error:
            self.results.fail(row.path, error, size=row.size)
            return
        got, expected = hashed.digests[0], row.expected
        self.run.control.advance(files=1)
        detail = {"got": got, "algorithm": self.algorithm}
        if not expected or (expected != got and self.always):
            self.new = True
            self.lines[row.path] = got
            if expected:
                detail |= {"before": expected}
            self.results.add(
                row.path,
                Outcome.REPLACED if expected else Outcome.HASHED,
                hashed.size,
                moved=True,
                **detail,
            )
        elif expected == got:
            self.lines[row.path] = got
            self.results.add(
                row.path, Outcome.OK, hashed.size, moved=True, **detail, expected=expected, source=self.place
            )
        else:
            self.contradicted(row.path, hashed.size, self.place, got=got, expected=expected)

    def _is_changed(self) -> bool:
        """Whether the manifest is another one than was read, so that lines of it would be lost."""
        now, there = _head(self.run, self.store, self.plan.details["key"]), self.plan.details["there"]
        if now is None or there is None:
            return now is not there
        return is_another(now, info_of(Row("", "", *there)))

    def _write(self) -> None:
        lines = (Entry(path, self.algorithm, self.lines[path]) for path in sorted(self.lines))
        content = format_checksums(lines).encode("utf-8", "surrogateescape")
        self.write_object(self.plan.details["key"], content)
