"""The base of routes that ask a store: outside of the event loop, and for as long as the browser waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from jupyter_server.auth.decorator import authorized
from tornado import web

from nbdata.errors import BadOption, Cancelled, NbdataError, StoreUnavailable
from nbdata.server.handlers import Handler
from nbdata.server.workers import Workers

__all__ = ["LookRoute", "Looking", "StoreRoute", "texts_of", "through"]

# Most seconds for one answer. A person does not wait longer.
_PATIENCE = 60.0
# Most characters of a place, of the beginning of names, and of a token.
_LONGEST = 8192

_T = TypeVar("_T")


class Looking(Protocol):
    """A request to a store, which any thread may end."""

    def stop(self) -> None:
        """End it; it then raises Cancelled."""


class StoreRoute(Handler):
    """Base of routes that ask a store. They end that when the browser leaves, or when it takes too long."""

    _track_activity = True
    #: Most seconds for one answer.
    patience = _PATIENCE
    _looking: Looking | None = None
    _left = False

    async def look(self, begin: Callable[[], tuple[Looking, Callable[[], _T]]]) -> None:
        """Begin to look, and answer what is found, or why nothing is."""
        try:
            self._looking, answer = begin()
            found = await asyncio.wait_for(self.threads.run(answer), self.patience)
        except asyncio.TimeoutError:
            self.refuse(
                StoreUnavailable(
                    f"the store has not answered this within {self.patience:.0f} s", remedy="Try again"
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
            if not self._left:
                self.send(found)
        finally:
            if self._looking is not None:
                self._looking.stop()

    def send(self, found: Any) -> None:
        """Answer what was found."""
        self.finish(found)

    @property
    def threads(self) -> Workers:
        """The threads that wait for stores."""
        return self.listers

    def on_connection_close(self) -> None:
        """End the look: nobody waits for it any more."""
        super().on_connection_close()
        self._left = True
        if self._looking is not None:
            self._looking.stop()


class LookRoute(StoreRoute):
    """Base of routes that are asked by POST, and answer JSON."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        await self.look(lambda: self.asked(self.get_json_body()))

    def asked(self, body: object) -> tuple[Looking, Callable[[], str]]:
        """Return what looks into the store, and a function that returns the answer and may take long."""
        raise NotImplementedError


def texts_of(body: object, names: tuple[str, ...], wrong: BadOption) -> list[str]:
    """Return the texts of these names; the first one must be there."""
    said = body if isinstance(body, dict) else {}
    texts = [said.get(names[0]), *(said.get(name, "") for name in names[1:])]
    if not all(isinstance(text, str) and len(text) <= _LONGEST for text in texts):
        raise wrong
    return [str(text) for text in texts]


def through(connection: str) -> dict[str, str] | None:
    """Return the storage options that name a connection; None without one."""
    return {"connection": connection} if connection else None
