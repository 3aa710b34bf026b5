"""Fetches the small files that come next, where a program opens the files of a folder in their order."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from nbdata.errors import NbdataError
from nbdata.files.connections import Place
from nbdata.files.fetching import FIRST, fetch
from nbdata.reading.pieces import Content, Piece
from nbdata.stores.base import ObjectInfo

__all__ = ["Ahead"]

# Files of a batch, its bytes, and the batches that are fetched or held at a time.
_FILES, _BYTES, _BATCHES = 64, 8 << 20, 4
# Bytes that a listing may have more of a file than is fetched ahead of it.
_SMALL = FIRST
# Names that a program may skip, and still reads in the order of the folder.
_SKIP = 4
# Folders whose order is watched, and the names in them, unless they are of one folder.
_WATCHED, _NAMES = 64, 1_000_000


#: Returns the bytes of objects, or the error that each met.
Fetch = Callable[[Place, Sequence[Piece], str], list[Content | NbdataError]]


class _Order(NamedTuple):
    """How a program opens the files of a folder.

    Attributes
    ----------
    names : dict
        The folder as it was listed.
    files : list of (str, ObjectInfo)
        Its files in order.
    numbers : dict of str to int
        Where each of them stands.
    at : int
        Where the last one that was opened stands.
    in_order : int
        How many were opened one after the other.
    fetched : int
        Where the first one stands that is not fetched ahead.
    """

    names: dict[str, ObjectInfo | None]
    files: list[tuple[str, ObjectInfo]]
    numbers: dict[str, int]
    at: int
    in_order: int
    fetched: int


class Ahead:
    """What is fetched ahead for one mount; safe to use from many threads.

    Parameters
    ----------
    place : Place
        The folder that is mounted.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    fetch : callable
        Fetches small objects, or takes them from a cache: see `nbdata.files.fetching.fetch`.
    """

    def __init__(self, place: Place, verify: str, fetch: Fetch = fetch) -> None:
        self._place, self._verify, self._fetch = place, verify, fetch
        self._lock = threading.Lock()
        self._orders: OrderedDict[str, _Order] = OrderedDict()
        # By path; the latest batches, each file until it is opened.
        self._coming: dict[str, tuple[ObjectInfo, Future[list[Content | NbdataError]], int]] = {}
        self._batches: OrderedDict[Future[list[Content | NbdataError]], list[str]] = OrderedDict()
        self._pool = ThreadPoolExecutor(_BATCHES, thread_name_prefix="ahead")
        self.used = 0

    def take(self, path: str, info: ObjectInfo, names: dict[str, ObjectInfo | None]) -> Content | None:
        """Return the content of a file that was fetched ahead, of this version; None if there is none.

        Parameters
        ----------
        names : dict
            The folder that it is in: see `nbdata.files.mounted.folders.Folder`.
        """
        with self._lock:
            found = self._coming.pop(path, None)
            self._watch(path, names)
        if found is None:
            return None
        was, future, number = found
        if (was.etag, was.size, was.version) != (info.etag, info.size, info.version):
            return None
        with suppress(NbdataError, OSError):
            content = future.result()[number]
            if not isinstance(content, NbdataError):
                self.used += 1
                return content
        return None  # it is read as if nothing was fetched ahead, which tells what is wrong

    @property
    def held(self) -> int:
        """Files that are fetched, or being fetched, and were not opened yet."""
        with self._lock:
            return len(self._coming)

    def _watch(self, path: str, names: dict[str, ObjectInfo | None]) -> None:
        above, _, name = path.rpartition("/")
        order = self._orders.pop(above, None)
        if order is None or order.names is not names or name not in order.numbers:
            self._make_room(len(names))
            files = [(one, info) for one, info in list(names.items()) if info is not None]
            numbers = {one: number for number, (one, _) in enumerate(files)}
            order = _Order(names, files, numbers, -1 - _SKIP, 0, 0)
        at = order.numbers.get(name, -1)
        forward = 0 < at - order.at <= _SKIP or at == 0
        order = order._replace(at=at, in_order=order.in_order + 1 if forward else 0)
        if not forward:
            order = order._replace(fetched=0)
        if order.in_order >= 2:
            order = self._fetch_next(above, order)
        self._orders[above] = order

    def _make_room(self, names: int) -> None:
        """Watch folders no more that were used longest ago, so that one with so many names can be."""
        names += sum(len(one.names) for one in self._orders.values())
        while self._orders and (len(self._orders) >= _WATCHED or names > _NAMES):
            _, gone = self._orders.popitem(last=False)
            names -= len(gone.names)

    def _fetch_next(self, above: str, order: _Order) -> _Order:
        """Begin batches, so that about two are ahead of the file that is opened."""
        begin = f"{above}/" if above else ""
        at = max(order.at + 1, order.fetched)
        while at < len(order.files) and at - order.at <= 2 * _FILES:
            some, size = list[tuple[str, ObjectInfo]](), 0
            for name, info in _from(order.files, at):
                at += 1
                if 0 <= info.size <= _SMALL:
                    some.append((begin + name, info))
                    size += info.size
                if len(some) == _FILES or size >= _BYTES or at - order.at > 3 * _FILES:
                    break
            if some:
                self._begin(some)
        return order._replace(fetched=at)

    def _begin(self, some: list[tuple[str, ObjectInfo]]) -> None:
        pieces = [Piece(info) for _, info in some]
        future = self._pool.submit(self._fetch, self._place, pieces, self._verify)
        for number, (path, info) in enumerate(some):
            self._coming[path] = (info, future, number)
        self._batches[future] = [path for path, _ in some]
        while len(self._batches) > _BATCHES:
            _, gone = self._batches.popitem(last=False)
            for path in gone:
                self._coming.pop(path, None)

    def close(self) -> None:
        """Fetch nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _from(files: list[tuple[str, ObjectInfo]], at: int) -> Iterator[tuple[str, ObjectInfo]]:
    for number in range(at, len(files)):
        yield files[number]
