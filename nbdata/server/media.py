"""The route that the browser's player asks: ``GET stores/media/TICKET``, with a ``Range``.

It answers 206 with a piece of the object: from where the range begins, at most to where it ends, and at most as much
as `Piece` reads. Players ask for the next piece then. The ticket comes from ``POST stores/preview``. The media type is
one of a short list, and no browser takes the reply for a document, or keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from jupyter_server.auth.decorator import authorized
from tornado import web

from nbdata.client.previewing import Piece, Playable
from nbdata.errors import NbdataError
from nbdata.server.looking import Looking, StoreRoute

__all__ = ["MediaRoute"]

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class MediaRoute(StoreRoute):
    """Answers a piece of what is played."""

    _playable: Playable
    _start = 0

    @property
    def content_security_policy(self) -> str:
        return "default-src 'none'; frame-ancestors 'none'; sandbox"

    @web.authenticated
    @authorized
    async def get(self, ticket: str) -> None:
        try:
            playable = self.tickets.take(ticket)
        except NbdataError as error:
            self.refuse(error)
            return
        size = playable.info.size
        piece = _piece(self.request.headers.get("Range", ""), size)
        if piece is None:
            self.set_status(416)
            self.set_header("Content-Range", f"bytes */{size}")
            self.finish("{}")
            return
        self._playable, self._start = playable, piece[0]

        def begin() -> tuple[Looking, Callable[[], bytes]]:
            reading = Piece(playable, *piece)
            return reading, reading.read

        await self.look(begin)

    def send(self, found: bytes) -> None:
        size, end = self._playable.info.size, self._start + len(found) - 1
        self.set_status(206)
        for name, value in (
            ("Content-Range", f"bytes {self._start}-{end}/{size}"),
            ("Accept-Ranges", "bytes"),
            ("Cache-Control", "no-store"),
            ("Content-Disposition", "attachment"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.set_header(name, value)
        self.finish(found, set_content_type=self._playable.media)


def _piece(said: str, size: int) -> tuple[int, int] | None:
    """Return the first byte of a range and the byte after the last one; None if it cannot be answered."""
    match = _RANGE.fullmatch(said.strip())
    if match is None or not size or match[0] == "bytes=-":
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1 if last else size)
    return (start, end) if start < end else None
