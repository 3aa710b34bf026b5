"""Measures the headers before a continued member in a later volume of GNU tar's ``--multi-volume``.

If the previous volume ends within a file, the next one repeats headers. GNU tar's own formats repeat a header of type
``M``. The POSIX format has pax headers with ``GNU.volume.offset`` and a header for the rest of the file. Both repeat a
label if the archive has one. Without these headers, the joined volumes are one ordinary archive. Source: GNU tar
1.35, ``buffer.c``.
"""

from __future__ import annotations

__all__ = ["HEAD", "continued_after"]

_BLOCK = 512
#: Bytes at the beginning of a volume that contain all repeated headers.
HEAD = 16 << 10


def continued_after(head: bytes) -> int:
    """Count the bytes before the continued content; 0 if the volume begins in another way.

    Parameters
    ----------
    head : bytes
        The first `HEAD` bytes of a volume, or the whole volume if it is shorter.
    """
    at, continued = 0, False
    while at + _BLOCK <= len(head):
        header = head[at : at + _BLOCK]
        kind, size = header[156:157], _octal(header[124:136])
        if size is None or not _is_summed(header):
            return 0
        if kind == b"M":
            return at + _BLOCK
        if kind == b"V":
            at += _BLOCK
            continue
        if kind not in (b"g", b"x"):  # of the rest of a file, in the POSIX format
            return at + _BLOCK if continued else at
        data = head[at + _BLOCK : at + _BLOCK + size]
        if not continued and kind == b"g":
            continued = b" GNU.volume.offset=" in data
        if not continued and b" GNU.volume.label=" not in data:
            return at
        at += _BLOCK + -(-size // _BLOCK) * _BLOCK
    return 0


def _octal(field: bytes) -> int | None:
    text = field.split(b"\0")[0].strip()
    return int(text, 8) if text and not text.strip(b"01234567") else 0 if not text else None


def _is_summed(header: bytes) -> bool:
    told = _octal(header[148:156])
    return told is not None and told == sum(header[:148]) + sum(header[156:]) + 8 * ord(" ")
