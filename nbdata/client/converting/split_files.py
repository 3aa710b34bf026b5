"""Knows the names of the files of a converted split, and finds what else lies in its folder."""

from __future__ import annotations

import os
import re
import stat

from nbdata.errors import BadOption
from nbdata.formats.ffrecord import SUFFIX

__all__ = ["RECORD", "refuse_others"]

#: The file in a split's folder that records how the split was made, with a seal.
RECORD = "nbdata.json"
# What a split consists of, whichever converter made it: files of samples, at its top or in a folder, and others there.
_SAMPLES = "ffrdata"
_PART = re.compile(rf"({_SAMPLES}/)?PART_[0-9]{{5,}}{re.escape(SUFFIX)}")
_BESIDE = {RECORD, "meta.pkl", "meta.json", "filename2idx.pkl", "filename2idx.json"}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def refuse_others(there: int, final: str) -> None:
    """Raise BadOption if what has a split's name, open by its descriptor, is no split or also holds anything else."""
    name, remedy = os.path.basename(final), "Move it away, or give NAME another name"
    is_folder = stat.S_ISDIR(os.fstat(there).st_mode)
    others, is_split = _others_in(there) if is_folder else ([], False)
    if not is_split:
        raise BadOption(f"the name of split {name!r} is taken by something else", path=final, remedy=remedy)
    if others:
        raise BadOption(
            f"split {name!r} cannot be replaced: its folder holds something else, too",
            path=os.path.join(final, others[0]),
            expected="only files that convert made",
            remedy=remedy,
        )


def _others_in(split: int) -> tuple[list[str], bool]:
    """Return the paths in an open folder that no split has, and whether the folder has a file of samples or a record.

    Only names are compared: the files of a split may be damaged, and another converter's have no seal.
    """
    entries = _entries(".", split)
    if entries.get(_SAMPLES):
        del entries[_SAMPLES]
        entries |= {f"{_SAMPLES}/{name}": is_folder for name, is_folder in _entries(_SAMPLES, split).items()}
    files = {path for path, is_folder in entries.items() if not is_folder}
    parts = {path for path in files if _PART.fullmatch(path)}
    return sorted(entries.keys() - parts - (files & _BESIDE)), bool(parts) or RECORD in files


def _entries(folder: str, split: int) -> dict[str, bool]:
    """Return the names in a folder of an open split, and whether each is a folder."""
    fd = os.open(folder, _FOLDER, dir_fd=split)
    try:
        with os.scandir(fd) as scan:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in scan}
    finally:
        os.close(fd)
