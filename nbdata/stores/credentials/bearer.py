"""Bearer tokens for requests. They are renewed before they expire, or when the store refuses them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from nbdata.errors import AccessDenied
from nbdata.stores.credentials.asked import ask
from nbdata.stores.objects import Stop

__all__ = ["AskedToken", "FixedToken", "TokenSource"]

# Seconds for which an answer is used without looking for a newer one: asking takes a process.
_ASK_AGAIN = 30.0


class FixedToken:
    """A token given by the user, or no token."""

    def __init__(self, token: str, source: str) -> None:
        self._token, self.source = token, source
        self.identity: object = token
        self.expires: float | None = None

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
        self._answer: dict[str, Any] = {}
        self._ask_at = 0.0
        self._lock = threading.Lock()
        self.identity: object = (module, repr(question), tuple(sorted(env.items())))

    def header(self) -> str:
        """The Authorization header. Raises AccessDenied if there is no token."""
        with self._lock:
            answer = (
                self._answer if self._is_good() and time.monotonic() < self._ask_at else self._new_answer()
            )
        if not answer.get("token"):
            raise AccessDenied(
                f"no credentials from {self.source}: {answer.get('error') or 'no token came'}",
                remedy="Log in again, or name other credentials; then run the command again to resume",
            )
        return f"Bearer {answer['token']}"

    @property
    def expires(self) -> float | None:
        """When the last token ends, in seconds since the epoch, if that is known."""
        return self._answer.get("expires")

    def _is_good(self) -> bool:
        """Whether the last token has neither ended nor been refused."""
        token, expires = self._answer.get("token"), self._answer.get("expires")
        return bool(token) and token != self._refused and (expires is None or time.time() < expires)

    def _new_answer(self) -> dict[str, Any]:
        """Ask again. Google's machines give the same token until it is about to end, and may not answer for a while."""
        answer = ask(self._module, self._question, self._env, refused=self._refused, stop=self._stop)
        if answer.get("token") or not self._is_good():
            self._answer = answer
        self._ask_at = time.monotonic() + _ASK_AGAIN
        return self._answer

    def renewed(self, header: str) -> bool:
        """Whether there is a newer token than the refused one."""
        with self._lock:
            self._refused = header.removeprefix("Bearer ")
        return self.header() != header


TokenSource = FixedToken | AskedToken
