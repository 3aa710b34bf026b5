"""Writes the files of indexes into the state folder, within the room that limits leave there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from nbdata.operation import Context
from nbdata.own_files import write_record
from nbdata.space.ledger import Ledger
from nbdata.space.limits import disk_of, existing_ancestor, limited_folders, round_up

__all__ = ["reserved_for", "write_index"]

# The most bytes of a file for which no room is reserved: less than a reservation and its notes cost.
_SMALL = 1 << 20


@contextlib.contextmanager
def reserved_for(context: Context, path: str, size: int, *, files: int = 1) -> Iterator[None]:
    """Reserve room for some files of `size` bytes each beside a path, until the end of the block.

    Raises
    ------
    NotEnoughSpace
        If limits or the disk leave less.
    """
    folder = existing_ancestor(os.path.dirname(path))
    needed = files * round_up(size, disk_of(folder)[2])
    with contextlib.ExitStack() as stack:
        if size > _SMALL:
            limited = limited_folders(context.state_dir, context.env)
            stack.enter_context(Ledger().reserve(folder, needed, files, limited, less="--include"))
        yield


def write_index(context: Context, path: str, pieces: Iterable[bytes | memoryview]) -> None:
    """Write an index, whole and durable or not at all; see `reserved_for`."""
    held = list(pieces)
    with reserved_for(context, path, sum(map(len, held))):
        write_record(path, held)
