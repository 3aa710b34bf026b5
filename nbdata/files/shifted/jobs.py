"""Copies between stores and the disk, as pull, push and copy make them: with room reserved, verified, and resumed.

`shutil` has other rules than these verbs for what is there already: it always replaces. So what a verb leaves, because
both sides were changed since it last ran, is done in a second run that replaces it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from typing import Any

from nbdata.errors import TransferFailed
from nbdata.files.shifted.places import Target
from nbdata.paths import has_glob, join
from nbdata.report import BAD_OUTCOMES, Report
from nbdata.runtime import state_folder
from nbdata.space.ledger import Ledger
from nbdata.space.limits import disk_of, limited_folders, round_up
from nbdata.verbs.copy import Copy
from nbdata.verbs.pull import Pull
from nbdata.verbs.push import Push

__all__ = [
    "copy_file",
    "copy_folder",
    "is_pattern",
    "mixes_options",
    "pull_file",
    "pull_folder",
    "push_file",
    "push_folder",
]

# Files up to this many bytes are copied by this process: to start a job for each would take longer.
SMALL = 1 << 20
# Single files from this many bytes on show their progress.
_SHOWN = 64 << 20
# The most failures that a shutil.Error lists.
_LISTED = 1000
# The outcome of what both sides changed.
_CONFLICT = "conflict"

_Verb = type[Pull] | type[Push] | type[Copy]


def is_pattern(*places: str) -> bool:
    """Return whether a verb would take a name for a pattern, because it holds ``*``, ``?``, ``[`` or ``{a,b}``."""
    return any(map(has_glob, places))


def mixes_options(source: Target, there: Target) -> bool:
    """Return whether a verb would use the options of the source for the target, which has none: another server's."""
    return bool(source.options) and not there.options


def pull_file(source: Target, path: str, size: int) -> None:
    """Copy a file of a store to the disk, over what is there."""
    if size < 0 or (size > SMALL and not is_pattern(source.url)):
        _file(Pull, source.url, path, source, quiet=size < _SHOWN)
        return
    folder, block = os.path.dirname(path), disk_of(path)[2]
    limited = limited_folders(state_folder(), os.environ)
    with Ledger().reserve(folder, round_up(size, block), 1, limited):
        source.files.get_file(source.url, path)


def push_file(path: str, there: Target, size: int) -> None:
    """Copy a file of the disk to a store, over what is there."""
    if size > SMALL and not is_pattern(path):
        _file(Push, path, there.url, there, quiet=size < _SHOWN)
    else:
        there.files.put_file(path, there.url)


def pull_folder(source: Target, path: str, chosen: Iterable[str] | None = None) -> None:
    """Copy a folder of a store to the disk; with `chosen` only these paths below it."""
    # Absolute: verbs take a "~" at the beginning for the home folder.
    _folder(Pull, source.url + "/", os.path.abspath(path), source, chosen)


def push_folder(path: str, there: Target, chosen: Iterable[str] | None = None) -> None:
    """Copy a folder of the disk to a store; with `chosen` only these paths below it."""
    _folder(Push, os.path.abspath(path).rstrip("/") + "/", there.url + "/", there, chosen)


def copy_folder(source: Target, there: Target, chosen: Iterable[str] | None = None) -> None:
    """Copy a folder of a store to a store; with `chosen` only these paths below it."""
    _folder(Copy, source.url + "/", there.url + "/", source, chosen, **_for_target(source, there))


def copy_file(source: Target, there: Target) -> None:
    """Copy a file of a store to another store, over what is there."""
    _file(Copy, source.url, there.url, source, quiet=True, **_for_target(source, there))


def _for_target(source: Target, there: Target) -> dict[str, Any]:
    return {"target_options": there.options} if there.options != source.options else {}


def _run(
    verb: _Verb,
    source: str,
    target: str,
    place: Target,
    *,
    quiet: bool,
    target_options: Any = None,
    **more: Any,
) -> Report:
    if target_options is not None:
        more["target_options"] = target_options
    operation = verb(
        source=source,
        target=target,
        storage_options=place.options or None,
        verify=place.by.verify,
        **more,
    )
    report: Report = operation.run(quiet=quiet)
    return report


def _file(verb: _Verb, source: str, target: str, place: Target, *, quiet: bool, **more: Any) -> None:
    """Copy a file; if it is a conflict to the verb, in a second run."""
    try:
        _run(verb, source, target, place, quiet=quiet, **more)
    except TransferFailed as error:
        if error.report is None or not error.report.counts.get(_CONFLICT):
            raise
        _run(verb, source, target, place, quiet=quiet, overwrite="always", **more)


def _folder(
    verb: _Verb, source: str, target: str, place: Target, chosen: Iterable[str] | None, **more: Any
) -> None:
    """Copy a folder, and what is a conflict to the verb in a second run.

    Raises
    ------
    shutil.Error
        With (source, target, reason) for each file that was not copied; its `report` is the Report.
    """
    failed = list[tuple[str, str, str]]()
    report = _selected(verb, source, target, place, chosen, **more)
    if report is not None:
        failed += _failures(report, source, target)
        if report.counts.get(_CONFLICT):
            changed = [row.path for row in report.rows if row.action == _CONFLICT]
            conflicts = [path for path in changed if not {"\n", "\r"} & {*path}]
            failed += [
                (join(source, path), join(target, path), _CONFLICT)  # the list of a verb cannot name it
                for path in {*changed} - {*conflicts}
            ]
            again = _selected(verb, source, target, place, conflicts, overwrite="always", **more)
            if again is not None:
                failed += _failures(again, source, target, also=_CONFLICT)
    if failed:
        error = shutil.Error(failed[:_LISTED])
        error.report = report  # type: ignore[attr-defined]  # for who wants to know more than shutil tells
        raise error


def _selected(
    verb: _Verb, source: str, target: str, place: Target, chosen: Iterable[str] | None, **more: Any
) -> Report | None:
    """Run a verb for the chosen paths, or for all; None if there are none."""
    if chosen is None:
        return _run(verb, source, target, place, quiet=False, on_error="report", **more)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="surrogateescape", suffix=".txt") as names:
        names.writelines(f"{path}\n" for path in chosen)
        names.flush()
        if not names.tell():
            return None
        return _run(
            verb, source, target, place, quiet=False, on_error="report", files_from=names.name, **more
        )


def _failures(report: Report, source: str, target: str, also: str = "") -> list[tuple[str, str, str]]:
    """Return source, target and reason of what a verb did not copy, but for conflicts unless `also` names them."""
    if report.ok and not also:
        return []
    outcomes = {*BAD_OUTCOMES} - {_CONFLICT} | {also}
    failed = list[tuple[str, str, str]]()
    for row in report.rows:
        if row.action in outcomes and len(failed) < _LISTED:
            reason = str(row.detail.get("reason") or row.action)
            failed.append((join(source, row.path), join(target, row.path), reason))
    return failed
