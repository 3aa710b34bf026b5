"""One pass through samples that knows its position."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from nbdata.errors import BadOption

__all__ = ["Pass", "refuse_other"]


class Pass(Iterator[Any]):
    """Samples one after the other. `state_dict` gives the position, for ``stream(resume=…)``.

    A sample counts as given once it is handed out. Call `close` to leave early, or drop the object.
    """

    def __init__(self, items: Generator[Any, None, None], state: Callable[[], dict[str, Any]]) -> None:
        self._items, self._state = items, state

    def __next__(self) -> Any:
        return next(self._items)

    def state_dict(self) -> dict[str, Any]:
        """Return the position: small, only numbers, strings and lists of them."""
        return self._state()

    def close(self) -> None:
        """Stop all work in progress."""
        self._items.close()


# The cause, by the entry in which a state differs.
_MEANT = {
    "version": "this state is of another version of nbdata",
    "samples": "this state is of other samples, or of some that have changed since",
    "shuffle": "this state is of another order",
    "seed": "this state is of another order",
    "window": "this state is of another order",
    "epoch": "this state is of another epoch",
    "part": "this state is of another number of workers or ranks",
}


def refuse_other(state: dict[str, Any], expected: dict[str, Any]) -> None:
    """BadOption if a state belongs to other samples or another order than the pass that resumes from it."""
    for name, value in expected.items():
        if state.get(name) != value:
            raise BadOption(
                _MEANT[name],
                expected=f"{name}={value!r}",
                got=f"{name}={state.get(name)!r}",
                remedy="Go on with the samples, the order and as many parts as it was saved with",
            )
