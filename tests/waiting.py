"""Waiting for an event: how all tests do it, and how long at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds that a test gives anything that must happen. On an idle machine it takes a moment; on a busy one much longer,
#: which is no fault. So no test is about this number: it only ends one that would hang.
PATIENCE = 120.0

#: Seconds within which something ends that has nothing to wait for. What it must not wait for is made to last for
#: `PATIENCE` at least: so a busy machine cannot be taken for somebody who waited.
AT_ONCE = 20.0

# Seconds from one look to the next.
_LOOK = 0.02


def wait_until(condition: Callable[[], T], why: Callable[[], object] = lambda: "it never happened") -> T:
    """Look again and again until `condition` gives something true, and return that; `why` says why it never did."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, why()
        time.sleep(_LOOK)
    return found
