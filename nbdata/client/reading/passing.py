"""One pass through samples that knows its position."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any

from nbdata.ending import at_end
from nbdata.errors import BadOption

__all__ = ["OTHER_SAMPLES", "SAME_SAMPLES", "Pass", "given_of", "refuse_other", "states_of"]

# The most characters of a wrong value, and the most entries, that an error shows.
_SHOWN, _FEW = 60, 8
#: The samples of a pass and of a state that is of others, in words: their digests would tell a reader nothing.
SAME_SAMPLES = "the same source and selection in the same order, and objects with the same ETags"
OTHER_SAMPLES = "others in at least one of these"


class Pass(Iterator[Any]):
    """Samples one after the other. `state_dict` gives the position, for ``stream(resume=…)``.

    A sample counts as given once it is handed out. Call `close` to leave early, or drop the object. A child of a fork
    cannot continue its parent's pass: its connections and threads are those of the parent.
    """

    def __init__(self, items: Generator[Any, None, None], state: Callable[[], dict[str, Any]]) -> None:
        self._items, self._state, self._process = items, state, os.getpid()
        _passes.add(self)
        at_end(self, Pass.close)

    def __next__(self) -> Any:
        if os.getpid() != self._process:
            raise BadOption(
                "this pass through samples belongs to the process that began it, and this is a child of it",
                remedy="Begin a pass in the child, with the part= that it shall have. In the workers of a loader use "
                "nbdata.loaders.pytorch.SampleStream, which deals the samples out to them",
            )
        return next(self._items)

    def state_dict(self) -> dict[str, Any]:
        """Return the position: small, only numbers, strings and lists of them."""
        return self._state()

    def close(self) -> None:
        """Stop all work in progress."""
        if os.getpid() == self._process:
            self._items.close()


_passes: weakref.WeakSet[Pass] = weakref.WeakSet()
# Those of the parent stay as they are in a child: to end one would wait for locks that a thread of the parent held
# during the fork, and close the parent's connections.
_inherited: list[Pass] = []


def _after_fork() -> None:
    _inherited.extend(_passes)
    _passes.clear()


os.register_at_fork(after_in_child=_after_fork)


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


def states_of(resume: Any) -> list[dict[str, Any]]:
    """Return the states in ``resume=``, which is one or several; BadOption if it is anything else."""
    states = [resume] if isinstance(resume, dict) else resume
    if (
        not isinstance(states, (list, tuple))
        or not all(isinstance(one, dict) for one in states)
        or not states
    ):
        raise BadOption(
            "resume: this is no state of a stream",
            expected="what state_dict() of a stream returned, or a list of those",
            got=repr(resume)[:_SHOWN],
        )
    return list(states)


def given_of(resume: Any, about: dict[str, Any]) -> int:
    """Return the samples that a part has given out, by its state in ``resume=``, which may have those of other parts.

    Raises
    ------
    BadOption
        If there is no state of this part, or it belongs to other samples or another order.
    """
    states = states_of(resume)
    own = [state for state in states if state.get("part") == about["part"]]
    for state in states if len(states) > 1 else ():
        refuse_other(state, {**about, "part": state.get("part")})
    if len(states) > 1 and len(own) != 1:
        raise BadOption(
            f"resume: of these states, {len(own) or 'none'} {'are' if own else 'is'} of the part {about['part']}",
            got=", ".join(str(state.get("part")) for state in states[:_FEW]),
            remedy="Only tar shards go on with another number of parts: here, go on with as many as before",
        )
    (state,) = own if len(states) > 1 else states
    refuse_other(state, about)
    return int(state["given"])


def _begin_anew(state: dict[str, Any]) -> str:
    return (
        "Make the samples as those of the state were made; shards, objects and a copy of them are not the same. If "
        f"objects have changed, restore them, or begin the epoch anew: epoch={state.get('epoch')!r} without this state"
    )


def refuse_other(state: dict[str, Any], expected: dict[str, Any]) -> None:
    """BadOption if a state belongs to other samples or another order than the pass that resumes from it."""
    if "version" not in state or "part" not in state:
        entries = ", ".join(map(str, itertools.islice(state, _FEW)))
        raise BadOption(
            "resume: this is no state of a stream",
            expected="what state_dict() of a stream returned",
            got=f"a dict of {entries}" if entries else "an empty dict",
        )
    for name, value in expected.items():
        if name == "samples" and state.get(name) != value:
            raise BadOption(_MEANT[name], expected=SAME_SAMPLES, got=OTHER_SAMPLES, remedy=_begin_anew(state))
        if state.get(name) != value:
            raise BadOption(
                _MEANT[name],
                expected=f"{name}={value!r}",
                got=f"{name}={state.get(name)!r}",
                remedy="Go on with the samples, the order and as many parts as it was saved with",
            )
