"""How the stores of objects over HTTP (S3, Google's, Azure's) read one, move many small ones, and ask again."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nbdata.errors import NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.stores.base import ObjectInfo, Stop, Store, T
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
from nbdata.stores.http.lanes import GOOD, Lanes

__all__ = ["ObjectStore", "Ways", "refuse_spent"]

# Answers of a shape that lanes do not take, after which they are used no more.
_UNUSUAL = 8


@dataclass(frozen=True)
class Ways:
    """Where small objects are read and written, and the whole requests for them.

    Attributes
    ----------
    pool : Pool
    read : callable
        The request for an object, of that very version.
    write : callable
        The request that makes one, given key, bytes, and their MD5 in hex or ''.
    hold : callable
        Whether they still do: something may be learnt that later requests need.
    """

    pool: Pool
    read: Callable[[ObjectInfo], bytes]
    write: Callable[[str, bytes, str], bytes]
    hold: Callable[[], bool] = lambda: True


class ObjectStore(Store):
    """A store that answers GET with an object, or with a range of it, and tells of it in the same answer."""

    flat = True
    reads_each = writes_each = 256 << 10
    _gone = "the object vanished after it was listed"
    _stop: Stop | None
    _unusual = 0

    def _said(self, key: str) -> str:
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
    def _told(self, key: str, response: Response, match: ObjectInfo | None) -> ObjectInfo:
        """What an answer to GET tells of the whole object."""

    def read(
        self, key: str, start: int = 0, end: int | None = None, *, match: ObjectInfo | None = None
    ) -> ResponseBody:
        path, headers = self._said(key), range_header(start, end)
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
            info = self._told(key, response, match)
            refuse_another(path, info, match)
        except BaseException:
            response.close()
            raise
        return ResponseBody(response, info, start_of(response) if response.status == 206 else 0)

    # -- many small ones ------------------------------------------------------------------------

    @abc.abstractmethod
    def _ways(self) -> Ways:
        """How small objects are read and written from now on."""

    @abc.abstractmethod
    def _told_whole(self, listed: ObjectInfo, head: Head) -> ObjectInfo | None:
        """What an answer with all bytes tells of an object that was listed; None if only `read` finds out."""

    @abc.abstractmethod
    def _made(self, key: str, data: bytes, head: Head, body: memoryview) -> ObjectInfo | None:
        """What the store answers to a request that makes an object; None if that cannot be read."""

    def read_each(
        self,
        more: Callable[[], T | None],
        *,
        info: Callable[[T], ObjectInfo],
        width: Callable[[], int],
        arrived: Callable[[T, ObjectInfo, memoryview], None],
        missed: Callable[[T, NbdataError | None], None],
    ) -> None:
        ways = self._ways()

        def came(wanted: T, head: Head, body: memoryview) -> None:
            listed = info(wanted)
            told = self._told_whole(listed, head)
            if told is None:
                self._note_unusual()
            if told is None or differs(told, listed):
                missed(wanted, None)
            else:
                arrived(wanted, told, body)

        self._in_lanes(
            ways,
            more,
            lambda wanted: ways.read(info(wanted)),
            width,
            came,
            missed,
            lambda w: (info(w).key, ""),
        )

    def write_each(
        self,
        more: Callable[[], T | None],
        *,
        body: Callable[[T], tuple[str, bytes, str]],
        width: Callable[[], int],
        written: Callable[[T, ObjectInfo], None],
        missed: Callable[[T, NbdataError | None], None],
    ) -> None:
        ways = self._ways()

        def came(wanted: T, head: Head, answer: memoryview) -> None:
            key, data, _ = body(wanted)
            made = self._made(key, data, head, answer)
            if made is None:
                self._note_unusual()
                missed(wanted, None)
            else:
                written(wanted, made)

        def named(wanted: T) -> tuple[str, str]:
            key, _, md5 = body(wanted)
            return key, md5

        self._in_lanes(ways, more, lambda wanted: ways.write(*body(wanted)), width, came, missed, named)

    def _in_lanes(
        self,
        ways: Ways,
        more: Callable[[], T | None],
        ask: Callable[[T], bytes],
        width: Callable[[], int],
        came: Callable[[T, Head, memoryview], None],
        missed: Callable[[T, NbdataError | None], None],
        named: Callable[[T], tuple[str, str]],
    ) -> None:
        """Have all that `more` gives asked for; `named` gives its key, and the MD5 that the store is told."""

        def following() -> tuple[T, bytes] | None:
            if not ways.hold():  # who calls begins anew, with what was learnt meanwhile
                return None
            while (wanted := more()) is not None:
                if self.reads_each >= 0:
                    return wanted, ask(wanted)
                missed(wanted, None)
            return None

        def otherwise(wanted: T, why: NbdataError | Head) -> None:
            error = why if isinstance(why, NbdataError) else None
            if isinstance(why, Head):
                if why.status in GOOD:
                    self._note_unusual()
                key, md5 = named(wanted)
                if why.status in BUSY:
                    error = refused(why.status, why.headers, path=self._said(key), identity="")
                elif why.status == 400 and md5:  # which may be what was refused
                    error = wrong_bytes(self._said(key), why.status, "")
            missed(wanted, error)

        Lanes(
            ways.pool,
            self._stop,
            more=following,
            width=width,
            most=ObjectStore.reads_each,
            arrived=came,
            missed=otherwise,
        ).run()

    def _note_unusual(self) -> None:
        """In chunks, say: to ask twice for each is worse than one by one."""
        self._unusual += 1
        if self._unusual >= _UNUSUAL:
            self.reads_each = self.writes_each = -1


def refuse_spent(body: bytes | Iterator[memoryview] | None, why: str, path: str) -> None:
    """Before a request is sent again: whoever made a body of pieces has to begin again, for these are spent.

    Raises
    ------
    StoreUnavailable
        With ``details["retry"]``, for such a body.
    """
    if body is not None and not isinstance(body, bytes):
        raise StoreUnavailable(why, path=path, details={"retry": True})
