"""The target folder of a job: creates folders in it, refuses paths that lead out of it, and provides temporaries.

Temporaries are in ``TARGET/.nbdata/``, or beside the file if a mount point lies between. That folder exists only while
something is unfinished. Its name is that of `own_files.own_folder`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import secrets
import stat
import threading
from collections.abc import Callable
from typing import NamedTuple

from nbdata import acls
from nbdata.disk import disk_error, sync_folder
from nbdata.errors import AccessDenied, NbdataError
from nbdata.guarded_folders import GuardedFolders, NamedFolders, exchanged_folder
from nbdata.optional_calls import set_mode
from nbdata.own_files import open_own_folder, own_folder, own_mode
from nbdata.transfer.control import Control
from nbdata.transfer.marks import Mark, mark_of
from nbdata.transfer.staging import Staging

__all__ = ["TargetFolder", "target_error"]

# How many folders are remembered as created and checked. Others are checked again.
_KNOWN = 50_000
# The random bytes that tell the temporaries of one part from those of another, and of the same one done again.
_PART = 3


class _Folder(NamedTuple):
    """What is known of a folder of final files.

    Attributes
    ----------
    staging : str
        The folder for their temporaries.
    acl : bytes or None
        The access control list that new files get there.
    group : int
        The group that they get there; -1 if it is the one that their temporaries have.
    """

    staging: str
    acl: bytes | None
    group: int


class TargetFolder:
    """One target folder while a job writes files to it.

    Parameters
    ----------
    root : str
        Absolute. `enter` creates it if missing.
    control : Control
        The job's control. The job waits while a job of another machine works in the same folder.
    umask : int
        The user's umask, for files and folders.
    made : callable
        Called with each created folder.
    named : str, optional
        The folder above that the user named, if the name of this one comes from elsewhere. Links below it lead nowhere
        else. None: the user named this one.
    opened : NamedFolders, optional
        The folders that the job has opened.
    part_of : str, optional
        The token of the job of which this process performs a part: see `nbdata.transfer.staged_files`. The job's
        mark stands for this process's temporaries.

    Attributes
    ----------
    token : str
        The beginning of the names of this process's temporaries.
    file_mode : int
        The mode of new files.
    folders : GuardedFolders
        The folders in the target.
    identity : tuple of int
        Device and inode, once the folder is entered.
    """

    def __init__(
        self,
        root: str,
        control: Control,
        *,
        umask: int,
        made: Callable[[str], None] = lambda _: None,
        named: str | None = None,
        opened: NamedFolders | None = None,
        part_of: str = "",
    ) -> None:
        self._control, self._tell_made, self._part_of = control, made, part_of
        self.root = root.rstrip("/") or "/"
        self.folders = GuardedFolders(
            named or self.root, umask=umask, mkdir=self._mkdir, made=made, opened=opened
        )
        self._umask, self.file_mode = umask, 0o666 & ~umask
        self.token = part_of + secrets.token_hex(_PART if part_of else 6)
        self._staging: dict[int, str] = {}  # st_dev -> folder for temporaries
        self._open: dict[str, Staging] = {}  # these folders
        self._marks: list[Mark] = []  # one mark in each staging folder
        self._checked: dict[str, _Folder] = {}  # parents known to be inside
        self._staged_groups: dict[str, int] = {}  # staging folder -> group of the temporaries in it
        self._staged_acl = False  # whether a folder for temporaries has an access control list for new files
        self._unsynced: set[str] = set()  # folders in which a new folder was created
        self._lock, self._making, self._syncing = threading.Lock(), threading.Lock(), threading.Lock()
        self._number = 0

    def enter(self) -> None:
        """Create the folder, and the folder for its temporaries."""
        try:
            fd = self.folders.open_to_write(self.root)
            try:
                found = os.fstat(fd)
                self.identity = (found.st_dev, found.st_ino)
                self._staging_in(self.root, fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise target_error(error, self.root) from error

    def leave(self, *, stay: bool = False) -> None:
        """Remove this job's remaining temporaries, and their folders if they are empty.

        With `stay`, the temporaries of a part stay: its job gives them their names.
        """
        for folder in () if stay else self._staging.values():
            with contextlib.suppress(OSError):
                for name in (opened := self._open[folder]).names():
                    if name.startswith(self.token) and name != mark_of(self.token):
                        os.unlink(name, dir_fd=opened.fd)
        for mark in self._marks:  # last: temporaries without their mark stay
            mark.remove()
        for folder in () if self._part_of else self._staging.values():
            with contextlib.suppress(OSError):  # not empty: partials of large objects stay
                os.rmdir(f"../{os.path.basename(folder)}", dir_fd=self._open[folder].fd)
        for opened in self._open.values():
            opened.close()
        self._open.clear()

    # -- folders ------------------------------------------------------------------------------

    def staging(self, parent: str) -> str:
        """Return the folder for temporaries on the same file system as `parent`."""
        return self._look_at(parent).staging

    def _look_at(self, parent: str) -> _Folder:
        """Look at a folder of final files, which is made if it is missing."""
        fd = self.folders.open_to_write(parent)
        try:
            staging, group = self._staging_in(parent, fd), _group_in(os.fstat(fd))
            has_it = group == self._staged_groups[staging]
            found = _Folder(staging, acls.default_of(fd), -1 if has_it else group)
        finally:
            os.close(fd)
        if len(self._checked) >= _KNOWN:  # otherwise memory could hold a million folders
            self._checked.clear()
        self._checked[parent] = found
        return found

    def _staging_in(self, parent: str, fd: int) -> str:
        """Return the folder for temporaries on the same file system as an open folder."""
        device = os.fstat(fd).st_dev
        with self._lock:
            folder = self._staging.get(device)
            if folder is None:
                while (folder := self._enter(parent, fd)) is None:
                    pass
                self._staging[device] = folder
            return folder

    def _enter(self, parent: str, fd: int) -> str | None:
        """Create a folder for temporaries, with a mark that keeps other jobs from removing it as empty.

        Returns None if a job just removed it, or, after a wait, if another machine or user works there.
        """
        if self._part_of:
            return self._join(parent, fd)
        with contextlib.suppress(FileExistsError):
            folder = own_folder(parent)
            self._mkdir(os.path.basename(folder), fd, folder, own_mode(parent))
            self._tell_made(folder)
        try:
            opened = Staging(*open_own_folder(parent))
        except FileNotFoundError:
            if not os.path.samestat(os.stat(parent), os.fstat(fd)):
                raise exchanged_folder(parent) from None
            return None
        try:
            self._refuse_elsewhere(opened, fd)
            self._staged_acl |= acls.default_of(opened.fd) is not None
            self._staged_groups[opened.path] = _group_in(os.fstat(opened.fd))
            staging = self._entered(opened)
        except BaseException:
            opened.close()
            raise
        if staging is None:
            opened.close()
        else:
            self._open[staging] = opened
        return staging

    def _join(self, parent: str, fd: int) -> str:
        """Open the folder for temporaries that the job of this part has made, where its mark is."""
        try:
            opened = Staging(*open_own_folder(parent))
            self._refuse_elsewhere(opened, fd)
        except FileNotFoundError:
            raise _not_here(parent) from None
        self._staged_acl |= acls.default_of(opened.fd) is not None
        self._staged_groups[opened.path] = _group_in(os.fstat(opened.fd))
        self._open[opened.path] = opened
        self._refuse_unmarked()
        return opened.path

    def _refuse_unmarked(self) -> None:
        """Raise NbdataError if the mark of the job of this part is not in a folder for temporaries."""
        for opened in self._open.values() if self._part_of else ():
            if not opened.has(mark_of(self._part_of)):
                raise _not_here(opened.path)

    def _refuse_elsewhere(self, folder: Staging, parent: int) -> None:
        """Raise TargetLost if a folder for temporaries, opened by its path, is not in its open parent."""
        if not os.path.samestat(os.stat("..", dir_fd=folder.fd), os.fstat(parent)):
            self.folders.check()
            raise exchanged_folder(folder.path)

    def _entered(self, folder: Staging) -> str | None:
        """Make this job's mark in a folder for temporaries, with the results of `_enter`."""
        try:
            mark = Mark(folder, self.token)
            elsewhere = mark.remove_dead()
        except FileNotFoundError:
            return None
        if elsewhere is not None:
            mark.remove()  # otherwise two waiting jobs would wait for each other
            self._control.phase(f"waits for a job on {elsewhere}, which works in the same folder")
            self._control.sleep(random.uniform(0.5, 1.5))
            return None
        self._control.phase("")
        mark.keep()
        self._marks.append(mark)
        return folder.path

    def check(self) -> None:
        """Raise NbdataError if another machine has taken this job for dead, or the target was exchanged."""
        self.folders.check()
        self._refuse_unmarked()
        for mark in self._marks:
            mark.check()

    def prepare(self, path: str) -> tuple[str, str]:
        """Create the parent folder of a relative path. Returns the final path and the folder for temporaries.

        Raises
        ------
        UnsafeMember
            If a symbolic link in the target leads the path out of the target.
        """
        final = os.path.join(self.root, path)
        parent = os.path.dirname(final)
        known = self._checked.get(parent)
        if known is None:
            try:
                known = self._look_at(parent)
            except OSError as error:
                if isinstance(error, NbdataError):
                    raise
                raise target_error(error, parent) from error
        return final, known.staging

    def open_folder(self, parent: str) -> int:
        """Open the folder of final files, to which no link leads out of the target; the caller closes it."""
        return self.folders.open_to_write(parent, make=False)

    def _mkdir(self, name: str, above: int | None, path: str, mode: int = 0o777) -> None:
        with self._making:  # otherwise a file in it could be recorded before the folder is known as new
            os.mkdir(name, mode, dir_fd=above)
            self._unsynced.add(os.path.dirname(path))

    def sync_folders(self) -> None:
        """Make all folders created so far durable."""
        with self._syncing:  # each caller waits until the folders that it needs are synced
            with self._making:
                folders, self._unsynced = self._unsynced, set()
            for folder in folders:
                try:
                    with contextlib.suppress(PermissionError):  # some folders are writable but not readable
                        sync_folder(folder)
                except OSError as error:
                    raise disk_error(error, folder) from error

    # -- temporaries --------------------------------------------------------------------------

    def unused(self, staging: str) -> str:
        """Return a name for a temporary that is no regular file. It is removed at the end, as all temporaries are."""
        with self._lock:
            self._number += 1
            return f"{staging}/{self.token}{self._number:x}"

    def temporary(self, staging: str) -> tuple[int, str]:
        """Create an empty file for writing, which nobody else may read. It is removed at the end unless committed."""
        path = self.unused(staging)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            above, name = self.relative(path)
            return os.open(name, flags, 0o600, dir_fd=above), path
        except OSError as error:
            raise disk_error(error, path) from error

    def set_mode(self, fd: int, final: str, mode: int | None = None) -> None:
        """Set the group and the permissions of a written file: those that one has which is made in its final folder.

        A file keeps the group of the one that it replaces. If the system refuses a group, no group may do more with the
        file than others.

        Parameters
        ----------
        mode : int, optional
            The mode of the file, within the user's umask. None: that of the umask. A file is no more open than the one
            that it replaces.
        """
        parent = final.rpartition("/")[0] or "/"
        folder = self._checked.get(parent) or self._look_at(parent)
        allowed = self.file_mode if mode is None else mode & ~self._umask | 0o600
        replaced = self._replaced(final, folder.acl)
        group = folder.group if replaced is None else replaced.group
        has_group = group < 0 or acls.give_group(fd, group)
        if folder.acl is not None:  # then no umask counts
            acls.give(fd, folder.acl, 0o666 if mode is None else mode | 0o600)
            allowed = stat.S_IMODE(os.fstat(fd).st_mode)
        elif self._staged_acl:
            acls.drop(fd)
        allowed = acls.successor_mode(allowed, replaced)
        set_mode(fd, allowed if has_group else acls.without_group(allowed))

    def _replaced(self, final: str, default: bytes | None) -> acls.Replaced | None:
        """Return what counts of the file that will be replaced, in the folder in which that is done."""
        parent, _, name = final.rpartition("/")
        above = self.open_folder(parent or "/")
        try:
            return acls.replaced_file(name, dir_fd=above, default=default)
        finally:
            os.close(above)

    def relative(self, temporary: str) -> tuple[int | None, str]:
        """Return the descriptor of the folder of a temporary, and its name in there; see the arguments of `os.open`.

        Nobody else can exchange that folder for one of theirs, as the owner of the folder above it could.
        """
        folder, _, name = temporary.rpartition("/")
        opened = self._open.get(folder)
        return (None, temporary) if opened is None else (opened.fd, name)

    def opened(self, staging: str) -> Staging:
        """Return a folder for temporaries, open until the end."""
        return self._open[staging]

    def discard(self, temporary: str) -> None:
        """Delete a temporary; no error if another machine took this job for dead, and deleted it."""
        above, name = self.relative(temporary)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=above)

    def written(self, staging: str, data: memoryview, path: str) -> tuple[str, os.stat_result]:
        """Write these bytes to a new temporary, and close it; return its path and its status."""
        fd, temporary = self.temporary(staging)
        try:
            while data:
                data = data[os.write(fd, data) :]
            self.set_mode(fd, f"{self.root}/{path}")
            return temporary, os.fstat(fd)
        except BaseException as error:
            self.discard(temporary)
            if isinstance(error, OSError):
                raise disk_error(error, f"file for {path}") from error
            raise
        finally:
            os.close(fd)


def _not_here(folder: str) -> NbdataError:
    """Return the error for a part whose job does not work in this folder, or not any more."""
    return NbdataError(
        f"{os.uname().nodename} does not see the files of this job: its target is on another disk there, or it ended",
        path=folder,
        remedy="Name a target on a disk that all workers share, or use --cluster local",
    )


def _group_in(folder: os.stat_result) -> int:
    """Return the group of a file that is made in a folder with this status."""
    return folder.st_gid if folder.st_mode & stat.S_ISGID else os.getegid()


def target_error(error: OSError, path: str) -> NbdataError:
    """Return the error for a system error below a target, which names a file or folder in the way."""
    if isinstance(error, NbdataError):
        return error
    if error.errno in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST):
        return AccessDenied(
            "a folder with the name of this file exists", path=path, remedy="Remove it, or use another target"
        )
    if error.errno == errno.ENOTDIR:
        return AccessDenied(
            "a file with the name of a needed folder exists",
            path=path,
            remedy="Remove it, or use another target",
        )
    return disk_error(error, path)
