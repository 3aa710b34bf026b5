"""How an epoch of a stream is shared out, and what to say if its ranks make unequal numbers of steps."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from nbdata.client.reading.dealers import Batching
from nbdata.sizes import counted

__all__ = ["Shares", "told_of_unequal"]


class Shares(NamedTuple):
    """How much of an epoch each part has.

    Attributes
    ----------
    of_parts : sequence of int or Fraction
    unit : str
        "samples"; "shards" if the numbers of their samples are not known.
    """

    of_parts: Sequence[int | Fraction]
    unit: str = "samples"


def told_of_unequal(shares: Shares, ranks: int, batching: Batching) -> str:
    """Return a warning if some ranks make fewer steps of an epoch than others; empty if they make equally many.

    Parameters
    ----------
    shares : Shares
        Of all workers of all ranks: first those of rank 0.
    ranks : int
    batching : Batching
        How each worker makes batches of its part.
    """
    workers, unit = len(shares.of_parts) // ranks, shares.unit
    parts: Sequence[int | Fraction] = shares.of_parts
    if unit == "samples" and batching.size:
        unit, size = "steps", batching.size
        parts = [part // size if batching.drop_last else -(-part // size) for part in parts]
    of_ranks = [sum(parts[at : at + workers]) for at in range(0, len(parts), workers)]
    least, most = min(of_ranks), max(of_ranks)
    if least == most or batching.most_steps <= (least if unit == "steps" else 0):
        return ""
    have = f"{'make' if unit == 'steps' else 'get'} {_counted(least, unit)}"
    return (
        f"nbdata: of {ranks} ranks, some {have} of this epoch and others {_counted(most, unit)}. Where ranks wait for "
        "each other, as in DDP, the job then hangs. Use SampleLoader, which deals equally many steps out, or end each "
        f"epoch after {_counted(least, unit) if unit == 'steps' else 'equally many steps'}"
    )


def _counted(amount: int | Fraction, unit: str) -> str:
    return counted(int(amount), unit) if amount == int(amount) else f"{float(amount):g} {unit}"
