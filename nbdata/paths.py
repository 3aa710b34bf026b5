"""Paths and URLs as users write them, made canonical; does not check whether they exist.

A *place* is either a local path (absolute after `canonical`) or a URL ``scheme://…`` of any fsspec protocol. A trailing
slash is kept: it means "a folder, not an object".
"""

from __future__ import annotations

import os
import posixpath
import re
from urllib.parse import quote, unquote, urlsplit

from nbdata.errors import BadOption

__all__ = [
    "CONVERTING",
    "OWN_FOLDER",
    "PIPED_LISTS",
    "as_folder",
    "canonical",
    "folder_below",
    "glob_base",
    "glob_pattern",
    "has_glob",
    "is_brace_pattern",
    "is_inside",
    "is_ours",
    "is_own_name",
    "is_url",
    "join",
    "last_component",
    "leads_out",
    "path_text",
    "working_folder",
    "working_place",
]

#: Name of nbdata's own folders, at every depth, with partials, caches and locks; never treated as data. Where another
#: user has one, this user's is ``.nbdata-UID``: see `is_own_name`.
OWN_FOLDER = ".nbdata"
#: Subfolder for splits of data sets that are being converted.
CONVERTING = "converting"
#: Suffixes of files that hold lists of paths from a pipe, and their names in errors.
PIPED_LISTS = {".nbdata-stdin": "standard input", ".nbdata-pipe": "the pipe"}

_OWN_NAME = re.compile(rf"{re.escape(OWN_FOLDER)}(-[0-9]+)?", re.IGNORECASE)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# The form of str(Path("s3://bucket/x")); a single letter would be a drive.
_COLLAPSED = re.compile(
    r"(s3a?|obs|gs|gcs|az|abfss?|https?|file|memory|sftp|hf):/(?!/)(.*)", re.DOTALL | re.IGNORECASE
)
# What is meant as a URL and is none: "s3:bucket/x", "s3//bucket/x", "s3:\\bucket", " s3://bucket/x".
_MISSPELT = re.compile(
    r"\s*(s3a?|obs|gs|gcs|az|abfss?|https?|sftp|hf)(?::|[;.]?(?:/{2}|\\{2}))[/\\]*(.*)",
    re.DOTALL | re.IGNORECASE,
)
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_GLOB = re.compile(rf"[*?\[]|{_BRACES.pattern}")
# Origin, path, and the rest; a query is never a glob.
_HTTP = re.compile(r"(https?://[^/?#]*)([^?#]*)(.*)", re.DOTALL)


def _parted(place: str) -> tuple[str, str, str]:
    """Split a place into its path and the text before and after it (mostly the query of an http URL)."""
    match = _HTTP.fullmatch(place)
    return (match[1], match[2], match[3]) if match else ("", place, "")


def working_folder() -> str:
    """Return this process's working folder; empty if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def working_place() -> tuple[str, int, int] | None:
    """Return the name, device and inode of this process's working folder; None if it was deleted."""
    try:
        status = os.stat(".")
    except OSError:
        return None
    here = working_folder()
    return (here, status.st_dev, status.st_ino) if here else None


def is_url(place: str) -> bool:
    """True if `place` is a URL and not a local path (`canonical` makes ``file://`` and ``local://`` local)."""
    return _URL.match(place) is not None


def path_text(value: object) -> str | None:
    """Return the text of a path, or None for any other value, paths of bytes included."""
    try:
        text = os.fspath(value)  # type: ignore[call-overload]  # fspath checks the type itself
    except TypeError:
        return None
    return text if isinstance(text, str) else None


def canonical(place: str | os.PathLike[str], *, cwd: str | None = None, name: str = "path") -> str:
    """Return the one spelling of a place: an absolute local path, or a URL.

    ``~`` is expanded, ``file:///`` and ``local:///`` become a local path, ``s3:/bucket/x`` becomes
    ``s3://bucket/x``; a trailing slash is kept. Symbolic links are not followed.

    Raises
    ------
    BadOption
        For an empty path, a NUL, ``-``, ``pipe:``, ``file://host/``, a misspelt URL such as ``s3//bucket/x``, or a
        relative path if the working folder was deleted.
    """
    text = os.fspath(place)
    if not text or "\0" in text:
        raise BadOption(
            f"{name}: {text!r} is not a path", remedy="Give a local path or a URL such as s3://bucket/folder/"
        )
    if text == "-":
        raise BadOption(
            f"{name}: '-' would be standard input or output, and nbdata moves data between files and objects",
            remedy="Name a file or a folder; a file of this name is ./-",
        )
    if text.startswith("pipe:"):
        raise BadOption(
            f"{name}: 'pipe:' would run a command, which nbdata never does",
            remedy="Give the URL itself, for example s3://bucket/shard.tar",
        )
    collapsed = _COLLAPSED.fullmatch(text)
    if collapsed:
        scheme, rest = collapsed.groups()
        text = f"{scheme}:///{rest}" if scheme.lower() == "file" else f"{scheme}://{rest}"
    match = _URL.match(text)
    if match:
        scheme = match.group(1).lower()
        if scheme not in ("file", "local"):
            return scheme + text[match.end(1) :]
        text = _of_file_url(text, name)
    elif misspelt := _MISSPELT.fullmatch(text):
        scheme, rest = misspelt.groups()
        raise BadOption(
            f"{name}: {text!r} is no URL of {scheme.lower()}",
            remedy=f"Did you mean {scheme.lower()}://{rest.replace(chr(92), '/')}? "
            f"A file or folder of this name is ./{text}",
        )
    folder = text.endswith(("/", "/.", "/..")) or text in (".", "..")
    path = os.path.expanduser(text)
    if not os.path.isabs(path):
        here = cwd or working_folder()
        if not here:
            raise BadOption(
                f"{name}: {text!r} is relative to the working folder, which is gone",
                remedy="Change to a folder that is there, or write the whole path",
            )
        path = os.path.join(here, path)
    path = os.path.normpath(path)
    if path.startswith("//"):  # special in POSIX; no user means that here
        path = path[1:]
    return path + "/" if folder and path != "/" else path


def _of_file_url(url: str, name: str) -> str:
    """Return the path of a ``file:///`` URL, or of fsspec's ``local:///``, which has no escapes.

    A first name after two slashes would be a host, and is refused.
    """
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise BadOption(
            f"{name}: {url!r} names a host, and files are read and written on this machine only",
            remedy=f"Write the whole path after three slashes, {parts.scheme}:///…, or {url.partition('://')[2]!r}",
        )
    return unquote(parts.path) if parts.scheme == "file" else url.partition("://")[2]


def is_brace_pattern(text: str) -> bool:
    """True if a text in braces is a pattern: ``{a,b}`` or ``{000..099}``."""
    return _BRACES.fullmatch(text) is not None


def has_glob(place: str) -> bool:
    """True if a place holds ``*``, ``?``, ``[…]``, ``{a,b}`` or ``{000..099}``, except in the query of an http URL."""
    return _GLOB.search(_parted(place)[1]) is not None


def glob_base(place: str) -> str:
    """Return the fixed part of a place with a glob: everything up to the last slash before the pattern, and a query."""
    before, path, after = _parted(place)
    match = _GLOB.search(path)
    return place if match is None else before + path[: path.rfind("/", 0, match.start()) + 1] + after


def glob_pattern(place: str) -> str:
    """Return the part of a place with a glob that follows its fixed part."""
    path = _parted(place)[1]
    match = _GLOB.search(path)
    return "" if match is None else path[path.rfind("/", 0, match.start()) + 1 :]


def as_folder(place: str) -> str:
    """Return the place with a slash at the end of its path."""
    before, path, after = _parted(place)
    if path.endswith("://"):  # a store without a bucket
        return place
    return before + path.rstrip("/") + "/" + after


def last_component(place: str) -> str:
    """Return the last part of a path or of a URL's path; the bucket or host if there is nothing else."""
    before, path, _ = _parted(place)
    bare = path.rstrip("/")
    if before:
        name = unquote(posixpath.basename(bare))
        return (
            name
            if name and "/" not in name and "\0" not in name
            else before.rpartition("/")[2].rpartition("@")[2]
        )
    if is_url(bare):
        bare = bare[bare.index("://") + 3 :]
    return posixpath.basename(bare)


def join(base: str, relative: str) -> str:
    """Join `relative` to `base`, which may be a path or a URL, with exactly one slash between."""
    return f"{base.rstrip('/')}/{relative}" if base else relative


def folder_below(base: str, relative: str) -> str:
    """Return the folder of that name below `base`, which may be a path or a URL."""
    before, path, after = _parted(base)
    return f"{before}{path.rstrip('/')}/{quote(relative) if before else relative}/{after}"


def is_inside(path: str, folder: str) -> bool:
    """True if canonical `path` is `folder` or lies below it."""
    bare = folder.rstrip("/")
    return path.rstrip("/") == bare or path.startswith(bare + "/")


def leads_out(path: str, folder: str) -> bool:
    """True if a link to a folder leads an absolute path out of a local folder, below which it is by its name.

    A link to a file counts as that file.
    """
    return not is_inside(os.path.realpath(os.path.dirname(path)), os.path.realpath(folder))


def is_own_name(name: str) -> bool:
    """True for the names of nbdata's own folders, ``.nbdata`` and ``.nbdata-UID``, in any case."""
    return name[:1] == "." and _OWN_NAME.fullmatch(name) is not None


def is_ours(path: str) -> bool:
    """True if a path is one of nbdata's own folders, or lies in one."""
    return OWN_FOLDER in path.lower() and any(map(is_own_name, path.split("/")))
