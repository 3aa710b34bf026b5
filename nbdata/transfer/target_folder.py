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

from nbdata.disk import disk_error, sync_folder
from nbdata.errors import AccessDenied, NbdataError, UnsafeMember
from nbdata.guarded_folders import GuardedFolders
from nbdata.own_files import Below, own_folder, own_mode
from nbdata.transfer.control import Control
from nbdata.transfer.marks import Mark

__all__ = ["TargetFolder", "refuse_outside", "target_error"]

# How many folders are remembered as created and checked. Others are checked again.
_KNOWN = 50_000


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

    Attributes
    ----------
    file_mode : int
        The mode of new files.
    identity : tuple of int
        Device and inode, once the folder is entered.
    """

    def __init__(
        self, root: str, control: Control, *, umask: int, made: Callable[[str], None] = lambda _: None
    ) -> None:
        self._control, self._tell_made = control, made
        self.root = root.rstrip("/") or "/"
        self._folders = GuardedFolders(self.root)
        self.file_mode = 0o666 & ~umask
        self._folder_mode = 0o777 & ~umask
        self._token = secrets.token_hex(6)
        self._staging: dict[int, str] = {}  # st_dev -> folder for temporaries
        self._marks: list[Mark] = []  # one mark in each staging folder
        self._checked: dict[str, str] = {}  # parent -> staging folder, for parents known to be inside
        self._made: set[str] = set()
        self._unsynced: set[str] = set()  # folders in which a new folder was created
        self._lock, self._making, self._syncing = threading.Lock(), threading.Lock(), threading.Lock()
        self._number = 0

    def enter(self) -> None:
        """Create the folder, and the folder for its temporaries."""
        try:
            self.make_folder(self.root)
            self._real_root = os.path.realpath(self.root)
            found = os.stat(self.root)
            if not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            self.identity = (found.st_dev, found.st_ino)
            self.staging(self.root)
        except OSError as error:
            raise target_error(error, self.root) from error

    def leave(self) -> None:
        """Remove this job's remaining temporaries, and their folders if they are empty."""
        for mark in self._marks:
            mark.remove()
        for folder in self._staging.values():
            above, own = os.path.split(folder)
            with contextlib.suppress(OSError), Below(above) as below:
                for name in os.listdir(folder):
                    if name.startswith(self._token):
                        below.unlink(f"{own}/{name}")
            with contextlib.suppress(OSError):  # not empty: partials of large objects stay
                os.rmdir(folder)

    # -- folders ------------------------------------------------------------------------------

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents with the user's mode."""
        if path in self._made:
            return
        missing = []
        at = path
        while not os.path.isdir(at):
            missing.append(at)
            at = os.path.dirname(at)
        for folder in reversed(missing):
            try:
                self._make(folder, 0o777)
                os.chmod(folder, self._folder_mode)
                self._tell_made(folder)
            except FileExistsError as error:
                if not os.path.isdir(folder):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from error
        self._made.add(path)

    def staging(self, parent: str) -> str:
        """Return the folder for temporaries on the same file system as `parent`."""
        device = os.stat(parent).st_dev
        with self._lock:
            folder = self._staging.get(device)
            if folder is None:
                while (folder := self._enter(parent)) is None:
                    pass
                self._staging[device] = folder
            return folder

    def _enter(self, parent: str) -> str | None:
        """Create a folder for temporaries, with a mark that keeps other jobs from removing it as empty.

        Returns None if a job just removed it, or, after a wait, if another machine or user works there.
        """
        folder = own_folder(parent)
        with contextlib.suppress(FileExistsError):
            self._make(folder, own_mode(parent))
            self._tell_made(folder)
        if own_folder(parent) != folder:  # another user was faster
            return None
        try:
            mark = Mark(folder, self._token)
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
        return folder

    def check(self) -> None:
        """Raise NbdataError if another machine has taken this job for dead."""
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
        staging = self._checked.get(parent)
        if staging is None:
            try:
                refuse_outside(self.root, path, self._real_root)
                self.make_folder(parent)
                os.close(self.open_folder(parent))
                if len(self._checked) >= _KNOWN:  # otherwise memory could hold a million folders
                    self._checked.clear()
                    self._made.clear()
                staging = self._checked[parent] = self.staging(parent)
            except OSError as error:
                if isinstance(error, NbdataError):
                    raise
                raise target_error(error, parent) from error
        return final, staging

    def open_folder(self, parent: str) -> int:
        """Open the folder of final files, to which no link leads out of the target; the caller closes it."""
        return self._folders.open_to_write(parent, make=False)

    def _make(self, folder: str, mode: int) -> None:
        with self._making:  # otherwise a file in it could be recorded before the folder is known as new
            os.mkdir(folder, mode)
            self._unsynced.add(os.path.dirname(folder))

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
            return f"{staging}/{self._token}{self._number:x}"

    def temporary(self, staging: str) -> tuple[int, str]:
        """Create an empty file for writing. It is removed at the end unless it was committed."""
        path = self.unused(staging)
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self.file_mode), path
        except OSError as error:
            raise disk_error(error, path) from error

    def written(self, staging: str, data: memoryview, path: str) -> str:
        """Write these bytes to a new temporary, and close it."""
        fd, temporary = self.temporary(staging)
        try:
            os.fchmod(fd, self.file_mode)
            while data:
                data = data[os.write(fd, data) :]
        except BaseException as error:
            with contextlib.suppress(FileNotFoundError):  # another machine took this job for dead
                os.unlink(temporary)
            if isinstance(error, OSError):
                raise disk_error(error, f"file for {path}") from error
            raise
        finally:
            os.close(fd)
        return temporary


def refuse_outside(root: str, path: str, real_root: str = "") -> None:
    """Raise UnsafeMember if a symbolic link in a target leads a file's folder out of the target.

    Parameters
    ----------
    root : str
        The target's folder.
    path : str
        The file, relative to it.
    real_root : str, optional
        Its real path, if known.
    """
    above = real_root or os.path.realpath(root)
    real = os.path.realpath(os.path.dirname(os.path.join(root, path)))
    if real != above and not real.startswith(above.rstrip("/") + "/"):
        raise UnsafeMember(
            "a symbolic link leads out of the target",
            path=path,
            expected=f"a path below {root}",
            got=real,
        )


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
