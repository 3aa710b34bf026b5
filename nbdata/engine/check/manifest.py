"""``md5check --write``: a manifest of the files as they are; for sidecars see `nbdata.engine.check.sidecars`.

What an existing manifest promises is not dropped or contradicted, for it may be the only witness of damage:
its files are checked, and it is extended only if none of them differs or is missing, unless ``--overwrite always``
is said. Lines of files that the options leave out are kept.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import threading
from collections.abc import Callable, Iterator
from functools import partial

from nbdata.disk import disk_error
from nbdata.engine.check.checksum_writing import ChecksumWriting, writing_algorithm
from nbdata.engine.check.datasets import DataSet
from nbdata.engine.job.run import Run
from nbdata.engine.planning.rows import detail_of
from nbdata.errors import AccessDenied, BadOption, NbdataError, NotFound
from nbdata.integrity.checksum_files import MAX_SIZE, Entry, format_checksums, parse_checksums
from nbdata.integrity.checksum_names import algorithm_in, is_checksum_file, owner_of
from nbdata.redaction import redacted
from nbdata.report import Plan, Report, Row
from nbdata.stores.local import LocalStore
from nbdata.transfer.names import unrepresentable
from nbdata.transfer.retry import retrying
from nbdata.transfer.worker_pool import run_units
from nbdata.verbs.md5check import Md5check
from nbdata.verification.hashing import biggest_first, hashing_workers, note_size

__all__ = ["perform", "plan"]


def plan(run: Run, op: Md5check, data: DataSet) -> Plan:
    """Which files would be hashed, and which an existing manifest names; reads no data.

    Raises
    ------
    BadOption
        If the existing manifest holds lines that could not be kept, or the next check would not find one of this name.
    NotFound
        If there are no files.
    """
    name, algorithm = _name_of(op, data)
    before = _before(run, op, data, name, algorithm)
    out = Plan("md5check", *op.places())
    out.details = {
        "key": data.folder.key + name,
        "place": data.folder.place + name,
        "algorithm": algorithm,
        "biggest": 0,
        "left_out": data.left_out,
    }
    rows = run.row_file("plan")
    gone: list[str] = []
    for entry in data.selected(op, before.keys() - data.names - data.sources.keys(), gone):
        detail, size = detail_of(entry.info), entry.info.size
        reason = unrepresentable(entry.path)
        if reason:  # our own reading of manifests would refuse it, or take it for another name
            action, detail = "unrepresentable", {"reason": reason}
        else:
            action = "hash"
            note_size(out, size)
            if entry.path in before:
                detail["expected"] = before.pop(entry.path)
        out.count(action, size)
        rows.add(Row(entry.path, action, size, detail))
    for path in gone:
        del before[path]
        action = "drop" if op.overwrite == "always" else "missing"
        out.count(action, 0)
        rows.add(Row(path, action, 0, {"reason": f"is missing, and {name} names it"}))
    for path, digest in before.items():
        out.count("keep", 0)
        rows.add(Row(path, "keep", 0, {"expected": digest}))
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
            f"--write: {name!r} is no name that tells of checksums, so the next check would take it for data",
            expected="a name such as MD5SUMS, md5sum.txt, checksums.txt or data.md5",
        )
    told = algorithm_in(name)
    algorithm = writing_algorithm(op) if op.algorithm != "auto" else told or "md5"
    if told not in (None, algorithm):
        raise BadOption(
            f"--write: {name!r} says {told}, and --algorithm {algorithm}", remedy="Leave one of them out"
        )
    return name, algorithm


def _before(run: Run, op: Md5check, data: DataSet, name: str, algorithm: str) -> dict[str, str]:
    """Path and digest of each line of the existing manifest; none if it may give way and cannot be kept."""
    there = data.sources.get(name)
    if there is None and data.single:  # of its folder only some names were looked for
        with contextlib.suppress(NotFound, AccessDenied):
            there = retrying(run.control, lambda: data.folder.store.head(data.folder.key + name))
    if there is None:
        return {}
    manifest = there
    content = b""
    if manifest.size <= MAX_SIZE:
        content = retrying(run.control, lambda: data.folder.store.read_bytes(manifest.key))
    found = parse_checksums(content, algorithm=algorithm)
    lines: dict[str, str] = {}
    good = manifest.size <= MAX_SIZE and not found.problems
    for entry in found.entries:
        if entry.name is None and owner_of(name) is None:
            good = False
            continue
        path = posixpath.normpath(entry.name or owner_of(name) or "")
        good = good and entry.algorithm == algorithm and unrepresentable(path) is None
        if op.write is True and data.single:  # a sidecar, of this file alone
            good = good and path == data.single
        good = good and lines.setdefault(path, entry.digest) == entry.digest
    if good:
        return lines
    if op.overwrite == "always":
        return {}
    raise BadOption(
        f"{name} is there already, and not all of its lines could be kept", path=data.folder.place + name,
        remedy="Move it away, or say --overwrite always, and the same line writes a new one",
    )  # fmt: skip


def perform(run: Run, op: Md5check, planned: Plan) -> Report:
    """Hash the files, and write the manifest if that contradicts none that is there."""
    return _Writing(run, op, planned).run_all()


class _Writing(ChecksumWriting):
    """One manifest while it is made."""

    def __init__(self, run: Run, op: Md5check, planned: Plan) -> None:
        super().__init__(run, op, planned)
        self.place: str = planned.details["place"]
        self.lines: dict[str, str] = {}
        self.new = False
        self.always = op.overwrite == "always"

    def run_all(self) -> Report:
        run_units(self.run.control, self._units(), workers=hashing_workers(self.op.concurrency, self.store))
        written = ""
        if self.outcome.counts.keys() & {"failed", "mismatch", "missing"}:
            self.outcome.notes.append(
                f"{self.place} was not written, because of the failures; if the files are as they should be, "
                "--overwrite always does"
            )
        elif not self.new:
            self.outcome.notes.append(f"{self.place} says all of that already, and was left as it is")
        else:
            self._write()
            written = self.place
            self.outcome.notes.append(
                f"wrote {self.place}: {len(self.lines):,} digest{'s' * (len(self.lines) != 1)} by {self.algorithm}"
            )
        return self.outcome.report(algorithm=self.algorithm, written=written)

    def _units(self) -> Iterator[Callable[[], None]]:
        for row in biggest_first(self.plan):
            if row.action == "hash":
                yield partial(self._hash, row)
            elif row.action == "missing":
                self.outcome.fail(
                    row.path, NotFound("the file is missing", path=row.path), outcome="missing", **row.detail
                )
            elif row.action == "keep":
                self.lines[row.path] = row.detail["expected"]
            elif row.action == "drop":
                self.new = True
                self.outcome.add(row.path, "dropped", **row.detail)
            else:
                self.left_out(row)

    def _hash(self, row: Row) -> None:
        try:
            hashed = self.hashed(row)
        except Exception as error:
            self.outcome.fail(row.path, error, size=row.size)
            return
        got, expected = hashed.digests[0], row.detail.get("expected")
        self.run.control.advance(files=1)
        detail = {"got": got, "algorithm": self.algorithm}
        if expected is None or (expected != got and self.always):
            self.new = True
            self.lines[row.path] = got
            if expected is not None:
                detail |= {"before": expected}
            self.outcome.add(
                row.path, "hashed" if expected is None else "replaced", hashed.size, moved=True, **detail
            )
        elif expected == got:
            self.lines[row.path] = got
            self.outcome.add(
                row.path, "ok", hashed.size, moved=True, **detail, expected=expected, source=self.place
            )
        else:
            self.contradicted(row.path, hashed.size, self.place, got=got, expected=expected)

    def _write(self) -> None:
        lines = (Entry(path, self.algorithm, self.lines[path]) for path in sorted(self.lines))
        content = format_checksums(lines).encode("utf-8", "surrogateescape")
        key: str = self.plan.details["key"]
        if isinstance(self.store, LocalStore):
            write_file("/" + key, content, umask=self.run.context.umask)
        else:
            self.write_object(key, content)


def write_file(path: str, content: bytes, *, umask: int) -> None:
    """Make a file of these bytes, whole and durable or not at all; a link is followed.

    `umask` is the client's; an existing file's permissions are kept.
    """
    path = os.path.realpath(path)
    # Unique among threads and processes, and in the same folder, so that the rename cannot cross disks.
    partial_path = f"{path}.{os.getpid()}.{threading.get_ident()}.nbdata-partial"
    try:
        fd = os.open(partial_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                mode = os.stat(path).st_mode & 0o777
            except FileNotFoundError:
                mode = 0o666 & ~umask
            os.fchmod(fd, mode)
            with open(fd, "wb", closefd=False) as file:
                file.write(content)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(partial_path, path)
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if isinstance(error, NbdataError):
            raise
        raise disk_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial_path)
