"""Sessions: one thread submits many reads or writes to a store, and takes the answers as they arrive.

A store without a multiplexer of its own uses `Threads`, with one thread per request.
"""

from __future__ import annotations

import abc
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from nbdata.errors import NbdataError, SourceChanged, StoreUnavailable
from nbdata.stores.objects import Body, ObjectInfo
from nbdata.threads import begin

__all__ = ["AHEAD", "NOTHING", "Answer", "Read", "Session", "Threads", "Unusual", "Write", "from_body"]

#: An empty buffer.
NOTHING = memoryview(b"")
#: How many requests wait beside the running ones, so that a free connection has its next request at once.
AHEAD = 8

_T = TypeVar("_T")
_Q = TypeVar("_Q")


class Unusual(NbdataError):
    """The session does not handle this answer: repeat the request with `Store.read` or `Store.write`."""


@dataclass(slots=True, eq=False)
class Read(Generic[_T]):
    """A request for an object, or for a range of it.

    Attributes
    ----------
    of : any
        The caller's own tag.
    info : ObjectInfo
        The object, in this version.
    start : int
        The first byte.
    end : int or None
        The byte after the last one; None for the end of the object.
    into : callable, optional
        Returns the buffer to fill, of exactly the range's length; called when the store's answer begins. None uses the
        session's memory.
    """

    of: _T
    info: ObjectInfo
    start: int = 0
    end: int | None = None
    into: Callable[[], memoryview] | None = None

    @property
    def size(self) -> int:
        """Bytes of the range; -1 if the size of the object is not known."""
        end = self.info.size if self.end is None else self.end
        return end - self.start if end >= 0 else -1


@dataclass(slots=True, eq=False)
class Write(Generic[_T]):
    """A request to create a small object.

    Attributes
    ----------
    of : any
        The caller's own tag.
    key : str
    data : bytes
        The whole content.
    md5 : str
        MD5 of the content in hex, for the store to check; '' for none.
    """

    of: _T
    key: str
    data: bytes
    md5: str = ""


@dataclass(slots=True, eq=False)
class Answer(Generic[_Q]):
    """The answer to one request.

    Attributes
    ----------
    request : Read or Write
    told : ObjectInfo or None
        The metadata that the store sent with these bytes, or of the new object. None after an error.
    data : memoryview
        The bytes of a Read: those of `into`, or a buffer that is valid until the next answer.
    error : NbdataError or None
        Why the request failed.
    """

    request: _Q
    told: ObjectInfo | None = None
    data: memoryview = NOTHING
    error: NbdataError | None = None


class Session(abc.ABC, Generic[_Q]):
    """Several concurrent requests, made by `Store.reading` or `Store.writing`. Close it at the end, or use ``with``."""

    @abc.abstractmethod
    def submit(self, request: _Q) -> None:
        """Add a request, from any thread, and wake the thread in `results`. The caller limits how many wait."""

    @abc.abstractmethod
    def wake(self) -> None:
        """Make `results` yield None soon; callable from any thread."""

    @abc.abstractmethod
    def results(self) -> Iterator[Answer[_Q] | None]:
        """Yield the answer to each request exactly once, in any order; for one thread at a time.

        Yields None after `wake`. Ends when every request is answered, or early if the job stops. Call it again after
        submitting more requests.
        """

    @property
    @abc.abstractmethod
    def free(self) -> int:
        """How many more requests to submit now to keep all connections busy; bounds the answers that wait, too."""

    @abc.abstractmethod
    def close(self) -> None:
        """Abandon the running requests, and release the connections."""

    def __enter__(self) -> Session[_Q]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Threads(Session[_Q]):
    """A session with one thread per request.

    Parameters
    ----------
    ask : callable
        Sends a request and returns its answer; called in a thread of the session.
    width : callable
        Returns how many requests may run at a time.
    size : callable
        Returns the bytes of a request; -1 if not known.
    max_bytes : int
        Limit on the bytes of running requests and of waiting answers. A single request may exceed it.
    """

    def __init__(
        self,
        ask: Callable[[_Q], Answer[_Q]],
        *,
        width: Callable[[], int],
        size: Callable[[_Q], int],
        max_bytes: int,
    ) -> None:
        self._ask, self._width, self._size = ask, width, size
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._waiting: deque[_Q] = deque()
        self._came: deque[Answer[_Q]] = deque()
        self._busy = self._threads = self._bytes = 0
        self._woken = self._over = False

    def submit(self, request: _Q) -> None:
        with self._changed:
            self._waiting.append(request)
            idle = self._threads - self._busy
            if idle < len(self._waiting) and self._threads < max(1, self._width()):
                self._hire()
            self._changed.notify_all()

    def _hire(self) -> None:
        if begin(self._work, name="reader"):
            self._threads += 1
        elif not self._threads:  # otherwise the existing threads do it
            raise StoreUnavailable("the system gives no more threads")

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    @property
    def free(self) -> int:
        with self._changed:
            unread = self._busy + len(self._waiting) + len(self._came)
            return max(0, self._width() + AHEAD - unread)

    def results(self) -> Iterator[Answer[_Q] | None]:
        while True:
            with self._changed:
                while not (self._came or self._woken):
                    if not (self._busy or self._waiting):
                        return
                    self._changed.wait()
                woken, self._woken = self._woken, False
                answer = self._came.popleft() if self._came else None
            if woken:
                yield None
            if answer is not None:
                yield answer
                with self._changed:
                    self._bytes -= max(0, self._size(answer.request))
                    self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._over and not self._may_begin():
                    self._changed.wait()
                if self._over:
                    self._threads -= 1
                    return
                request = self._waiting.popleft()
                self._busy += 1
                self._bytes += max(0, self._size(request))
            try:
                answer = self._ask(request)
            except NbdataError as error:
                answer = Answer(request, error=error)
            except Exception as error:
                answer = Answer(
                    request, error=NbdataError(f"internal error: {type(error).__name__}: {error}")
                )
            with self._changed:
                self._busy -= 1
                self._came.append(answer)
                self._changed.notify_all()

    def _may_begin(self) -> bool:
        if not self._waiting or self._busy >= max(1, self._width()):
            return False
        return not self._bytes or self._bytes + max(0, self._size(self._waiting[0])) <= self._max_bytes

    def close(self) -> None:
        """Drop the waiting requests. Running requests finish, and their answers are dropped."""
        with self._changed:
            self._over = True
            self._waiting.clear()
            self._changed.notify_all()


def from_body(body: Body, request: Read[_T]) -> Answer[Read[_T]]:
    """Read a body to its end, close it, and return the answer.

    Raises
    ------
    SourceChanged
        If the body has more bytes than requested.
    StoreUnavailable
        If it has fewer bytes. Another try may succeed.
    Unusual
        If the store sent the whole object instead of the range.
    """
    try:
        size = request.size
        whole = request.end is not None and 0 <= size < body.length == body.info.size
        if body.start != request.start or whole:
            raise Unusual("the store answers a range with the whole object", path=request.info.key)
        into = request.into() if request.into is not None else memoryview(bytearray(max(0, size)))
        at = 0
        if size < 0:
            into, at = _to_the_end(body)
        else:
            while at < size and (count := body.readinto(into[at:])):
                at += count
            if at < size:
                raise StoreUnavailable(
                    "the store sent fewer bytes than it announced",
                    path=request.info.key,
                    expected=str(size),
                    got=str(at),
                    details={"retry": True},
                )
            if body.readinto(memoryview(bytearray(1))):
                raise SourceChanged("the object is longer than the store said", path=request.info.key)
        return Answer(request, body.info, into[:at])
    finally:
        body.close()


def _to_the_end(body: Body) -> tuple[memoryview, int]:
    data, block = bytearray(), memoryview(bytearray(1 << 18))
    while count := body.readinto(block):
        data += block[:count]
    return memoryview(data), len(data)
