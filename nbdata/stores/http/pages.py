"""Paged listings: request the next page while the caller uses the items of the current one, or parses it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from nbdata.errors import StoreUnavailable
from nbdata.threads import begin

__all__ = ["EMPTY_PAGES", "Asking", "Page", "Pages", "ahead", "asked_ahead"]

#: The most pages in succession without an entry. A store may send some, for example where it deleted many objects.
EMPTY_PAGES = 1000

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_Q = TypeVar("_Q")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Page(Generic[_T]):
    """The items of one page of a listing, whether there is another page, and the token that gets it."""

    items: Sequence[_T]
    more: bool
    token: str = ""


class Pages:
    """Recognizes a listing that never ends: pages that come again, or too many empty ones in succession.

    It remembers one page only. It takes a later one in its place more and more rarely ("Brent's algorithm"), so it
    finds a circle of any length.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._count = self._empty = 0
        self._seen: tuple[object, object, int] | None = None

    def add(self, entries: Sequence[object]) -> None:
        """Take a page, before anything is filtered out of it.

        Raises
        ------
        StoreUnavailable
            If the listing goes in a circle, or has more than `EMPTY_PAGES` empty pages in succession.
        """
        if not entries:
            self._empty += 1
            if self._empty > EMPTY_PAGES:
                raise StoreUnavailable(
                    f"the listing has {EMPTY_PAGES:,} empty pages and goes on", path=self._path
                )
            return
        self._empty = 0
        page = (entries[0], entries[-1], len(entries))
        if page == self._seen:
            raise StoreUnavailable("the store lists the same page again and again", path=self._path)
        self._count += 1
        if self._count & (self._count - 1) == 0:
            self._seen = page


def ahead(pages: Iterator[Page[_T]]) -> Iterator[_T]:
    """Yield all items of pages, in order.

    Holds at most two pages. A caller that takes only the first item causes one request. A caller that leaves later may
    leave one running request, whose response is dropped.
    """
    page = next(pages, None)
    while page is not None:
        items = iter(page.items)
        yield from itertools.islice(items, 1)
        if not page.more:
            yield from items
            return
        coming = _Coming(lambda: next(pages, None))
        yield from items
        page = coming.result()


class Asking(Protocol[_Q, _R, _T_co]):
    """How the pages of a listing are asked for. Requests are compared by ``==``."""

    def fetch(self, request: _Q) -> _R:
        """Return the answer to a request, as it came; called by any thread."""

    def foreseen(self, request: _Q, answer: _R) -> _Q | None:
        """Return the request for the next page, if the answer shows it before it is parsed."""

    def read(self, request: _Q, answer: _R) -> tuple[Sequence[_T_co], _Q | None]:
        """Return the items of a page, and the request for the next one; None: this is the last."""


def asked_ahead(asking: Asking[_Q, _R, _T], request: _Q) -> Iterator[_T]:
    """Yield all items of the pages that begin with this request, in order.

    Like `ahead`, but the caller's thread parses a page while the next one is on its way, if the request for that can be
    foreseen. So a page takes the longer of both times, not their sum. One that was foreseen wrongly is dropped.
    """
    early = request
    coming: _Coming[_R] | None = None
    answer = asking.fetch(request)
    while True:
        items, following = asking.read(request, answer)
        some, rest = bool(items), iter(items)
        del answer, items
        yield from itertools.islice(rest, 1)
        if following is None:
            yield from rest
            return
        if coming is None or early != following:
            coming = _fetching(asking, following)
        yield from rest
        request, answer, coming = following, coming.result(), None
        # Not behind a page without items: a server may send many of those, and one of them may be the last allowed.
        if some and (foreseen := asking.foreseen(request, answer)) is not None:
            early, coming = foreseen, _fetching(asking, foreseen)


def _fetching(asking: Asking[_Q, _R, _T], request: _Q) -> _Coming[_R]:
    return _Coming(lambda: asking.fetch(request))


class _Coming(Generic[_R]):
    """What a thread requests."""

    def __init__(self, request: Callable[[], _R]) -> None:
        self._request = request
        self._result: list[_R] = []
        self._error: BaseException | None = None
        self._fetched = threading.Event()
        if not begin(self._fetch, name="listing"):
            self._fetch()

    def _fetch(self) -> None:
        try:
            self._result.append(self._request())
        except BaseException as error:
            self._error = error
        finally:
            self._fetched.set()

    def result(self) -> _R:
        """Wait for the result."""
        self._fetched.wait()
        if self._error is not None:
            raise self._error
        return self._result.pop()
