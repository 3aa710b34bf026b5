"""Checks the contents of a module DATASET.py: its splits, the serializing of samples, and the files to copy.

The contract is the one of the converters of FFRecord (https://github.com/HFAiLab/ffrecord_converters,
general_converter/). Only the process of a conversion calls this, because importing the module runs the caller's code.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pickle
import posixpath
import stat
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from nbdata.disk import special_kind
from nbdata.errors import BadOption, NbdataError, NotFound, UnsafeMember
from nbdata.paths import is_inside, is_own_name, leads_out

__all__ = ["FILES", "Beside", "Copy", "Source", "Split", "load", "told"]

#: The folder of copied files; no split can have this name.
FILES = "files"
# How many entries that are not copied a note names.
_SHOWN = 5
# The name under which the module is imported.
_MODULE = "my_dataset"


@dataclass(frozen=True)
class Beside:
    """The files beside the records of a split: the content of each by its name, and notes for the report."""

    files: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class Split:
    """One split of a data set.

    Attributes
    ----------
    name : str
    dataset : object
        A sequence of samples, read by number.
    count : int
        How many samples are converted, out of `of`.
    serialize : callable
        Makes bytes of a sample.
    stored : str
        The format of those bytes: ``pickle``, ``npy``, ``bytes``, or ``own`` if only the module knows it.
    said : str
        Further facts that decide which bytes end where.
    folder : str
        The subfolder of the split's folder for its files; empty for the split's folder itself.
    beside : callable
        Makes the files beside the records, for the folder of the split.
    """

    name: str
    dataset: Any
    count: int
    of: int
    serialize: Callable[[Any], Any]
    stored: str
    said: str = ""
    folder: str = "ffrdata"
    beside: Callable[[], Beside] = Beside

    def sample(self, number: int) -> bytes:
        """Return the bytes of a sample.

        Raises
        ------
        NbdataError
            If the data set fails, or returns something that is not a sample.
        """
        with told(f"sample {number:,} of split {self.name!r}"):
            data = self.serialize(self.dataset[number])
        if not isinstance(data, bytes):
            raise BadOption(
                f"serialize_sample of split {self.name!r} returned no bytes for sample {number:,}",
                expected="bytes",
                got=type(data).__name__,
                remedy="Return bytes(…), or array.tobytes()",
            )
        return data


class Copy(NamedTuple):
    """A file to copy: its path, its path in the folder of copied files, and its size."""

    path: str
    new: str
    size: int


@dataclass
class Source:
    """The contents of a data set: splits to convert and files to copy.

    Attributes
    ----------
    splits : list of Split
    copies : list of Copy
    notes : list of str
    """

    splits: list[Split]
    copies: list[Copy] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def load(path: str, folder: str, mini: int | None, store: str) -> Source:
    """Import a module, which runs it, and ask it for its data sets.

    Parameters
    ----------
    path : str
        The path of DATASET.py.
    folder : str
        The argument for its ``get_datasets``.
    mini : int or None
        How many samples of each split to convert; None: all.
    store : str
        The format of samples without a ``serialize_sample``.
    """
    if not os.path.isfile(path):
        raise NotFound("there is no module", path=path, remedy="Give the path of your DATASET.py")
    if not os.path.isdir(folder):
        raise NotFound("there is no folder INPUT", path=folder, remedy="Check the spelling")
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    module = _imported(path)
    get_datasets = getattr(module, "get_datasets", None)
    if not callable(get_datasets):
        raise BadOption(
            f"{os.path.basename(path)} has no function get_datasets",
            expected="get_datasets(folder), which returns [(dataset, split), …]",
        )
    with told("get_datasets"):
        pairs = get_datasets(Path(folder))
    splits = [_split(pair, mini, store, digest) for pair in _pairs(pairs)]
    names = [split.name for split in splits]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadOption(
            f"get_datasets returned two splits {twice[0]!r}", remedy="Give each split a name of its own"
        )
    source = Source(splits)
    _copies(module, folder, source)
    return source


def _imported(path: str) -> ModuleType:
    """Import the module; it can import modules beside it, as a script can.

    What runs is the text of the file. Bytecode in a ``__pycache__`` beside it may be of another text: of one that was
    as long and is less than a second older, or of whoever made the folder.
    """
    sys.path.insert(0, os.path.dirname(path))
    loader = _FromText(_MODULE, path)
    spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # else its classes could not be pickled
    with told("the import"):
        loader.exec_module(module)
    return module


class _FromText(importlib.machinery.SourceFileLoader):
    """Loads a module from its text alone, and leaves no bytecode beside it."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError("no bytecode is wanted")


@contextmanager
def told(what: str) -> Iterator[None]:
    """Add to an error of the caller's code where it was raised."""
    try:
        yield
    except (NbdataError, KeyboardInterrupt):
        raise
    except BaseException as error:  # including a call of sys.exit
        frames = traceback.extract_tb(error.__traceback__)[1:]
        own = [
            frame for frame in frames if frame.filename == getattr(sys.modules.get(_MODULE), "__file__", "")
        ]
        shown = (own or frames)[-1:]
        where = f" ({os.path.basename(shown[0].filename)}, line {shown[0].lineno})" if shown else ""
        raise NbdataError(
            f"DATASET.py failed at {what}: {type(error).__name__}: {error}{where}",
            remedy="Fix it, and run the command again; finished files are kept if DATASET.py stays the same",
            details={"traceback": "".join(traceback.format_exception(error))},
        ) from None


def _pairs(pairs: object) -> list[tuple[object, str]]:
    expected = "[(dataset, split), …]"
    if not isinstance(pairs, (list, tuple)) or not pairs:
        raise BadOption("get_datasets returned no list", expected=expected, got=type(pairs).__name__)
    named: list[tuple[object, str]] = []
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[1], str):
            raise BadOption("get_datasets returned something else than pairs", expected=expected)
        named.append((pair[0], pair[1]))
    return named


def _split(pair: tuple[object, str], mini: int | None, store: str, digest: str) -> Split:
    dataset, name = pair
    if not name or name in (".", "..", FILES) or name[0] == "." or "/" in name or "\0" in name:
        raise BadOption(
            f"get_datasets: {name!r} cannot be the name of a split",
            expected=f"the name of a folder that is not {FILES!r}, such as 'train'",
        )
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise BadOption(
            f"the data set of split {name!r} has no length, or no samples by number",
            expected="a class with __len__ and __getitem__",
            got=type(dataset).__name__,
        )
    with told(f"len() of split {name!r}"):
        count = len(dataset)
    serialize: Any = getattr(dataset, "serialize_sample", None)
    stored = "own"
    if not callable(serialize):
        stored = "pickle" if store == "auto" else store
        serialize = {"pickle": pickle.dumps, "npy": _npy, "bytes": _bytes}[stored]
    return Split(
        name,
        dataset,
        count if mini is None else min(mini, count),
        count,
        serialize,
        stored,
        digest,
        beside=lambda: _meta(dataset, name),
    )


def _bytes(sample: object) -> bytes:
    if not isinstance(sample, (bytes, bytearray, memoryview)):
        raise BadOption(
            "--store bytes is for data sets whose samples are bytes",
            got=type(sample).__name__,
            remedy="Return the bytes of the file, or use --store npy for arrays",
        )
    return bytes(sample)


def _npy(sample: object) -> bytes:
    import numpy as np

    array = (
        np.asarray(sample) if hasattr(sample, "__array_interface__") or hasattr(sample, "__array__") else None
    )
    if array is None or array.dtype.hasobject:
        raise BadOption(
            "--store npy is for data sets whose samples are arrays or images",
            got=type(sample).__name__,
            remedy="Return the array, and give labels by get_meta; or write serialize_sample",
        )
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()


def _meta(dataset: object, name: str) -> Beside:
    """Make ``meta.pkl``, and ``meta.json`` if JSON can express the same."""
    get_meta = getattr(dataset, "get_meta", None)
    if not callable(get_meta):
        return Beside()
    with told(f"get_meta of split {name!r}"):
        meta = get_meta()
        pickled = pickle.dumps(meta)
    try:
        text = json.dumps(_plain(meta), allow_nan=False, indent=1)
    except (TypeError, ValueError, RecursionError) as error:
        return Beside({"meta.pkl": pickled}, [f"split {name!r} has no meta.json beside meta.pkl: {error}"])
    return Beside({"meta.pkl": pickled, "meta.json": text.encode()})


def _plain(value: Any) -> Any:
    """Return the same value as JSON has it, with arrays as lists.

    Raises
    ------
    TypeError
        If JSON cannot express it.
    """
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("JSON has only text as keys")
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value


def _copies(module: ModuleType, folder: str, source: Source) -> None:
    """List the files that ``get_files_or_dirs`` names; note what is left out."""
    function = getattr(module, "get_files_or_dirs", None)
    if not callable(function):
        return
    with told("get_files_or_dirs"):
        given = function()
    if not isinstance(given, (list, tuple)):
        raise BadOption(
            "get_files_or_dirs returned no list",
            expected="[(path, new path or None), …], or paths alone",
            got=type(given).__name__,
        )
    for one in given:
        path, new = one if isinstance(one, (list, tuple)) and len(one) == 2 else (one, None)
        path, new = os.fspath(path), os.fspath(path if new is None else new)
        new = posixpath.normpath(new)
        if posixpath.isabs(new) or new.split("/")[0] == "..":
            raise UnsafeMember(
                f"get_files_or_dirs would copy a file out of {FILES}/",
                path=new,
                remedy="Give it a path in there: [(path, 'name'), …]",
            )
        full = os.path.join(folder, path)
        if not os.path.exists(full):
            source.notes.append(f"get_files_or_dirs names {full}, which is not there: it is not copied")
            continue
        left_out = list[str]()
        inner = os.path.join(full, "") if os.path.isdir(full) else full
        if is_inside(os.path.normpath(full), folder) and leads_out(inner, folder):
            left_out.append(f"{full} (link to a folder)")
        else:
            source.copies += _below(full, new, left_out)
        if left_out:
            more = f" and {len(left_out) - _SHOWN:,} more" if len(left_out) > _SHOWN else ""
            source.notes.append(
                f"get_files_or_dirs names what cannot be copied: {', '.join(left_out[:_SHOWN])}{more}"
            )


def _below(path: str, new: str, left_out: list[str]) -> Iterator[Copy]:
    """Yield a file, or all files in a folder but nbdata's own; append the others to `left_out`."""
    if not os.path.isdir(path):
        yield from _copy(path, new, left_out)
        return
    for at, folders, names in os.walk(path, onerror=_raise):
        left_out += (
            f"{link} (link to a folder)" for name in folders if os.path.islink(link := os.path.join(at, name))
        )
        folders[:] = sorted(name for name in folders if not is_own_name(name))
        for name in sorted(names):
            full = os.path.join(at, name)
            if not is_own_name(name):
                yield from _copy(full, posixpath.join(new, os.path.relpath(full, path)), left_out)


def _copy(path: str, new: str, left_out: list[str]) -> Iterator[Copy]:
    """Yield a file, or the one that a link leads to."""
    try:
        status = os.stat(path)
    except OSError:
        if not os.path.islink(path):
            raise
        left_out.append(f"{path} (link that leads nowhere)")
        return
    if stat.S_ISREG(status.st_mode):
        yield Copy(path, new, status.st_size)
    else:
        left_out.append(f"{path} ({special_kind(status.st_mode) or 'link to a folder'})")


def _raise(error: OSError) -> None:
    raise error
