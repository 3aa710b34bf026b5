"""Paged listings: request the next page while the caller uses the items of the current one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nbdata.threads import begin

__all__ = ["Page", "ahead"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Page(Generic[_T]):
    """The items of one page of a listing, and whether there is another page."""

    items: Sequence[_T]
    more: bool


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
