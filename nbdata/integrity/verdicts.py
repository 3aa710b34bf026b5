"""The five verdicts of a check on a file, and the rules for them.

============  ============================================================================================
ok            a digest is known for the file, and it equals that of its bytes
mismatch      a digest is known that can refute, and it differs from that of its bytes
missing       a sidecar or manifest has a digest for a file that is not there
extra         no digest is known for the file, though a complete manifest names others of its folder
unverifiable  no digest is known for the file, or sources contradict each other, or the only digest known
              can confirm but not refute (an ETag of an encrypted object, or of parts of a size that was
              guessed) and does not confirm
============  ============================================================================================

Only *mismatch* and *missing* mean that data is damaged or lost. A file that could not be read completely has no
verdict. That is an error of the transfer, and is reported as one.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nbdata.integrity.expectations import Expected

__all__ = ["Verdict", "verdict_of", "worst_first"]

_Row = TypeVar("_Row")


class Verdict(str, Enum):
    """A verdict. Worst first, and a str, so that it serializes to JSON."""

    MISMATCH = "mismatch"
    MISSING = "missing"
    UNVERIFIABLE = "unverifiable"
    EXTRA = "extra"
    OK = "ok"

    def __str__(self) -> str:  # as Python 3.11's StrEnum; without it, f-strings differ between versions
        return self.value


_SEVERITY = {verdict: rank for rank, verdict in enumerate(Verdict)}


def verdict_of(expected: Expected | None, got: str | None) -> Verdict:
    """Return the verdict on a file from its expected digest and its actual digest.

    Never returns ``extra``, which depends on the files around it (`Expectations.extra`).

    Parameters
    ----------
    expected : Expected or None
        The expected digest; None if no digest is known.
    got : str or None
        The digest of the bytes by ``expected.algorithm``, in hex of either case; None if there is no such file.

    Raises
    ------
    ValueError
        If both are None: no source names the file, and it does not exist.
    """
    if got is None:
        if expected is None:
            raise ValueError("there is no verdict on a file that is not there and that nothing names")
        return Verdict.MISSING
    if expected is None:
        return Verdict.UNVERIFIABLE
    if got.lower() == expected.digest.lower():
        return Verdict.OK
    return Verdict.MISMATCH if expected.conclusive else Verdict.UNVERIFIABLE


def worst_first(rows: Iterable[_Row], *, key: Callable[[_Row], tuple[Verdict, str]]) -> list[_Row]:
    """Sort rows by verdict, worst first, and then by name.

    Parameters
    ----------
    rows : iterable
        Rows of any kind.
    key : callable
        Returns the verdict and the name of a row.
    """

    def rank(row: _Row) -> tuple[int, str]:
        verdict, name = key(row)
        return _SEVERITY[verdict], name

    return sorted(rows, key=rank)
