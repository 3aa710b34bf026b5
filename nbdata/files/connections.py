"""The stores that a file system reaches, opened when they are first used. Each process opens its own.

Where a URL names the server, the options of a file system are for the server that was named when it was made. A library
may ask it for files of others: those are read as anybody (see `nbdata.operation.Context.origins`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from fsspec.config import conf

from nbdata.client.opened import Opened
from nbdata.errors import AccessDenied, BadOption
from nbdata.files.names import parts_of, store_url
from nbdata.operation import Context
from nbdata.origins import SERVICES, origin_of
from nbdata.redaction import AZURE_SCHEMES, redacted
from nbdata.stores.az.config import account_origins
from nbdata.stores.base import Location, Store
from nbdata.stores.credentials.storage_options import is_address
from nbdata.stores.http.config import for_one_server
from nbdata.stores.http.store import key_of
from nbdata.threads import ForkLock
from nbdata.transfer.free_control import FreeControl
from nbdata.transfer.retry import retrying
from nbdata.verbs.file_access import FileAccess

__all__ = ["Connections", "Place", "named_server"]

_WEB = ("http", "https")
# Further protocols whose URLs name a server. It cannot be asked as anybody, so another one is refused.
_LOGGED_IN = ("sftp", "ssh", "ftp", "smb")
_ELSEWHERE = "This file system is for another server, so here it has no credentials: make one with this URL"

_T = TypeVar("_T")

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

    def retrying(self, attempt: Callable[[], _T]) -> _T:
        """Return the result of `attempt`, as `nbdata.transfer.retry.retrying` does; a refusal says what is missing."""
        try:
            return retrying(self.control, attempt)
        except AccessDenied as error:
            if not self.opened.context.knows(self.folder.place):
                error.remedy = _ELSEWHERE
            raise


class Connections:
    """Opens places for one file system; safe to use from many threads, and after a fork.

    Parameters
    ----------
    options : dict
        Storage options by their fsspec names, and the server that they are for, as `named_server` returns it, or a URL
        there (``origin``).
    verify : str
        See `nbdata.verbs.options.Verifying`.
    target : str
        The protocol of the store.
    fo : str
        The path of a chained URL, which names the server where `options` do not.

    Attributes
    ----------
    options : dict
        Those for the store.

    Raises
    ------
    BadOption
        For options that are for one web server, if none is named.
    """

    def __init__(self, options: Mapping[str, Any], verify: str, target: str, fo: str = "") -> None:
        self.options, self.verify, self._target = dict(options), verify, target
        named = str(self.options.pop("origin", None) or "")
        self._origins = _origins(target, self.options, named or (fo if target in _WEB else ""))
        self._pid, self._lock = os.getpid(), ForkLock()
        self._opened: dict[str, tuple[Opened, Location]] = {}

    def at(self, url: str) -> Place:
        """Return the store and the key of a URL or an absolute path.

        Raises
        ------
        BadOption
            For what is no URL of a web server, in a file system for those; or if another server cannot be asked as
            anybody.
        """
        # It would be a file on the disk.
        if self._target in _WEB and url.partition("://")[0].lower() not in _WEB:
            raise BadOption("a file of a web server is named by its URL", path=redacted(url))
        if self._target in _LOGGED_IN and self._origins is not None and origin_of(url) not in self._origins:
            raise BadOption(
                "this file system is for another server", path=redacted(url), remedy="Make one with this URL"
            )
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
        opened = Opened(FileAccess(source=url, storage_options=self.options or None, verify=self.verify))
        opened.context.origins = self._known(opened.context)
        return opened

    def _known(self, context: Context) -> tuple[str, ...] | None:
        """Return the origins that get credentials."""
        if self._target not in AZURE_SCHEMES:
            return self._origins
        own = account_origins(context)
        return None if own is None else (*(self._origins or ()), *own)

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
        begin, bucket, below = parts_of(url)
        return f"{begin}{bucket}/", below[1:]
    if scheme in ("http", "https") and not set("?#@") & set(url):
        return f"{scheme}://{rest.partition('/')[0]}/", key_of(url)
    return "", ""


def named_server(url: str) -> str:
    """Return the origin of a URL (see `nbdata.origins`) that itself says which server gets its requests, else ''.

    Examples
    --------
    >>> [named_server(one) for one in ("nbhttps://server/file", "az://c@mine.dfs.core.windows.net/x", "s3://bucket/x")]
    ['https://server:443', 'az://mine.blob.core.windows.net', '']
    """
    url = store_url(url)
    scheme, _, rest = url.partition("://")
    if scheme in AZURE_SCHEMES and "@" not in rest.partition("/")[0]:
        return ""
    return origin_of(url) if scheme in (*_WEB, *AZURE_SCHEMES, *_LOGGED_IN) else ""


def _origins(target: str, options: Mapping[str, Any], named: str) -> tuple[str, ...] | None:
    """Return the origins that the options are for. None: the user's configuration says which server that is."""
    if target in _WEB:
        if named and not is_address(named):
            raise BadOption(f"origin: {named!r} is no address of a server", expected="https://server")
        if named:
            return (origin_of(named),)
        if held := for_one_server({**(conf.get(target) or {}), **options}):
            raise BadOption(
                f"a file system for all web servers has {' and '.join(held)} among its options",
                remedy="Name the server that they are for: "
                'nbdata.filesystem("https://server", …), or the option origin="https://server"',
            )
        return ()
    if not named:
        return None
    host = named.partition("://")[2].partition("/")[0].rpartition("@")[2]
    if target in AZURE_SCHEMES:
        return (origin_of(f"az://container@{host}"),)
    if target in _LOGGED_IN:
        return f"{target}://{host}", f"{target}://"
    raise BadOption(
        f"origin: the other options say which server {target}:// is",
        remedy="Leave it out, or set endpoint_url",
    )
