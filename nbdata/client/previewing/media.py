"""Tells audio and video that browsers play by name and first bytes, and reads them in bounded pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nbdata.client.browsing import browsed
from nbdata.client.opened import Opened
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.reader import Reader

__all__ = ["MOST_OF_PIECE", "Piece", "Playable", "playable_type"]

#: Most bytes of one piece.
MOST_OF_PIECE = 2 << 20


@dataclass(frozen=True)
class Playable:
    """One version of an object that browsers play.

    Attributes
    ----------
    place : str
        Its URL.
    options : mapping or None
        Storage options, such as ``{"connection": NAME}``.
    info : ObjectInfo
        Its version and size.
    media : str
        Its media type.
    """

    place: str
    options: Mapping[str, Any] | None
    info: ObjectInfo
    media: str


class Piece:
    """The reading of one piece. Any thread may call `stop`.

    Parameters
    ----------
    playable : Playable
    start, end : int
        The piece; at most `MOST_OF_PIECE` bytes of it are read.
    """

    def __init__(self, playable: Playable, start: int, end: int) -> None:
        self._playable, self._start = playable, start
        self._end = min(end, start + MOST_OF_PIECE, playable.info.size)
        self._opened = Opened(browsed(playable.place, playable.options))

    def stop(self) -> None:
        """End the reading; it then raises Cancelled."""
        self._opened.control.stop()

    def read(self) -> bytes:
        """Return the bytes; SourceChanged if the object is another version now."""
        location = self._opened.open(self._playable.place)
        control, info = self._opened.control, self._playable.info
        # A server that ignores the range would send all before it.
        with Reader(control, location.store, info, self._start, self._end, skips=False) as reader:
            return b"".join(bytes(block) for block in reader.blocks())


def playable_type(name: str, head: bytes) -> str:
    """Return the media type of what browsers play; empty for anything else.

    Parameters
    ----------
    name : str
        The name, in lower case. Its end and the first bytes must say the same.
    head : bytes
        The first bytes.
    """
    media, is_one = _KINDS.get(name.rpartition(".")[2], ("", _is_none))
    return media if is_one(head) else ""


def _is_none(_head: bytes) -> bool:
    return False


def _is_mp4(head: bytes) -> bool:
    return head[4:8] == b"ftyp"


def _is_webm(head: bytes) -> bool:
    return head.startswith(b"\x1a\x45\xdf\xa3")


def _is_ogg(head: bytes) -> bool:
    return head.startswith(b"OggS")


def _is_wav(head: bytes) -> bool:
    return head.startswith(b"RIFF") and head[8:12] == b"WAVE"


def _is_flac(head: bytes) -> bool:
    return head.startswith(b"fLaC")


def _is_mpeg_audio(head: bytes) -> bool:
    """Return whether it begins with an ID3 tag or a frame of MPEG audio, of which AAC is one kind."""
    return head.startswith(b"ID3") or (len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0)


# By the end of the name: the media type, and whether first bytes are of it.
_KINDS: dict[str, tuple[str, Callable[[bytes], bool]]] = {
    "aac": ("audio/aac", _is_mpeg_audio),
    "flac": ("audio/flac", _is_flac),
    "m4a": ("audio/mp4", _is_mp4),
    "m4v": ("video/mp4", _is_mp4),
    "mov": ("video/mp4", _is_mp4),  # browsers refuse video/quicktime, and play what is in most of them
    "mp3": ("audio/mpeg", _is_mpeg_audio),
    "mp4": ("video/mp4", _is_mp4),
    "oga": ("audio/ogg", _is_ogg),
    "ogg": ("audio/ogg", _is_ogg),
    "ogv": ("video/ogg", _is_ogg),
    "opus": ("audio/ogg", _is_ogg),
    "wav": ("audio/wav", _is_wav),
    "weba": ("audio/webm", _is_webm),
    "webm": ("video/webm", _is_webm),
}
