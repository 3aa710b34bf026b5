"""Reads the kernel's requests from the device, and has them answered by threads."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Sequence

from nbdata.errors import NbdataError
from nbdata.files.mounted import wire
from nbdata.threads import begin

__all__ = ["Answer", "Server"]

#: The parts of a reply, which the kernel gets as one, or the `errno` of an error.
Answer = Sequence[bytes | memoryview] | int

# The most threads; a request that comes while all of them wait for the store has to wait, too.
_MOST = 64
# Threads that wait for the next request. One more, and each request would wake another thread.
_WAITING = 2
# Bytes of a request at most: names, and lists of what is forgotten. The kernel wants room for 8 KiB at least.
_REQUEST = 64 << 10
# Numbers of errors are less than this; the kernel takes no others, such as those of the resolver of names.
_ERRORS = 512


class Server:
    """Serves one mount until it is unmounted.

    Parameters
    ----------
    device : int
        The descriptor of the device.
    answer : callable
        Returns the answer to a request; None for a request that has none. Called by many threads.
    began : callable
        Called once the kernel and this program have agreed on the protocol.
    say : callable
        Writes a line to the log.
    """

    def __init__(
        self,
        device: int,
        answer: Callable[[wire.Request], Answer | None],
        began: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._device, self._answer, self._began, self._say = device, answer, began, say
        self._lock = threading.Lock()
        self._turn = threading.Semaphore(0)
        # Threads in all, those that read from the device or are about to, and those that have nothing to do.
        self._threads = self._waiting = self._parked = 0
        self._ended = threading.Event()

    def run(self) -> None:
        """Serve; return when the mount has ended.

        Raises
        ------
        NbdataError
            If the system gives no threads.
        """
        with self._lock:
            for _ in range(_WAITING):
                self._add()
            if self._threads < _WAITING:
                raise NbdataError("the system gives no more threads")
        self._ended.wait()

    def _add(self) -> None:
        """Begin a thread. If the system gives none, those that there are go on reading after their answers."""
        if begin(self._work, name=f"mount-{self._threads + 1}"):
            self._threads += 1
            self._waiting += 1

    def _work(self) -> None:
        buffer = bytearray(_REQUEST)
        view = memoryview(buffer)
        while True:
            try:
                size = os.readv(self._device, [buffer])
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):  # that request is no more
                    continue
                if error.errno != errno.ENODEV:  # which says that it is unmounted
                    self._say(f"the requests of the kernel cannot be read: {error}")
                self._ended.set()
                return
            self._leave()
            self._serve(view[:size])
            if not self._enter():
                return

    def _leave(self) -> None:
        """Go to answer a request; see to it that others wait for the next one."""
        with self._lock:
            self._waiting -= 1
            if self._waiting:
                return
            if self._parked:
                self._parked -= 1
                self._waiting += 1
                self._turn.release()
            elif self._threads < _MOST:
                self._add()

    def _enter(self) -> bool:
        """Wait for the next request, unless enough others do."""
        with self._lock:
            if self._waiting < _WAITING:
                self._waiting += 1
                return True
            self._parked += 1
        self._turn.acquire()
        return not self._ended.is_set()

    def _serve(self, data: memoryview) -> None:
        _, asked, number, node, _, _, _, _, _ = wire.REQUEST.unpack_from(data)
        body = data[wire.REQUEST.size :]
        if asked == wire.INIT:
            self._send(number, self._agreed(body))
            self._began()
            return
        try:
            answer = self._answer(wire.Request(asked, number, node, body))
        except Exception as error:  # a fault here must not hang the program that asks
            self._say(f"request {asked} failed: {type(error).__name__}: {error}")
            answer = errno.EIO
        if answer is not None:
            self._send(number, answer)

    def _agreed(self, body: memoryview) -> Answer:
        try:
            return [wire.init(body)]
        except ValueError as error:
            self._say(str(error))
            return errno.EPROTO

    def _send(self, number: int, answer: Answer) -> None:
        """Send a reply. One that the kernel refuses would hang the program that asks: then it gets an error."""
        with contextlib.suppress(OSError):  # the program that asked is gone, or the mount is
            if isinstance(answer, int):
                os.write(self._device, wire.reply(number, 0, answer if 0 <= answer < _ERRORS else errno.EIO))
                return
            try:
                os.writev(self._device, [wire.reply(number, sum(map(len, answer))), *answer])
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENODEV):
                    return
                self._say(f"the kernel refuses a reply of {sum(map(len, answer))} bytes: {error}")
                os.write(self._device, wire.reply(number, 0, errno.EIO))
