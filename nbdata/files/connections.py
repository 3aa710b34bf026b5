"""The stores that a file system reaches, opened when they are first used. Each process opens its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from nbdata.client.opened import Opened
from nbdata.origins import SERVICES, origin_of
from nbdata.stores.base import Location, Store
from nbdata.stores.http.store import key_of
from nbdata.threads import ForkLock
from nbdata.transfer.free_control import FreeControl
from nbdata.verbs.file_access import FileAccess

__all__ = ["Connections", "Place"]

# The most stores that are kept open: one for each bucket or web server.
_MOST = 64


class Place(NamedTuple):
    """A file or folder of a store.

    Attributes
    ----------
    opened : Opened
        With the control that stops all reading.
    folder : Location
        The bucket, or the place itself in a store without buckets.
    key : str
        The key, without a slash at its end.
    """

    opened: Opened
    folder: Location
    key: str

    @property
    def store(self) -> Store:
        """The store."""
        return self.folder.store

    @property
    def control(self) -> FreeControl:
        """Stops all work with the store."""
        return self.opened.control

    @property
    def prefix(self) -> str:
        """What the keys of the files below it begin with."""
        return f"{self.key}/" if self.key else ""


class Connections:
    """Opens places for one file system; safe to use from many threads, and after a fork.

    Parameters
    ----------
    options : dict
        Storage options by their fsspec names.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    """

    def __init__(self, options: Mapping[str, Any], verify: str) -> None:
        self._options, self.verify = dict(options), verify
        self._pid, self._lock = os.getpid(), ForkLock()
        self._opened: dict[str, tuple[Opened, Location]] = {}

    def at(self, url: str) -> Place:
        """Return the store and the key of a URL or an absolute path."""
        root, key = _split(url)
        if not root:
            opened, location = self._open(url)
            return Place(opened, location, location.key.rstrip("/"))
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._opened = os.getpid(), {}
            found = self._opened.get(root)
            if found is None:
                found = self._opened[root] = self._open(root)
                while len(self._opened) > _MOST:
                    del self._opened[next(iter(self._opened))]
        return Place(*found, key.rstrip("/"))

    def anew(self, place: Place) -> Location:
        """Open the store of a place once more, with a control of its own."""
        return self._open(place.folder.place)[1]

    def opened(self, url: str) -> Opened:
        """Return what opens places like this one."""
        options = self._options or None
        return Opened(FileAccess(source=url, storage_options=options, verify=self.verify))

    def _open(self, url: str) -> tuple[Opened, Location]:
        opened = self.opened(url)
        return opened, opened.open(opened.operation.places()[0])


def _split(url: str) -> tuple[str, str]:
    """Return the URL of the bucket or web server that has a place, with a slash at its end, and the key there.

    Both are empty for a place that has to be opened by itself.
    """
    scheme, found, rest = url.partition("://")
    origin = origin_of(url) if found else ""
    if origin in SERVICES or origin.startswith("az://"):
        bucket, _, key = rest.partition("/")
        return f"{scheme}://{bucket}/", key
    if scheme in ("http", "https") and not set("?#@") & set(url):
        return f"{scheme}://{rest.partition('/')[0]}/", key_of(url)
    return "", ""
