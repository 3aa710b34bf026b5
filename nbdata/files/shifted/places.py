"""Which paths mean files in a store while `nbdata.shift` is on, and the place in the store that each leads to."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

from nbdata.errors import NbdataError
from nbdata.files.connections import Place
from nbdata.files.names import store_url
from nbdata.files.opening import filesystem
from nbdata.files.shifted.uses import SCHEMES, Use, use_for
from nbdata.paths import canonical

__all__ = ["Target", "may_lead", "os_errors", "target", "url_in"]

# The text of a path of pathlib, by the method that is not replaced yet.
_plain = PurePath.__str__
# One slash is the form of str(Path("s3://bucket/file")).
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


class Target(NamedTuple):
    """A file or folder in a store, as a shifted function is given it.

    Attributes
    ----------
    url : str
        In its usual form, without a slash at its end.
    by : Use
        The use of `nbdata.shift` whose options apply.
    """

    url: str
    by: Use

    @property
    def options(self) -> dict[str, Any]:
        """The storage options; none for a web server that was not named."""
        web = self.url.startswith(("http://", "https://"))
        return {} if web and not self.by.places else self.by.options

    @property
    def files(self) -> Any:
        """The file system."""
        return filesystem(self.url, verify=self.by.verify, **self.options)

    @property
    def place(self) -> Place:
        """The store and the key."""
        found: Place = self.files.place(self.url)
        return found


def may_lead(path: object) -> bool:
    """Return quickly whether a path may be a URL; False for nearly all paths of the disk."""
    if type(path) is str:
        return ":/" in path
    if path is None or type(path) is int or type(path) is bytes:
        return False
    text = _plain(path) if isinstance(path, PurePath) else _text(path)
    return text is not None and ":/" in text


def url_in(path: object) -> str:
    """Return the URL in a path, in its usual form; empty for a path of the disk.

    ``s3:/bucket/file``, the form that pathlib makes of a URL, is one, too. A path of bytes is of the disk.
    """
    if not may_lead(path):
        return ""
    text = _text(path) or ""
    match = _SCHEME.match(text)
    if match is None or match[1].lower() not in SCHEMES:
        return ""
    rest = text[match.end() :].lstrip("/")
    return store_url(canonical(f"{match[1].lower()}://{rest}"))


def target(path: object) -> Target | None:
    """Return the place in a store that a path leads to; None for a path of the disk, or if no shift is for it."""
    url = url_in(path)
    if not url:
        return None
    by = use_for(url)
    if by is None:
        return None
    bare = url.rstrip("/")
    return Target(f"{bare}//" if bare.endswith(":") else bare, by)


def _text(path: object) -> str | None:
    if isinstance(path, str):
        return path
    if not hasattr(path, "__fspath__"):
        # universal_pathlib's paths in stores are no path-like objects.
        return str(path) if hasattr(path, "fs") and hasattr(path, "storage_options") else None
    with contextlib.suppress(TypeError):
        text = os.fspath(path)
        return text if isinstance(text, str) else None
    return None


@contextlib.contextmanager
def os_errors(path: object) -> Iterator[None]:
    """Give the errors of nbdata that are OSErrors a `filename`, as those of Python's own functions have."""
    try:
        yield
    except NbdataError as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = _text(path)
        raise
