"""What a check finds about a file: five answers that are never mixed up.

============  ============================================================================================
ok            a digest is known for the file, its bytes were hashed, both are equal
mismatch      a digest is known that can refute, its bytes were hashed, both differ
missing       a sidecar or manifest has a digest for a file that is not there
extra         no digest is known for the file, though a complete manifest names others of its folder
unverifiable  no digest is known for the file, or sources contradict each other, or the only digest known
              can confirm but not refute (an ETag of an encrypted object, or of parts of a size that was
              guessed) and does not confirm
============  ============================================================================================

Only *mismatch* and *missing* say that data is damaged or lost. A file that could not be read, or not to its
end, has no verdict: that is an error of the transfer, and is reported as one.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nbdata.integrity.expectations import Expected

__all__ = ["Verdict", "judge", "worst_first"]

_Row = TypeVar("_Row")


class Verdict(str, Enum):
    """The answers, worst first; a str, so that it is JSON as it is."""

    MISMATCH = "mismatch"
    MISSING = "missing"
    UNVERIFIABLE = "unverifiable"
    EXTRA = "extra"
    OK = "ok"

    def __str__(self) -> str:  # as StrEnum of Python 3.11; without it versions differ in f-strings
        return self.value


_SEVERITY = {verdict: rank for rank, verdict in enumerate(Verdict)}


def judge(expected: Expected | None, got: str | None) -> Verdict:
    """The verdict on a file from the digest that it should have and the one that it has.

    ``extra`` is not among the answers: it depends on the files around it (`Expectations.extra`).

    Parameters
    ----------
    expected : Expected or None
        What it should have; None: nobody knows.
    got : str or None
        The digest of its bytes by ``expected.algorithm``, in hexadecimal digits of either case; None: there
        is no such file.

    Raises
    ------
    ValueError
        If there is neither: nothing names the file and it is not there.
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
    """The rows with what is wrong first, by name within each verdict.

    Parameters
    ----------
    rows : iterable
        Rows of any kind.
    key : callable
        Gives the verdict and the name of a row.
    """

    def rank(row: _Row) -> tuple[int, str]:
        verdict, name = key(row)
        return _SEVERITY[verdict], name

    return sorted(rows, key=rank)
