"""Writes the items of a sequence into FFRecord files, with several processes."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from nbdata.client.records.writer import FileWriter
from nbdata.errors import BadOption
from nbdata.formats.ffrecord import SUFFIX
from nbdata.paths import canonical, is_url
from nbdata.redaction import redacted
from nbdata.sizes import counted

__all__ = ["dump"]

_MOST_PROCESSES = 16


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

    Examples
    --------
    >>> dump([b"one", b"two", b"three"], "train.ffr", nfiles=2)  # doctest: +SKIP
    """
    count = len(dataset)
    if nfiles < 1:
        raise BadOption(f"nfiles={nfiles}: there is no such number of files", expected="1 or more")
    if nfiles == 1:
        _write(dataset, os.fspath(fname), 0, count)
        _say(os.fspath(fname), count, verbose)
        return
    folder = canonical(fname, name="fname")
    if is_url(folder):
        raise BadOption(
            "dump writes to the local disk", path=redacted(folder),
            remedy="Write there, then push the folder; pack --format ffrecord writes to a store",
        )  # fmt: skip
    os.makedirs(folder, exist_ok=True)
    if found := [name for name in os.listdir(folder) if name.endswith(SUFFIX)]:
        raise BadOption(
            f"the folder already has FFRecord files ({min(found)}), which would be read with the new ones",
            path=folder, remedy="Delete them, or write to another folder",
        )  # fmt: skip
    size = max(1, -(-count // nfiles))
    starts = range(0, max(1, count), size)
    if len(starts) != nfiles:
        warnings.warn(f"{count} samples make {len(starts)} files, not {nfiles}", stacklevel=2)
    paths = [os.path.join(folder, f"PART_{number:05d}{SUFFIX}") for number in range(len(starts))]
    processes = min(_MOST_PROCESSES, len(paths))
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), _take, (dataset,))
    try:
        running = [
            pool.submit(_write_part, path, start, min(start + size, count))
            for path, start in zip(paths, starts, strict=True)
        ]
        for path, start, one in zip(paths, starts, running, strict=True):
            one.result()
            _say(path, min(size, count - start), verbose)
    except BaseException:
        pool.shutdown(cancel_futures=True)
        for path in filter(os.path.lexists, paths):
            os.unlink(path)
        raise
    pool.shutdown()


# The data set, in a process of `dump`.
_dataset: Any = None


def _take(dataset: Any) -> None:
    global _dataset
    _dataset = dataset


def _write_part(path: str, start: int, end: int) -> None:
    _write(_dataset, path, start, end)


def _write(dataset: Any, path: str, start: int, end: int) -> None:
    with FileWriter(path, end - start) as writer:
        for index in range(start, end):
            writer.write_one(dataset[index])


def _say(path: str, count: int, verbose: bool) -> None:
    if verbose:
        print(f"{path}: {counted(count, 'samples')}", flush=True)  # noqa: T201  # what verbose asks for
