"""`wait_until`: tests wait for an event, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Time limit in seconds for any event. An event takes a moment on an idle machine and much longer on a busy one; both
#: are fine. So tests never measure this time. The limit only ends a test that would hang.
PATIENCE = 240.0

#: Time limit in seconds for an action that must not wait for anything. Whatever it could wrongly wait for lasts at
#: least `PATIENCE`, so even on a busy machine the two cases differ.
AT_ONCE = 40.0

# Seconds between two checks.
_LOOK = 0.02


def wait_until(condition: Callable[[], T], why: Callable[[], object] = lambda: "it never happened") -> T:
    """Check `condition` repeatedly until it returns a true value, and return that; `why` explains a timeout."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, why()
        time.sleep(_LOOK)
    return found
