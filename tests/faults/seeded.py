"""Faults chosen by a seed. They depend on a request's content and the number of its repetitions, but not on its time.

So a run can be repeated with its seed, although a client's threads run in a different order each time.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping

from tests.faults.proxy import AFTER, BEFORE, BETWEEN, BODY, HEAD, Exchange, Fault

__all__ = ["Seeded"]

# Probability of a fault: for a small object, for a part of a big one, and for a request without object data.
_SMALL, _PART, _CONTROL = 0.03, 0.4, 0.06
# The same for a part of a volume of an archive.
_VOLUME = 0.4
# After this many faults a request is let through, unless its object is doomed.
_OFTEN = 4
# Weights of the faults by kind and moment: for reads, writes, and other requests. Over four fifths are in bodies.
_READ: Mapping[tuple[str, str], float] = {
    ("reset", BODY): 3,
    ("cut", BODY): 3,
    ("flip", BODY): 3,
    ("stall", BODY): 0.7,
    ("delay", BODY): 1.5,
    ("refuse", BEFORE): 0.5,
    ("drop", BEFORE): 0.3,
    ("stall", BEFORE): 0.15,
    ("delay", BEFORE): 0.1,
    ("reset", HEAD): 0.25,
}
_WRITE: Mapping[tuple[str, str], float] = {
    ("reset", BODY): 4,
    ("flip", BODY): 4,
    ("refuse", BODY): 2,
    ("stall", BODY): 0.7,
    ("delay", BODY): 1.5,
    ("refuse", BEFORE): 0.5,
    ("drop", BEFORE): 0.2,
    ("stall", BEFORE): 0.15,
    ("swallow", AFTER): 0.6,
    ("reset", HEAD): 0.2,
}
_OTHER: Mapping[tuple[str, str], float] = {
    ("refuse", BEFORE): 3,
    ("drop", BEFORE): 1,
    ("cut", BODY): 2,
    ("swallow", AFTER): 2,
    ("reset", HEAD): 1,
}
_STATUS = (500, 503, 429)
# A doomed object gets one of these faults, on each of its requests.
_DOOMS = (("flip", BODY), ("flip", BODY), ("reset", BODY), ("refuse", BEFORE))


class Seeded:
    """A plan of faults (see `proxy.Plan`).

    Parameters
    ----------
    seed : str
        Identifies the run.
    doomed : str
        A key whose requests all fail in the same way, so the run cannot succeed; '' for none.
    replaced : str
        A key whose object is overwritten before its second part is first read; '' for none.
    volumes : bool
        Whether all objects are volumes of an archive. Then bytes are flipped only in a doomed volume, because a single
        flip ends the command.
    """

    def __init__(self, seed: str, *, doomed: str = "", replaced: str = "", volumes: bool = False) -> None:
        self._seed, self._doomed, self._replaced, self._volumes = seed, doomed, replaced, volumes
        self._doom = random.Random(f"{seed} doom").choice(_DOOMS)
        self._lock = threading.Lock()

    def __call__(self, request: Exchange, before: int) -> Fault | None:
        source = random.Random(f"{self._seed} {request.action} {request.key} {request.part} {before}")
        moves = request.upload or request.download
        if moves and request.key == self._doomed:
            return _fault(self._doom, source)
        if request.download and request.key == self._replaced and request.start and self._first():
            return Fault("replace", BETWEEN)
        chance = _CONTROL if not moves else _VOLUME if self._volumes else _PART if request.part else _SMALL
        if before >= _OFTEN or source.random() >= chance:
            return None
        kinds = _READ if request.download else _WRITE if request.upload else _OTHER
        if self._volumes:
            kinds = {kind: weight for kind, weight in kinds.items() if kind[0] != "flip"}
        (chosen,) = source.choices(list(kinds), list(kinds.values()))
        return _fault(chosen, source)

    def _first(self) -> bool:
        with self._lock:
            first, self._replaced = bool(self._replaced), ""
        return first


def _fault(chosen: tuple[str, str], source: random.Random) -> Fault:
    kind, where = chosen
    share = source.uniform(0.02, 0.98) if where == BODY else 0.0
    return Fault(kind, where, share, source.choice(_STATUS), source.uniform(0.05, 0.3))
