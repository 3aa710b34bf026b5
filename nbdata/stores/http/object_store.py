"""How the stores of objects over HTTP (S3, Google's, Azure's) read one, move many small ones, and ask again."""

from __future__ import annotations

import abc
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from nbdata.errors import NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.stores.base import ObjectInfo, Stop, Store
from nbdata.stores.http.answers import (
    BUSY,
    ResponseBody,
    beyond_end,
    differs,
    range_header,
    refuse_another,
    refused,
    start_of,
    wrong_bytes,
)
from nbdata.stores.http.client import Pool, Response
from nbdata.stores.http.heads import Head
from nbdata.stores.http.multiplexer import Asked, Came, Multiplexer
from nbdata.stores.sessions import AHEAD, Answer, Read, Session, Unusual, Write

__all__ = ["ObjectStore", "SmallRequests", "refuse_spent"]

# Answers of a shape that the multiplexer does not take, after which it is used no more.
_UNUSUAL = 8


_Q = TypeVar("_Q")


@dataclass(frozen=True)
class SmallRequests:
    """Makes the whole requests by which small objects are read and written, and says where they go.

    Attributes
    ----------
    pool : Pool
    read : callable
        The request for an object, of that very version, or a range of it: info, start, end or None for all to the end.
    write : callable
        The request that makes one, given key, bytes, and their MD5 in hex or ''.
    hold : callable
        Whether they still do: something may be learnt that later requests need.
    """

    pool: Pool
    read: Callable[[ObjectInfo, int, int | None], bytes]
    write: Callable[[str, bytes, str], bytes]
    hold: Callable[[], bool] = lambda: True


class ObjectStore(Store):
    """A store that answers GET with an object, or with a range of it, and tells of it in the same answer."""

    flat = True
    reads_together = writes_together = 256 << 10
    _gone = "the object vanished after it was listed"
    stop: Stop | None
    _unusual = 0

    def said(self, key: str) -> str:
        """A key as users know it."""
        return f"{self.name}/{key}" if key else self.name

    @abc.abstractmethod
    def _get(
        self, key: str, headers: dict[str, str], match: ObjectInfo | None, ok: tuple[int, ...]
    ) -> Response:
        """The answer to a GET with these headers, on the condition that it is of the version of `match`.

        Its status is one of `ok`; else the error it means is raised.
        """

    @abc.abstractmethod
    def _info_of(self, key: str, response: Response, match: ObjectInfo | None) -> ObjectInfo:
        """What an answer to GET tells of the whole object."""

    def read(
        self, key: str, start: int = 0, end: int | None = None, *, match: ObjectInfo | None = None
    ) -> ResponseBody:
        path, headers = self.said(key), range_header(start, end)
        try:
            if end is not None and end <= start:
                return beyond_end(self, path, key, start, match)
            response = self._get(key, headers, match, ok=(200, 206, 416) if headers else (200,))
            if response.status == 416:
                response.close()
                return beyond_end(self, path, key, start, match)
        except NotFound as error:
            if match is not None and not error.details.get("bucket"):
                raise SourceChanged(self._gone, path=path) from error
            raise
        try:
            info = self._info_of(key, response, match)
            refuse_another(path, info, match)
        except BaseException:
            response.close()
            raise
        return ResponseBody(response, info, start_of(response) if response.status == 206 else 0)

    # -- many small ones ------------------------------------------------------------------------

    @abc.abstractmethod
    def small_requests(self) -> SmallRequests:
        """How small objects are read and written from now on."""

    @abc.abstractmethod
    def info_of_whole(self, listed: ObjectInfo, head: Head) -> ObjectInfo | None:
        """What an answer with all bytes tells of an object that was listed; None if only `read` finds out."""

    @abc.abstractmethod
    def made(self, key: str, data: bytes, head: Head, body: memoryview) -> ObjectInfo | None:
        """What the store answers to a request that makes an object; None if that cannot be read."""

    def reading(self, width: Callable[[], int], max_bytes: int) -> Session[Read[Any]]:
        return _ReadSession(self, width, max_bytes)

    def writing(self, width: Callable[[], int], max_bytes: int) -> Session[Write[Any]]:
        return _WriteSession(self, width, max_bytes)

    def note_unusual(self) -> None:
        """In chunks, say: to ask twice for each is worse than one by one."""
        self._unusual += 1
        if self._unusual >= _UNUSUAL:
            self.reads_together = self.writes_together = -1


class _MultiplexedSession(Session[_Q]):
    """A session over a multiplexer, which begins anew when something was learnt that later requests need.

    See `SmallRequests.hold`.
    """

    def __init__(self, store: ObjectStore, width: Callable[[], int], max_bytes: int) -> None:
        self._store, self._width, self._max_bytes = store, width, max_bytes
        self._waiting = deque[_Q]()
        self._refused = deque[_Q]()  # which the multiplexer does not take
        self._busy = self._bytes = 0
        self._multiplexer: Multiplexer | None = None
        self._answers: Generator[Came | None, None, None] | None = None
        self._taker = 0  # the thread that takes answers

    @abc.abstractmethod
    def _asked(self, requests: SmallRequests, request: _Q) -> Asked | None:
        """How it is asked for; None if the multiplexer does not take it."""

    @abc.abstractmethod
    def _answer(self, request: _Q, head: Head, body: memoryview) -> Answer[_Q]:
        """What the usual answer means."""

    @abc.abstractmethod
    def _size(self, request: _Q) -> int:
        """Its bytes in memory; -1 if not known."""

    @abc.abstractmethod
    def _names(self, request: _Q) -> tuple[str, str]:
        """The key, and the MD5 that the store is told or ''."""

    def submit(self, request: _Q) -> None:
        self._waiting.append(request)
        if threading.get_ident() != self._taker:
            self.wake()

    def wake(self) -> None:
        if (multiplexer := self._multiplexer) is not None:
            multiplexer.wake()

    @property
    def free(self) -> int:
        return max(0, self._width() + AHEAD - self._busy - len(self._waiting))

    def results(self) -> Iterator[Answer[_Q] | None]:
        store, self._taker = self._store, threading.get_ident()
        while self._waiting:
            requests = store.small_requests()
            self._multiplexer = Multiplexer(
                requests.pool, store.stop, more=partial(self._next, requests), width=self._width
            )
            self._answers = self._multiplexer.answers()
            for came in self._answers:
                if came is None:
                    yield None
                    continue
                request, head, body = came
                self._busy -= 1
                size = max(0, self._size(request))
                if body is not None and isinstance(head, Head):
                    yield self._answer(request, head, body)
                else:
                    yield Answer(request, error=self._error(request, head))
                self._bytes -= size
            while self._refused:
                request = self._refused.popleft()
                why = Unusual("it has to be asked for by itself", path=store.said(self._names(request)[0]))
                yield Answer(request, error=why)
            if store.stop is not None and store.stop.is_set():
                return

    def _next(self, requests: SmallRequests) -> Asked | None:
        """What is asked for next; nothing once something was learnt."""
        while self._waiting and requests.hold():
            size = max(0, self._size(self._waiting[0]))
            if self._bytes and self._bytes + size > self._max_bytes:
                return None
            request = self._waiting.popleft()
            if (asked := self._asked(requests, request)) is not None:
                self._busy += 1
                self._bytes += size
                return asked
            self._refused.append(request)
        return None

    def _error(self, request: _Q, why: NbdataError | Head) -> NbdataError:
        """What it means that no usual answer came, as far as that shows without its body."""
        if isinstance(why, NbdataError):
            return why
        key, md5 = self._names(request)
        path = self._store.said(key)
        if why.status in BUSY:
            return refused(why.status, why.headers, path=path, identity="")
        if why.status == 400 and md5:  # which may be what was refused
            return wrong_bytes(path, why.status, "")
        if 200 <= why.status < 300:
            self._store.note_unusual()
        return Unusual(f"the store answers with status {why.status}", path=path)

    def close(self) -> None:
        self._waiting.clear()
        self._refused.clear()
        if self._answers is not None:
            self._answers.close()


class _ReadSession(_MultiplexedSession[Read[Any]]):
    def _asked(self, requests: SmallRequests, request: Read[Any]) -> Asked | None:
        size, ranged = request.size, bool(request.start) or request.end is not None
        if self._store.reads_together < 0 or (ranged and size <= 0):  # which no range header can say
            return None
        asked = requests.read(request.info, request.start, request.end)
        most = max(size, ObjectStore.reads_together)
        return Asked(request, asked, (206,) if ranged else (200,), most, request.into)

    def _answer(self, request: Read[Any], head: Head, body: memoryview) -> Answer[Read[Any]]:
        told, why = self._store.info_of_whole(request.info, head), ""
        if told is None:
            self._store.note_unusual()
            why = "the answer does not tell of which object it is"
        elif differs(told, request.info):
            why = "the answer is of another version"
        elif head.status == 206 and (start_of(head) != request.start or request.size not in (-1, len(body))):
            why = "the answer is another range"
        if why:
            return Answer(request, error=Unusual(why, path=self._store.said(request.info.key)))
        return Answer(request, told, body)

    def _size(self, request: Read[Any]) -> int:
        return request.size

    def _names(self, request: Read[Any]) -> tuple[str, str]:
        return request.info.key, ""


class _WriteSession(_MultiplexedSession[Write[Any]]):
    def _asked(self, requests: SmallRequests, request: Write[Any]) -> Asked | None:
        if self._store.writes_together < 0:
            return None
        asked = requests.write(request.key, request.data, request.md5)
        return Asked(request, asked, (200, 201), ObjectStore.writes_together)

    def _answer(self, request: Write[Any], head: Head, body: memoryview) -> Answer[Write[Any]]:
        made = self._store.made(request.key, request.data, head, body)
        if made is None:
            self._store.note_unusual()
            why = Unusual("the answer cannot be read", path=self._store.said(request.key))
            return Answer(request, error=why)
        return Answer(request, made)

    def _size(self, request: Write[Any]) -> int:
        return len(request.data)

    def _names(self, request: Write[Any]) -> tuple[str, str]:
        return request.key, request.md5


def refuse_spent(body: bytes | Iterator[memoryview] | None, why: str, path: str) -> None:
    """Before a request is sent again: whoever made a body of pieces has to begin again, for these are spent.

    Raises
    ------
    StoreUnavailable
        With ``details["retry"]``, for such a body.
    """
    if body is not None and not isinstance(body, bytes):
        raise StoreUnavailable(why, path=path, details={"retry": True})
