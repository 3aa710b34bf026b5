"""FFRecord files in stores: their headers, kept in the state folder, and their samples, read as ranges.

Neighbours that are requested together come as one range. Samples are compared with the CRC-32 in the header.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from nbdata.disk import make_folders, write_file
from nbdata.errors import ChecksumMismatch, NbdataError
from nbdata.formats.ffrecord import FIXED, Head, count_in, head_size, refuse_wrong
from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.pieces import Content, Piece, PieceReader
from nbdata.reading.records.files import RecordFile, fingerprint_of
from nbdata.reading.records.heads import Heads
from nbdata.reading.timeline import Timeline
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.control import Control
from nbdata.transfer.reader import Reader
from nbdata.transfer.worker_pool import FIRST

__all__ = ["RemoteRecords", "bytes_of", "fetch_heads", "heads_path", "kept_heads"]

# Bytes of the first request for a header: enough for 5,000 samples, and maybe some samples after it.
_FIRST_READ = 64 << 10
# Most bytes of a gap that is read along between two samples, and most bytes of a range joined so.
_GAP, _RANGE = 16 << 10, 4 << 20
# A range's number holds in its lowest bits, this many, how many samples follow its first one.
_MORE = 16
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


def _head(control: Control, store: Store, file: RecordFile) -> Head:
    """Read and check the header of a file, with one or two requests."""
    data = bytes_of(control, store, file.info, 0, min(file.size, _FIRST_READ)) if file.size else bytearray()
    end = head_size(count_in(data[:FIXED], file.size, file.url))
    if len(data) < end:
        data += bytes_of(control, store, file.info, len(data), end)
    head = Head(bytes(data[:end]), file.size, file.url)
    head.check()
    return head


def heads_path(state_dir: str, files: Sequence[RecordFile]) -> str:
    """Return the path at which the headers of these versions of files are kept."""
    return os.path.join(state_dir, "samples", f"{fingerprint_of(files)}.heads")


def kept_heads(path: str, files: Sequence[RecordFile]) -> Heads | None:
    """Return the headers kept at a path, mapped into memory; None if there are none, or they are of other files."""
    try:
        with open(path, "rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
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
    control: Control, files: Sequence[RecordFile], store_of: Callable[[RecordFile], Store], path: str
) -> Heads:
    """Fetch and check the headers of files in stores, and keep them at a path.

    Raises
    ------
    BadArchive, ChecksumMismatch
        If a header is damaged.
    """
    with ThreadPoolExecutor(FIRST, thread_name_prefix="headers") as asking:
        heads = list(asking.map(lambda file: _head(control, store_of(file), file), files))
    with contextlib.suppress(OSError):
        make_folders(os.path.dirname(path), 0o700)
        write_file(path, (head.bytes for head in heads), umask=0o077)
    return kept_heads(path, files) or Heads(heads)


class RemoteRecords:
    """The samples of files in one store; `numbers` count through all files.

    Parameters
    ----------
    heads : Heads
    files : sequence of RecordFile
    fetcher_of : callable
        Makes a fetcher from a function that returns the pieces by number.
    compare : bool
        Whether samples are compared with the CRC-32 of the header.
    """

    def __init__(
        self,
        heads: Heads,
        files: Sequence[RecordFile],
        fetcher_of: Callable[[Callable[[int], list[Piece]]], PieceReader],
        *,
        compare: bool,
    ) -> None:
        self._heads, self._files, self._compare = heads, files, compare
        # Not a method: the fetcher must not keep this object alive, so that both end with their last user.
        self._fetcher = fetcher_of(lambda run: _piece(heads, files, run))

    def read(
        self,
        numbers: Sequence[int],
        coming: Iterable[Sequence[int]] = (),
        *,
        keep: int = 0,
        join: bool = True,
    ) -> list[Content]:
        """Return samples in the order requested; repeated ones are the same object.

        Parameters
        ----------
        coming : iterable of sequence of int
            The numbers of the next calls; they are fetched meanwhile.
        keep : int
            How many of the last samples to keep for the next call.
        join : bool
            Whether neighbours share a range. If so, samples fetched ahead are only found again if the next call
            asks for a batch of `coming` as a whole. If not, any of their samples is found.
        """
        ranges = self._runs if join else _alone
        runs = ranges(numbers)
        ahead = [run for batch in coming for run in ranges(batch)]
        contents = self._fetcher.fetch(runs, ahead, keep=keep)
        found: dict[int, Content] = {}
        asked = set(numbers)
        for run, pieces in zip(runs, contents, strict=True):
            content = pieces[0] if pieces else b""
            first, more = run >> _MORE, run & ((1 << _MORE) - 1)
            if not more:
                found[first] = self._right(first, bytes(content))
                continue
            view, begin = memoryview(content), self._heads.place(first)[1]
            for number in range(first, first + more + 1):
                if number in asked:
                    _, start, end = self._heads.place(number)
                    found[number] = self._right(number, bytes(view[start - begin : end - begin]))
        return [found[number] for number in numbers]

    def _right(self, number: int, data: Content) -> Content:
        """Return the bytes of a sample, read again if they are wrong."""
        if not self._compare:
            return data
        file, own = self._heads.find(number)
        for _ in range(_TRIES):
            try:
                refuse_wrong(self._heads[file], own, data)
            except ChecksumMismatch as error:
                wrong = error
                data = b"".join(self._fetcher.fetch([number << _MORE])[0])
            else:
                return data
        raise wrong

    def _runs(self, numbers: Sequence[int]) -> list[int]:
        """Return the ranges that cover these samples; close neighbours share one."""
        runs: list[int] = []
        last_file, begin, reached, first = -1, 0, 0, -1
        for number in sorted(set(numbers)):
            file, start, end = self._heads.place(number)
            close = file == last_file and start - reached <= _GAP and end - begin <= _RANGE
            if close and number - first < 1 << _MORE:
                runs[-1] = first << _MORE | (number - first)
            else:
                runs.append(number << _MORE)
                begin, first = start, number
            last_file, reached = file, end
        return runs

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


def _alone(numbers: Sequence[int]) -> list[int]:
    return [number << _MORE for number in numbers]


def _piece(heads: Heads, files: Sequence[RecordFile], run: int) -> list[Piece]:
    first, more = run >> _MORE, run & ((1 << _MORE) - 1)
    file, start, end = heads.place(first)
    if more:
        end = heads.place(first + more)[2]
    return [Piece(files[file].info, start, end)] if start < end else []  # an empty range cannot be requested
