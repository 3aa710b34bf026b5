"""A large object of a pull whose ranges several processes fetch: into one partial, which the coordinator holds.

Workers write their ranges at their offsets and sync them. The coordinator records them, hashes and compares the whole,
and gives the name. A range that is fetched twice is the same bytes of the same version. Workers must be on the
coordinator's machine: another one may show old bytes of a file that both have open.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from nbdata.clusters import local_workers
from nbdata.disk import begin_writing, disk_error, exchanged
from nbdata.engine.job.run import Run
from nbdata.engine.planning.rows import detail_of, info_of
from nbdata.errors import ChecksumMismatch, NbdataError, SourceChanged, error_from_dict
from nbdata.optional_calls import fdatasync
from nbdata.report import Row
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.fetch import PartedFetch
from nbdata.transfer.part_records import NOTED, names, validator
from nbdata.transfer.reader import RangesIgnored, Reader
from nbdata.transfer.target_folder import TargetFolder

__all__ = ["RANGE", "RANGED", "DealtFetch", "fetch_range", "has_ranges", "reports_of"]

#: The action of a row that is a range of an object.
RANGE = "range"
#: From this size on, the ranges of an object are dealt: below, one worker has it in a second or two.
RANGED = 256 << 20
# The entry of a part's details with what became of its ranges.
_TOLD = "ranges"
# What is said of a range that the store has ignored.
_IGNORED = "ignored"


def has_ranges(run: Run, info: ObjectInfo) -> bool:
    """True if the ranges of an object are dealt: it is large, has a version, and all workers are on this machine."""
    if info.size < RANGED or not validator(info):
        return False
    return local_workers(getattr(run.operation, "cluster", None)) is not None


class DealtFetch(PartedFetch):
    """Fetches the parts of an object by other processes. Should its bytes be wrong at the end, this one fetches them.

    See `PartedFetch`. `took` or `lost` must be called once for each of the `rows`.
    """

    def rows(self, path: str, number: int) -> Iterator[Row]:
        """Yield the missing ranges as rows. Without any, the object is verified at once.

        Parameters
        ----------
        path : str
            Of the object, relative to the target.
        number : int
            Tells the objects of a job apart.
        """
        inode = os.fstat(self._partial.fd).st_ino
        for part in self._missing:
            if self._error is not None:  # the object has failed
                self._one_less()
                continue
            start, end = self._partial.span(part)
            start += self._partial.begun.get(part, 0)
            detail = {"path": path, "of": [number, part], "start": start, "whole": self._info.size}
            detail |= {**detail_of(self._info), "inode": inode}
            yield Row(f"{path}\0{part}", RANGE, end - start, detail)  # no path has this character
        if not self._missing:
            self._one_less()

    @property
    def is_out(self) -> bool:
        """True until the last range has come back."""
        return self._open > 0

    def took(self, part: int) -> None:
        """Record a range that is written, and hash on."""
        if self._error is None:
            try:
                self._partial.mark(part)
                self._check.catch_up(self._partial.fd, self._partial.contiguous)
            except Exception as error:
                self._error = error
        self._one_less()

    def lost(self, part: int, error: Exception) -> None:
        """Take the error of a range: the object ends with the first one, once no range is out any more."""
        if isinstance(error, (SourceChanged, ChecksumMismatch)):
            self._partial.note(part, 0)
        self._error = self._error or error
        self._one_less()


def reports_of(
    rows: Mapping[str, Row], details: dict[str, Any], ended: NbdataError | None
) -> Iterator[tuple[int, int, NbdataError | None]]:
    """Yield object, part and error of all ranges among the rows of a part that was performed.

    Parameters
    ----------
    rows : dict of str to Row
    details : dict
        Of the part's report; what it says of ranges is taken out.
    ended : NbdataError or None
        The error that ended the part.
    """
    told: dict[str, dict[str, Any]] = details.pop(_TOLD, {})
    silent = ended or NbdataError("a worker did not say what became of a range")
    for row in rows.values():
        if row.action == RANGE:
            number, part = row.detail["of"]
            said = told.get(f"{number} {part}")
            if said is None:
                yield number, part, silent
            elif _IGNORED in said:
                yield number, part, RangesIgnored("the store ignored a range", path=row.detail["path"])
            else:
                yield number, part, error_from_dict(said) if said else None


def fetch_range(run: Run, store: Store, target: TargetFolder, row: Row) -> None:
    """Fetch one range in the process that performs the part, and note what became of it for the coordinator."""
    assert run.as_part is not None
    number, part = row.detail["of"]
    said: dict[str, Any] = {}
    try:
        _fetch(run, store, target, row)
    except RangesIgnored:
        said = {_IGNORED: True}
    except Exception as error:
        run.control.checkpoint()  # the part was stopped
        told = error if isinstance(error, NbdataError) else NbdataError(str(error), path=row.detail["path"])
        said = told.to_dict()
    run.as_part.details.setdefault(_TOLD, {})[f"{number} {part}"] = said


def _fetch(run: Run, store: Store, target: TargetFolder, row: Row) -> None:
    detail, control = row.detail, run.control
    info: ObjectInfo = info_of(row._replace(size=detail["whole"]))
    at = noted = start = detail["start"]
    fd = _opened(target, detail["path"], detail["inode"])
    try:
        with Reader(control, store, info, start, start + row.size, skips=False) as reader:
            for block in reader.into(fd):
                at += len(block)
                control.advance(bytes=len(block))
                if at - noted >= NOTED:
                    target.check()  # the job may have ended, and another one work here
                    begin_writing(fd, noted, at - noted)
                    noted = at
        fdatasync(fd)
        target.check()
    except BaseException as error:
        control.advance(bytes=start - at)
        if isinstance(error, OSError) and not isinstance(error, NbdataError):
            raise disk_error(error, detail["path"]) from error
        raise
    finally:
        os.close(fd)


def _opened(target: TargetFolder, path: str, inode: int) -> int:
    """Open the partial that the coordinator has opened, and nothing else."""
    final, staging = target.prepare(path)
    try:
        fd = target.opened(staging).open(names(path)[0], os.O_RDWR)
    except OSError as error:
        raise disk_error(error, final) from error
    found = os.fstat(fd)
    if found.st_ino != inode or not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise exchanged(final)
    return fd
