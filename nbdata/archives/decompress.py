"""Decompressing a stream: tar as it is, gzip, bzip2, xz and Zstandard, told apart by their first bytes.

All of them may consist of several members, streams or frames, as ``cat a.gz b.gz``, pigz, pbzip2
and pzstd make them, and may be padded with zero bytes, as tapes and block devices do. An end in the
middle is an error, and so is anything else behind the end of xz and Zstandard. Behind the end of gzip
and bzip2 up to 64 KiB are passed over and counted, as their own programs do with a warning: whether
something is missing, the tar archive inside tells.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from nbdata.archives.bzip2 import Bzip2Stream
from nbdata.archives.decoders import CODECS, Codec, Decoder
from nbdata.archives.looks import looks_like
from nbdata.archives.place import EVERYTHING, Restart, Restarts
from nbdata.archives.stream import DAMAGED, FOLLOWED, TRUNCATED, bad_data, volume_at
from nbdata.archives.tar_headers import is_header
from nbdata.errors import BadArchive, BadOption
from nbdata.sizes import format_size

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["Decompressed", "ExpansionLimit", "begins_archive", "detect", "open_decompressed"]

_INPUT = 256 << 10
_OUTPUT = 1 << 20
# Bytes behind the end that are passed over. More may be another archive whose beginning is damaged.
_MOST_TRAILING = 64 << 10
_TAR_BLOCK = 512

_FORMATS = {"tar": "tar", "tar.gz": "gz", "tar.bz2": "bz2", "tar.xz": "xz", "tar.zst": "zst", "zip": "zip"}
_FORMATS |= {"tar.lz4": "lz4", **{name: name for name in ("gz", "bz2", "xz", "zst", "lz4")}}


def detect(head: bytes, name: str | None = None) -> str:
    """``tar``, ``gz``, ``bz2``, ``xz``, ``zst``, ``lz4`` or ``zip``, by the first bytes of a stream.

    Parameters
    ----------
    head : bytes
        The first 512 bytes, or the whole stream if it is shorter.
    name : str, optional
        For the message only; names lie.

    Raises
    ------
    BadArchive
        If it is none of them; says what was found.
    """
    for format_, codec in CODECS.items():
        if codec.begins(head):
            return format_
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08", b"PK00PK")):
        return "zip"
    if _is_tar(head):
        return "tar"
    raise BadArchive(
        "not an archive",
        path=name,
        expected="tar, gzip, bzip2, xz, zstd or zip",
        got=looks_like(head),
        remedy="Check that this is the first volume, and that it was stored whole",
        details={"offset": 0},
    )


def begins_archive(head: bytes) -> bool:
    """Whether an archive begins with these bytes, rather than a later part of one.

    Parameters
    ----------
    head : bytes
        The first 512 bytes.
    """
    for codec in CODECS.values():
        if codec.begins(head):
            try:
                inner = codec.decoder().decompress(head, _TAR_BLOCK)
            except codec.errors:
                return True
            return len(inner) < _TAR_BLOCK or _is_tar(inner)
    return _is_tar(head)


def open_decompressed(
    raw: io.RawIOBase,
    *,
    format: str = "auto",  # noqa: A002
    name: str | None = None,
    start: Restart | None = None,
) -> tuple[Decompressed, str]:
    """A stream of the decompressed bytes, and the format that it has.

    The stream reads `raw` forwards only, and closing it closes `raw`. It yields up to 1 MiB at a
    time. Its errors carry the offset in the *compressed* bytes (``details["offset"]``, exact to
    256 KiB, or a bzip2 block, where data is damaged) and, if `raw` is made of volumes, the volume that it lies in.

    Parameters
    ----------
    raw : readable raw stream
        Typically a `JoinedStream` or a `Readahead` over one.
    format : str
        ``auto`` looks at the first bytes; else ``tar``, ``gz``, ``tar.gz`` and so on.
    name : str, optional
        How messages call the archive.
    start : Restart, optional
        Where `raw` stands, which is not at its beginning; then `format` has to be said.

    Raises
    ------
    BadArchive
        If the data is none of the formats; when read: if it is damaged, ends too early, or is
        followed by something else.
    BadOption
        For zip, and for an unknown `format`.
    """
    if format != "auto" and format not in _FORMATS:
        raise BadOption(
            f"format: {format!r} is not known",
            expected=f"auto, {', '.join(_FORMATS)}",
            remedy="Leave it out, and the first bytes decide",
        )
    head = _read_head(raw)
    found = detect(head, name) if format == "auto" else _FORMATS[format]
    if found == "zip":
        raise BadOption(
            "a zip archive is read by its directory, not as a stream",
            path=name,
            remedy="Unpack it with untar_volumes",
        )
    at = start or Restart()
    stream = _Headed(raw, head, at.compressed)
    return (stream if found == "tar" else _Decoded(stream, CODECS[found], name, at)), found


class Decompressed(io.RawIOBase):
    """The stream of `open_decompressed`."""

    def readable(self) -> bool:
        return True

    #: Bytes that lie behind the end, and are none of the format; known at the end.
    trailing = 0
    #: Zeros behind the end of the compressed data; known at the end.
    padding = 0

    @property
    def verified(self) -> int:
        """Up to where its bytes are known to be right, as far as the format has checksums; from any thread."""
        raise NotImplementedError

    def restart(self, offset: int) -> Restart:
        """Where reading may begin to reach an offset; from one thread, which never goes back."""
        raise NotImplementedError


class ExpansionLimit(io.RawIOBase):
    """A stream that may not become longer than a limit: the guard against decompression bombs.

    Parameters
    ----------
    source : readable raw stream
        Not closed by closing this.
    limit : int
        Bytes that may be read in all.

    Raises
    ------
    BadArchive
        When read: by the read that passes the limit, before it returns a byte too many.
    """

    def __init__(self, source: io.RawIOBase, limit: int) -> None:
        super().__init__()
        self._source = source
        self._limit = limit
        self._count = 0

    def readable(self) -> bool:
        return True

    def volume_at(self, offset: int) -> tuple[str, int] | None:
        """`JoinedStream.volume_at` of the source."""
        return volume_at(self._source, offset)

    def spend(self, count: int) -> None:
        """Count bytes that come out of the archive without being read, such as holes of sparse files."""
        self._count += count
        if self._count > self._limit:
            raise BadArchive(
                f"the archive expands to more than {format_size(self._limit)}",
                remedy="If that is right, raise --max-expansion",
                details={"offset": self._limit, "limit": self._limit},
            )

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = self._source.readinto(buffer) or 0
        self.spend(count)
        return count


class _Headed(Decompressed):
    """A stream whose first bytes were read already, with the offset up to which it was taken."""

    def __init__(self, raw: io.RawIOBase, head: bytes, start: int) -> None:
        super().__init__()
        self._raw = raw
        self._block: Callable[[], memoryview] | None = getattr(raw, "block", None)
        self._head: bytes | memoryview = head
        self._own: memoryview | None = None  # of a source that has no memory of its own to show
        self.taken = start

    @property
    def verified(self) -> int:
        return EVERYTHING

    def restart(self, offset: int) -> Restart:
        return Restart(offset, offset)

    def volume_at(self, offset: int) -> tuple[str, int] | None:
        return volume_at(self._raw, offset)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._head))
        view[:count], self._head = self._head[:count], self._head[count:]
        if count < len(view):
            count += self._raw.readinto(view[count:]) or 0
        self.taken += count
        return count

    def block(self) -> memoryview:
        """The next bytes as they lie in memory, valid until more are asked for; none at the end."""
        block, self._head = memoryview(self._head), b""
        if not block and self._block is not None:
            block = self._block()
        elif not block:
            if self._own is None:
                self._own = memoryview(bytearray(_OUTPUT))
            block = self._own[: self._raw.readinto(self._own) or 0]
        self.taken += len(block)
        return block

    def next_input(self) -> bytes:
        """At most `_INPUT` bytes, copied once; none at the end."""
        if self._block is None:
            data = bytes(self._head) + (self._raw.read(_INPUT - len(self._head)) or b"")
            self._head = b""
        else:
            self._head = self._head or self._block()
            data, self._head = bytes(self._head[:_INPUT]), self._head[_INPUT:]
        self.taken += len(data)
        return data

    def close(self) -> None:
        self._block, self._head, self._own = None, b"", None
        try:
            self._raw.close()
        finally:
            super().close()


class _Decoded(Decompressed):
    """The members of a compressed stream, one behind the other."""

    def __init__(self, source: _Headed, codec: Codec, name: str | None, start: Restart) -> None:
        super().__init__()
        self._source = source
        self._codec = codec
        self._name = name
        self._decoder: Decoder | None = None
        self._pending = b""  # taken from the source, not yet given to a decoder
        self._block = memoryview(b"")
        self._begun = False
        self._expanded = start.expanded
        self._restarts = Restarts(start)
        self._began = start  # where the decoder has begun

    @property
    def verified(self) -> int:
        return self._restarts.verified

    def restart(self, offset: int) -> Restart:
        return self._restarts.before(offset)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        if not self._block and len(view):
            self._block = memoryview(self._decode())
        count = min(len(view), len(self._block))
        view[:count] = self._block[:count]
        self._block = self._block[count:]
        return count

    def produce(self) -> memoryview:
        """The next bytes as the decoder has made them, so that nobody need copy them; none at the end."""
        block, self._block = self._block or memoryview(self._decode()), memoryview(b"")
        return block

    block = produce

    def close(self) -> None:
        self._decoder, self._pending, self._block = None, b"", memoryview(b"")
        try:
            self._source.close()
        finally:
            super().close()

    def _decode(self) -> bytes:
        """The next bytes, at most `_OUTPUT` and some; empty at the end."""
        while True:
            decoder = self._decoder or self._next_member()
            if decoder is None:
                return b""
            data = b""
            if decoder.needs_input:
                data = self._take()
            ended = decoder.needs_input and not data
            try:
                if ended and isinstance(decoder, Bzip2Stream):
                    decoder.at_end()
                block = b"" if ended else decoder.decompress(data, _OUTPUT)
            except self._codec.errors as error:
                offset = max(self._source.taken - getattr(error, "behind", len(data)), 0)
                raise self._bad(DAMAGED, f"is damaged ({error})", offset) from error
            if ended:
                raise self._bad(TRUNCATED, "ends too early", self._source.taken)
            self._expanded += len(block)
            self._note_blocks(decoder)
            if decoder.eof:
                self._restarts.ended(self._expanded)
                self._pending = decoder.unused_data
                decoder = None
            self._decoder = decoder
            if block:
                return block

    def _note_blocks(self, decoder: Decoder) -> None:
        """Within a stream, blocks that can be begun at, and before which all is verified."""
        if isinstance(decoder, Bzip2Stream):
            for point in decoder.points:
                compressed, expanded = (
                    self._began.compressed + point.offset,
                    self._began.expanded + point.expanded,
                )
                self._restarts.begins(Restart(compressed, expanded, point.state))
                self._restarts.ended(expanded)
            decoder.points.clear()

    def _next_member(self) -> Decoder | None:
        """The decoder of the next member, or None at the end of the source."""
        data = self._take()
        padding = 0
        while self._begun and data and not data[0]:
            stripped = data.lstrip(b"\0")
            padding += len(data) - len(stripped)
            data = stripped or self._take()
        while data and len(data) < 6 and (more := self._take()):
            data += more
        if self._begun and not data:
            self.padding = padding
            return None
        if self._began.state and not self._begun and self._codec.within is not None:
            self._begun, self._pending = True, data
            return self._codec.within(self._began.state)
        if not self._codec.begins(data):
            if self._begun and self._codec.may_trail:
                offset = self._source.taken - len(data)
                while data and self.trailing <= _MOST_TRAILING:
                    self.trailing += len(data)
                    data = self._take()
                if not data:
                    return None
                raise self._bad(FOLLOWED, "is followed by something else", offset)
            what = "is followed by something else" if self._begun else "does not begin as such"
            raise self._bad(FOLLOWED, what, self._source.taken - len(data))
        if self._begun:
            self._began = Restart(self._source.taken - len(data), self._expanded)
            self._restarts.begins(self._began)
        self._begun = True
        self._pending = data
        return self._codec.decoder()

    def _take(self) -> bytes:
        if not self._pending:
            return self._source.next_input()
        data, self._pending = self._pending, b""
        return data

    def _bad(self, fault: str, what: str, offset: int) -> BadArchive:
        what = f"the {self._codec.title} data {what}"
        return bad_data(fault, what, self._source, offset, name=self._name, unit="compressed byte")


def _is_tar(head: bytes) -> bool:
    """Whether a header's checksum is right, or it is the zero block that an empty archive begins with."""
    block = head[:_TAR_BLOCK]
    if len(block) < _TAR_BLOCK:
        return False
    if not any(block):
        return True
    return is_header(block)


def _read_head(raw: io.RawIOBase) -> bytes:
    head = b""
    while len(head) < _TAR_BLOCK and (more := raw.read(_TAR_BLOCK - len(head))):
        head += more
    return head
