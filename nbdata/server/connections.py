"""The routes of connections: ``GET connections``, ``POST connections/keep`` and ``POST connections/forget``.

The first one answers those that are ``kept``, each with ``name``, ``kind``, ``place``, ``endpoint`` and ``anonymous``,
the names of what was ``found`` on this server, and the folders of ``recent`` jobs; no key is in any answer.

``keep`` takes ``{"name": NAME, "kind": KIND, "place": URL, "options": {NAME: TEXT}}`` (see `nbdata.connections`). It
lists the place by these options, and keeps them only if the store answers. ``forget`` takes ``{"name": NAME}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from nbdata.client.browsing import Browsing
from nbdata.connections import Connection, forget, keep, kept
from nbdata.errors import BadOption, NbdataError
from nbdata.runtime import state_folder
from nbdata.server.handlers import Handler
from nbdata.server.looking import Looking, LookRoute, texts_of
from nbdata.server.starts import configured, recent

__all__ = ["ConnectionsRoute", "ForgetRoute", "KeepRoute"]

# The value of --option that is true.
_TRUE = "true"


class ConnectionsRoute(Handler):
    """Answers the names of connections and of what was found on this server, and which folders were used last."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        try:
            jobs = list(self.feed.jobs.values())
            found = await self.listers.run(lambda: _known(recent(jobs)))
        except NbdataError as error:
            self.refuse(error)
        else:
            self.finish(found)


class KeepRoute(LookRoute):
    """Keeps a connection, if the store answers."""

    def asked(self, body: object) -> tuple[Looking, Callable[[], str]]:
        wrong = BadOption(
            "this is no connection", expected='{"name": NAME, "kind": KIND, "place": URL, "options": {}}'
        )
        name, kind, place = texts_of(body, ("name", "kind", "place"), wrong)
        options = body.get("options") if isinstance(body, dict) else None
        if not isinstance(options, dict):
            raise wrong
        given = {str(option): value for option, value in options.items() if value != ""}
        connection = Connection(name, kind, place, given)
        browsing = Browsing(place, connection.given)

        def answer() -> str:
            found = browsing.page()
            keep(state_folder(), connection)
            return json.dumps({"count": len(found.entries)})

        return browsing, answer


class ForgetRoute(Handler):
    """Removes a connection."""

    _track_activity = True

    @web.authenticated
    @authorized
    async def post(self) -> None:
        try:
            (name,) = texts_of(
                self.get_json_body(), ("name",), BadOption("this is no name", expected='{"name": NAME}')
            )
            await self.listers.run(lambda: forget(state_folder(), name))
        except BadOption as error:
            self.refuse(error, 400)
        except NbdataError as error:
            self.refuse(error)
        else:
            self.finish(json.dumps({"done": True}))


def _known(used: list[str]) -> str:
    connections = [_shown(one) for one in kept(state_folder())]
    return json.dumps({"kept": connections, "found": configured(), "recent": used})


def _shown(connection: Connection) -> dict[str, Any]:
    return {
        "name": connection.name,
        "kind": connection.kind,
        "place": connection.place,
        "endpoint": connection.endpoint,
        "anonymous": connection.options.get("anon") == _TRUE,
    }
