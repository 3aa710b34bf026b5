"""Many reads, or writes, by one thread: requests are submitted to a session, and its answers are taken as they come.

Where a store has no way of its own to do many at a time, threads do it one by one (`Threads`).
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

#: No bytes.
NOTHING = memoryview(b"")
#: Requests that wait beyond those under way, so that a connection that becomes free has one at once.
AHEAD = 8

_T = TypeVar("_T")
_Q = TypeVar("_Q")


class Unusual(NbdataError):
    """The answer is of a kind that the session does not take; `Store.read`, or `write`, finds out what it means."""


@dataclass(slots=True, eq=False)
class Read(Generic[_T]):
    """Bytes that are wanted.

    Attributes
    ----------
    of : any
        What they are for: the caller's own.
    info : ObjectInfo
        The object, of that very version.
    start : int
        The first byte.
    end : int or None
        The byte behind the last one; None for all to the end.
    into : memoryview or None
        Where they go; just as long as what is wanted. None: memory of the session's.
    """

    of: _T
    info: ObjectInfo
    start: int = 0
    end: int | None = None
    into: memoryview | None = None

    @property
    def size(self) -> int:
        """How many bytes are wanted; -1 if nobody knows."""
        end = self.info.size if self.end is None else self.end
        return end - self.start if end >= 0 else -1


@dataclass(slots=True, eq=False)
class Write(Generic[_T]):
    """A small object that is to be made.

    Attributes
    ----------
    of : any
        As of `Read`.
    key : str
    data : bytes
        All of it.
    md5 : str
        Of all bytes, in hex, for the store to look at; or ''.
    """

    of: _T
    key: str
    data: bytes
    md5: str = ""


@dataclass(slots=True, eq=False)
class Answer(Generic[_Q]):
    """What came of one request.

    Attributes
    ----------
    request : Read or Write
    told : ObjectInfo or None
        What the store said along with these bytes, or of the object that was made; None if there is an error.
    data : memoryview
        The bytes of a Read: `into`, or valid until the next answer is asked for.
    error : NbdataError or None
        Why it did not come.
    """

    request: _Q
    told: ObjectInfo | None = None
    data: memoryview = NOTHING
    error: NbdataError | None = None


class Session(abc.ABC, Generic[_Q]):
    """Requests under way together; made by `Store.reading` and `Store.writing`, closed at the end as ``with`` does."""

    @abc.abstractmethod
    def submit(self, request: _Q) -> None:
        """Add one, from any thread; who takes the answers is woken. How many wait is for the caller to bound."""

    @abc.abstractmethod
    def wake(self) -> None:
        """Have `results` give None soon; from any thread."""

    @abc.abstractmethod
    def results(self) -> Iterator[Answer[_Q] | None]:
        """Each request's answer, just once and in any order, until all have come; by one thread at a time.

        None where `wake` was called. It ends early if the work is to end; and can be asked for again when more was
        submitted.
        """

    @property
    @abc.abstractmethod
    def free(self) -> int:
        """How many more are best submitted now, so that nothing has to wait for them."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give up what is under way, and give connections back."""

    def __enter__(self) -> Session[_Q]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Threads(Session[_Q]):
    """A session of a store that answers one request a thread.

    Parameters
    ----------
    ask : callable
        The answer to a request, by a thread of its own; what is known of it already is in the Answer that it gets.
    width : callable
        How many may be under way together, at least 1.
    size : callable
        Bytes of a request, -1 if not known.
    max_bytes : int
        Bytes that may be in memory of requests under way and of answers that wait to be taken; one is always taken.
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
        elif not self._threads:  # else those that there are do it
            raise StoreUnavailable("the system gives no more threads")

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    @property
    def free(self) -> int:
        with self._changed:
            return max(0, self._width() + AHEAD - self._busy - len(self._waiting))

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
        """What is under way comes to its end, and nobody is told of it."""
        with self._changed:
            self._over = True
            self._waiting.clear()
            self._changed.notify_all()


def from_body(body: Body, request: Read[_T]) -> Answer[Read[_T]]:
    """The answer that a body holds, read to its end and closed.

    Raises
    ------
    SourceChanged
        If there are more bytes than are wanted.
    StoreUnavailable
        If there are fewer; worth another try.
    Unusual
        If the store gave all of it for a range.
    """
    try:
        size = request.size
        if body.start != request.start:
            raise Unusual("the store answers a range with the whole object", path=request.info.key)
        into = request.into if request.into is not None else memoryview(bytearray(max(0, size)))
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
