"""Remembers which objects the browser may play, each by a ticket that nobody can guess."""

from __future__ import annotations

import secrets
import threading

from nbdata.client.previewing import Playable
from nbdata.errors import NotFound

__all__ = ["Tickets"]

# Most objects that are remembered; more than one page plays.
_MOST = 64


class Tickets:
    """The newest objects that were previewed and can be played. May be used from several threads.

    A player asks by GET, which a page of another origin can do as well, with the user's cookie. Such a page knows no
    ticket, and a ticket leads to one version of one object, which the user has opened.
    """

    def __init__(self) -> None:
        self._known: dict[str, Playable] = {}
        self._lock = threading.Lock()

    def give(self, playable: Playable) -> str:
        """Remember an object, and return its ticket."""
        ticket = secrets.token_hex(16)
        with self._lock:
            self._known[ticket] = playable
            for old in list(self._known)[:-_MOST]:
                del self._known[old]
        return ticket

    def take(self, ticket: str) -> Playable:
        """Return the object of a ticket; NotFound if it is not remembered."""
        with self._lock:
            playable = self._known.get(ticket)
        if playable is None:
            raise NotFound("this is no longer played", remedy="Open the preview again")
        return playable
