"""Sizes as people write and read them: ``"5GB"`` to bytes, and bytes to ``"5.0 GB"``.

``5GB`` is 5·10⁹ and ``5GiB`` is 5·2³⁰ (IEC 80000-13). ``5g``, ``500m`` and ``64k`` without a B are powers of 1024, as
users of ``ulimit`` and ``dd`` write them. Own code because no library knows all three.
"""

from __future__ import annotations

import re

from nbdata.errors import BadOption

__all__ = ["counted", "format_duration", "format_size", "parse_size"]

_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([kmgtp]?)(ib|b|)\s*", re.IGNORECASE)


def parse_size(value: int | str, *, option: str = "size") -> int:
    """Parse a size such as ``5GB``, ``512MiB``, ``5g`` or a number of bytes; return its bytes.

    Raises
    ------
    BadOption
        If it is not a size, or is negative.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise BadOption(
            f"{option}: {value!r} is not a size",
            remedy="Write bytes or a number with a unit, for example 5GB, 512MiB or 500m",
        )
    number, prefix, unit = match.groups()
    base = 1000 if unit.lower() == "b" else 1024
    return int(float(number) * base ** _POWER[prefix.lower()])


_ONE = {"entries": "entry", "processes": "process", "retries": "retry"}
_VERBS = {
    "are": "is",
    "were": "was",
    "have": "has",
    "belong": "belongs",
    "lie": "lies",
    "lead": "leads",
    "come": "comes",
}


def counted(number: int, noun: str, verb: str = "") -> str:
    """Format a count with its noun, and its verb if there is one, both given in the plural.

    Examples
    --------
    >>> counted(1, "samples"), counted(2000, "files", "are")
    ('1 sample', '2,000 files are')
    """
    if number == 1:
        noun, verb = _ONE.get(noun, noun.removesuffix("s")), _VERBS.get(verb, verb and f"{verb}s")
    return f"{number:,} {noun} {verb}".rstrip()


def format_size(size: float) -> str:
    """Format a size for people, in decimal units: ``999 B``, ``1.5 kB``, ``20.0 GB``."""
    if abs(size) < 1000:
        return f"{int(size)} B"
    for unit in ("kB", "MB", "GB", "TB"):
        size /= 1000
        if abs(size) < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} PB"


def format_duration(seconds: float) -> str:
    """Format a duration for people: ``<0.1 s``, ``0.3 s``, ``42 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if 0 < seconds < 0.1:
        return "<0.1 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
