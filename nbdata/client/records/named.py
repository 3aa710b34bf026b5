"""Reads files by name from FFRecord files, with the index that ``nbdata convert mmdet3d`` writes beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from nbdata.client.records.reader import FileReader
from nbdata.disk import read_regular
from nbdata.errors import BadArchive, NotFound
from nbdata.formats.plain_pickle import load_plain
from nbdata.paths import canonical
from nbdata.sizes import counted

__all__ = ["NamedRecords"]

_INDEX = "filename2idx"
# The most bytes of it, and how many more for each file: more than any name and its number take in JSON.
_MOST, _FOR_A_FILE = 1 << 20, 2048


class NamedRecords:
    """Files by the last component of their path. May be pickled, and used after a fork.

    Parameters
    ----------
    fname : str or os.PathLike
        The folder of a split, such as ``converted/nuscenes/train``.
    check_data : bool
        Compare each file with its CRC-32.

    Raises
    ------
    NotFound
        If there are no such records, or no index beside them.
    BadArchive
        If the index does not fit the records.
    """

    def __init__(self, fname: str | os.PathLike[str], check_data: bool = True) -> None:
        folder = canonical(fname, name="fname").rstrip("/")
        self.reader = FileReader(folder, check_data)
        self._index = _index(folder, self.reader.n)
        self._folder = folder

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, path: str | os.PathLike[str]) -> bool:
        return os.path.basename(os.fspath(path)) in self._index

    def read(self, paths: Sequence[str | os.PathLike[str]]) -> list[bytes]:
        """Return the bytes of several files, read at once.

        Raises
        ------
        NotFound
            If no file has that name.
        """
        return [data.tobytes() for data in self.reader.read([self._number(path) for path in paths])]

    def _number(self, path: str | os.PathLike[str]) -> int:
        name = os.path.basename(os.fspath(path))
        try:
            return self._index[name]
        except KeyError:
            raise NotFound(
                f"there is no file {name!r} in these records",
                path=self._folder,
                remedy="Check fname= and the split; point clouds of sweeps need convert --sweeps",
            ) from None


def _index(folder: str, count: int) -> dict[str, int]:
    """Read the number of each file: from JSON, or from the pickle, the only form that the original converter writes."""
    path, most = os.path.join(folder, f"{_INDEX}.json"), _MOST + _FOR_A_FILE * count
    try:
        if os.path.exists(path):
            index: Any = json.loads(read_regular(path, most=most))
        else:
            path = os.path.join(folder, f"{_INDEX}.pkl")
            index = load_plain(read_regular(path, most=most), path, remedy="Convert the data again")
    except FileNotFoundError:
        raise NotFound(
            f"there is no {_INDEX}.json and no {_INDEX}.pkl",
            path=folder,
            remedy="nbdata convert mmdet3d makes them",
        ) from None
    except (ValueError, RecursionError):
        index = None
    if not isinstance(index, dict) or not all(
        isinstance(name, str) and isinstance(number, int) and 0 <= number < count
        for name, number in index.items()
    ):
        raise BadArchive(
            f"this is no index of the {counted(count, 'files')} in these records",
            path=path,
            remedy="Convert the data again",
        )
    return index
