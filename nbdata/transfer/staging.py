"""A folder for temporaries, open: its files are reached by its descriptor, whoever exchanges its name meanwhile.

The owner of the folder above it can do that, also in a sticky one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nbdata.errors import UnsafeMember
from nbdata.optional_calls import fsync
from nbdata.own_files import remove, small_file

__all__ = ["Staging"]


class Staging:
    """An open folder for temporaries.

    Parameters
    ----------
    path : str
        Its path, for errors.
    fd : int, optional
        Its descriptor, which is closed with this object. None: the folder is opened by its path.

    Raises
    ------
    OSError
        If it cannot be opened, or a link has its name.
    """

    def __init__(self, path: str, fd: int | None = None) -> None:
        self.path, self.fd = path, -1
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self.fd = os.open(path, flags) if fd is None else fd

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        if self.fd >= 0:
            _close(self.fd)

    def close(self) -> None:
        """Close the descriptor."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def path_of(self, name: str) -> str:
        """Return the path of a file, for errors."""
        return f"{self.path}/{name}"

    def names(self) -> list[str]:
        """Return the names of all that is in the folder."""
        return os.listdir(self.fd)

    def has(self, name: str) -> bool:
        """True if something has a name."""
        try:
            os.lstat(name, dir_fd=self.fd)
        except OSError:
            return False
        return True

    def open(self, name: str, flags: int) -> int:
        """Open a file that only this user may read; follows no link, and waits for nobody."""
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=self.fd)

    @contextmanager
    def small(self, name: str, most: int) -> Iterator[int]:
        """Open a record to read; see `nbdata.own_files.small_file`."""
        with small_file(name, most, at=self.fd) as fd:
            yield fd

    def replace(self, old: str, new: str) -> None:
        """Rename a file."""
        os.replace(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Delete what has a name; see `nbdata.own_files.remove`."""
        try:
            remove(name, at=self.fd)
        except UnsafeMember as error:
            error.path = self.path_of(name)
            raise

    def sync(self) -> None:
        """Make the names in the folder durable."""
        fsync(self.fd)
