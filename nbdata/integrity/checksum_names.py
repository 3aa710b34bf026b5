"""Recognise checksum files by their names, and find the file and the algorithm that they are for."""

from __future__ import annotations

import posixpath
import re

from nbdata.algorithms import ALGORITHMS

__all__ = ["SIDECAR_SUFFIXES", "algorithm_in", "is_checksum_file", "is_manifest", "is_sfv", "owner_of"]

SIDECAR_SUFFIXES = {suffix: one.name for one in ALGORITHMS.values() for suffix in one.suffixes}
"""The algorithm that each suffix of a sidecar stands for; they are recognised in either case."""

_SIDECAR = re.compile(rf"(.+)({'|'.join(map(re.escape, SIDECAR_SUFFIXES))})", re.IGNORECASE | re.DOTALL)
# Longer names first: one may begin with another.
_NAMES = "|".join(sorted(map(re.escape, ALGORITHMS), key=len, reverse=True))
_MANIFEST = re.compile(
    rf"""({_NAMES})sums?(\.txt)?   # MD5SUMS, sha256sum.txt
      | ({_NAMES})\.txt
      | (.*-)?checksums?                        # CHECKSUM, Fedora-38-x86_64-CHECKSUM
      | checksum.*\.txt
      | (tag)?manifest-({_NAMES})\.txt   # BagIt, RFC 8493
      | .+\.sfv                                 # CRC-32 after the names
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
# A quick test: each of these names contains one of these words, and most other names contain none.
_HINT = re.compile(f"{_NAMES}|checksum|manifest|sfv", re.IGNORECASE)
_ALGORITHM = re.compile(_NAMES, re.IGNORECASE)


def is_checksum_file(name: str) -> bool:
    """Whether a file of this name holds checksums of other files: a sidecar or a manifest."""
    return _HINT.search(name) is not None and (owner_of(name) is not None or is_manifest(name))


def is_manifest(name: str) -> bool:
    """Whether the name is a usual one for the checksums of a whole folder, such as ``MD5SUMS`` or ``MD5SUMS.gz``."""
    return _MANIFEST.fullmatch(_unzipped(posixpath.basename(name))) is not None


def is_sfv(name: str) -> bool:
    """Whether the name is that of a list in the format SFV, whose lines begin with the file's name."""
    return _unzipped(name).lower().endswith(".sfv")


def owner_of(name: str) -> str | None:
    """The path of the file that a sidecar is for (``d/a`` for ``d/a.md5``), or None."""
    folder, base = posixpath.split(name)
    match = _SIDECAR.fullmatch(base)
    return posixpath.join(folder, match[1]) if match else None


def algorithm_in(name: str) -> str | None:
    """The algorithm in a checksum file's name, or None."""
    base = posixpath.basename(name)
    if sidecar := _SIDECAR.fullmatch(base):
        return SIDECAR_SUFFIXES[sidecar[2].lower()]
    if is_sfv(name):
        return "crc32"
    match = _ALGORITHM.search(base)
    return match[0].lower() if match else None


def _unzipped(name: str) -> str:
    """The name without the suffix that gzip gives it."""
    return name[:-3] if name.lower().endswith(".gz") else name
