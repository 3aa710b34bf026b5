"""Fetches the index of samples that is stored beside the data: one object of bounded size."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from nbdata.disk import disk_error
from nbdata.errors import NbdataError, NotFound
from nbdata.own_files import through_no_link
from nbdata.reading.index_files import reserved_for
from nbdata.transfer.fetch import fetch_whole
from nbdata.transfer.sources import Opener, head_of
from nbdata.verbs.samples import SampleSource
from nbdata.verification.checker import Checker

__all__ = ["MOST", "fetched_index"]

#: The most bytes of an index that is stored beside the data: about eleven million samples of two objects.
MOST = 1 << 30


@contextlib.contextmanager
def fetched_index(opener: Opener, place: str, path: str) -> Iterator[bool]:
    """Fetch an object to a new file of the state folder; give False if there is none.

    It also gives False for one that is larger than `MOST` or of unknown size. A folder of that name is no object. Room
    for it and for a copy of it stays reserved until the end of the block. A file that is written in part stays after an
    error.

    Raises
    ------
    NotEnoughSpace
        If limits or the disk leave no such room; no byte was fetched then.
    """
    operation = opener.operation
    assert isinstance(operation, SampleSource)
    location = opener.open(place)
    try:
        info = head_of(opener, location)
    except NotFound:
        info = None
    if info is None or not 0 <= info.size <= MOST:
        yield False
        return
    check = Checker(opener.control, location.store, info, operation.verify).check
    with reserved_for(opener.context, path, info.size, files=2):
        try:
            fd = through_no_link(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try:
                fetch_whole(opener.control, location.store, info, fd, lambda _: check())
            finally:
                os.close(fd)
        except OSError as error:
            if isinstance(error, NbdataError):
                raise
            raise disk_error(error, path) from error
        yield True
