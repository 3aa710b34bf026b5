"""Fetches a bounded part of an object, and decides by its first bytes and its name how it is shown."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from nbdata.archives.decompress import detect, open_decompressed
from nbdata.client.browsing import browsed
from nbdata.client.opened import Opened
from nbdata.client.previewing.media import Playable, playable_type
from nbdata.client.previewing.parquet import first_rows
from nbdata.client.previewing.pictures import dimensions, media_of
from nbdata.client.previewing.records import SUFFIX, ShownSample, first_samples
from nbdata.client.previewing.texts import (
    MOST_CHARACTERS,
    MOST_COLUMNS,
    MOST_ROWS,
    notebook_text,
    pretty,
    table_of,
    text_of,
)
from nbdata.errors import BadArchive, BadOption
from nbdata.stores.base import Location, ObjectInfo
from nbdata.transfer.reader import Reader
from nbdata.transfer.retry import Tries

__all__ = ["Preview", "Previewing"]

# Most bytes that are read: of a picture, of JSON that is parsed, and of anything else.
_PICTURE, _PARSED, _HEAD = 8 << 20, 2 << 20, MOST_CHARACTERS
# Most pixels of a picture, which take four bytes each in the browser.
_PIXELS = 50_000_000
# Largest window of a decoder; `xz -9` takes this much.
_WINDOW = 64 << 20
_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4")
_PARQUET = b"PAR1"
_JSON = (".json", ".geojson", ".ipynb")


@dataclass(frozen=True)
class Preview:
    """A part of an object as it is shown.

    Attributes
    ----------
    kind : str
        ``text``, ``table``, ``picture``, ``media``, ``samples``, ``archive`` or ``nothing``.
    size : int
        Bytes of the object; -1 if the store does not tell.
    text : str
    rows : list of list of str
    media : str
        The media type of a picture, or of what the browser plays.
    data : bytes
        All bytes of a picture.
    is_cut : bool
        True if only the beginning is shown.
    why : str
        Why nothing is shown.
    playable : Playable or None
        What the browser plays, piece by piece.
    samples : list of ShownSample
        The first samples.
    count : int
        The number of all samples.
    """

    kind: str
    size: int = -1
    text: str = ""
    rows: list[list[str]] = field(default_factory=list)
    media: str = ""
    data: bytes = b""
    is_cut: bool = False
    why: str = ""
    playable: Playable | None = None
    samples: list[ShownSample] = field(default_factory=list)
    count: int = 0


class Previewing:
    """The look into one object. Any thread may call `stop`.

    Parameters
    ----------
    place : str
        The URL of an object.
    options : dict, optional
        Storage options, such as ``{"connection": NAME}``.

    Raises
    ------
    BadOption
        If it is no URL of an object in a store that can be browsed, or holds a password or a signature.
    """

    def __init__(self, place: str, options: Mapping[str, Any] | None = None) -> None:
        self._options = options
        self._operation = browsed(place, options)
        self._place = self._operation.place
        if not self._place.partition("://")[2].partition("/")[2] or self._place.endswith("/"):
            raise BadOption("a folder has no preview", path=self._place)
        self._opened = Opened(self._operation)

    def stop(self) -> None:
        """End the reading; it then raises Cancelled."""
        self._opened.control.stop()

    def preview(self) -> Preview:
        """Fetch what is shown."""
        location = self._opened.open(self._place)
        info = Tries(self._opened.control).run(lambda: location.store.head(location.key))
        head = self._read(location, info, _HEAD)
        return replace(self._shown(location, info, head), size=info.size)

    def _shown(self, location: Location, info: ObjectInfo, head: bytes) -> Preview:
        name = location.key.rpartition("/")[2].lower()
        whole = len(head) == info.size or len(head) < _HEAD
        if media := media_of(head):
            return self._picture(location, info, head, media)
        if media := playable_type(name, head):
            return self._playable(location, info, media)
        if name.endswith(SUFFIX):
            return self._records(location, info, head)
        if head.startswith(_PARQUET):
            return self._parquet(location, info)
        if not head:
            return Preview("nothing", why="it is empty")
        try:
            packing = detect(head[:512])
        except BadArchive:
            packing = ""
        if packing in ("tar", "zip"):
            return Preview("archive")
        if packing:
            return _decompressed(head, name, whole=whole)
        if not whole and name.endswith(_JSON) and 0 <= info.size <= _PARSED:
            head, whole = self._read(location, info, _PARSED), True
        return _as_text(head, name, whole=whole)

    def _picture(self, location: Location, info: ObjectInfo, head: bytes, media: str) -> Preview:
        sides = dimensions(head, media)
        if sides is not None and sides[0] * sides[1] > _PIXELS:
            return Preview(
                "nothing", why=f"a picture of {sides[0]:,} × {sides[1]:,} pixels is too large to be shown"
            )
        if sides is None:
            return Preview("nothing", why="the first bytes of this picture do not tell its width and height")
        if info.size <= _PICTURE:
            data = head if len(head) == info.size else self._read(location, info, _PICTURE + 1)
            if len(data) <= _PICTURE:
                return Preview("picture", media=media, data=data)
        return Preview("nothing", why=f"a picture of over {_PICTURE >> 20} MiB is not shown")

    def _playable(self, location: Location, info: ObjectInfo, media: str) -> Preview:
        if info.size < 0 or not location.store.ranges:
            return Preview("nothing", why="this can be played, but its server sends no part of it alone")
        return Preview("media", media=media, playable=Playable(self._place, self._options, info, media))

    def _parquet(self, location: Location, info: ObjectInfo) -> Preview:
        if info.size < 0 or not location.store.ranges:
            return Preview("nothing", why="this is Parquet, and its server sends no part of it alone")
        read = partial(self._range, location, info)
        found = first_rows(read, info.size, MOST_ROWS, MOST_COLUMNS, self._opened.control)
        if isinstance(found, str):
            return Preview("nothing", why=found)
        return Preview("table", rows=found[0], is_cut=not found[1])

    def _records(self, location: Location, info: ObjectInfo, head: bytes) -> Preview:
        if info.size < 0 or not location.store.ranges:
            return Preview("nothing", why="this is FFRecord, and its server sends no part of it alone")

        def read(start: int, end: int) -> bytes:
            return head[start:end] if end <= len(head) else self._range(location, info, start, end)

        try:
            samples, count = first_samples(read, info.size, self._place)
        except BadArchive as error:
            return Preview("nothing", why=error.message)
        return Preview("samples", samples=samples, count=count, is_cut=len(samples) < count)

    def _range(self, location: Location, info: ObjectInfo, start: int, end: int) -> bytes:
        """Return the bytes ``start:end`` of the object."""
        with Reader(self._opened.control, location.store, info, start, end) as reader:
            return b"".join(bytes(block) for block in reader.blocks())

    def _read(self, location: Location, info: ObjectInfo, most: int) -> bytes:
        """Return the first bytes of the object."""
        control = self._opened.control
        end = most if info.size < 0 else min(most, info.size)
        view = memoryview(bytearray(end))
        with Reader(control, location.store, info, 0, end if info.size >= 0 else None) as reader:
            while reader.at < end and (count := reader.readinto(view[reader.at :])):
                control.advance(bytes=count)
            return bytes(view[: reader.at])


def _decompressed(head: bytes, name: str, *, whole: bool) -> Preview:
    """Show what is compressed: as much as the limit allows, however far it expands."""
    data = bytearray()
    try:
        stream, _ = open_decompressed(io.BytesIO(head), max_window=_WINDOW)  # type: ignore[arg-type]
        with stream:
            while len(data) <= _HEAD and (more := stream.read(_HEAD + 1 - len(data))):
                data += more
    except BadArchive as error:
        if whole or not data:
            return Preview("nothing", why=error.message)
    else:
        whole = whole and len(data) <= _HEAD
    try:
        if detect(bytes(data[:512])) == "tar":
            return Preview("archive")
    except BadArchive:
        pass
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return _as_text(bytes(data[:_HEAD]), name, whole=whole)


def _as_text(data: bytes, name: str, *, whole: bool) -> Preview:
    text = text_of(data)
    if text is None:
        return Preview("nothing", why="this is no text, and no kind of picture that is known here")
    suffix = f".{name.rpartition('.')[2]}"
    if suffix in _SEPARATORS and (table := table_of(text, _SEPARATORS[suffix], whole=whole)) is not None:
        return Preview("table", rows=table[0], is_cut=not table[1])
    shown = None
    if whole and suffix == ".ipynb":
        shown = notebook_text(text)
    elif whole and suffix in _JSON:
        shown = pretty(text)
    text = text if shown is None else shown
    return Preview("text", text=text[:MOST_CHARACTERS], is_cut=not whole or len(text) > MOST_CHARACTERS)
