"""Which uses of `nbdata.shift` are on, and which of them counts for a URL."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from nbdata.files.names import STORES

__all__ = ["OTHERS", "SCHEMES", "SERVERS", "Use", "active", "use_for"]

#: Protocols besides those of nbdata's own stores whose URLs are taken: fsspec's, for what is a store or a server.
OTHERS = (
    *("memory", "sftp", "ssh", "ftp", "hf", "oss", "hdfs", "webhdfs", "webdav", "smb"),
    *("gdrive", "dbfs", "lakefs", "oci", "box", "dropbox", "tos"),
)
#: Protocols whose URLs name the server.
SERVERS = ("http", "https", "sftp", "ssh", "ftp", "webdav", "hdfs", "webhdfs", "smb")
#: All protocols whose URLs are taken.
SCHEMES = frozenset({*STORES, *(f"nb{store}" for store in STORES), *OTHERS})


class Use:
    """The places that a shift is for, and its options.

    Attributes
    ----------
    places : tuple of str
        Protocols, and beginnings of URLs; empty for all.
    options : dict
        Storage options.
    verify : str
    thread : int or None
        The identity of the only thread that it is for; None for all.
    """

    def __init__(
        self, places: tuple[str, ...], options: Mapping[str, Any], verify: str, thread: int | None = None
    ) -> None:
        self.places, self.options, self.verify, self.thread = places, dict(options), verify, thread

    def covers(self, url: str) -> bool:
        """Whether it is for a URL."""
        if self.thread not in (None, threading.get_ident()):
            return False
        if not self.places:
            return True
        scheme = url.partition("://")[0]
        return any(
            place == scheme or url == place or url.startswith(place.rstrip("/") + "/")
            for place in self.places
        )


#: The uses that are on, latest last.
active: list[Use] = []


def use_for(url: str) -> Use | None:
    """Return the latest use that is on for a URL in its usual form; None if there is none."""
    for one in reversed(active):
        if one.covers(url):
            return one
    return None
