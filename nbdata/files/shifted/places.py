"""Which paths mean files in a store while `nbdata.shift` is on, and the place in the store that each leads to."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

from nbdata.errors import BadOption, NbdataError
from nbdata.files.connections import Place
from nbdata.files.names import parts_of, store_url
from nbdata.files.opening import filesystem
from nbdata.files.shifted.uses import SCHEMES, SERVERS, Use, use_for
from nbdata.paths import canonical

__all__ = ["Target", "as_written", "is_of_disk", "may_lead", "os_errors", "target", "text_of", "url_in"]

# The text of a path of pathlib, and the status of what is on the disk, by functions that are not replaced yet.
_plain, _lstat = PurePath.__str__, os.lstat
# One slash is what pathlib leaves of the two. A text needs two: an archive may have a member "s3:/bucket/file".
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(/?)")


class Target(NamedTuple):
    """A file or folder in a store, as a shifted function is given it.

    Attributes
    ----------
    url : str
        In its usual form, without a slash at its end.
    by : Use
        The use of `nbdata.shift` whose options apply.
    slash : bool
        Whether it was written with a slash at its end, so that it can only be a folder; not for a web server.
    """

    url: str
    by: Use
    slash: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The storage options; none for a server that the URL names, and the shift does not."""
        named = self.url.partition("://")[0] in SERVERS
        return {} if named and not self.by.places else self.by.options

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

    A path of pathlib has one slash where a URL has two. A path of bytes is of the disk.

    Raises
    ------
    BadOption
        For a path of pathlib that means a URL as well as a file of the working folder.
    """
    if not may_lead(path):
        return ""
    if not isinstance(path, PurePath):
        return _url_of(_text(path) or "")
    plain = _plain(path)
    url = _url_of(plain, of_pathlib=True)
    if url and is_of_disk(plain) and use_for(url) is not None:
        name = plain.partition("/")[0]
        raise BadOption(
            f"{plain!r} may mean {url} as well as a file in the folder {name!r} of the working folder",
            path=plain,
            remedy=f"Rename or remove the folder ./{name}, or write the path as a text: {url!r}, or './{plain}'",
        )
    return url


def _url_of(text: str, *, of_pathlib: bool = False) -> str:
    match = _SCHEME.match(text)
    if match is None or not (match[2] or of_pathlib) or match[1].lower() not in SCHEMES:
        return ""
    rest = text[match.end() :].lstrip("/")
    return store_url(canonical(f"{match[1].lower()}://{rest}"))


def is_of_disk(plain: str) -> bool:
    """Return whether the working folder has a folder with the name of the protocol, such as ``s3:``.

    ``os.makedirs("s3://bucket/folder")`` leaves one where no shift is on.
    """
    try:
        _lstat(plain.partition("/")[0])
    except OSError:
        return False
    return True


def text_of(plain: str) -> str:
    """Return the text of a path of pathlib, with the two slashes of a URL."""
    url = _url_of(plain, of_pathlib=True)
    found = None if not url or is_of_disk(plain) else _target(url)
    return plain if found is None else found.url


def target(path: object) -> Target | None:
    """Return the place in a store that a path leads to; None for a path of the disk, or if no shift is for it."""
    url = url_in(path)
    return _target(_resolved(url)) if url else None


def as_written(path: object) -> Target | None:
    """Return the same, but with ``..`` and what else leads elsewhere as it was written; no file is looked for there."""
    url = url_in(path)
    return _target(url) if url else None


def _resolved(url: str) -> str:
    """Return a URL without ``.``, ``..`` and double slashes, as the disk takes them; that of a web server as it is."""
    scheme, root, below = parts_of(url)
    parts = below[1:].split("/")
    if scheme in ("http://", "https://") or not {"", ".", ".."} & {*parts[:-1], parts[-1] or "-"}:
        return url
    kept = list[str]()
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    end = "/" if kept and parts[-1] in ("", ".", "..") else ""
    return f"{scheme}{root}/{'/'.join(kept)}{end}"


def _target(url: str) -> Target | None:
    by = use_for(url)
    if by is None:
        return None
    bare = url.rstrip("/")
    slash = url.endswith("/") and not url.startswith(("http://", "https://"))
    return Target(bare if "://" in bare else f"{bare}//", by, slash)


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
