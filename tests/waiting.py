"""How all tests wait for an event, with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Limit in seconds for anything that must happen. It takes a moment on an idle machine and much longer on a busy one,
#: which is no fault. So no test measures this time: it only ends a test that would hang.
PATIENCE = 120.0

#: Limit in seconds for something that has nothing to wait for. Anything that it must not wait for lasts for at least
#: `PATIENCE`. So a busy machine is never mistaken for a wait.
AT_ONCE = 20.0

# Seconds between two checks.
_LOOK = 0.02


def wait_until(condition: Callable[[], T], why: Callable[[], object] = lambda: "it never happened") -> T:
    """Check `condition` repeatedly until it returns a true value, and return that; `why` explains a timeout."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, why()
        time.sleep(_LOOK)
    return found
