"""Unpack several archives from one folder: each is its own operation, with its own folder below the target.

All are planned before anything is written, and then unpacked in turn. An error of one archive is reported, and the
others are still unpacked. The set of archives that a command meant is recorded. If the volumes of all but one were
deleted or moved away, the same command must not take the remaining archive for the only one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nbdata.archives.safety import PathGuard
from nbdata.archives.volumes import folder_name
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.unpack.one_set import plan_set, unpack_set
from nbdata.engine.unpack.targets.resolve import source_run, target_of
from nbdata.engine.unpack.targets.shards.target import ShardsTarget
from nbdata.engine.unpack.volumes.checksum_files import ChecksumFiles
from nbdata.engine.unpack.volumes.finding import Candidates, look_around, volumes_of
from nbdata.engine.unpack.written import own_data, own_record
from nbdata.errors import BadArchive, BadOption, ChecksumMismatch, MissingVolume, NbdataError, NotFound
from nbdata.paths import folder_below, is_url
from nbdata.reading.shards.packing import refuse_own_source
from nbdata.report import Plan, Report
from nbdata.sizes import counted
from nbdata.transfer.index import Index, index_file
from nbdata.transfer.locks import TargetLock
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = [
    "SeveralSets",
    "Taken",
    "locked",
    "operation_of",
    "place_of",
    "plan_each",
    "remembered_titles",
    "unpack_each",
]

#: Most archives for one command: each is examined before the first is unpacked, and has its plan in memory.
MOST = 1000
# Number of archives that a message names.
_NAMED = 5
# Number of members that a listing names in its text.
_LISTED = 20
# Seconds between two checks whether another job that writes the same records has ended.
_LOOK = 0.2
# The index entry for the archives that a command meant; no member can have such a name.
_TITLES = ".nbdata/sets"


@dataclass(frozen=True)
class SeveralSets:
    """The plan: for each archive its title, its folder below the target, its run and its plan.

    `around` lists the source; among its `whole` are the titles of archives that are called like volumes of one.

    Also holds, by title, files that look like an archive by their name but are none, and sets with missing or wrong
    volumes.
    """

    sets: list[tuple[str, str, Run, Plan]]
    refused: dict[str, NbdataError]
    around: Candidates


def remembered_titles(run: Run, op: UntarVolumes) -> list[str]:
    """The titles of the archives that an earlier run of this command meant; empty if it did not mean several."""
    if op.list or not isinstance(op.source, str):
        return []
    data: Any = own_data(_index(run, op).get(_TITLES))
    return [str(title) for title in data] if isinstance(data, list) else []


def plan_each(run: Run, remembered: Sequence[str], checksums: ChecksumFiles | None = None) -> Plan:
    """Plan all archives at the source, or those that ``--set`` picks; `checksums` is as for `plan_set`."""
    op = run.operation
    assert isinstance(op, UntarVolumes)
    assert isinstance(op.source, str)
    out = Plan("untar_volumes", *op.places())
    around = _around(run, op, remembered)
    titles = [*around.titles, *sorted(set(remembered) - set(around.titles))]
    folders = _folders(op, _picked(op, titles))
    rows, sets = run.row_file("plan"), list[tuple[str, str, Run, Plan]]()
    refused = dict[str, NbdataError]()
    for title, folder in folders.items():
        of_part = operation_of(op, title, folder)
        if op.target is not None:  # the user did not name the part's folder
            run.listed[place_of(of_part)] = place_of(op)
        part = run.part(of_part, f"set-{len(sets)}")
        try:
            planned = plan_set(part, around, checksums)
        except NotFound:
            if title in around.titles:
                raise
            out.notes.append(f"{title} no longer exists, and there is no record of its files")
            continue
        except (BadArchive, ChecksumMismatch, MissingVolume) as error:
            refused[title] = error
            out.notes.append(f"{title}: {error}")
            continue
        sets.append((title, folder, part, planned))
        for row in planned.rows:
            rows.add(row._replace(detail={**row.detail, "set": title}))
        _count(out, planned, title)
    rows.close()
    if refused and not sets:
        raise next(iter(refused.values()))
    _refuse_own(run, op, sets)
    out.rows = rows.rows()
    out.details = {
        "sets": [title for title, *_ in sets],
        "volumes": sum(planned.details["volumes"] for *_, planned in sets),
        "complete": not refused and all(planned.details["complete"] for *_, planned in sets),
    }
    shown = ", ".join(f"{folder}/" for _, folder, *_ in sets[:_NAMED]) + (" …" if len(sets) > _NAMED else "")
    if not op.list:
        out.notes.insert(
            0, f"{counted(len(sets), 'archives')}, each into a folder of its own below the target: {shown}"
        )
    if around.whole:
        out.notes.append(
            f"called like volumes of one archive, but each is a whole one: {', '.join(sorted(around.whole)[:_NAMED])}"
            + " …" * (len(around.whole) > _NAMED)
        )
    run.kept = SeveralSets(sets, refused, around)
    return out


def unpack_each(run: Run, planned: SeveralSets) -> Report:
    """Unpack or list one archive after the other; an error of one does not stop the others."""
    op = run.operation
    assert isinstance(op, UntarVolumes)
    taken = Taken(run, planned)
    for title, _, part, of_set in planned.sets:
        run.control.checkpoint()
        part.reservation, part.moving = run.reservation, True
        missed = list[str]()
        if title in planned.around.whole:
            part.operation = replace(_of(part), delete_volumes=False)
        try:
            with locked(part):
                report = unpack_set(part, of_set, unmatched=missed)
        except NbdataError as error:
            taken.fail(title, error)
        else:
            taken.take(title, report, missed)
    if op.delete_volumes and planned.around.whole:
        _delete_whole(run, planned, taken.failed, taken.results)
    return taken.report()


class Taken:
    """What became of the archives of one command: collects their reports, and makes one of them.

    Attributes
    ----------
    results : Results
    failed : set of str
        The titles of archives that were not unpacked, or not wholly.
    """

    def __init__(self, run: Run, planned: SeveralSets) -> None:
        op = run.operation
        assert isinstance(op, UntarVolumes)
        if not op.list:
            _remember(run, op, [title for title, *_ in planned.sets])
        self._folders = {title: folder for title, folder, *_ in planned.sets}
        self.results, self._unmatched = Results(run), set(op.members)
        self._of_sets = dict[str, dict[str, Any]]()
        self._named, self.failed = list[list[str]](), set[str]()
        for title, refusal in planned.refused.items():
            self.fail(title, refusal)

    def fail(self, title: str, error: NbdataError) -> None:
        """Report an archive that was not unpacked; raises the error if it ends the run."""
        self._unmatched.clear()  # this archive may match them
        self.failed.add(title)
        self.results.fail(title, error, set=title)

    def take(self, title: str, report: Report, missed: list[str]) -> None:
        """Add the report of an archive, and the patterns that match none of its members."""
        if report.failures:
            self.failed.add(title)
        self._unmatched &= {*missed}
        self._of_sets[title] = report.details
        folder = self._folders[title]
        _add(self.results, report, title, folder)
        self._named += [
            [f"{folder}/{name}", *more] for table in report.tables for name, *more in table["rows"]
        ]
        del self._named[_LISTED:]

    def report(self) -> Report:
        """Make the report of all archives."""
        if self._unmatched:
            missing = sorted(self._unmatched)
            raise NotFound(
                f"no member of {counted(len(self._folders), 'archives')} matches {', '.join(missing)}",
                remedy="Names are matched as each archive lists them, without the name of its folder",
                details={"patterns": missing},
            )
        sets = {title: self._of_sets[title] for title in self._folders if title in self._of_sets}
        totals = {
            key: sum(of_set.get(key, 0) for of_set in sets.values()) for key in ("volumes", "compressed")
        }
        report = self.results.report(sets=sets, **totals)
        if self._named:
            caption = (
                f"the first {_LISTED} members; the report's rows name all"
                if len(self._named) == _LISTED
                else "members"
            )
            report.tables = [{"caption": caption, "head": ["name", "size", "time"], "rows": self._named}]
        return report


def _of(part: Run) -> UntarVolumes:
    assert isinstance(part.operation, UntarVolumes)
    return part.operation


def _delete_whole(run: Run, planned: SeveralSets, failed: set[str], results: Results) -> None:
    """Delete the archives that are called like volumes of one, if all of them were unpacked.

    If one was not, they may be volumes of one archive after all.
    """
    if bad := sorted(failed & planned.around.whole):
        results.notes.append(
            f"the volumes were kept, because {bad[0]} failed: if they belong to one archive, list them in its order in "
            "a file NAME.lst, and name that as SOURCE"
        )
        return
    for title, _, part, _ in planned.sets:
        if title not in planned.around.whole:
            continue
        run.control.checkpoint()
        part.operation = replace(_of(part), delete_volumes=True)
        with locked(part):
            report = unpack_set(part, plan_set(part, planned.around))
        for row in report.rows:
            if row.action == Outcome.DELETED:
                results.add(row.path, Outcome.DELETED, row.size, **{**row.detail, "set": title})


@contextlib.contextmanager
def locked(part: Run) -> Iterator[None]:
    """Lock the records of one archive, as a separate command would.

    The target is locked already, but for a store. Yet a worker of an earlier command may still unpack this archive.
    """
    source, target = part.operation.places()
    if _of(part).list:
        yield
        return
    lock = TargetLock(
        f"/dev/null{index_file(part.context.state_dir, source, target)}", "a command with several archives"
    )
    while lock.acquire() is not None:
        part.control.sleep(_LOOK)
    try:
        yield
    finally:
        lock.release()


def _around(run: Run, op: UntarVolumes, remembered: Sequence[str]) -> Candidates:
    """List the source; an empty source is an error, unless titles are remembered because they were unpacked before."""
    source = source_run(run, op)
    try:
        return look_around(source, str(op.source), remembered)
    except NotFound as error:
        if not remembered or error.details.get("bucket"):
            raise
        return Candidates(source.open(str(op.source)).store, {})


def _picked(op: UntarVolumes, titles: list[str]) -> list[str]:
    """The titles that ``--set`` names, or all."""
    for name in op.set:
        if not any(name in (title, folder_name(title)) for title in titles):
            shown = ", ".join(titles[:_NAMED]) + (" …" if len(titles) > _NAMED else "")
            raise NotFound(f"no archive is called {name}", expected=shown, remedy="Check the name of --set")
    picked = [title for title in titles if not op.set or {title, folder_name(title)} & {*op.set}]
    if len(picked) > MOST:
        raise BadOption(
            f"{counted(len(picked), 'archives', 'are')} here",
            expected=f"at most {MOST:,} in one command",
            remedy="Choose some with a glob as SOURCE, or with --set",
        )
    return picked


def _folders(op: UntarVolumes, titles: list[str]) -> dict[str, str]:
    """The folder of each archive below the target, by title; BadOption if two folders would clash."""
    folders, taken = dict[str, str](), dict[str, str]()
    for title in titles:
        folder = PathGuard().path(folder_name(title)) or title
        for other, of in taken.items():
            mine = folder.casefold()
            if mine == other or mine.startswith(f"{other}/") or other.startswith(f"{mine}/"):
                raise BadOption(
                    f"{of} and {title} would be unpacked into the same folder, {folder}",
                    expected="a folder for each archive",
                    remedy="Unpack each by itself into its own TARGET: --set picks one, or its first volume as SOURCE",
                )
        folders[title] = folder
        taken[folder.casefold()] = title
        _refuse_links(op, folder)
    return folders


def place_of(op: UntarVolumes) -> str:
    """Return the folder that the target is, or has the shards."""
    return (op.target or "") if op.shards is None else op.shards.folder


def _refuse_links(op: UntarVolumes, folder: str) -> None:
    """Refuse folders that lead through a symbolic link in the target: their names come from the source."""
    if op.target is None or is_url(op.target) or op.list:
        return
    path = place_of(op).rstrip("/")
    for name in folder.split("/"):
        path = f"{path}/{name}"
        if os.path.islink(path):
            raise BadOption(
                f"a symbolic link has the name of the folder {folder}",
                path=path,
                remedy="Remove it, or unpack this archive by itself: --set picks one",
            )


def _refuse_own(run: Run, op: UntarVolumes, sets: Sequence[tuple[str, str, Run, Plan]]) -> None:
    """Raise BadOption if shards of one archive may replace a volume of another."""
    folders = [part.kept.location for *_, part, _ in sets if isinstance(part.kept, ShardsTarget)]
    if op.list or op.shards is None or not folders:
        return
    source = source_run(run, op)
    planned = (volumes_of(source, op, plan.rows, title) for title, _, _, plan in sets)
    sources = (volume.place for volumes in planned for volume in volumes.volumes)
    refuse_own_source(op.shards, folders, sources, op.target)


def operation_of(op: UntarVolumes, title: str, folder: str) -> UntarVolumes:
    """The operation for one archive."""
    target = op.target
    if op.shards is not None and target is not None:
        target = folder_below(op.shards.folder, folder) + target.rpartition("/")[2]
    elif target is not None:
        target = folder_below(target, folder)
    return replace(op, set=(title,), target=target)


def _count(out: Plan, planned: Plan, title: str) -> None:
    """Add the plan of one archive to the whole."""
    for action, (count, size) in planned.actions.items():
        sums = out.actions.setdefault(action, [0, 0])
        sums[0] += count
        sums[1] += size
    out.bytes += planned.bytes
    out.present += planned.present
    out.needed += planned.needed
    out.at_least = out.at_least or planned.at_least
    out.notes += [note if note in out.notes else f"{title}: {note}" for note in planned.notes]


def _add(results: Results, report: Report, title: str, folder: str) -> None:
    """Add the report of one archive to the whole; its members are named with their folder."""
    for row in report.rows:
        path = row.path if row.action == Outcome.DELETED else f"{folder}/{row.path}"
        results.add(path, Outcome(row.action), row.size, **{**row.detail, "set": title})
    results.files += report.files
    results.bytes += report.bytes
    results.present += report.present
    results.notes += [f"{title}: {note}" for note in report.notes]


def _index(run: Run, op: UntarVolumes) -> Index:
    """The index of the command itself, beside those of its archives."""
    op = replace(op, set=(*op.set, "*"))  # so it differs from the index of a single archive
    return target_of(run, op).index()


def _remember(run: Run, op: UntarVolumes, titles: list[str]) -> None:
    """Record durably which archives this command means, before any volume may be deleted."""
    target = target_of(run, op)
    target.prepare()
    index = _index(run, op)
    target.open_index(index)
    with contextlib.closing(index):
        index.put({_TITLES: own_record(titles)})
        index.sync()
