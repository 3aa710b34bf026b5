"""The rows of a check: the plan and the result for each file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nbdata.engine.planning.rows import detail_of, info_of
from nbdata.integrity.expectations import Expected
from nbdata.integrity.verdicts import Verdict
from nbdata.report import Row
from nbdata.stores.base import ObjectInfo
from nbdata.verification.comparison import Answer

__all__ = ["CheckRow", "HashRow"]


@dataclass(slots=True, eq=False)
class CheckRow:
    """One file of a check.

    Attributes
    ----------
    path : str
        Relative to PATH.
    action : str
        ``check``, or the verdict if that needs no bytes: ``mismatch``, ``missing``, ``extra``, ``unverifiable``.
    info : ObjectInfo or None
        The listed file; None if it is missing.
    source : str
        The checksum file or place that has its checksum.
    expected : Expected or None
        Its digest, if a checksum file names it.
    promised : ObjectInfo or None
        The object whose stored checksum it is compared with, if any.
    answer : Answer or None
        The result, if it does not match.
    reason : str
        Why it is not checked, or ''.
    """

    path: str
    action: str
    info: ObjectInfo | None
    source: str = ""
    expected: Expected | None = None
    promised: ObjectInfo | None = None
    answer: Answer | None = None
    reason: str = ""

    @property
    def size(self) -> int:
        """Listed size in bytes; -1 if the store does not report it, 0 if the file is missing."""
        return self.info.size if self.info is not None else 0

    def row(self) -> Row:
        """Convert to a row of the plan."""
        detail = {} if self.info is None else detail_of(self.info)
        if self.source:
            detail["source"] = self.source
        if self.expected is not None:
            detail |= {"algorithm": self.expected.algorithm, "expected": self.expected.digest}
        if self.promised is not None:
            detail["object"] = {"size": self.promised.size, **detail_of(self.promised)}
        if self.answer is not None:
            detail["answer"] = asdict(self.answer)
        if self.reason:
            detail["reason"] = self.reason
        return Row(self.path, self.action, self.size, detail)

    @classmethod
    def of(cls, row: Row) -> CheckRow:
        """Convert from a row of the plan."""
        detail = row.detail
        item = cls(row.path, row.action, info_of(row) if "key" in detail else None, detail.get("source", ""))
        if "expected" in detail:
            item.expected = Expected(detail["algorithm"], detail["expected"], item.source)
        if "object" in detail:
            promised = detail["object"]
            item.promised = info_of(Row(row.path, "", promised["size"], promised))
        if "answer" in detail:
            answer = detail["answer"]
            item.answer = Answer(**{**answer, "verdict": Verdict(answer["verdict"])})
        item.reason = detail.get("reason", "")
        return item

    def told(self, answer: Answer | None = None) -> dict[str, Any]:
        """The details for a row of the report; `answer` is the result, if it is not kept in this row."""
        answer = answer or self.answer
        detail: dict[str, Any] = {}
        if answer is not None:
            detail = {"expected": answer.expected, "got": answer.got, "algorithm": answer.algorithm}
        elif self.expected is not None:
            detail = {"expected": self.expected.digest, "algorithm": self.expected.algorithm}
        detail |= {"source": self.source, "reason": answer.reason if answer is not None else self.reason}
        return {name: value for name, value in detail.items() if value}


@dataclass(slots=True, eq=False)
class HashRow:
    """A file whose checksum is written, or whose line in a manifest is kept.

    Attributes
    ----------
    path : str
        Relative to PATH.
    action : str
        ``hash``, ``keep`` or ``drop`` (a line of a manifest), ``missing`` or ``unrepresentable``.
    info : ObjectInfo or None
        The listed file, if it is to be hashed.
    expected : str
        The digest in the existing manifest, or ''.
    sidecar : ObjectInfo or None
        The existing sidecar: only key and size.
    reason : str
        Why it is not hashed, or ''.
    """

    path: str
    action: str
    info: ObjectInfo | None = None
    expected: str = ""
    sidecar: ObjectInfo | None = None
    reason: str = ""

    @property
    def size(self) -> int:
        """Listed size in bytes; 0 if it is not to be hashed."""
        return self.info.size if self.info is not None else 0

    def row(self) -> Row:
        """Convert to a row of the plan."""
        detail = {} if self.info is None else detail_of(self.info)
        if self.expected:
            detail["expected"] = self.expected
        if self.sidecar is not None:
            detail |= {"sidecar": self.sidecar.key, "sidecar_size": self.sidecar.size}
        if self.reason:
            detail["reason"] = self.reason
        return Row(self.path, self.action, self.size, detail)

    @classmethod
    def of(cls, row: Row) -> HashRow:
        """Convert from a row of the plan."""
        detail = row.detail
        info = info_of(row) if "key" in detail else None
        sidecar = ObjectInfo(detail["sidecar"], detail["sidecar_size"]) if "sidecar" in detail else None
        return cls(row.path, row.action, info, detail.get("expected", ""), sidecar, detail.get("reason", ""))
