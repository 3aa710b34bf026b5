"""push: plan and perform."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from nbdata.engine.begun_uploads import BegunUploads
from nbdata.engine.decide import decide_push
from nbdata.engine.left_out import LeftOut
from nbdata.engine.remote_target import delete_planned, key_at, name_at, plan_deletions, standing
from nbdata.engine.run import Outcome, Run
from nbdata.engine.same_bytes import blocks, same_bytes
from nbdata.engine.sent import MultipartJudge, SentHasher
from nbdata.engine.sources import find
from nbdata.errors import ChecksumMismatch, NbdataError, SourceChanged
from nbdata.report import Plan, Report, Row
from nbdata.space.limits import disk_of, round_up
from nbdata.stores.base import ObjectInfo, Upload
from nbdata.stores.local import disk_error
from nbdata.transfer.gathering import BATCH, Gathering
from nbdata.transfer.index import Record
from nbdata.transfer.names import decoded
from nbdata.transfer.part_records import PART, validator
from nbdata.transfer.pool import Crew
from nbdata.transfer.retry import retrying
from nbdata.transfer.selection import Selection
from nbdata.transfer.send import (
    FileSource,
    PartedSend,
    SentPart,
    answer_of,
    hashed_parts,
    send_whole,
    upload_part_size,
    withdrawn,
)
from nbdata.verbs.push import Push

__all__ = ["perform", "plan"]

_MOVES = ("send", "overwrite", "compare")


def plan(run: Run) -> Plan:
    """Decide for each selected file; reads local stats, the target's listing and the index, writes nothing."""
    op = run.operation
    assert isinstance(op, Push)
    left_out = LeftOut(op)
    found = find(run, op.source, left_out)
    target = run.open(op.target)
    out = Plan("push", *op.places())
    rows = run.row_file("plan")
    single = found.single is not None
    name = name_at(target, os.path.basename(found.single.key) if found.single else "", mirror=op.delete)
    remote = standing(run, target, name, overwrite=op.overwrite, delete=op.delete)
    root = _root(op, single)
    index = run.index(op.source, op.target, _identity(root))
    block = disk_of(op.target)[2] if op.local_target() else 0
    taken = set[str]() if op.encode_names else None  # else no two names give the same key
    detail: dict[str, object]
    for entry in Selection.of(op).apply(found.entries):
        key = name or key_at(target, decoded(entry.path) if op.encode_names else entry.path)
        why = "" if _is_text(key) else "its name is not UTF-8, as keys are: rename it, or --exclude it"
        if why or (taken is not None and key in taken):
            detail = {"reason": why or f"another file has the same key, {key}"}
            out.count("unrepresentable", entry.info.size)
            rows.add(Row(entry.path, "unrepresentable", entry.info.size, detail))
            continue
        if taken is not None:
            taken.add(key)
        there = remote.get(key)
        if op.delete:
            remote.keep(key)
        path = "/" + entry.info.key
        try:
            local = os.stat(path)
        except FileNotFoundError:  # vanished since it was listed
            continue
        except OSError as error:
            left_out(entry.path, "unreadable", disk_error(error, path))
            continue
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
        detail = {"key": key, "file": path, "mtime_ns": local.st_mtime_ns}
        if decision.reason:
            detail["reason"] = decision.reason
        if there is not None:
            detail["etag"] = there.etag
        rows.add(Row(entry.path, decision.action, local.st_size, detail))
    for row in left_out.rows():
        out.count(row.action, 0)
        rows.add(row)
    out.notes += (told := left_out.notes())
    if op.delete:
        plan_deletions(run, target, remote, index, out, rows.add, spared=left_out.covers)
    if not out.actions and (why := Selection.of(op).none_left()):
        out.notes.append(why)
    rows.close()
    out.rows = rows.rows()
    out.details = {"root": root, "single": single, "left_out": told}
    return out


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:  # a name of other bytes
        return False
    return True


def _root(op: Push, single: bool) -> str:
    from nbdata.paths import glob_base, has_glob

    source = glob_base(op.source) if has_glob(op.source) else op.source
    return os.path.dirname(source) if single else source.rstrip("/") or "/"


def _identity(root: str) -> tuple[int, int]:
    found = os.stat(root)
    return found.st_dev, found.st_ino


def _differs(now: os.stat_result, before: os.stat_result) -> bool:
    """Whether a file may hold other bytes, or has no name any more.

    Its other names may come and go, which is a change of its status (ctime) but not of its bytes.
    """
    relinked = now.st_nlink != before.st_nlink and now.st_nlink
    return (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or (
        now.st_ctime_ns != before.st_ctime_ns and not relinked
    )


def perform(run: Run, planned: Plan) -> Report:
    """Do what the plan says."""
    return _Pushing(run, planned).run_all()


class _Loaded(NamedTuple):
    """A small file in memory."""

    row: Row
    before: os.stat_result
    data: bytes
    hasher: SentHasher


class _Pushing:
    """One push while it is performed."""

    def __init__(self, run: Run, planned: Plan) -> None:
        assert isinstance(run.operation, Push)
        self.run, self.op, self.plan = run, run.operation, planned
        self.outcome = Outcome(run)
        self.outcome.notes.extend(planned.details["left_out"] if planned.actions else planned.notes)
        self.identity = _identity(planned.details["root"])
        self.index = run.index(self.op.source, self.op.target, self.identity)
        self.target = run.open(self.op.target)
        self.unverified = 0
        self.lock = threading.Lock()
        self.kept: dict[str, int] = {}  # reasons for which sources were not deleted
        self.uploads = BegunUploads(run, self.op.target, keep=True)
        self.crew = Crew(run.control, self.op.concurrency)
        self.gathering = Gathering[Row](
            run.control,
            self.crew,
            lambda: self.target.store.write_each(
                self._loaded,
                body=lambda loaded: (loaded.row.detail["key"], loaded.data),
                width=lambda: self.crew.wanted,
                written=self._written,
                missed=lambda loaded, error: self.gathering.missed(loaded.row, error),
            ),
            self._small,
        )

    def run_all(self) -> Report:
        self.index.open(self.identity, needed=False)
        try:
            self.crew.run(self._units())
            if self.op.delete:
                delete_planned(self.run, self.plan, self.target, self.index, self.outcome, "sent")
        finally:
            self.uploads.close()
            self.index.close()
        if self.op.delete_source and (same := self.outcome.counts.get("unchanged")):
            self.kept["not sent, as the target has them unchanged"] = same
        self.outcome.notes += [f"{count:,} kept: {reason}" for reason, count in self.kept.items()]
        if self.unverified and self.op.verify != "none":
            self.outcome.notes.append(
                f"{self.unverified:,} could not be verified: the store answered no checksum for them"
            )
        self.outcome.notes += filter(None, [self.index.problem])
        return self.outcome.report()

    def _units(self) -> Iterator[Callable[[], None]]:
        batch: list[Row] = []
        together = self.run.control.rate is None
        for row in self.plan.rows:
            if row.action not in _MOVES:
                self.outcome.left(row)
                continue
            gathered = together and row.action != "compare" and row.size <= self.target.store.writes_each
            if gathered:
                batch.append(row)
            if batch and (len(batch) == BATCH or not gathered):
                yield partial(self.gathering.take, batch)
                batch = []
            if gathered:
                continue
            if row.action != "compare" and self._in_parts(row):
                yield from self._big(row)
            else:
                yield partial(self._small, row)
        if batch:
            yield partial(self.gathering.take, batch)

    # -- one file -----------------------------------------------------------------------------

    def _open(self, row: Row) -> tuple[int, os.stat_result]:
        path = row.detail["file"]
        try:
            # What was a file when it was listed may be a named pipe by now, which would wait for its writer.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
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
        if not found.st_size and os.pread(fd, 1, 0):
            os.close(fd)
            raise SourceChanged(
                "the file has no size and yet holds bytes, as those of /proc do",
                path=path,
                remedy="Push a copy of it, as cat makes one",
            )
        return fd, found

    def _unchanged(self, fd: int, before: os.stat_result, path: str) -> None:
        now = os.fstat(fd)
        if _differs(now, before):
            what = "changed" if now.st_nlink else "was deleted or replaced"
            raise SourceChanged(
                f"the file {what} while it was sent", path=path, remedy="Run the same line again"
            )

    def _hasher(self, key: str) -> Callable[[], SentHasher]:
        return lambda: SentHasher(key, self.op.verify)

    def _in_parts(self, row: Row) -> bool:
        return self.target.store.multipart and row.size > PART

    def _loaded(self) -> _Loaded | None:
        """The next of the small files that are sent together."""
        while (row := self.gathering.next()) is not None:
            try:
                return self._load(row)
            except Exception as error:
                self.outcome.fail(row.path, error)
        return None

    def _load(self, row: Row) -> _Loaded:
        fd, before = self._open(row)
        path, data = row.detail["file"], b""
        try:
            while len(data) <= row.size and (piece := os.read(fd, row.size + 1 - len(data))):
                data += piece
        except OSError as error:
            os.close(fd)
            raise disk_error(error, path) from error
        try:
            self._unchanged(fd, before, path)
        finally:
            os.close(fd)
        if len(data) != row.size:
            raise SourceChanged("the file changed while it was sent", path=path)
        hasher = SentHasher(row.detail["key"], self.op.verify)
        hasher.update(memoryview(data))
        self._announce(row, before)
        return _Loaded(row, before, data, hasher)

    def _written(self, loaded: _Loaded, info: ObjectInfo) -> None:
        """The store has answered for a small file."""
        if info.etag:
            self._judged(loaded, info)
        else:
            self.gathering.later(partial(self._asked_after, loaded._replace(data=b"")))
        self.run.control.checkpoint()

    def _asked_after(self, loaded: _Loaded) -> None:
        """The store did not tell of what it got; it does when it is asked."""
        try:
            info = retrying(self.run.control, lambda: self.target.store.head(loaded.row.detail["key"]))
        except Exception as error:
            self.outcome.fail(loaded.row.path, error)
            return
        if info.size in (loaded.row.size, -1):
            self._judged(loaded, info)
        else:
            self.gathering.missed(loaded.row, None)

    def _judged(self, loaded: _Loaded, info: ObjectInfo) -> None:
        row = loaded.row
        try:
            verified = loaded.hasher.verify("" if info.encrypted else answer_of(info))
            self.run.control.advance(bytes=row.size)
            self._sent(row, loaded.before, info, verified)
        except ChecksumMismatch:
            self.run.control.advance(retries=1)
            self.gathering.missed(row, None)
        except Exception as error:
            self.outcome.fail(row.path, error)
        self.crew.done += 1

    def _small(self, row: Row, failed: NbdataError | None = None) -> None:
        """Send a file in one piece, or compare it, whatever its size; `failed` is why a first try did not do it."""
        try:
            fd, before = self._open(row)
            try:
                if row.action == "compare" and self._same_bytes(fd, row):
                    there = ObjectInfo(row.detail["key"], row.size, row.detail["etag"])
                    self.index.put({row.path: Record.of(validator(there), row.size, before)})
                    self.outcome.add(row.path, "unchanged", row.size)
                    self.run.control.advance(files=1, present=row.size)
                    return
                if self._in_parts(row):
                    for unit in self._big(row):
                        unit()
                    return
                key = row.detail["key"]
                self._announce(row, before)

                def unchanged() -> None:
                    self._unchanged(fd, before, row.detail["file"])

                info, verified = send_whole(
                    self.run.control,
                    self.target.store,
                    key,
                    partial(FileSource, self.run.control, fd, unchanged=unchanged),
                    row.size,
                    self._hasher(key),
                    failed=failed,
                )
                unchanged()
            finally:
                os.close(fd)
            self._sent(row, before, info, verified)
        except Exception as error:
            self.outcome.fail(row.path, error)

    def _announce(self, row: Row, before: os.stat_result) -> None:
        """Note that an object is about to be another: else a file that was sent just before the end would look as if
        somebody had changed the object.
        """
        self.index.announce({row.path: ""}, {row.path: before})

    def _same_bytes(self, fd: int, row: Row) -> bool:
        """Whether the object that stands at the target holds the bytes of the file."""
        there = ObjectInfo(row.detail["key"], row.size, row.detail["etag"])
        return same_bytes(self.run.control, self.target.store, there, fd, row.detail["file"])

    def _big(self, row: Row) -> Iterator[Callable[[], None]]:
        try:
            fd, before = self._open(row)
        except Exception as error:
            self.outcome.fail(row.path, error)
            return
        store, key = self.target.store, row.detail["key"]

        def begin() -> Upload:
            self._announce(row, before)
            return self.uploads.begin(store, key, row.size)

        def done(info: ObjectInfo, verified: bool) -> None:
            del self.uploads.unfinished[row.path]
            os.close(fd)
            self.uploads.finished(key)
            self.outcome.present += sending.present
            self._sent(row, before, info, verified)

        def failed(error: Exception) -> None:
            del self.uploads.unfinished[row.path]
            os.close(fd)
            self.outcome.fail(row.path, error)

        control, hashers = self.run.control, self._hasher(key)
        sending = PartedSend(
            control,
            row.size,
            upload_part_size(row.size, self.op.part_size, store),
            hashed_parts(control, partial(FileSource, control, fd), hashers),
            begin=begin,
            abandon=partial(self.uploads.abandon, key),
            before=lambda _: self._unchanged(fd, before, row.detail["file"]),
            whole=MultipartJudge(key, self.op.verify),
            done=done,
            failed=failed,
            there=partial(self._there, fd, row),
            withdraw=partial(withdrawn, store, key),
        )

        def give_up() -> None:
            sending.give_up()
            os.close(fd)

        self.uploads.unfinished[row.path] = give_up
        yield from sending.units()

    def _there(self, fd: int, row: Row, start: int, size: int, answer: str) -> SentPart | None:
        """The part that an earlier run sent, if its ETag is the MD5 of what is to be there."""
        hasher = SentHasher(row.detail["key"], "auto")
        for block in blocks(self.run.control, fd, start, size, row.detail["file"]):
            hasher.update(block)
        try:
            verified = hasher.verify(answer)
        except ChecksumMismatch:
            return None
        return SentPart(answer, hasher.hexdigest(), verified) if verified else None

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
            same = (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino) and not _differs(now, before)
            if stat.S_ISLNK(now.st_mode):
                self._keep("links; neither they nor what they lead to is deleted")
            elif same:
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
