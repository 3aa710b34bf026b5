"""pull: plan and perform."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial

from nbdata.engine.datasets import detail_of, info_of
from nbdata.engine.decide import decide_pull
from nbdata.engine.growing_space import GrowingSpace
from nbdata.engine.mirror import plan_local_deletions
from nbdata.engine.run import Outcome, Run
from nbdata.engine.same_bytes import same_bytes
from nbdata.engine.sources import Found, find, folder_part
from nbdata.engine.verify import Judge, of_parts, right, vouched
from nbdata.errors import BadOption, ChecksumMismatch, NbdataError, SourceChanged
from nbdata.integrity.digests import ALGORITHMS
from nbdata.paths import OWN_FOLDER
from nbdata.report import Plan, Report, Row
from nbdata.space.limits import disk_of, existing_ancestor, round_up
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.local import disk_error, sync_folder
from nbdata.transfer.fetch import BIG, Check, PartedFetch, RangesIgnored, fetch_whole
from nbdata.transfer.gathering import BATCH, Gathering
from nbdata.transfer.index import Record
from nbdata.transfer.landing import Landed, Landing
from nbdata.transfer.names import LocalNames, folds_case, too_long, unrepresentable
from nbdata.transfer.part_records import NOTED, PART, Begun, part_size_for, validator
from nbdata.transfer.partials import Partial
from nbdata.transfer.pool import Crew
from nbdata.transfer.retry import retrying
from nbdata.transfer.selection import Selection
from nbdata.verbs.pull import Pull

__all__ = ["perform", "plan", "plan_of"]


def plan(run: Run) -> Plan:
    """Decide for each selected object; reads the listing, local stats and the index, writes nothing."""
    op = run.operation
    assert isinstance(op, Pull)
    return plan_of(run, find(run, op.source))


def plan_of(run: Run, found: Found) -> Plan:
    """The same for objects that were found already."""
    op = run.operation
    assert isinstance(op, Pull)
    root, rename = _target_of(op, found)
    ancestor = existing_ancestor(root)
    if not os.path.isdir(ancestor):
        raise BadOption(
            "the target is a file" if ancestor == root else "a file stands in the target's path",
            path=ancestor,
            expected="a folder",
            remedy="Remove the file, or name another target",
        )
    out = Plan("pull", *op.places())
    rows = run.row_file("plan")
    index = run.index(op.source, root, _identity(root))
    block = disk_of(root)[2]
    begun = Begun(os.path.join(root, OWN_FOLDER))
    names = LocalNames(encode=op.encode_names, blind=folds_case(ancestor))
    kept = set[str]() if op.delete else None
    base = root.rstrip("/") + "/"
    empty = _missing(root)  # and nothing needs to be looked at
    for entry in Selection.of(op).apply(found.entries):
        info, present, needed = entry.info, 0, 0
        path, reason = (rename, unrepresentable(rename)) if rename else names.name(entry.path)
        if reason and not (rename or op.encode_names):
            reason += "; --encode-names fetches it under another name"
        if reason or (reason := too_long(base, path)):
            action = "unrepresentable"
        else:
            local = None if empty else _lstat(base + path)
            record = None if local is None else index.get(path)
            action, reason = decide_pull(info, local, record, overwrite=op.overwrite, size_only=op.size_only)
            if action in _MOVES:
                if found.location.store.ranges:
                    present = begun.present(path, op.source, info)
                out.files += 1
                out.bytes += max(info.size, 0)
                if action != "compare":  # which claims room when it is found to differ
                    out.present += present
                    needed = round_up(info.size, block) - round_up(present, block)
                    out.needed += needed
                    out.inodes += 1
        if kept is not None:
            kept.add(path)
        out.count(action, info.size)
        detail: dict[str, object] = {}  # of what stays as it is nothing more will be asked
        if action != "unchanged":
            detail = detail_of(info)
            detail["needed"] = needed
        if present:
            detail["present"] = present
        if reason:
            detail["reason"] = reason
        rows.add(Row(path, action, info.size, detail))
    if kept is not None:
        plan_local_deletions(op, root, kept, index, out, rows)
    if not out.actions and (why := Selection.of(op).none_left()):
        out.notes.append(why)
    rows.close()
    out.rows = rows.rows()
    out.details = {"root": root}
    return out


_MOVES = ("fetch", "overwrite", "compare")


def _target_of(op: Pull, found: Found) -> tuple[str, str]:
    """The target folder, and the file's name there if one object was asked for under a name."""
    target = op.target
    assert target is not None  # Pull.check
    if found.single is not None and not target.endswith("/") and not os.path.isdir(target):
        return os.path.dirname(target), os.path.basename(target)
    return target.rstrip("/") or "/", ""


def _identity(root: str) -> tuple[int, int] | None:
    try:
        found = os.stat(root)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _missing(path: str) -> bool:
    """Whether there is nothing; False where nobody may look, which is told of what is looked for there."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        # A link that leads nowhere, as a broken one does; and a name that nothing here can have.
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            return None
        raise disk_error(error, path) from error


def _in_parts(store: Store, info: ObjectInfo) -> bool:
    # Of versions that nothing tells apart the parts may not fit together.
    return (
        store.ranges and info.size >= BIG and part_size_for(info.size) < info.size and bool(validator(info))
    )


# Of an object in one piece that many bytes are kept when it is broken off: what is less is sooner fetched again.
_KEPT = 256 << 10
# One of many small objects, and what the store says of it.
_Small = tuple[Row, ObjectInfo]
# Errors after which what was fetched is of no use.
_USELESS = (ChecksumMismatch, SourceChanged)


def perform(run: Run, planned: Plan, *, promised: Callable[[ObjectInfo], Check] | None = None) -> Report:
    """Do what the plan says.

    Parameters
    ----------
    promised : callable, optional
        Gives the check of an object, where somebody else than its store vouches for the bytes.
    """
    return _Pulling(run, planned, promised).run_all()


class _Pulling:
    """One pull while it is performed."""

    def __init__(
        self, run: Run, planned: Plan, promised: Callable[[ObjectInfo], Check] | None = None
    ) -> None:
        assert isinstance(run.operation, Pull)
        self.run, self.op, self.plan, self.promised = run, run.operation, planned, promised
        self.root: str = planned.details["root"]
        self.outcome = Outcome(run)
        if not planned.actions:
            self.outcome.notes.extend(planned.notes)
        self.index = run.index(self.op.source, self.root, _identity(self.root))
        self.store = run.open(folder_part(self.op.source)).store
        self.verified: dict[str, bool] = {}  # of files that have not landed yet
        self.claimed: dict[str, int] = {}  # bytes that are reserved for each file that is under way
        self.space = GrowingSpace(run, disk_of(self.root)[2], 0)
        self.lock = threading.Lock()
        self.present: dict[str, int] = {}  # bytes of an object that an earlier run had fetched
        self.unguarded = self.unverified = 0
        self.unfinished: dict[str, Partial] = {}  # big objects whose parts were begun
        self.crew = Crew(run.control, self.op.concurrency)
        self.gathering = Gathering[_Small](
            run.control,
            self.crew,
            lambda: self.store.read_each(
                self.gathering.next,
                info=lambda small: small[1],
                width=lambda: self.crew.wanted,
                arrived=self._arrived,
                missed=self.gathering.missed,
            ),
            lambda small, error: self._small(*small, failed=error),
        )

    def run_all(self) -> Report:
        try:
            with Landing(
                self.root,
                self.run.control,
                umask=self.run.context.umask,
                landed=self._landed,
                landing=lambda batch: self.index.announce({file.path: file.tag for file in batch}),
                # Of a part that is under way a kill loses what was not noted yet, beside that.
                most=lambda: self.crew.wanted * (PART - NOTED),
            ) as self.landing:
                self.index.open(self.landing.target.identity, needed=False)
                self.begun = Begun(self.landing.target.staging(self.root))
                self.crew.run(self._units())
                self.landing.flush()
                self._deletions()
                self._forget_stale()
        finally:
            for parts in self.unfinished.values():
                parts.close()
            self.index.close()
        if self.unguarded:
            self.outcome.notes.append(
                f"{self.unguarded:,} came unguarded: the store tells neither version, ETag nor time of them, so a "
                "change would not show"
            )
        if self.unverified and self.op.verify != "none":
            self.outcome.notes.append(
                f"{self.unverified:,} could not be verified: the store vouches for no checksum of them"
            )
        self.outcome.notes += filter(None, [self.index.problem])
        return self.outcome.report()

    def _units(self) -> Iterator[Callable[[], None]]:
        batch: list[_Small] = []
        for row in self.plan.rows:
            if row.action not in _MOVES:
                self.outcome.left(row)
                continue
            info = info_of(row)
            gathered = self._gathered(row, info)
            if gathered:
                batch.append((row, info))
            if batch and (len(batch) == BATCH or not gathered):
                yield partial(self.gathering.take, batch)
                batch = []
            if gathered:
                continue
            if row.action != "compare" and self._resumes(row, info):
                yield partial(self._big, row, info)
            else:
                yield partial(self._small, row, info)
        if batch:
            yield partial(self.gathering.take, batch)

    # -- one object ---------------------------------------------------------------------------

    def _gathered(self, row: Row, info: ObjectInfo) -> bool:
        """Whether an object is one of many small ones, which are fetched together."""
        return (
            0 <= info.size <= self.store.reads_each
            and row.action != "compare"
            and "present" not in row.detail
            and self.promised is None
            and self.run.control.rate is None
            and row.path not in self.begun
            and (
                vouched(info, self.op.verify) is not None
                if self.op.verify in ALGORITHMS
                else self.op.verify == "none" or of_parts(info, self.op.verify) is None
            )
        )

    def _arrived(self, small: _Small, told: ObjectInfo, body: memoryview) -> None:
        """The bytes of a small object are there, in memory."""
        row, info = small
        try:
            verified = right(told, self.op.verify, body)
            if verified is None:
                self.gathering.missed(small, None)
                return
            final, staging = self.landing.target.prepare(row.path)
            self.claimed[row.path] = row.detail["needed"]
            temporary = self.landing.target.written(staging, body, row.path)
            self.verified[row.path] = verified
            self.landing.land(Landed(row.path, temporary, final, info.size, tag=validator(info)))
            self.run.control.advance(bytes=info.size)
        except ChecksumMismatch:
            self.run.control.advance(retries=1)
            self.gathering.missed(small, None)
            return
        except Exception as error:
            self.claimed.pop(row.path, None)
            self.verified.pop(row.path, None)
            self.outcome.fail(row.path, error)
        self.crew.done += 1
        self.run.control.checkpoint()

    def _small(self, row: Row, info: ObjectInfo, failed: Exception | None = None) -> None:
        try:
            final, staging = self.landing.target.prepare(row.path)
            if row.action == "compare" and (same := self._same_bytes(final, info)):
                self.index.put({row.path: Record.of(validator(info), info.size, same)})
                self.outcome.add(row.path, "unchanged", info.size)
                self.run.control.advance(files=1, present=info.size)
                return
            if row.action == "compare":
                needed = info.size - row.detail.get("present", 0)
                self.space.claim(needed)
                row.detail["needed"] = needed
                if self._resumes(row, info):
                    self._big(row, info)
                    return
            if row.path in self.begun:  # of no use, or it would be continued
                if self.begun.is_other(row.path, self.op.source, info):
                    self._anew(row.path)
                Partial.remove(Partial.data_of(staging, row.path))
            self.claimed[row.path] = row.detail["needed"]
            expected = max(0, info.size)
            self.landing.reserve(expected)
            try:
                fd, temporary = self.landing.target.temporary(staging)
            except NbdataError:
                self.landing.release(expected)
                raise
            try:
                os.fchmod(fd, self.landing.target.file_mode)
                verified = fetch_whole(
                    self.run.control,
                    self.store,
                    info,
                    fd,
                    self._check,
                    claim=self.space.claim,
                    failed=failed,
                )
                size = os.fstat(fd).st_size
                if info.size < 0:
                    self.claimed[row.path] = size
            except BaseException as error:
                self.landing.release(expected)
                if not self._keep(row.path, info, staging, temporary, fd, error):
                    with contextlib.suppress(
                        FileNotFoundError
                    ):  # another machine took it for that of a dead job
                        os.unlink(temporary)
                raise
            finally:
                os.close(fd)
            self.verified[row.path] = verified
            landed = Landed(row.path, temporary, final, size, tag=validator(info), reserved=expected)
            self.landing.land(landed)
        except Exception as error:
            self.claimed.pop(row.path, None)
            self.verified.pop(row.path, None)
            self.outcome.fail(row.path, error)

    def _resumes(self, row: Row, info: ObjectInfo) -> bool:
        """Whether an object goes by a partial: all that are big, and those of which an earlier run left something."""
        return _in_parts(self.store, info) or "present" in row.detail

    def _keep(
        self, path: str, info: ObjectInfo, staging: str, temporary: str, fd: int, error: BaseException
    ) -> bool:
        """Whether what there is of an object in one piece was kept for the next run."""
        count = os.fstat(fd).st_size
        sure = self.store.ranges and self.store.refuses_first and not isinstance(error, _USELESS)
        if not sure or not _KEPT <= count < info.size:
            return False
        return Partial.keep(staging, path, self.op.source, info, temporary, count)

    def _anew(self, path: str) -> None:
        self.outcome.notes.append(f"{path}: the source changed since it was begun, so it was fetched anew")

    def _same_bytes(self, path: str, info: ObjectInfo) -> os.stat_result | None:
        """How the local file looked before it was read, if it holds the bytes that the store vouches for.

        What changes it later, or while it is read, makes it another than was recorded.
        """
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise disk_error(error, path) from error
        try:
            before = os.fstat(fd)
            return before if same_bytes(self.run.control, self.store, info, fd, path) else None
        finally:
            os.close(fd)

    def _big(self, row: Row, info: ObjectInfo) -> None:
        """Find out what there is to do for an object in parts, and bring it to the crew."""
        try:
            final, staging = self.landing.target.prepare(row.path)
            told = info
            if self.op.verify != "none":  # listings tell neither checksums nor whether the ETag is an MD5
                told = retrying(self.run.control, lambda: self.store.head(info.key))
            judge = self._judge(told) if self.promised is None else None
            parts = Partial(
                staging,
                row.path,
                self.op.source,
                info,
                self.landing.target.file_mode,
                layout=judge.layout if judge is not None else None,
                ours=self.landing.target.check,
                marked=partial(self._part_landed, row.path),
            )
            self.landing.target.sync_folders()
        except NbdataError as error:
            self.outcome.fail(row.path, error)
            return
        if parts.restarted:
            self._anew(row.path)

        def done(verified: bool) -> None:
            try:
                os.fchmod(parts.fd, self.landing.target.file_mode)
                os.fdatasync(parts.fd)
            except OSError as error:
                failed(disk_error(error, final))
                return
            inode = os.fstat(parts.fd).st_ino
            self.unfinished.pop(row.path).close()
            self.verified[row.path] = verified
            self.present[row.path] = fetch.present
            self.landing.land(
                Landed(row.path, parts.data, final, info.size, synced=True, tag=validator(info), inode=inode)
            )

        def failed(error: Exception) -> None:
            del self.unfinished[row.path]
            if isinstance(error, RangesIgnored):
                parts.discard()
                self.run.control.advance(present=-fetch.present)
                row.detail.pop("present", None)
                self._part_landed(row.path, self.claimed[row.path] - row.detail["needed"])
                self._small(row, info)
                return
            parts.close()
            if isinstance(error, ChecksumMismatch):
                parts.discard()
            self.outcome.fail(row.path, error)

        def check(_: ObjectInfo) -> Check:
            return self._check(told) if judge is None else judge.check(parts.part_size)

        fetch = PartedFetch(self.run.control, self.store, info, parts, check, done=done, failed=failed)
        self.unfinished[row.path] = parts
        self.claimed[row.path] = row.detail["needed"]
        self.crew.bring(fetch.units())

    def _check(self, info: ObjectInfo) -> Check:
        """Of an object in one piece, or by what somebody promised."""
        return self.promised(info) if self.promised is not None else self._judge(info).check()

    def _judge(self, info: ObjectInfo) -> Judge:
        return Judge(self.run.control, self.store, info, self.op.verify)

    # -- afterwards ---------------------------------------------------------------------------

    def _part_landed(self, path: str, size: int) -> None:
        """So many bytes of a big object are on the disk: room for them is no longer to be kept, while they use it."""
        with self.lock:
            size = min(size, self.claimed[path])
            self.claimed[path] -= size
        if self.run.reservation is not None:
            self.run.reservation.landed(size)

    def _landed(self, batch: list[Landed]) -> None:
        """From the committing thread: these are durable under their final names."""
        records: dict[str, Record | None] = {}
        for file in batch:
            if file.error is None and file.stat is not None:
                records[file.path] = Record.of(file.tag, file.size, file.stat)
        if records:
            self.index.put(records)
        for file in batch:
            if file.error is not None:
                self.outcome.fail(file.path, file.error)
                continue
            if file.synced:  # a big one: its record of parts is of no more use
                Partial.forget_record(file.temporary)
            verified = self.verified.pop(file.path, False)
            self.unverified += not verified
            self.outcome.add(file.path, "fetched", file.size, moved=True, verified=verified)
            self.outcome.present += self.present.pop(file.path, 0)
            self.unguarded += not file.tag
            self.run.control.advance(files=1)
            if self.run.reservation is not None:
                self.run.reservation.landed(self.claimed.pop(file.path, 0), 1)

    def _forget_stale(self) -> None:
        """Remove what earlier runs began of objects that the source has no more.

        Only after everything has landed can that be told: then no partial of this source is of use.
        """
        if not self.outcome.failures and not Selection.of(self.op).none_left():
            for data in Begun(self.landing.target.staging(self.root)).of_source(self.op.source):
                Partial.remove(data)

    def _deletions(self) -> None:
        """Mirror, only when everything else went well."""
        if not self.op.delete:
            return
        if self.outcome.failures:
            self.outcome.notes.append("nothing was deleted, because not everything was fetched")
            return
        gone: list[str] = []
        try:
            for row in self.plan.rows:
                if row.action == "delete":
                    self.run.control.checkpoint()
                    try:
                        os.unlink(os.path.join(self.root, row.path))
                    except FileNotFoundError:
                        pass
                    except OSError as error:
                        self.outcome.fail(row.path, disk_error(error, row.path))
                        continue
                    gone.append(row.path)
                    self.outcome.add(row.path, "deleted", row.size)
        finally:
            # Durably first: what stood there again without a record would be nobody's, and not be deleted any more.
            for folder in {os.path.dirname(os.path.join(self.root, path)) for path in gone}:
                with contextlib.suppress(OSError):  # gone itself
                    sync_folder(folder)
            self.index.put(dict.fromkeys(gone))
