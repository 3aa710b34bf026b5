"""push: plan and perform."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from nbdata.engine.decide import decide_push
from nbdata.engine.run import Outcome, Run
from nbdata.engine.sent import MultipartJudge, SentHasher
from nbdata.engine.sources import find
from nbdata.engine.verify import plain_md5
from nbdata.errors import BadOption, NbdataError, NotFound, SourceChanged
from nbdata.integrity.digests import new_digest
from nbdata.report import Plan, Report, Row
from nbdata.space.limits import disk_of, round_up
from nbdata.stores.base import Location, ObjectInfo, Upload
from nbdata.stores.local import disk_error
from nbdata.stores.redaction import redacted
from nbdata.stores.resolve import open_place
from nbdata.transfer.index import Index, Record
from nbdata.transfer.partials import validator
from nbdata.transfer.pool import run_units
from nbdata.transfer.retry import listing, retrying
from nbdata.transfer.selection import Selection, glob_filter
from nbdata.transfer.send import BIG, PartedSend, send_whole, upload_part_size
from nbdata.transfer.uploads import forget, remember
from nbdata.verbs.push import Push

__all__ = ["perform", "plan"]

_MOVES = ("send", "overwrite", "compare")
# Seconds for which a run waits at its end until the store has given up what it is told to; when it is stopped, less.
_ABANDON, _ABANDON_STOPPED = 30.0, 0.5


def plan(run: Run) -> Plan:
    """Decide for each selected file; reads local stats, the target's listing and the index, writes nothing."""
    op = run.operation
    assert isinstance(op, Push)
    found = find(run, op.source)
    target = run.open(op.target)
    out = Plan("push", *op.places())
    rows = run.row_file("plan")
    single = found.single is not None
    name = "" if not single or _is_folder(target) else target.key
    remote = _remote(run, op, target, name)
    root = _root(op, single)
    index = Index(run.context.state_dir, op.source, op.target, _identity(root))
    block = disk_of(op.target)[2] if op.local_target() else 0
    kept = set[str]()
    for entry in Selection.of(op).apply(found.entries):
        key = name or _key(target, entry.path)
        kept.add(key)
        path = "/" + entry.info.key
        try:
            local = os.stat(path)
        except OSError as error:
            raise disk_error(error, path) from error
        there = remote.get(key)
        decision = decide_push(
            local, there, index.get(entry.path), overwrite=op.overwrite, size_only=op.size_only
        )
        if decision.action in _MOVES:
            out.files += 1
            out.bytes += local.st_size
            if block:
                out.needed += round_up(local.st_size, block)
                out.inodes += 1
        out.count(decision.action, local.st_size)
        detail: dict[str, object] = {"key": key, "file": path, "mtime_ns": local.st_mtime_ns}
        if decision.reason:
            detail["reason"] = decision.reason
        if there is not None:
            detail["etag"] = there.etag
        rows.add(Row(entry.path, decision.action, local.st_size, detail))
    if op.delete:
        _plan_deletions(op, target, remote, kept, index, out, rows.add)
    if not out.actions and (why := Selection.of(op).none_left()):
        out.notes.append(why)
    rows.close()
    out.rows = rows.rows()
    out.details = {"root": root, "single": single}
    return out


def _is_folder(target: Location) -> bool:
    return target.is_folder or target.store.is_folder(target.key + "/")


def _key(target: Location, path: str) -> str:
    return f"{target.key.rstrip('/')}/{path}" if target.key else path


def _root(op: Push, single: bool) -> str:
    from nbdata.paths import glob_base, has_glob

    source = glob_base(op.source) if has_glob(op.source) else op.source
    return os.path.dirname(source) if single else source.rstrip("/") or "/"


def _identity(root: str) -> tuple[int, int]:
    found = os.stat(root)
    return found.st_dev, found.st_ino


def _remote(run: Run, op: Push, target: Location, name: str) -> dict[str, ObjectInfo]:
    """What stands at the target already, by key."""
    if op.overwrite == "always" and not op.delete:
        return {}
    try:
        if name:
            return {name: retrying(run.control, lambda: target.store.head(name))}
        prefix = target.key.rstrip("/") + "/" if target.key else ""
        return {info.key: info for info in listing(run.control, target.store, prefix)}
    except NotFound as error:
        if error.details.get("bucket"):
            raise
        return {}


def _plan_deletions(
    op: Push,
    target: Location,
    remote: dict[str, ObjectInfo],
    kept: set[str],
    index: Index,
    out: Plan,
    add: Callable[[Row], None],
) -> None:
    passes = glob_filter(op.include, op.exclude)
    prefix = target.key.rstrip("/") + "/" if target.key else ""
    for key, info in remote.items():
        path = key[len(prefix) :]
        if key in kept or not passes(path):
            continue
        if not op.force and index.get(path) is None:
            raise BadOption(
                "--delete would delete an object that this push never wrote",
                path=f"{redacted(out.target).rstrip('/')}/{path}",
                remedy="Use --force if the whole prefix is meant to be a mirror, or a prefix of its own",
            )
        out.count("delete", info.size)
        add(Row(path, "delete", info.size, {"key": key}))


def perform(run: Run, planned: Plan) -> Report:
    """Do what the plan says."""
    return _Pushing(run, planned).run_all()


class _Pushing:
    """One push while it is performed."""

    def __init__(self, run: Run, planned: Plan) -> None:
        assert isinstance(run.operation, Push)
        self.run, self.op, self.plan = run, run.operation, planned
        self.outcome = Outcome(run)
        if not planned.actions:
            self.outcome.notes.extend(planned.notes)
        self.identity = _identity(planned.details["root"])
        self.index = Index(run.context.state_dir, self.op.source, self.op.target, self.identity)
        self.target = run.open(self.op.target)
        self.unverified = 0
        self.lock = threading.Lock()
        self.kept: dict[str, int] = {}  # reasons for which sources were not deleted
        # What is to be done about files whose parts were begun, should the run end before they are sent.
        self.unfinished: dict[str, Callable[[], None]] = {}
        self.abandoning: list[threading.Thread] = []

    def run_all(self) -> Report:
        self.index.open(self.identity)
        try:
            run_units(self.run.control, self._units(), workers=self.op.concurrency)
            self._deletions()
        finally:
            for give_up in list(self.unfinished.values()):
                give_up()
            end = time.monotonic() + (_ABANDON_STOPPED if self.run.control.is_set() else _ABANDON)
            for thread in self.abandoning:
                thread.join(max(0.0, end - time.monotonic()))
            self.index.close()
        self.outcome.notes += [f"{count:,} kept: {reason}" for reason, count in self.kept.items()]
        if self.unverified and self.op.verify != "none":
            self.outcome.notes.append(
                f"{self.unverified:,} could not be verified: the store answered no checksum for them"
            )
        return self.outcome.report()

    def _units(self) -> Iterator[Callable[[], None]]:
        for row in self.plan.rows:
            if row.action in _MOVES:
                if row.action != "compare" and self.target.store.multipart and row.size >= BIG:
                    yield from self._big(row)
                else:
                    yield partial(self._small, row)
            elif row.action == "unchanged":
                self.outcome.add(row.path, "unchanged", row.size)
            elif row.action != "delete":
                self.outcome.add(row.path, row.action, row.size, reason=row.detail.get("reason", row.action))
                if row.action != "skip":
                    self.run.control.advance(failures=1)

    # -- one file -----------------------------------------------------------------------------

    def _open(self, row: Row) -> tuple[int, os.stat_result]:
        path = row.detail["file"]
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise disk_error(error, path) from error
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or (found.st_size, found.st_mtime_ns) != (
            row.size,
            row.detail["mtime_ns"],
        ):
            os.close(fd)
            raise SourceChanged(
                "the file changed after it was listed", path=path, remedy="Run the same line again"
            )
        return fd, found

    def _unchanged(self, fd: int, before: os.stat_result, path: str) -> None:
        now = os.fstat(fd)
        if (now.st_size, now.st_mtime_ns, now.st_ctime_ns) != (
            before.st_size,
            before.st_mtime_ns,
            before.st_ctime_ns,
        ):
            raise SourceChanged(
                "the file changed while it was sent", path=path, remedy="Run the same line again"
            )

    def _hasher(self, key: str) -> Callable[[], SentHasher]:
        return lambda: SentHasher(key, self.op.verify)

    def _small(self, row: Row) -> None:
        try:
            fd, before = self._open(row)
            try:
                if row.action == "compare" and self._same_bytes(fd, row):
                    there = ObjectInfo(row.detail["key"], row.size, row.detail["etag"])
                    self.index.put({row.path: Record.of(validator(there), row.size, before)})
                    self.outcome.add(row.path, "unchanged", row.size)
                    self.run.control.advance(files=1, bytes=row.size)
                    return
                key = row.detail["key"]
                info, verified = send_whole(
                    self.run.control, self.target.store, key, fd, row.size, self._hasher(key),
                    unchanged=lambda: self._unchanged(fd, before, row.detail["file"]),
                )  # fmt: skip
                self._unchanged(fd, before, row.detail["file"])
            finally:
                os.close(fd)
            self._sent(row, before, info, verified)
        except Exception as error:
            self.outcome.fail(row.path, error)

    def _same_bytes(self, fd: int, row: Row) -> bool:
        """Whether the object's ETag is the MD5 of the file."""
        digest, view, at = new_digest("md5"), memoryview(bytearray(1 << 20)), 0
        while count := os.preadv(fd, [view], at):
            digest.update(view[:count])
            at += count
            self.run.control.checkpoint()
        return digest.hexdigest() == plain_md5(ObjectInfo(row.path, row.size, row.detail.get("etag", "")))

    def _big(self, row: Row) -> Iterator[Callable[[], None]]:
        try:
            fd, before = self._open(row)
        except Exception as error:
            self.outcome.fail(row.path, error)
            return
        store, key = self.target.store, row.detail["key"]

        state = self.run.context.state_dir

        def begin() -> Upload:
            upload = store.upload(key, row.size)
            remember(state, self.op.target, key, upload.id)
            return upload

        def abandon_now(upload: Upload) -> None:
            with contextlib.suppress(NbdataError):  # it is remembered, and cleanup finds it
                # The job may be stopping, and with it every request of its own store.
                open_place(self.op.target, self.run.context, fs=self.run.bindings.get("fs")).store.abort(
                    key, upload.id
                )
                forget(state, self.op.target, key)

        def abandon(upload: Upload) -> None:
            # Aside, so that a store that hangs does not hold a stop.
            thread = threading.Thread(target=abandon_now, args=(upload,), name="abandon", daemon=True)
            thread.start()
            self.abandoning.append(thread)

        def done(info: ObjectInfo, verified: bool) -> None:
            del self.unfinished[row.path]
            os.close(fd)
            forget(state, self.op.target, key)
            self._sent(row, before, info, verified)

        def failed(error: Exception) -> None:
            del self.unfinished[row.path]
            os.close(fd)
            self.outcome.fail(row.path, error)

        part_size = upload_part_size(row.size, self.op.part_size, store)
        sending = PartedSend(
            self.run.control,
            fd,
            row.size,
            part_size,
            self._hasher(key),
            begin=begin,
            abandon=abandon,
            whole=MultipartJudge(key, self.op.verify),
            done=done,
            failed=failed,
            unchanged=lambda: self._unchanged(fd, before, row.detail["file"]),
        )

        def give_up() -> None:
            sending.give_up()
            os.close(fd)

        self.unfinished[row.path] = give_up
        yield from sending.units()

    def _sent(self, row: Row, before: os.stat_result, info: ObjectInfo, verified: bool) -> None:
        self.index.put({row.path: Record.of(validator(info), row.size, before)})
        self.outcome.add(row.path, "sent", row.size, moved=True, verified=verified)
        self.run.control.advance(files=1)
        self.unverified += not verified
        if self.run.reservation is not None:
            self.run.reservation.landed(row.size, 1)
        if self.op.delete_source:
            self._delete_source(row, before, verified)

    def _delete_source(self, row: Row, before: os.stat_result, verified: bool) -> None:
        path = row.detail["file"]
        if not verified:
            self._keep("the upload could not be verified")
            return
        try:
            now = os.lstat(path)
            same = (now.st_dev, now.st_ino, now.st_mtime_ns) == (
                before.st_dev,
                before.st_ino,
                before.st_mtime_ns,
            )
            if same:
                os.unlink(path)
            else:
                self._keep("changed after it was sent")
        except FileNotFoundError:
            return
        except OSError as error:
            self._keep(f"cannot be deleted ({os.strerror(error.errno or 0)})")

    def _keep(self, reason: str) -> None:
        with self.lock:
            self.kept[reason] = self.kept.get(reason, 0) + 1

    def _deletions(self) -> None:
        """Mirror, only when everything else went well."""
        if not self.op.delete:
            return
        if self.outcome.failures:
            self.outcome.notes.append("nothing was deleted, because not everything was sent")
            return
        for row in self.plan.rows:
            if row.action == "delete":
                key = row.detail["key"]
                retrying(self.run.control, lambda key=key: self.target.store.delete([key]))  # type: ignore[misc]
                self.index.put({row.path: None})
                self.outcome.add(row.path, "deleted", row.size)
