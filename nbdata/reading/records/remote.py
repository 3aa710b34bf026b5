"""FFRecord files in stores: their headers, kept in the state folder, and their samples, read as ranges.

Neighbours that are requested together come as one range. Samples are compared with the CRC-32 in the header.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from nbdata.errors import BadArchive, ChecksumMismatch, NbdataError
from nbdata.formats.ffrecord import FIXED, Head, count_in, head_size, refuse_wrong
from nbdata.operation import Context
from nbdata.own_files import through_no_link
from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.index_files import write_index
from nbdata.reading.pieces import Content, Piece, PieceReader
from nbdata.reading.records.heads import Heads
from nbdata.reading.records.runs import Run, cut, first_wrong, is_ascending, runs_of
from nbdata.reading.source_file import SourceFile, digest_of, fingerprint_of, first_of_each
from nbdata.reading.timeline import Timeline
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.http.servers import servers_of
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Reader
from nbdata.transfer.worker_pool import FIRST

__all__ = ["Plan", "RemoteRecords", "bytes_of", "fetch_heads", "heads_path", "kept_heads"]

# Bytes of the first request for a header: enough for 5,000 samples, and maybe some samples after it.
_FIRST_READ = 64 << 10
# Most bytes of a header, which is held in memory: 44 million samples in one file.
_MOST_HEAD = 512 << 20
# Most bytes of the headers of all files together: 180 million samples.
_MOST_HEADS = 2 << 30
# How often to read a sample with wrong bytes.
_TRIES = 3


def bytes_of(control: Control, store: Store, info: ObjectInfo, start: int, end: int) -> bytearray:
    """Read a range of an object with a request of its own."""
    data = bytearray()

    def begins(_told: ObjectInfo) -> None:
        data.clear()

    with Reader(control, store, info, start, end, begins=begins, anew=True) as reader:
        for block in reader.blocks():
            data += block
    return data


class _Room:
    """The bytes that headers may still take in memory; safe to use from many threads."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._lock = threading.Lock()

    def take(self, size: int, url: str) -> None:
        """Count a header before it is fetched; BadArchive if all together are too large."""
        with self._lock:
            self._left -= size
            if self._left < 0:
                raise BadArchive(
                    "the headers of these FFRecord files are too large to be held in memory together",
                    path=url,
                    expected=f"at most {self._most:,} bytes",
                    got=f"{self._most - self._left:,}, and maybe more",
                    remedy="Read fewer of the files; on a local disk, headers of any size are mapped",
                )


def _head(control: Control, store: Store, file: SourceFile, room: _Room) -> Head:
    """Read and check the header of a file, with one or two requests."""
    data = bytes_of(control, store, file.info, 0, min(file.size, _FIRST_READ)) if file.size else bytearray()
    end = head_size(count_in(data[:FIXED], file.size, file.url))
    if end > _MOST_HEAD:
        raise BadArchive(
            "the header of this FFRecord file is too large to be held in memory",
            path=file.url,
            expected=f"at most {_MOST_HEAD:,} bytes",
            got=f"{end:,}",
            remedy="Divide its samples among several files; on a local disk, a header of any size is mapped",
        )
    room.take(end, file.url)
    if len(data) < end:
        data += bytes_of(control, store, file.info, len(data), end)
    del data[end:]
    head = Head(data, file.size, file.url)
    head.check()
    return head


def heads_path(context: Context, files: Sequence[SourceFile], store_of: Callable[[SourceFile], Store]) -> str:
    """Return the path at which the headers of these versions of files on their servers are kept."""
    servers = servers_of(store_of(file) for file in first_of_each(files))
    name = digest_of([[fingerprint_of(files), servers]])
    return os.path.join(context.state_dir, "samples", f"{name}.heads")


def kept_heads(path: str, files: Sequence[SourceFile]) -> Heads | None:
    """Return the headers kept at a path, mapped into memory; None if there are none, or they are of other files."""
    try:
        with open(path, "rb", opener=through_no_link) as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))
        heads, at = [], 0
        for one in files:
            heads.append(Head(data[at:], one.size, one.url))
            at += len(heads[-1].bytes)
    except FileNotFoundError:
        return None
    except (NbdataError, OSError, ValueError):  # they are fetched again
        return None
    return Heads(heads) if at == len(data) else None


def fetch_heads(
    control: Control,
    files: Sequence[SourceFile],
    store_of: Callable[[SourceFile], Store],
    path: str,
    context: Context,
) -> Heads:
    """Fetch and check the headers of files in stores, and keep them at a path.

    Raises
    ------
    BadArchive, ChecksumMismatch
        If a header is damaged.
    """
    room = _Room(_MOST_HEADS)
    with ThreadPoolExecutor(FIRST, thread_name_prefix="headers") as asking:
        heads = list(asking.map(lambda file: _head(control, store_of(file), file, room), files))
    with contextlib.suppress(OSError):
        write_index(context, path, (head.bytes for head in heads))
    return kept_heads(path, files) or Heads(heads)


class Plan(NamedTuple):
    """The ranges to request for some samples.

    Attributes
    ----------
    numbers : list of int
        The samples, in the order requested.
    runs : list of Run
    of_group : list of int
        The number of ranges of each group.
    """

    numbers: list[int]
    runs: list[Run]
    of_group: list[int]


class RemoteRecords:
    """The samples of files in one store; `numbers` count through all files.

    Parameters
    ----------
    heads : Heads
    files : sequence of SourceFile
    fetcher_of : callable
        Makes a fetcher from a function that returns the pieces by number.
    compare : bool
        Whether samples are compared with the CRC-32 of the header.
    """

    def __init__(
        self,
        heads: Heads,
        files: Sequence[SourceFile],
        fetcher_of: Callable[[Callable[[int], list[Piece]]], PieceReader],
        *,
        compare: bool,
    ) -> None:
        self._heads, self._files, self._compare = heads, files, compare
        # Not a method: the fetcher must not keep this object alive, so that both end with their last user.
        self._fetcher = fetcher_of(lambda run: _piece(heads, files, run))

    def plan(self, groups: Iterable[Sequence[int]]) -> Plan:
        """Plan the ranges for groups of samples; neighbours share a range if they are in one group.

        A range that was fetched ahead is only found again by a plan that has the same one.
        """
        plan = Plan([], [], [])
        for group in groups:
            runs = runs_of(self._heads, group if is_ascending(group) else sorted(set(group)))
            plan.numbers.extend(group)
            plan.runs.extend(runs)
            plan.of_group.append(len(runs))
        return plan

    def read(self, plan: Plan, coming: Iterable[Plan] = (), *, keep: int = 0) -> list[Content]:
        """Return samples in the order requested; repeated ones are the same object.

        Parameters
        ----------
        coming : iterable of Plan
            The plans of the next calls; their ranges are fetched meanwhile.
        keep : int
            How many of the last groups to keep for the next call.
        """
        ahead = [run.number for one in coming for run in one.runs]
        kept = sum(plan.of_group[-keep:]) if keep else 0
        contents = self._fetcher.fetch([run.number for run in plan.runs], ahead, keep=kept)
        records: list[Content] = []
        for run, pieces in zip(plan.runs, contents, strict=True):
            records += self._cut(run, pieces[0] if pieces else b"")
        order = list(itertools.chain.from_iterable(run.wanted for run in plan.runs))
        if order == plan.numbers:
            return records
        of_number = dict(zip(order, records, strict=True))
        return [of_number[number] for number in plan.numbers]

    def _cut(self, run: Run, data: Content) -> list[Content]:
        """Return the wanted samples of a range, read again as far as they are wrong."""
        file, own = self._heads.find(run.first)
        head = self._heads[file]
        bounds = head.bounds(own, run.samples)
        if len(run.wanted) == run.samples:
            contents: list[Content] = list(cut(bounds, data))
            if not self._compare or first_wrong(head, own, contents) is None:
                return contents
            numbers: Iterable[tuple[int, Content]] = enumerate(contents)
        else:
            view, begin = memoryview(data), bounds[0]
            places = [number - run.first for number in run.wanted]
            numbers = ((at, bytes(view[bounds[at] - begin : bounds[at + 1] - begin])) for at in places)
        return [self._right(run.first + at, one) for at, one in numbers]

    def _right(self, number: int, data: Content) -> Content:
        """Return the bytes of a sample, read again if they are wrong."""
        if not self._compare:
            return data
        file, own = self._heads.find(number)
        for _ in range(_TRIES):
            try:
                refuse_wrong(self._heads[file], own, data, record=number)
            except ChecksumMismatch as error:
                wrong = error
                data = b"".join(self._fetcher.fetch([Run(number, 1, ()).number])[0])
            else:
                return data
        raise wrong

    @property
    def counts(self) -> Counts:
        """The counts of what this process has read so far."""
        return self._fetcher.counts

    @property
    def timeline(self) -> Timeline:
        """The times at which this process waited."""
        return self._fetcher.timeline

    def note_epoch(self, epoch: Epoch) -> None:
        """See `PieceReader.note_epoch`."""
        self._fetcher.note_epoch(epoch)

    def drop_ahead(self) -> None:
        """Drop the samples that were fetched ahead."""
        self._fetcher.drop_ahead()

    def close(self) -> None:
        """Stop all work in progress."""
        self._fetcher.close()


def _piece(heads: Heads, files: Sequence[SourceFile], run: int) -> list[Piece]:
    first, count = Run.of_number(run)
    file, start, end = heads.place(first)
    if count > 1:
        end = heads.place(first + count - 1)[2]
    return [Piece(files[file].info, start, end)] if start < end else []  # an empty range cannot be requested
