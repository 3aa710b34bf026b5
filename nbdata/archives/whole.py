"""Tells archives that are called like volumes from real volumes, by their first and last bytes.

``a.part1.tar.gz`` and ``a.part2.tar.gz`` may be the two halves of an archive, or two archives. A volume that continues
another one rarely begins as an archive does. It may, if a program cut the compressed stream between two frames just
where a member begins, as ``pack`` does; then the volume before it does not end as an archive does.
"""

from __future__ import annotations

from nbdata.archives.decoders import CODECS
from nbdata.archives.tar_headers import is_header
from nbdata.archives.windows import MAX_WINDOW, WindowTooLarge
from nbdata.archives.zip_end import LOCAL, ends_zip

__all__ = ["HEAD", "TAIL", "begins_archive", "ends_archive"]

#: The numbers of bytes that `begins_archive` and `ends_archive` need. Frames of up to 4 MiB are found in the tail.
HEAD, TAIL = 512, (4 << 20) + (64 << 10)
_TAR_BLOCK = 512
# The first bytes of the compressions that programs cut between frames.
_FRAMES = {b"\x1f\x8b\x08": "gz", b"\x28\xb5\x2f\xfd": "zst"}
# Most places in a tail at which a frame may begin, and most bytes that one is decompressed to.
_TRIED, _EXPANDED = 64, 64 << 20
_BLOCK = 1 << 20


def begins_archive(head: bytes) -> bool:
    """True if an archive begins with these bytes; False for a later part of one.

    Parameters
    ----------
    head : bytes
        The first 512 bytes.
    """
    if head.startswith(LOCAL):
        return True
    for codec in CODECS.values():
        if codec.begins(head):
            try:
                inner = codec.decoder(MAX_WINDOW).decompress(head, _TAR_BLOCK)
            except WindowTooLarge:
                return True
            except codec.errors:
                return True
            return len(inner) < _TAR_BLOCK or is_header(inner[:_TAR_BLOCK])
    return is_header(head[:_TAR_BLOCK])


def ends_archive(head: bytes, tail: bytes) -> bool:
    """False if the last bytes show that the archive that begins so goes on elsewhere; True if nothing shows it.

    Parameters
    ----------
    head : bytes
        The first 512 bytes.
    tail : bytes
        The last bytes, at most `TAIL`.
    """
    if head.startswith(LOCAL):
        return ends_zip(tail)
    for magic, name in _FRAMES.items():
        if head.startswith(magic):
            return _ends_in_frame(magic, name, tail)
    return not is_header(head[:_TAR_BLOCK]) or not any(tail[-2 * _TAR_BLOCK :])


def _ends_in_frame(magic: bytes, name: str, tail: bytes) -> bool:
    """False if the last frame begins in the tail, and its content is not the end of a tar archive."""
    at = len(tail)
    for _ in range(_TRIED):
        at = tail.rfind(magic, 0, at)
        if at < 0:
            break
        content = _last_content(name, tail[at:])
        if content is not None:
            return len(content) == 2 * _TAR_BLOCK and not any(content)
    return True


def _last_content(name: str, frame: bytes) -> bytes | None:
    """Return the last 1,024 bytes of the content of a frame; None if it is no frame that ends with these bytes."""
    codec, last, made = CODECS[name], b"", 0
    decoder = codec.decoder(MAX_WINDOW)
    try:
        data = frame
        while not decoder.eof and made < _EXPANDED:
            block = decoder.decompress(data, _BLOCK)
            if not block and decoder.needs_input:
                return None
            data, made = b"", made + len(block)
            last = (last + block)[-2 * _TAR_BLOCK :]
    except WindowTooLarge:
        return None
    except codec.errors:
        return None
    return last if decoder.eof and not decoder.unused_data else None
