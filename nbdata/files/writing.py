"""A file that is written to a store: it appears when it is closed, whole and verified, or not at all."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from nbdata.ending import at_end
from nbdata.errors import BadOption, NbdataError
from nbdata.files.connections import Connections, Place
from nbdata.files.spooled import SpooledFile
from nbdata.stores.base import Location, ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.threads import begin
from nbdata.writing.growing_file import GrowingFile
from nbdata.writing.growing_shard import SENT_AT_A_TIME, GrowingShard, Target
from nbdata.writing.own_uploads import OwnUploads

__all__ = ["WriteFile"]


class WriteFile(io.BufferedIOBase):
    """A file of a store, opened for writing; for one thread of the process that opened it.

    Made by `nbdata.open` and `nbdata.files.FileSystem.open`. Its parts are sent while it is written, where the store
    takes parts. The object appears under its name when the file is closed. If the ``with`` block raises, or if the file
    is never closed, nothing appears, and the store keeps nothing of it.

    Parameters
    ----------
    connections : Connections
    place : Place
    name : str
        As the user calls it.
    size : int
        Bytes of the file that are expected, which decide how large the parts are that are sent. 0: they are of 16 MiB,
        and a file of more than 156 GiB needs more.
    new : bool
        Whether the file must not be there; it is asked for again when it is closed, if the store can.
    autocommit : bool
        False: the file appears not when it is closed, but with `commit`.

    Attributes
    ----------
    name, path : str
        The same; files of fsspec have the second.
    made : ObjectInfo or None
        The object as the store describes it, once it is there.
    """

    mode = "wb"

    def __init__(
        self,
        connections: Connections,
        place: Place,
        name: str,
        *,
        size: int = 0,
        autocommit: bool = True,
        new: bool = False,
    ) -> None:
        super().__init__()
        self._growing: _Growing | None = None  # for __del__
        self.name = self.path = name
        self._pid = os.getpid()
        self.made: ObjectInfo | None = None
        self._autocommit = autocommit
        self._failed = False
        self._handled = sys.exc_info()[1]  # what was being handled when the file was opened
        store, (above, slash, last) = place.store, place.key.rpartition("/")
        if store.read_only:
            raise BadOption("this is read-only", path=name, remedy="Write to a store, or to the disk")
        if not last:
            raise BadOption("this is no name of a file", path=name)
        self._pool: ThreadPoolExecutor | None = None
        self._new = new
        if new and (creating := store.creating()) is not None:
            store = creating
        if isinstance(store, LocalStore):
            self._growing = GrowingFile(store, above + slash, last, lambda _size: None)
        else:
            folder = Location(store, above + slash, place.folder.place)
            opened = place.opened
            target = Target(
                place.control,
                folder,
                opened.context.state_dir,
                opened.context.env,
                connections.verify,
                size or _UNKNOWN,
            )
            if store.multipart:
                self._pool = ThreadPoolExecutor(SENT_AT_A_TIME, "nbdata-files")
                uploads = OwnUploads(
                    place.control, folder, opened.context.state_dir, lambda: connections.anew(place).store
                )
                self._growing = GrowingShard(target, last, self._pool, uploads)
            else:
                self._growing = SpooledFile(target, last)
        at_end(self, WriteFile.left_open)

    def write(self, data: Any, /) -> int:
        """Write bytes; return their number. Waits while too many parts are on their way."""
        growing = self._usable()
        view = memoryview(data).cast("B")
        self._refuse_failed()
        try:
            growing.write(view)
        except BaseException:  # perhaps some of it was taken
            self._failed = True
            raise
        return len(view)

    def _refuse_failed(self) -> None:
        if self._failed:
            raise NbdataError(
                "a part of the file could not be written, so it does not appear",
                path=self.name,
                remedy="Write it again from its start",
            )

    def tell(self) -> int:
        """Return the number of bytes that were written."""
        return self._usable().size

    def writable(self) -> bool:
        self._usable()
        return True

    def flush(self, force: bool = False) -> None:
        """Do nothing: the file appears when it is closed."""
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def close(self) -> None:
        """Send the rest, and have the file appear; raises what prevents that. Does nothing the second time.

        While an exception is handled that was raised since the file was opened, the file is given up instead: so ends
        the ``with`` block of a wrapper, which does not say how the block ended.
        """
        if self.closed:
            return
        handled = sys.exc_info()[1]
        if self._growing is not None and handled is not None and handled is not self._handled:
            self.discard()
            super().close()
            warnings.warn(f"{self.name} was not written, because of an exception", stacklevel=2)
            return
        if self._autocommit:
            self.commit()
        super().close()

    def commit(self) -> None:
        """Have the file appear."""
        growing, self._growing = self._growing, None
        if growing is None:
            return
        try:
            if self._pid != os.getpid():
                raise NbdataError("a file is written by the process that opened it", path=self.name)
            self._refuse_failed()
            growing.finish()
        except BaseException as error:
            self._growing = growing
            self.discard()
            super().close()
            if self._new and isinstance(error, NbdataError) and error.details.get("status") in (409, 412):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.name) from error
            raise
        self.made = growing.made
        self._end()

    def discard(self) -> None:
        """Give the file up: nothing appears under its name."""
        growing, self._growing = self._growing, None
        if growing is not None and self._pid == os.getpid():
            growing.give_up()
            self._end()

    def ended_well(self) -> None:
        """Note that the ``with`` block ended without an exception: `close` may come while an older one is handled."""
        self._handled = sys.exc_info()[1]

    def forgotten(self) -> None:
        """Give the file up, because nobody has it any more, and warn. Does not wait.

        The garbage collector may call this in any thread, also in one that sends a part of this file, or that holds a
        lock of the store.
        """
        growing, self._growing = self._growing, None
        if growing is None or self._pid != os.getpid():
            return
        if not begin(_give_up, growing, self._pool, name="files-forgotten"):
            _give_up(growing, self._pool)
        self._warn()

    def left_open(self) -> None:
        """Give the file up as the interpreter ends, and warn; the file of a log is closed, as `logging` does later."""
        if self._growing is None or self._pid != os.getpid() or _closed_by_logging(self):
            return
        self.discard()
        self._warn()

    def _warn(self) -> None:
        # Python hides a ResourceWarning, and here what was written is lost.
        warnings.warn(
            f"{self.name} was never closed, so it was not written; open it in a with block", stacklevel=3
        )

    def _end(self) -> None:
        self._handled = None
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _usable(self) -> _Growing:
        if self.closed or self._growing is None:
            raise ValueError("I/O operation on closed file")
        if self._pid != os.getpid():
            raise NbdataError(
                "a file is written by the process that opened it",
                path=self.name,
                remedy="Open another one in each process",
            )
        return self._growing

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
            super().close()
        else:
            self.ended_well()
            self.close()

    def __del__(self) -> None:
        try:
            if getattr(self, "_growing", None) is not None:
                self.forgotten()
        finally:
            super().close()

    def __repr__(self) -> str:
        return f"<file {self.name!r}, mode 'wb'{', closed' if self.closed else ''}>"


def _give_up(growing: _Growing, pool: ThreadPoolExecutor | None) -> None:
    try:
        growing.give_up()
    finally:
        if pool is not None:
            pool.shutdown(wait=False)


_Growing = GrowingShard | GrowingFile | SpooledFile

# Half of what 10,000 parts of 16 MiB hold: parts are made for twice the size that is expected.
_UNKNOWN = 5000 * (16 << 20)


def _closed_by_logging(file: WriteFile) -> bool:
    """Close the handler of `logging` that writes to a file, if there is one."""
    logging: Any = sys.modules.get("logging")
    for reference in list(getattr(logging, "_handlerList", ())):
        handler = reference()
        stream = getattr(handler, "stream", None)
        if stream is not None and getattr(stream, "buffer", stream) is file:
            handler.acquire()
            try:
                handler.flush()
                handler.close()
            finally:
                handler.release()
            return True
    return False
