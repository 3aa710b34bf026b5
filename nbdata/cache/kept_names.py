"""The names of kept caches, and of the files of objects in them."""

from __future__ import annotations

import hashlib
import re

from nbdata.paths import OWN_FOLDER
from nbdata.stores.base import ObjectInfo

__all__ = ["KEPT", "is_name", "kept_in", "name_of"]

#: The prefix of these folders' names.
KEPT = "kept-"
_NAME = re.compile(r"[0-9a-f]{32}")


def name_of(info: ObjectInfo) -> str:
    """The file name for one version of an object."""
    # The time identifies a version only if there is no ETag and no version id.
    version = (info.etag, info.version) if info.etag or info.version else (info.modified,)
    facts = "\0".join(map(str, (info.key, info.size, *version)))
    return hashlib.blake2b(facts.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def kept_in(path: str) -> str | None:
    """The kept-cache folder that a path is or lies in; None if there is none."""
    match = re.match(rf"(.*/)?{re.escape(OWN_FOLDER)}(-[0-9]+)?/{KEPT}[0-9a-f]{{16}}(?![0-9a-f])", path)
    return match[0] if match is not None else None


def is_name(text: object) -> bool:
    """Whether a text is the name of an object's file."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None
