"""The routes by which the panel looks into stores: ``POST stores/list`` and ``GET stores/starts``.

``list`` takes ``{"place": URL, "begin": TEXT, "token": TOKEN}`` and answers one page of the folder at the URL: its
``base``, the ``token`` of the next page (empty after the last one), and ``entries``, each with ``name``, ``size`` and
``modified`` (null if the store does not tell them), ``version`` where there is one, and ``url`` where it is not the
base and the name. Only names that begin with ``begin`` are listed; a token belongs to one place and beginning. It is
a POST, so that no page of another origin can have the server send requests with the user's credentials.

``starts`` answers where people may begin: the folders of ``recent`` jobs, and the names of what is ``configured``.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from nbdata.client.browsing import Browsing, FoundPage
from nbdata.errors import BadOption, Cancelled, NbdataError, StoreUnavailable
from nbdata.server.handlers import Handler
from nbdata.server.starts import configured, recent

__all__ = ["ListRoute", "StartsRoute"]

# Most seconds for one page. A person does not wait longer.
_PATIENCE = 60.0
# Most characters of a place, of the beginning of names, and of a token.
_LONGEST = 8192


class ListRoute(Handler):
    """Answers one page of a folder; ends the listing when the browser leaves."""

    _track_activity = True
    _browsing: Browsing | None = None
    _left = False

    @web.authenticated
    @authorized
    async def post(self) -> None:
        try:
            place, begin, token = _asked(self.get_json_body())
            self._browsing = browsing = Browsing(place)
            found = await asyncio.wait_for(
                self.listers.run(lambda: _shown(browsing.page(begin, token))), _PATIENCE
            )
        except asyncio.TimeoutError:
            self.refuse(
                StoreUnavailable(
                    f"the store has not listed this within {_PATIENCE:.0f} s", remedy="Try again"
                )
            )
        except Cancelled as error:
            if not self._left:
                self.refuse(error)
        except BadOption as error:
            self.refuse(error, 400)
        except NbdataError as error:
            self.refuse(error)
        else:
            self.finish(found)
        finally:
            if self._browsing is not None:
                self._browsing.stop()

    def on_connection_close(self) -> None:
        """End the listing: nobody waits for it any more."""
        super().on_connection_close()
        self._left = True
        if self._browsing is not None:
            self._browsing.stop()


class StartsRoute(Handler):
    """Answers where people may begin to browse."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        jobs = list(self.feed.jobs.values())
        found = await self.listers.run(lambda: {"recent": recent(jobs), "configured": configured()})
        self.finish(json.dumps(found))


def _asked(body: object) -> tuple[str, str, str]:
    said = body if isinstance(body, dict) else {}
    texts = [said.get("place"), said.get("begin", ""), said.get("token", "")]
    if not all(isinstance(text, str) and len(text) <= _LONGEST for text in texts):
        raise BadOption("this is no folder to list", expected='{"place": URL, "begin": TEXT, "token": TOKEN}')
    place, begin, token = (str(text) for text in texts)
    return place, begin, token


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
        if (url := found.url(info.key)) != found.base + info.key:
            entry["url"] = url
        entries.append(entry)
    return json.dumps({"base": found.base, "entries": entries, "token": found.token})
