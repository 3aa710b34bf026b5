"""Says what to do in a training when an object of its samples has changed or is gone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from nbdata.errors import SourceChanged

__all__ = ["advising_on_changes"]

_ADVICE = (
    "Restore the object to go on, also from a saved state. Or make the samples anew, which takes the store as it is "
    "now, and begin the epoch again"
)


@contextlib.contextmanager
def advising_on_changes(advice: str = _ADVICE) -> Iterator[None]:
    """Give each SourceChanged inside an advice, by default that for a training."""
    try:
        yield
    except SourceChanged as error:
        error.remedy = advice
        raise
