"""One pass through samples, which knows where it is."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from nbdata.errors import BadOption

__all__ = ["Pass", "refuse_other"]


class Pass(Iterator[Any]):
    """Samples one after the other. `state_dict` says where it is, for ``stream(resume=…)``.

    A sample counts as given as soon as it was handed out. `close` it if it is left early, or drop it.
    """

    def __init__(self, items: Generator[Any, None, None], state: Callable[[], dict[str, Any]]) -> None:
        self._items, self._state = items, state

    def __next__(self) -> Any:
        return next(self._items)

    def state_dict(self) -> dict[str, Any]:
        """Where it is: small, and nothing but numbers, strings and lists of them."""
        return self._state()

    def close(self) -> None:
        """End what is under way."""
        self._items.close()


# What it means if a state has something else.
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
    """BadOption if a state is not of what it is to go on with."""
    for name, value in expected.items():
        if state.get(name) != value:
            raise BadOption(
                _MEANT[name],
                expected=f"{name}={value!r}",
                got=f"{name}={state.get(name)!r}",
                remedy="Go on with the samples, the order and as many parts as it was saved with",
            )
