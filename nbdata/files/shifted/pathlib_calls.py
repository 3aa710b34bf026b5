"""What pathlib's paths do with a URL.

``Path("s3://bucket/file")`` is a path of pathlib, which keeps one slash of the two. So its text is made whole where it
is read, and it is absolute. All else that it does, pathlib asks of `os` and `io`. Each function here returns the method
that stands for one of pathlib's.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from nbdata.errors import NotFound
from nbdata.files.shifted.os_calls import fail, info_of, open_url, require
from nbdata.files.shifted.places import os_errors, target, text_of

__all__ = ["absolute", "as_uri", "is_absolute", "text", "touch"]

_Method = Callable[..., Any]


def _leads(path: Any) -> bool:
    return isinstance(path, PurePosixPath) and target(path) is not None


def text(python: _Method) -> _Method:
    """Return ``__str__``, with the two slashes of a URL."""

    @functools.wraps(python)
    def __str__(self: Any) -> str:  # noqa: N807  it is one
        shown: str = python(self)
        if ":/" not in shown or not isinstance(self, PurePosixPath):
            return shown
        return text_of(shown)

    return __str__


def is_absolute(python: _Method) -> _Method:
    """Return ``is_absolute``: a URL does not depend on the working folder."""

    @functools.wraps(python)
    def is_absolute(self: Any) -> bool:
        return _leads(self) or python(self)

    return is_absolute


def absolute(python: _Method) -> _Method:
    """Return ``absolute``, which leaves a URL as it is."""

    @functools.wraps(python)
    def absolute(self: Any) -> Any:
        return self if _leads(self) else python(self)

    return absolute


def as_uri(python: _Method) -> _Method:
    """Return ``as_uri``: the URL."""

    @functools.wraps(python)
    def as_uri(self: Any) -> str:
        uri: str = os.fspath(self) if _leads(self) else python(self)
        return uri

    return as_uri


def touch(python: _Method) -> _Method:
    """Return ``touch``: a file that is there stays as it is, with its time."""

    @functools.wraps(python)
    def touch(self: Any, mode: int = 0o666, exist_ok: bool = True) -> None:
        if not _leads(self):
            python(self, mode, exist_ok)
            return
        with os_errors(self):
            try:
                info_of(require(self))
            except NotFound:
                open_url(self, "xb").close()
            else:
                if not exist_ok:
                    fail(errno.EEXIST, os.fspath(self))

    return touch
