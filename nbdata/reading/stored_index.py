"""Fetches the index of samples that is stored beside the data: one object of bounded size."""

from __future__ import annotations

import os

from nbdata.disk import disk_error
from nbdata.errors import NbdataError, NotFound
from nbdata.own_files import through_no_link
from nbdata.transfer.fetch import fetch_whole
from nbdata.transfer.sources import Opener, head_of
from nbdata.verbs.samples import SampleSource
from nbdata.verification.checker import Checker

__all__ = ["MOST", "fetch_index"]

#: The most bytes of an index that is stored beside the data: about eleven million samples of two objects.
MOST = 1 << 30


def fetch_index(opener: Opener, place: str, path: str) -> bool:
    """Fetch an object to a new file of the state folder; return False if there is none.

    It also returns False for one that is larger than `MOST` or of unknown size. A folder of that name is no object. A
    file that is written in part stays after an error.
    """
    operation = opener.operation
    assert isinstance(operation, SampleSource)
    location = opener.open(place)
    try:
        info = head_of(opener, location)
    except NotFound:
        return False
    if info is None or not 0 <= info.size <= MOST:
        return False
    check = Checker(opener.control, location.store, info, operation.verify).check
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
    return True
