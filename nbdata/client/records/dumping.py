"""Writes the items of a sequence into FFRecord files, with several processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import warnings
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

from nbdata.client.records.writer import FileWriter
from nbdata.disk import disk_error
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.ffrecord import SUFFIX
from nbdata.guarded_folders import GuardedFolders
from nbdata.paths import canonical, is_url
from nbdata.redaction import redacted
from nbdata.sizes import counted

__all__ = ["dump"]

_MOST_PROCESSES = 16

# The device and the inode of a file.
_Identity = tuple[int, int]


def dump(dataset: Any, fname: str | os.PathLike[str], nfiles: int, verbose: bool = False) -> None:
    """Write the items of a data set into FFRecord files, in their order.

    Parameters
    ----------
    dataset : sequence
        Has ``len(dataset)`` and ``dataset[index]``, which returns the bytes of a sample. It need not be picklable:
        processes are forked.
    fname : str or os.PathLike
        For one file its name, which ends in ``.ffr``. For several a folder, which gets ``PART_00000.ffr`` and so on.
    nfiles : int
        The number of files, with equally many samples but for the last. Each file is written by a process.
    verbose : bool, default False
        Print the name of each file when it is whole.

    Raises
    ------
    BadOption
        If the folder already has FFRecord files, which would be read with the new ones; if `fname` is a URL; or if a
        sample is not bytes. After any error, none of the new files stays.
    NbdataError
        If somebody exchanges the folder meanwhile: nothing is written or deleted elsewhere.

    Examples
    --------
    >>> dump([b"one", b"two", b"three"], "train.ffr", nfiles=2)  # doctest: +SKIP
    """
    count = len(dataset)
    if nfiles < 1:
        raise BadOption(f"nfiles={nfiles}: there is no such number of files", expected="1 or more")
    if nfiles == 1:
        with FileWriter(fname, count) as writer:
            _write(writer, dataset, 0, count)
        _say(os.fspath(fname), count, verbose)
        return
    folder = canonical(fname, name="fname")
    if is_url(folder):
        raise BadOption(
            "dump writes to the local disk",
            path=redacted(folder),
            remedy="Write there, then push the folder; pack --format ffrecord writes to a store",
        )
    folder = folder.rstrip("/") or "/"
    folders = GuardedFolders(folder)
    try:
        at = folders.open_to_write(folder)
    except OSError as error:
        raise error if isinstance(error, NbdataError) else disk_error(error, folder) from error
    try:
        _refuse_records(folder, at)
        _dump_parts(dataset, folder, nfiles, verbose, folders, at)
    finally:
        os.close(at)


def _refuse_records(folder: str, at: int) -> None:
    if names := [name for name in os.listdir(at) if name.endswith(SUFFIX)]:
        raise BadOption(
            f"the folder already has FFRecord files ({min(names)}), which would be read with the new ones",
            path=folder,
            remedy="Delete them, or write to another folder",
        )


def _dump_parts(
    dataset: Any, folder: str, nfiles: int, verbose: bool, folders: GuardedFolders, at: int
) -> None:
    """Write several files into a folder, which is open; if one fails, those that were written are deleted."""
    count = len(dataset)
    size = max(1, -(-count // nfiles))
    starts = range(0, max(1, count), size)
    if len(starts) != nfiles:
        warnings.warn(f"{count} samples make {len(starts)} files, not {nfiles}", stacklevel=3)
    paths = [os.path.join(folder, f"PART_{number:05d}{SUFFIX}") for number in range(len(starts))]
    processes = min(_MOST_PROCESSES, len(paths))
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), _take, (dataset, folders))
    running = list[Future[_Identity]]()
    try:
        for path, start in zip(paths, starts, strict=True):
            running.append(pool.submit(_write_part, path, start, min(start + size, count)))
        for path, start, one in zip(paths, starts, running, strict=True):
            one.result()
            _say(path, min(size, count - start), verbose)
    except BaseException:
        pool.shutdown(cancel_futures=True)
        for path, one in zip(paths, running, strict=False):
            if not one.cancelled() and one.exception() is None:
                _delete(os.path.basename(path), at, one.result())
        raise
    pool.shutdown()


def _delete(name: str, folder: int, written: _Identity) -> None:
    """Delete a file in an open folder, unless it is none that this call has written."""
    with contextlib.suppress(OSError):
        status = os.lstat(name, dir_fd=folder)
        if (status.st_dev, status.st_ino) == written:
            os.unlink(name, dir_fd=folder)


# The data set and the folder, in a process of `dump`.
_dataset: Any = None
_folders: GuardedFolders


def _take(dataset: Any, folders: GuardedFolders) -> None:
    global _dataset, _folders
    _dataset, _folders = dataset, folders


class _PartWriter(FileWriter):
    """Writes one of several files, in the folder that `dump` has opened."""

    def _guarded(self, folder: str) -> GuardedFolders:
        return _folders

    def identity(self) -> _Identity:
        """Return the device and the inode of the file, until it is closed."""
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino


def _write_part(path: str, start: int, end: int) -> _Identity:
    writer = _PartWriter(path, end - start)
    with writer:
        _write(writer, _dataset, start, end)
        return writer.identity()


def _write(writer: FileWriter, dataset: Any, start: int, end: int) -> None:
    for index in range(start, end):
        writer.write_one(dataset[index])


def _say(path: str, count: int, verbose: bool) -> None:
    if verbose:
        print(f"{path}: {counted(count, 'samples')}", flush=True)  # noqa: T201  # what verbose asks for
