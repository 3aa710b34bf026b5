"""Tells archives that are called like volumes from real volumes, by their first and last bytes.

``a.part1.tar.gz`` and ``a.part2.tar.gz`` may be the two halves of an archive, or two archives. A volume that continues
another one rarely begins as an archive does. It may, if a program cut a tar, or the compressed stream between two
frames, just where a member begins, as ``pack`` does; then the volume before it does not end as an archive does. That
ends with zeros behind the content of its last member; zeros within the content are no end.
"""

from __future__ import annotations

from nbdata.archives.decoders import CODECS
from nbdata.archives.multi_volume import HEAD, continued_after
from nbdata.archives.tar_fields import number
from nbdata.archives.tar_headers import is_header
from nbdata.archives.windows import MAX_WINDOW, WindowTooLarge
from nbdata.archives.zip_end import LOCAL, ends_zip

__all__ = ["HEAD", "TAIL", "begins_archive", "ends_archive"]

#: The number of last bytes that `ends_archive` needs; frames of up to 4 MiB are found there.
TAIL = (4 << 20) + (64 << 10)
_TAR_BLOCK = 512
# The zeros at the end of a tar; and where a header names its format.
_END, _MAGIC = 2 * _TAR_BLOCK, slice(257, 262)
# The first bytes of the compressions that programs cut between frames.
_FRAMES = {b"\x1f\x8b\x08": "gz", b"\x28\xb5\x2f\xfd": "zst"}
# Most places in a tail at which a frame may begin, and most bytes that all of them are decompressed to.
_TRIED, _EXPANDED = 64, 32 << 20
_BLOCK = 1 << 20


def begins_archive(head: bytes) -> bool:
    """True if an archive begins with these bytes; False for a later part of one.

    Parameters
    ----------
    head : bytes
        The first bytes, at most `HEAD`.
    """
    if head.startswith(LOCAL):
        return True
    if continued_after(head):
        return False
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
        The first bytes, at most `HEAD`.
    tail : bytes
        The last bytes, at most `TAIL`.
    """
    if head.startswith(LOCAL):
        return ends_zip(tail)
    for magic, name in _FRAMES.items():
        if head.startswith(magic):
            return _ends_in_frame(magic, name, tail)
    return not is_header(head[:_TAR_BLOCK]) or _ends_tar(tail, whole=len(tail) < TAIL)


def _ends_tar(data: bytes, *, whole: bool) -> bool:
    """True if the last member in these bytes, which are the last ones of a tar, is followed by its end.

    Parameters
    ----------
    whole : bool
        Whether these are all bytes. If not, and no member begins among them, zeros at their end count.
    """
    ends = len(data) >= _END and not any(data[-_END:]) and not len(data) % _TAR_BLOCK
    at = len(data) - _TAR_BLOCK
    while ends and at >= 0:
        block = data[at : at + _TAR_BLOCK]
        if block[_MAGIC] == b"ustar" or is_header(block):
            behind = at + _TAR_BLOCK + -(-_size(block) // _TAR_BLOCK) * _TAR_BLOCK
            return behind + _END <= len(data) and not any(data[behind:])
        at -= _TAR_BLOCK
    return ends and not whole


def _size(header: bytes) -> int:
    try:
        return number(header[124:136])
    except ValueError:
        return 0


def _ends_in_frame(magic: bytes, name: str, tail: bytes) -> bool:
    """False if the last frame begins in the tail, and its content is not the end of a tar archive."""
    at, left = len(tail), _EXPANDED
    for _ in range(_TRIED):
        at = tail.rfind(magic, 0, at)
        if at < 0 or left <= 0:
            break
        content, made = _content(name, tail[at:], left)
        left -= made
        if content is not None:
            return _ends_tar(content, whole=at == 0 and len(tail) < TAIL)
    return True


def _content(name: str, frame: bytes, most: int) -> tuple[bytes | None, int]:
    """Return the content of a frame, and the number of bytes that were decompressed.

    None in place of the content if it is no frame that ends with these bytes, or has more than `most` bytes.
    """
    codec, blocks, made = CODECS[name], list[bytes](), 0
    decoder = codec.decoder(MAX_WINDOW)
    try:
        data = frame
        while not decoder.eof and made < most:
            block = decoder.decompress(data, _BLOCK)
            if not block and decoder.needs_input:
                break
            data, made = b"", made + len(block)
            blocks.append(block)
    except WindowTooLarge:
        return None, made
    except codec.errors:
        return None, made
    return (b"".join(blocks) if decoder.eof and not decoder.unused_data else None), made
