"""Paged listings: request the next page while the caller uses the items of the current one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nbdata.errors import StoreUnavailable
from nbdata.threads import begin

__all__ = ["EMPTY_PAGES", "Page", "Pages", "ahead"]

#: The most pages in succession without an entry. A store may send some, for example where it deleted many objects.
EMPTY_PAGES = 1000

_T = TypeVar("_T")


@dataclass(frozen=True)
class Page(Generic[_T]):
    """The items of one page of a listing, and whether there is another page."""

    items: Sequence[_T]
    more: bool


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
        coming = _Coming(pages)
        yield from items
        page = coming.page()


class _Coming(Generic[_T]):
    """The next page, which a thread requests."""

    def __init__(self, pages: Iterator[Page[_T]]) -> None:
        self._pages = pages
        self._page: Page[_T] | None = None
        self._error: BaseException | None = None
        self._fetched = threading.Event()
        if not begin(self._fetch, name="listing"):
            self._fetch()

    def _fetch(self) -> None:
        try:
            self._page = next(self._pages, None)
        except BaseException as error:
            self._error = error
        finally:
            self._fetched.set()

    def page(self) -> Page[_T] | None:
        """Wait for the page; None if there is none."""
        self._fetched.wait()
        if self._error is not None:
            raise self._error
        return self._page
