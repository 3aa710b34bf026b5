"""Reads data sets of the general converter: samples by number, their metadata, and the copied files."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nbdata.client.records.reader import FileReader
from nbdata.disk import read_regular
from nbdata.errors import BadArchive, BadOption, NotFound
from nbdata.formats.plain_pickle import load_plain
from nbdata.paths import canonical, is_url
from nbdata.redaction import redacted
from nbdata.sizes import counted

__all__ = ["GeneralDataset"]

_RECORD = "nbdata.json"
# The most bytes of it.
_MOST_RECORD = 1 << 20


class GeneralDataset:
    """One split of a data set made by ``nbdata convert DATASET.py INPUT NAME`` or by the original converter.

    ``dataset[[3, 14, 15]]`` is a list of samples, read at once; ``dataset[3]`` is one. The data set may be pickled, and
    the workers of a loader may read it.

    Parameters
    ----------
    cvt_name : str or os.PathLike
        The folder NAME; the original takes a name in a folder of its site.
    split : str
        Such as ``train``; empty for a data set without splits.
    transform : callable, optional
        Called as ``transform(index, sample, meta)``; returns the sample.
    check_data : bool, default True
        Compare each sample with its CRC-32.
    miniset : bool, default False
        Read the result of ``--mini``: ``mini/NAME`` in place of ``NAME``.
    deserialize_sample : callable, optional
        Makes a sample from its bytes, an array of uint8. None: the inverse of how the converter stored them.
        Samples of your own ``serialize_sample`` then stay bytes.
    allow_pickle : bool, default False
        Unpickle any samples and any ``meta.pkl``. This runs code that they name: use it only for files of people
        whom you trust. Without it, only pickles of plain data are read: containers, numbers, text, bytes and
        arrays.

    Attributes
    ----------
    reader : FileReader
    meta : object
        The result of ``get_meta``; None if there is none.

    Raises
    ------
    NotFound
        If there is no such split.
    BadOption
        If the metadata is more than plain data, and `allow_pickle` is False.

    Examples
    --------
    >>> train = GeneralDataset("/data/converted/imagenet", "train")  # doctest: +SKIP
    >>> images, label = train[[0, 1, 2]], train.meta["targets"][0]  # doctest: +SKIP
    """

    def __init__(
        self,
        cvt_name: str | os.PathLike[str],
        split: str,
        transform: Callable[[int, Any, Any], Any] | None = None,
        check_data: bool = True,
        miniset: bool = False,
        deserialize_sample: Callable[[Any], Any] | None = None,
        *,
        allow_pickle: bool = False,
    ) -> None:
        name = canonical(cvt_name, name="cvt_name").rstrip("/")
        if is_url(name):
            raise BadOption(
                "GeneralDataset reads the local disk", path=redacted(name), remedy="Pull it first"
            )
        if miniset:
            name = os.path.join(os.path.dirname(name), "mini", os.path.basename(name))
        self.split, self.transform, self.allow_pickle = split, transform, allow_pickle
        self._folder = name
        folder = os.path.join(name, split) if split else name
        records = os.path.join(folder, "ffrdata")
        if not os.path.isdir(records):
            raise NotFound(
                f"there is no converted split {split!r}",
                path=records,
                remedy="nbdata convert makes it; one that is being converted has its name when it is whole",
            )
        self.reader = FileReader(records, check_data)
        self._stored = _stored(folder)
        self._deserialize = deserialize_sample
        self.meta = _meta(folder, allow_pickle=allow_pickle)

    def __len__(self) -> int:
        return self.reader.n

    def __getitem__(self, indices: int | Sequence[int]) -> Any:
        if hasattr(indices, "__index__"):
            return self.__getitems__([indices])[0]  # type: ignore[list-item]
        return self.__getitems__(indices)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return a batch; PyTorch's loader calls this."""
        indices = [index.__index__() for index in indices]
        samples = [
            self._sample(number, data)
            for number, data in zip(indices, self.reader.read(indices), strict=True)
        ]
        if self.transform is None:
            return samples
        return [self.transform(index, one, self.meta) for index, one in zip(indices, samples, strict=True)]

    def _sample(self, number: int, data: Any) -> Any:
        if self._deserialize is not None:
            return self._deserialize(data)
        if self._stored in ("bytes", "own"):
            return data.tobytes()
        if self._stored == "npy":
            import numpy as np

            try:
                return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
            except ValueError as error:
                raise BadArchive(
                    f"sample {number:,} of split {self.split!r} is no array of numbers ({error})",
                    path=self._folder,
                    remedy="Convert the data set again",
                ) from None
        if self.allow_pickle:
            return pickle.loads(data)  # noqa: S301  the caller allowed it
        return load_plain(data, f"sample {number:,} of split {self.split!r}")

    def list_files(self) -> list[Path]:
        """Return the files that the converter copied."""
        return sorted(
            Path(at) / name for at, _, names in os.walk(os.path.join(self._folder, "files")) for name in names
        )

    def __repr__(self) -> str:
        return f"<GeneralDataset {self.split!r}: {counted(len(self), 'samples')}, stored as {self._stored}>"


def _stored(folder: str) -> str:
    """Return the format of the samples: pickle if the original converter recorded none."""
    try:
        stored = json.loads(read_regular(os.path.join(folder, _RECORD), most=_MOST_RECORD))["stored"]
    except FileNotFoundError:
        return "pickle"
    except (ValueError, KeyError, TypeError, RecursionError):
        stored = None
    if stored not in ("pickle", "npy", "bytes", "own"):
        raise BadOption(
            "this file does not say how the samples are stored",
            path=os.path.join(folder, _RECORD),
            expected='"stored": "pickle", "npy", "bytes" or "own"',
            remedy="Convert the data set again",
        )
    return str(stored)


def _meta(folder: str, *, allow_pickle: bool) -> Any:
    pickled, text = os.path.join(folder, "meta.pkl"), os.path.join(folder, "meta.json")
    if os.path.exists(pickled):
        data = read_regular(pickled)
        if allow_pickle:
            return pickle.loads(data)  # noqa: S301  the caller allowed it
        try:
            return load_plain(data, pickled)
        except BadOption:
            if not os.path.exists(text):
                raise
    if os.path.exists(text):
        return json.loads(read_regular(text))
    return None
