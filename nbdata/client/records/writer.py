"""Writes one FFRecord file, which gets its name only when it is whole."""

from __future__ import annotations

import contextlib
import os
import secrets
import weakref
from types import TracebackType
from typing import TYPE_CHECKING

from isal.isal_zlib import crc32

from nbdata.disk import PARTIAL, disk_error, give_name, new_file
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.ffrecord import SUFFIX, HeadWriter, head_size
from nbdata.guarded_folders import GuardedFolders
from nbdata.optional_calls import fsync
from nbdata.paths import canonical, is_url
from nbdata.redaction import redacted
from nbdata.sizes import counted

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["FileWriter", "one_byte_each"]

# Most bytes of samples that are held before they are written.
_HELD = 1 << 20
# Bytes to copy at a time to their place after a header of unknown size.
_COPIED = 1 << 20


def one_byte_each(buffer: Buffer) -> memoryview:
    """Return a bytes-like object as single bytes.

    Raises
    ------
    BadOption
        If its items have several bytes, or it is not contiguous.
    """
    try:
        view = memoryview(buffer)
    except TypeError:
        raise BadOption(
            f"a sample is bytes, not {type(buffer).__name__}", remedy="Serialize it first, as with .tobytes()"
        ) from None
    if view.itemsize != 1 or not view.c_contiguous:
        raise BadOption(
            f"a sample is bytes in one piece: this has items of {view.itemsize} bytes (format {view.format!r})"
            if view.itemsize != 1
            else "a sample is bytes in one piece: these do not lie one behind the other",
            remedy="Give array.tobytes(), and keep its type and shape beside it, or write it as npy",
        )
    return view if view.ndim == 1 and view.format == "B" else view.cast("B")


class FileWriter:
    """Writes one FFRecord file on the local disk, for one thread at a time.

    The file gets its name when it is closed and whole; until then it is a hidden file beside that name. If the body of
    ``with`` raises, nothing stays. An existing file is replaced at that moment, not before. The folder stays open: if
    somebody exchanges it meanwhile, that is an error, and nothing is written elsewhere.

    Parameters
    ----------
    fname : str or os.PathLike
        Must end in ``.ffr``.
    n : int, optional
        The number of samples to come. None: as many as are written; then all are copied once at the end, which
        takes twice the room of the file meanwhile.

    Attributes
    ----------
    n : int or None
    count : int
        The number of samples written.

    Examples
    --------
    >>> with FileWriter("/tmp/three.ffr", n=3) as writer:  # doctest: +SKIP
    ...     for text in (b"one", b"two", b"three"):
    ...         writer.write_one(text)
    """

    def __init__(self, fname: str | os.PathLike[str], n: int | None = None) -> None:
        self._path = canonical(fname, name="fname")
        if is_url(self._path):
            raise BadOption(
                "FileWriter writes to the local disk",
                path=redacted(self._path),
                remedy="Write there, then push the file; pack --format ffrecord writes to a store",
            )
        if not self._path.endswith(SUFFIX):
            raise BadOption(f"the name of an FFRecord file ends in {SUFFIX}", path=self._path)
        if n is not None and n < 0:
            raise BadOption(
                f"n={n} samples make no file", expected="0 or more, or None if it is not known yet"
            )
        self.n = n
        self._head = HeadWriter()
        self._held = bytearray()
        folder = os.path.dirname(self._path)
        self._names = self._guarded(folder)
        try:
            self._folder = self._names.open_to_write(folder, make=False)
            self._leave = weakref.finalize(self, os.close, self._folder)
            self._partial, self._fd, self._ends = self._begun()
            if n is not None:
                os.lseek(self._fd, head_size(n), os.SEEK_SET)
        except OSError as error:
            raise error if isinstance(error, NbdataError) else disk_error(error, self._path) from error

    def _guarded(self, folder: str) -> GuardedFolders:
        """Return what opens the folder, and notices if it is exchanged."""
        return GuardedFolders(folder)

    def _begun(self) -> tuple[str, int, weakref.finalize[..., FileWriter]]:
        """Make an unfinished file; return its name, its descriptor, and what gives it up."""
        partial = f".{secrets.token_hex(8)}{PARTIAL}"
        fd = new_file(partial, self._path, None, dir_fd=self._folder)
        return partial, fd, weakref.finalize(self, _give_up, fd, self._folder, partial, os.getpid())

    @property
    def count(self) -> int:
        return len(self._head)

    def write_one(self, buffer: Buffer) -> None:
        """Write the next sample.

        Parameters
        ----------
        buffer : bytes-like
            Bytes, or a contiguous NumPy array of uint8.

        Raises
        ------
        BadOption
            If it is something else, or there are more than `n` samples; then nothing was written.
        NotEnoughSpace
            If the disk is full.
        """
        self._refuse_closed()
        view = one_byte_each(buffer)
        if self.n is not None and self.count >= self.n:
            raise BadOption(
                f"this is one more than the {counted(self.n, 'samples')} that were announced",
                path=self._path,
                remedy="Give the right n, or n=None if it is not known beforehand",
            )
        try:
            if len(self._held) + len(view) > _HELD:
                self._flush()
            if len(view) > _HELD:
                _write(self._fd, view)
            else:
                self._held += view
        except OSError as error:
            self.abort()  # how much of it was written is not known
            raise disk_error(error, self._path) from error
        self._head.add(len(view), crc32(view))

    def _flush(self) -> None:
        _write(self._fd, self._held)
        self._held = bytearray()

    def close(self) -> None:
        """Finish the file and give it its name. A second call does nothing.

        Raises
        ------
        BadOption
            If there are fewer than `n` samples: then nothing stays.
        NbdataError
            If the disk refuses: then nothing stays either.
        """
        if not self._ends.alive:
            return
        try:
            if self.n is not None and self.count != self.n:
                raise BadOption(
                    "fewer samples were written than were announced, so there is no file",
                    path=self._path,
                    expected=f"{self.n:,}",
                    got=f"{self.count:,}",
                    remedy="Give the right n, or n=None if it is not known beforehand",
                )
            self._flush()
            if self.n is None:
                self._behind_its_header()
            else:
                os.lseek(self._fd, 0, os.SEEK_SET)
                self._write_head(self._fd)
            fsync(self._fd)
            self._names.check()
            give_name(self._partial, self._path, os.fstat(self._fd), dir_fd=self._folder)
            fsync(self._folder)
        except OSError as error:
            if isinstance(error, NbdataError):
                raise
            raise disk_error(error, self._path) from error
        finally:
            self.abort()

    def _write_head(self, fd: int) -> None:
        for piece in self._head.pieces():
            _write(fd, piece)

    def _behind_its_header(self) -> None:
        """Copy the samples to their place after the header, whose size was unknown before."""
        spooled, old = self._fd, self._ends
        self._partial, self._fd, self._ends = self._begun()
        try:
            self._write_head(self._fd)
            os.lseek(spooled, 0, os.SEEK_SET)
            while block := os.read(spooled, _COPIED):
                _write(self._fd, block)
        finally:
            old()

    def abort(self) -> None:
        """Give up the file: nothing of it stays."""
        self._ends()
        self._leave()

    def _refuse_closed(self) -> None:
        if not self._ends.alive:
            raise BadOption("this file was closed", path=self._path, remedy="Write another one")

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __repr__(self) -> str:
        return f"<FileWriter of {self._path}: {counted(self.count, 'samples')}>"


def _write(fd: int, data: Buffer) -> None:
    """Write all of it: one call writes less than 2 GiB."""
    view, at = memoryview(data), 0
    while at < len(view):
        at += os.write(fd, view[at:])


def _give_up(fd: int, folder: int, partial: str, pid: int) -> None:
    """Close the unfinished file, and remove it."""
    os.close(fd)
    if os.getpid() == pid:  # a forked child has a copy of it
        with contextlib.suppress(OSError):
            os.unlink(partial, dir_fd=folder)
