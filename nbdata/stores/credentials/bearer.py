"""Bearer tokens for requests. They are renewed before they expire, or when the store refuses them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from nbdata.errors import AccessDenied
from nbdata.stores.credentials.asked import ask
from nbdata.stores.objects import Stop

__all__ = ["AskedToken", "FixedToken", "TokenSource"]


class FixedToken:
    """A token given by the user, or no token."""

    def __init__(self, token: str, source: str) -> None:
        self._token, self.source = token, source
        self.identity: object = token

    def header(self) -> str:
        """The Authorization header, or ''."""
        return f"Bearer {self._token}" if self._token else ""

    def renewed(self, header: str) -> bool:
        """Whether there is a newer token than the refused one."""
        return False


class AskedToken:
    """A token that a module of this package gets (see `asked`).

    Parameters
    ----------
    source : str
        The origin of the credentials, shown in messages.
    stop : Stop, optional
        Ends the waiting for a token.
    """

    def __init__(
        self, module: str, question: Any, env: Mapping[str, str], source: str, stop: Stop | None = None
    ) -> None:
        self._stop = stop
        self._module, self._question, self._env, self.source = module, question, env, source
        self._refused = ""
        self._lock = threading.Lock()
        self.identity: object = (module, repr(question), tuple(sorted(env.items())))

    def header(self) -> str:
        """The Authorization header. Raises AccessDenied if there is no token."""
        with self._lock:
            answer = ask(self._module, self._question, self._env, refused=self._refused, stop=self._stop)
        if not answer.get("token"):
            raise AccessDenied(
                f"no credentials from {self.source}: {answer.get('error') or 'no token came'}",
                remedy="Log in again, or name other credentials; then run the command again to resume",
            )
        return f"Bearer {answer['token']}"

    def renewed(self, header: str) -> bool:
        """Whether there is a newer token than the refused one."""
        with self._lock:
            self._refused = header.removeprefix("Bearer ")
        return self.header() != header


TokenSource = FixedToken | AskedToken
