"""Make links, and keep the records of files with several names valid.

A disk that makes no such links, or no more of one file, gets copies. Making or replacing one name changes the ctime of
the file under all its names, so their records look stale. The records are renewed at the end.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from nbdata.archives.member import Member
from nbdata.disk import open_regular
from nbdata.engine.unpack.written import Written, offset_of
from nbdata.errors import NbdataError, SourceChanged
from nbdata.optional_calls import fdatasync, hard_link, set_mode, set_time
from nbdata.transfer.index import Record
from nbdata.transfer.target_folder import TargetFolder

__all__ = ["HardLinks", "make_link"]

# Bytes that are copied at once.
_BLOCK = 1 << 20


def make_link(target: str, name: str, folder: int | None) -> None:
    """Make a symbolic link in an open folder."""
    try:
        os.symlink(target, name, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        raise NbdataError(
            f"the disk makes no symbolic links, and the archive has one to {target}",
            remedy="Unpack it on another disk; or leave the links out with --exclude",
        ) from error


class HardLinks:
    """The files of a target that gained or lost names in this run.

    Parameters
    ----------
    root : str
        The target folder.
    written : Written
    target : TargetFolder
        The same folder.
    claim : callable
        Reserves room for a copy of that many bytes; NotEnoughSpace if there is none, BadArchive if it is too much.
    checkpoint : callable
        Raises Cancelled if the job is to stop.
    """

    def __init__(
        self,
        root: str,
        written: Written,
        target: TargetFolder,
        claim: Callable[[int], None],
        checkpoint: Callable[[], None],
    ) -> None:
        self._root, self._written, self._target = root, written, target
        self._claim, self._checkpoint = claim, checkpoint
        self._groups: dict[str, list[str]] = {}  # name -> all names of the file
        self._changed: set[tuple[int, int]] = set()  # files of which this run made or replaced a name

    def make(self, member: Member, temporary: str) -> os.stat_result:
        """Link to the file that the member names, if this archive has written that file; return the file's status.

        If the disk makes no such links, the temporary becomes a copy, with a status of its own.
        """
        folder, _, name = os.path.join(self._root, member.linkname).rpartition("/")
        above = self._target.open_folder(folder)
        try:
            status = os.lstat(name, dir_fd=above)
            self._refuse_another(member, status)
            at, new = self._target.relative(temporary)
            if not hard_link(name, new, src_dir_fd=above, dst_dir_fd=at, on=above):
                return self._copy(name, above, new, at, status)
            if not os.path.samestat(status, os.lstat(new, dir_fd=at)):
                self._target.discard(temporary)
                raise NbdataError(
                    f"{member.linkname}, to which it is a hard link, was exchanged meanwhile",
                    path=member.name,
                    remedy="Run the command again",
                )
        finally:
            os.close(above)
        self._changed.add((status.st_dev, status.st_ino))
        group = self._groups.setdefault(member.linkname, [member.linkname])
        if member.name not in group:
            group.append(member.name)
        self._groups[member.name] = group
        return status

    def _copy(
        self, name: str, above: int, new: str, at: int | None, expected: os.stat_result
    ) -> os.stat_result:
        """Copy a file, with its permissions and its time; return the status of the copy."""
        with open(open_regular(name, os.O_NOFOLLOW, dir_fd=above), "rb", buffering=0) as file:
            if not os.path.samestat(os.fstat(file.fileno()), expected):
                raise SourceChanged(
                    "a file was exchanged while it was copied for a hard link",
                    path=name,
                    remedy="Run the command again",
                )
            self._claim(expected.st_size)
            fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=at)
            with open(fd, "wb") as copy:
                while block := file.read(_BLOCK):
                    self._checkpoint()
                    copy.write(block)
                copy.flush()
                set_mode(fd, stat.S_IMODE(expected.st_mode))
                set_time(fd, expected.st_mtime_ns)
                fdatasync(fd)
                return os.fstat(fd)

    def _refuse_another(self, member: Member, status: os.stat_result) -> None:
        """Raise NbdataError if a file is not the one that the archive has written under the name of the original."""
        name = member.linkname
        record = self._written.index.get(name)
        known = record is not None and self._written.is_ours(record) and stat.S_ISREG(status.st_mode)
        same = record is not None and (record.local_same(status) or self.was_same(record, status))
        linked = record is not None and name in self._groups and record.is_file(status)
        if not (known and record is not None and (linked or same)):
            raise NbdataError(
                f"{name}, to which it is a hard link, differs from the archive",
                path=member.name,
                remedy="Run the command with --overwrite always",
            )
        if offset_of(record) > member.offset:
            raise NbdataError(
                f"{name}, to which it is a hard link, has the content of a later member by now",
                path=member.name,
                remedy="Run the command with --overwrite always",
            )

    def restore(self, names: list[str]) -> None:
        """Note the names that one file had before this run."""
        for name in names:
            self._groups[name] = names

    def saw(self, name: str, status: os.stat_result) -> None:
        """Note a name of an unchanged file: making or replacing another name of the file changes its ctime."""
        if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
            self._groups.setdefault(name, [name])

    def replacing(self, record: Record | None, status: os.stat_result) -> None:
        """Note that a name of an unchanged file is about to be replaced, which changes the ctime of its other names."""
        if record is not None and status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
            self._changed.add((status.st_dev, status.st_ino))

    def was_same(self, record: Record, status: os.stat_result) -> bool:
        """True if a file is as recorded but for its ctime, and this run made or replaced another name of it."""
        return (status.st_dev, status.st_ino) in self._changed and record[2:4] == (
            status.st_size,
            status.st_mtime_ns,
        )

    def records(self) -> dict[str, Record | None]:
        """New records of all names, from the current state of the files."""
        records: dict[str, Record | None] = {}
        for name in self._groups:
            record = self._written.index.get(name)
            try:
                status = os.lstat(os.path.join(self._root, name))
            except OSError:
                continue
            same = record is not None and record.is_file(status)
            if record is not None and same and (status.st_size, status.st_mtime_ns) == record[2:4]:
                records[name] = Record.of(record.tag, record.size, status)
        return records
