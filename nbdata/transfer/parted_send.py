"""Send one large object of known size in parts, by several workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

from nbdata.stores.base import ObjectInfo
from nbdata.transfer.control import Control
from nbdata.transfer.object_upload import ObjectUpload
from nbdata.transfer.send import PartSender, SentPart
from nbdata.transfer.worker_pool import Unit

__all__ = ["PartedSend"]

#: Checks the store's answer for a stored part against its bytes (offset and count). Returns the part if proven, else
#: None.
PartProver = Callable[[int, int, str], SentPart | None]


class PartedSend:
    """Sends a large object in parts: run its `units`, or `send_parts` in one thread, and call `finish` then.

    Parameters
    ----------
    upload : ObjectUpload
        It begins when the first part is sent.
    send : callable
        Sends one part.
    in_order : bool
        Sends one part after the other.
    held : int
        How many first parts are sent last, one after the other.
    there : callable, optional
        Checks whether a stored part of a resumed upload is right, so that it need not be sent.

    Attributes
    ----------
    present : int
        Bytes of the parts that the store had already.
    """

    def __init__(
        self,
        control: Control,
        upload: ObjectUpload,
        size: int,
        part_size: int,
        send: PartSender,
        *,
        in_order: bool = False,
        held: int = 0,
        there: PartProver | None = None,
    ) -> None:
        self._control, self._upload = control, upload
        self._size, self._part_size, self._send_part = size, part_size, send
        self._in_order, self._there = in_order, there
        self._count = -(-size // part_size)
        self._held = min(held, self._count)
        self._open = self._count - self._held
        self._parts: list[SentPart] = [SentPart("", "", False)] * self._count
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._sent = 0
        self.present = 0

    def units(self, then: Unit) -> Iterator[Unit]:
        """Yield one unit of work per part, or a single one if the parts go in order or all of them go last.

        The worker that sends the last part calls `then`, also after errors.
        """
        if self._in_order or not self._open:
            yield partial(self._all, then)
            return
        for number in range(self._held, self._count):
            yield partial(self._unit, number, then)

    def _all(self, then: Unit) -> None:
        self.send_parts()
        then()

    def send_parts(self) -> None:
        """Send the parts in the caller's thread, instead of running `units`; `finish` raises their first error."""
        for number in range(self._held, self._count):
            self._try(number)

    def _unit(self, number: int, then: Unit) -> None:
        self._try(number)
        with self._lock:
            self._open -= 1
            last = self._open == 0
        if last:
            then()

    def _try(self, number: int) -> None:
        """Send a part, unless another one has failed."""
        if self._error is None:
            try:
                self._send(number)
            except Exception as error:
                with self._lock:
                    self._error = self._error or error

    def _send(self, number: int) -> None:
        upload = self._upload.begun()
        start = number * self._part_size
        size = min(self._part_size, self._size - start)
        stored, answer = upload.stored.get(number + 1, (-1, ""))
        part = self._there(start, size, answer) if self._there is not None and stored == size else None
        if part is not None:
            self._parts[number] = part
            self._control.advance(present=size)
            with self._lock:
                self.present += size
            return
        self._parts[number] = self._send_part(upload, number + 1, start, size)
        with self._lock:
            self._sent += size

    def finish(
        self, refuse: Callable[[list[str]], object] = lambda _digests: None
    ) -> tuple[ObjectInfo, bool]:
        """Make the object. Returns the store's metadata, and whether the object is verified.

        After an error of a part or here it gives the upload up, and raises the first error. `refuse` is called with
        the parts' digests, and raises if the object must not be made.
        """
        try:
            if self._error is not None:
                raise self._error
            for number in range(self._held):
                self._send(number)
            refuse([part.digest for part in self._parts])
            return self._upload.finish(self._parts)
        except Exception as error:
            resumable = self._upload.give_up(error)
            if not resumable:
                self._control.advance(bytes=-self._sent, present=-self.present)
            raise
