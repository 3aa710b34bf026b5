"""The names of caches that are found again, and of the files of objects in kept caches."""

from __future__ import annotations

import hashlib
import re

from nbdata.cache.folder import is_cache
from nbdata.paths import OWN_FOLDER
from nbdata.stores.base import ObjectInfo

__all__ = ["BLOCKS", "KEPT", "is_any_cache", "is_name", "kept_in", "name_of"]

#: The prefixes of the names of folders with whole objects (`nbdata.cache.kept_folder`), and with blocks of them
#: (`nbdata.files.blocks`).
KEPT, BLOCKS = "kept-", "blocks-"
_NAME = re.compile(r"[0-9a-f]{32}")


def name_of(info: ObjectInfo) -> str:
    """The file name for one version of an object."""
    # The time identifies a version only if there is no ETag and no version id.
    version = (info.etag, info.version) if info.etag or info.version else (info.modified,)
    facts = "\0".join(map(str, (info.key, info.size, *version)))
    return hashlib.blake2b(facts.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def kept_in(path: str) -> str | None:
    """The folder of a cache that is found again which a path is or lies in; None if there is none."""
    names = f"(?:{KEPT}|{BLOCKS})[0-9a-f]{{16}}(?![0-9a-f])"
    match = re.match(rf"(.*/)?{re.escape(OWN_FOLDER)}(-[0-9]+)?/{names}", path)
    return match[0] if match is not None else None


def is_any_cache(name: str) -> bool:
    """Whether a name is one that nbdata gives to caches, of any kind."""
    return is_cache(name) or is_cache(name, KEPT) or is_cache(name, BLOCKS)


def is_name(text: object) -> bool:
    """Whether a text is the name of an object's file."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None
