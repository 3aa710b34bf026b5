"""The common part of the object stores over HTTP (S3, Google's, Azure's): reads, and many small requests."""

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
from nbdata.stores.http.hops import Hops, Target
from nbdata.stores.http.multiplexer import Asked, Came, Multiplexer
from nbdata.stores.sessions import AHEAD, Answer, Read, Session, Unusual, Write

__all__ = ["ObjectStore", "SmallRequests", "refuse_spent"]

# After this many responses that the multiplexer cannot handle, it is not used any more.
_UNUSUAL = 8


_Q = TypeVar("_Q")


@dataclass(frozen=True)
class SmallRequests:
    """Builds complete requests that read and write small objects, and names the pool to send them on.

    Attributes
    ----------
    pool : Pool
    read : callable
        Builds the request for an object in exactly that version, or for a range of it. Takes info, start and end; an
        end of None means the object's end.
    write : callable
        Builds the request that creates an object. Takes the key, the bytes, and their MD5 in hex or ''.
    hold : callable
        Returns False once later requests must be built anew, because the store has learned something, such as the
        region.
    hops : Hops, optional
        The redirects that reads follow.
    again : callable, optional
        Builds the request of a read for the place that a redirect leads to. Takes the place and what `read` takes;
        returns the request, and the pool to send it on.
    """

    pool: Pool
    read: Callable[[ObjectInfo, int, int | None], bytes]
    write: Callable[[str, bytes, str], bytes]
    hold: Callable[[], bool] = lambda: True
    hops: Hops | None = None
    again: Callable[[Target, ObjectInfo, int, int | None], tuple[bytes, Pool]] | None = None


class ObjectStore(Store):
    """A store that answers a GET with an object or a range of it, and with its metadata."""

    flat = True
    reads_together = writes_together = 256 << 10
    _gone = "the object vanished after it was listed"
    stop: Stop | None
    _unusual = 0

    def said(self, key: str) -> str:
        """A key as users know it: with the store's URL."""
        return f"{self.name}/{key}" if key else self.name

    @abc.abstractmethod
    def _get(
        self, key: str, headers: dict[str, str], match: ObjectInfo | None, ok: tuple[int, ...]
    ) -> Response:
        """Send a GET with these headers, which requires the version in `match`. Returns its response.

        Raises the matching error if the status is not in `ok`.
        """

    @abc.abstractmethod
    def _info_of(self, key: str, response: Response, match: ObjectInfo | None) -> ObjectInfo:
        """Read the metadata of the whole object from a GET response."""

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

    # -- many small objects ---------------------------------------------------------------------

    @abc.abstractmethod
    def small_requests(self) -> SmallRequests:
        """The request builders for small objects from now on."""

    @abc.abstractmethod
    def info_of_whole(self, listed: ObjectInfo, head: Head) -> ObjectInfo | None:
        """Read the metadata of a listed object from a response with all its bytes; None if only `read` can tell it."""

    @abc.abstractmethod
    def made(self, key: str, data: bytes, head: Head, body: memoryview) -> ObjectInfo | None:
        """Read the store's answer to a write; None if it cannot be read."""

    @abc.abstractmethod
    def says_wrong_bytes(self, data: bytes, head: Head) -> bool:
        """Whether a response with status 400 says that the bytes of a write are not those of its digest."""

    def reading(self, width: Callable[[], int], max_bytes: int) -> Session[Read[Any]]:
        return _ReadSession(self, width, max_bytes)

    def writing(self, width: Callable[[], int], max_bytes: int) -> Session[Write[Any]]:
        return _WriteSession(self, width, max_bytes)

    def note_unusual(self) -> None:
        """Count a response that the multiplexer cannot handle, such as a chunked one.

        After several, it is not used any more: two requests per object are slower than one thread per object.
        """
        self._unusual += 1
        if self._unusual >= _UNUSUAL:
            self.reads_together = self.writes_together = -1


class _MultiplexedSession(Session[_Q]):
    """A session over a multiplexer. It starts a new multiplexer when requests must be built anew.

    See `SmallRequests.hold`.
    """

    def __init__(self, store: ObjectStore, width: Callable[[], int], max_bytes: int) -> None:
        self._store, self._width, self._max_bytes = store, width, max_bytes
        self._waiting = deque[_Q]()
        self._refused = deque[_Q]()  # requests that the multiplexer cannot handle
        self._busy = self._bytes = 0
        self._multiplexer: Multiplexer | None = None
        self._answers: Generator[Came | None, None, None] | None = None
        self._taker = 0  # the thread that takes the answers

    @abc.abstractmethod
    def _asked(self, requests: SmallRequests, request: _Q) -> Asked | None:
        """Build a request for the multiplexer; None if that cannot handle it."""

    @abc.abstractmethod
    def _answer(self, request: _Q, head: Head, body: memoryview) -> Answer[_Q]:
        """Turn the usual response into the answer."""

    @abc.abstractmethod
    def _size(self, request: _Q) -> int:
        """Bytes of memory that the request needs; -1 if not known."""

    @abc.abstractmethod
    def _key(self, request: _Q) -> str:
        """The key of the object."""

    def submit(self, request: _Q) -> None:
        self._waiting.append(request)
        if threading.get_ident() != self._taker:
            self.wake()

    def wake(self) -> None:
        if (multiplexer := self._multiplexer) is not None:
            multiplexer.wake()

    @property
    def free(self) -> int:
        unread = self._busy + len(self._waiting) + len(self._refused)
        return max(0, self._width() + AHEAD - unread)

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
                why = Unusual("it has to be asked for by itself", path=store.said(self._key(request)))
                yield Answer(request, error=why)
            if store.stop is not None and store.stop.is_set():
                return

    def _next(self, requests: SmallRequests) -> Asked | None:
        """The multiplexer's next request; None if there is none now, or if requests must be built anew."""
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
        """Return the error for a missing or unusual response, as far as its head alone tells."""
        if isinstance(why, NbdataError):
            return why
        path = self._store.said(self._key(request))
        if why.status in BUSY:
            return refused(why.status, why.headers, path=path, identity="")
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
        if self._store.reads_together < 0 or (ranged and size <= 0):  # no header for an empty range
            return None
        data = requests.read(request.info, request.start, request.end)
        most = max(size, ObjectStore.reads_together)
        asked = Asked(request, data, (206,) if ranged else (200,), most, request.into)
        if requests.hops is None:
            return asked
        first = Target(requests.pool.origin, data.split(b" ", 2)[1].decode("latin-1"), request.info.key)
        return asked._replace(hop=partial(self._hop, requests, asked, [first]))

    def _hop(self, requests: SmallRequests, asked: Asked, trail: list[Target], head: Head) -> Asked:
        """Return the request that follows a redirect of another one."""
        assert requests.hops is not None
        assert requests.again is not None
        read: Read[Any] = asked.of
        trail = [*trail, requests.hops.following(trail, head.headers, self._store.said(read.info.key))]
        data, pool = requests.again(trail[-1], read.info, read.start, read.end)
        return asked._replace(request=data, pool=pool, hop=partial(self._hop, requests, asked, trail))

    def _answer(self, request: Read[Any], head: Head, body: memoryview) -> Answer[Read[Any]]:
        info, why = self._store.info_of_whole(request.info, head), ""
        if info is None:
            self._store.note_unusual()
            why = "the answer does not tell of which object it is"
        elif differs(info, request.info):
            why = "the answer is of another version"
        elif head.status == 206 and (start_of(head) != request.start or request.size not in (-1, len(body))):
            why = "the answer is another range"
        if why:
            return Answer(request, error=Unusual(why, path=self._store.said(request.info.key)))
        return Answer(request, info, body)

    def _size(self, request: Read[Any]) -> int:
        return request.size

    def _key(self, request: Read[Any]) -> str:
        return request.info.key


class _WriteSession(_MultiplexedSession[Write[Any]]):
    def _asked(self, requests: SmallRequests, request: Write[Any]) -> Asked | None:
        if self._store.writes_together < 0:
            return None
        asked = requests.write(request.key, request.data, request.md5)
        # A request with an MD5 may be refused because of it.
        return Asked(
            request, asked, (200, 201, 400) if request.md5 else (200, 201), ObjectStore.writes_together
        )

    def _answer(self, request: Write[Any], head: Head, body: memoryview) -> Answer[Write[Any]]:
        if head.status == 400:
            path = self._store.said(request.key)
            wrong = self._store.says_wrong_bytes(bytes(body), head)
            unusual = Unusual("the store answers with status 400", path=path)
            return Answer(request, error=wrong_bytes(path, 400, "") if wrong else unusual)
        made = self._store.made(request.key, request.data, head, body)
        if made is None:
            self._store.note_unusual()
            why = Unusual("the answer cannot be read", path=self._store.said(request.key))
            return Answer(request, error=why)
        return Answer(request, made)

    def _size(self, request: Write[Any]) -> int:
        return len(request.data)

    def _key(self, request: Write[Any]) -> str:
        return request.key


def refuse_spent(body: bytes | Iterator[memoryview] | None, why: str, path: str) -> None:
    """Refuse to send a streamed body again: its pieces are used up, and only its maker can start again.

    Raises
    ------
    StoreUnavailable
        If the body is streamed; with ``details["retry"]``.
    """
    if body is not None and not isinstance(body, bytes):
        raise StoreUnavailable(why, path=path, details={"retry": True})
