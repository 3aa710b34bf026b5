"""The routes that look into stores: ``POST stores/list``, ``POST stores/preview``, ``GET stores/starts``.

What the browser plays comes from ``GET stores/media/TICKET`` (`nbdata.server.media`).

``list`` takes ``{"place": URL, "begin": TEXT, "token": TOKEN}`` and answers one page of the folder at the URL: its
``base``, the ``token`` of the next page (empty after the last one), and ``entries``, each with ``name``, ``size`` and
``modified`` (null if the store does not tell them), ``version`` and ``storage_class`` where there is one, and ``url``
where it is not the base and the name. Only names that begin with ``begin`` are listed; a token belongs to one place and
beginning. It is a POST, so that no page of another origin can have the server send requests with the user's
credentials.

``preview`` takes ``{"place": URL}`` and answers the beginning of that object: its ``kind`` (see
`nbdata.client.previewing.Preview`), ``size``, ``is_cut``, and ``text``, ``rows``, ``media`` with ``data`` in base64, or
``why`` nothing is shown; of FFRecord ``samples`` and their ``count``; of audio and video the ``ticket`` that gets its
pieces. The reply is JSON whatever the object is, so no browser takes it for a document.

Both also take the name of a ``connection`` (see `nbdata.connections`).

``starts`` answers where people may begin: the ``connections``, each with ``name`` and ``place``, the folders of
``recent`` jobs, and the names of what is ``configured``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from nbdata.client.browsing import Browsing, FoundPage
from nbdata.client.previewing import Preview, Previewing
from nbdata.connections import kept
from nbdata.errors import BadOption, NbdataError
from nbdata.runtime import state_folder
from nbdata.server.handlers import Handler
from nbdata.server.looking import Looking, LookRoute, texts_of, through
from nbdata.server.starts import configured, recent

__all__ = ["ListRoute", "PreviewRoute", "StartsRoute"]

# Fields of a preview that only some kinds have.
_OF_SOME = ("playable", "samples", "count")
_LISTED = '{"place": URL, "begin": TEXT, "token": TOKEN}'


class ListRoute(LookRoute):
    """Answers one page of a folder."""

    def asked(self, body: object) -> tuple[Looking, Callable[[], str]]:
        place, begin, token, connection = texts_of(
            body,
            ("place", "begin", "token", "connection"),
            BadOption("this is no folder to list", expected=_LISTED),
        )
        browsing = Browsing(place, through(connection))
        return browsing, lambda: _shown(browsing.page(begin, token))


class PreviewRoute(LookRoute):
    """Answers the beginning of an object."""

    def asked(self, body: object) -> tuple[Looking, Callable[[], str]]:
        place, connection = texts_of(
            body,
            ("place", "connection"),
            BadOption("this is no object to look at", expected='{"place": URL}'),
        )
        previewing = Previewing(place, through(connection))
        return previewing, lambda: self._shown(previewing.preview())

    def _shown(self, preview: Preview) -> str:
        shown = {name: value for name, value in vars(preview).items() if name not in _OF_SOME}
        shown["data"] = base64.b64encode(preview.data).decode()
        shown["size"] = preview.size if preview.size >= 0 else None
        if preview.kind == "samples":
            shown["count"] = preview.count
            shown["samples"] = [
                {**vars(sample), "data": base64.b64encode(sample.data).decode()} for sample in preview.samples
            ]
        if preview.playable is not None:
            shown["ticket"] = self.tickets.give(preview.playable)
        return json.dumps(shown)


class StartsRoute(Handler):
    """Answers where people may begin to browse."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        jobs = list(self.feed.jobs.values())
        found = await self.listers.run(
            lambda: {"connections": _connections(), "recent": recent(jobs), "configured": configured()}
        )
        self.finish(json.dumps(found))


def _connections() -> list[dict[str, str]]:
    """Return name and place of each connection; none if their file is refused, which the route of connections tells."""
    try:
        return [{"name": one.name, "place": one.place} for one in kept(state_folder())]
    except NbdataError:
        return []


def _shown(found: FoundPage) -> str:
    entries = []
    for info in found.entries:
        entry: dict[str, Any] = {
            "name": info.key,
            "size": info.size if info.size >= 0 else None,
            "modified": info.modified,
        }
        if info.version:
            entry["version"] = info.version
        if info.storage_class:
            entry["storage_class"] = info.storage_class
        if (url := found.url(info.key)) != found.base + info.key:
            entry["url"] = url
        entries.append(entry)
    return json.dumps({"base": found.base, "entries": entries, "token": found.token})
