"""Samples in WebDataset's sense: files of one folder that share their name up to its first dot.

``a/0001.jpg``, ``a/0001.cls.txt`` are the sample ``a/0001`` with the extensions ``jpg`` and ``cls.txt`` ("WebDataset
format specification", section on files and keys). Here they are loose objects, not members of a tar shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["by_sample", "is_hidden", "is_hidden_key", "split_name"]

_Entry = TypeVar("_Entry")


def split_name(path: str) -> tuple[str, str]:
    """Split a file's path at the first dot of its name into key and extension.

    A name that starts with a dot has no key; it is returned whole, with an empty extension.
    """
    folder, slash, name = path.rpartition("/")
    stem, dot, extension = name.partition(".")
    if not stem:
        return path, ""
    return f"{folder}{slash}{stem}", extension if dot else ""


def is_hidden(path: str) -> bool:
    """Whether a file is none of the data: it begins with a dot, or lies in a ``__MACOSX`` folder.

    macOS puts ``._NAME`` with the attributes of NAME beside it, in archives and on foreign disks, and ``.DS_Store``.
    """
    return path.startswith(".", path.rfind("/") + 1) or ("__MACOSX" in path and "__MACOSX" in path.split("/"))


def is_hidden_key(key: str) -> bool:
    """Whether a sample of a shard is made of hidden files: readers of shards take them for samples."""
    return key.endswith("/") or is_hidden(key)


def by_sample(
    entries: Iterable[_Entry], path_of: Callable[[_Entry], str]
) -> Iterator[tuple[str, list[_Entry]]]:
    """Group a listing in key order into samples; yields each as soon as it is known to be complete.

    In key order, the files of a sample are adjacent. The exception is a folder whose name starts like the sample's:
    ``a/1.d/x`` comes between ``a/1.cls`` and ``a/1.jpg``. So few samples are open at a time: as many as folders are
    nested.
    """
    open_samples: dict[str, list[_Entry]] = {}
    for entry in entries:
        path = path_of(entry)
        for key in [key for key in open_samples if not path.startswith(key)]:
            yield key, open_samples.pop(key)
        open_samples.setdefault(split_name(path)[0], []).append(entry)
    yield from open_samples.items()
