"""What a test observes of an operation: its plan, its result, or how it went about it. Comparable between runs."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.engine.job.task import Task
from nbdata.errors import NbdataError
from nbdata.operation import Operation
from nbdata.report import Report, Row

from .scenes import Shelf

__all__ = ["counted_by_rate", "met", "planned", "refused_or", "results", "selected"]

#: Makes the operation; that may fail too.
Make = Callable[[], Operation]


def _rows(rows: Any) -> list[tuple[str, str, int]]:
    return sorted((row.path, row.action, row.size) for row in rows if isinstance(row, Row))


def refused_or(look: Callable[[Operation], object]) -> Callable[[Make], object]:
    """Return an observer that has the kind of the error if the operation is refused or fails."""

    def observe(make: Make) -> object:
        try:
            return look(make())
        except NbdataError as error:
            return type(error).__name__

    return observe


@refused_or
def planned(operation: Operation) -> object:
    """Return the plan: its rows and its sums."""
    plan = operation.plan()
    return _rows(plan.rows), plan.files, plan.bytes, dict(plan.actions)


@refused_or
def results(operation: Operation) -> object:
    """Return what the operation gave: the rows of its report, the items of a stream, or the samples."""
    return _results(operation)


def _results(operation: Operation) -> object:
    result = operation.run(quiet=True)
    if isinstance(result, Report):
        verified = [row.detail.get("verified") for row in result.rows]
        return _rows(result.rows), verified, result.counts
    if operation.verb == "cache_stream":
        return [item.key for item in result]
    with result as samples:
        return sorted((sample["__key__"], sorted(sample)) for sample in samples.fetch(range(len(samples))))


def selected(make: Make) -> list[str]:
    """Return the names of what an operation takes."""
    operation = make()
    if operation.verb == "pack":
        operation.run(quiet=True)
        return _packed(Path(operation.places()[1]))
    if operation.verb == "samples":
        with operation.run(quiet=True) as samples:
            return sorted(sample["__key__"] for sample in samples.fetch(range(len(samples))))
    return sorted(row.path for row in operation.plan().rows if row.action != "keep")


def _packed(target: Path) -> list[str]:
    """Return the names in what was packed there."""
    if target.suffix == ".zip":
        with zipfile.ZipFile(target) as archive:
            return sorted(archive.namelist())
    if target.suffix == ".tar":
        return sorted(name for path in target.parent.glob("*.tar") for name in _members(path))
    if target.suffix == ".ffr":
        with nbdata.samples(target, by="file", quiet=True) as samples:
            return sorted(sample["__key__"] for sample in samples.fetch(range(len(samples))))
    return sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())


def _members(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


def met(make: Make) -> object:
    """Return whether several files of the shelf were open at a time."""
    operation = make()
    Shelf.peak, Shelf.alone = 0, operation.concurrency == 1  # type: ignore[attr-defined]
    _results(operation)
    assert Shelf.peak, "no file was opened"
    return min(Shelf.peak, 2)


def counted_by_rate(make: Make) -> object:
    """Return whether a limit of the bandwidth counted the bytes that were moved."""
    counted = 0
    advance = Task.advance

    def counting(task: Task, **more: int) -> None:
        nonlocal counted
        counted += more.get("bytes", 0) if task.rate is not None else 0
        advance(task, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "advance", counting)
        _results(make())
    return counted > 0
