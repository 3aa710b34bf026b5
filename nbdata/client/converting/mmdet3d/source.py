"""Lists the files of an mmdet3d configuration: images or point clouds of its train and val data.

Formats: the info files of mmdet3d's data sets, as tools/dataset_converters/nuscenes_converter.py and
update_infos_to_v2.py write them (https://github.com/open-mmlab/mmdetection3d).
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nbdata.client.converting.contract import Beside, Source, Split
from nbdata.client.converting.mmdet3d.config import read_config, run_config, told
from nbdata.disk import disk_error, read_regular, special_kind
from nbdata.errors import BadOption, NbdataError, NotFound, UnsafeMember
from nbdata.formats.plain_pickle import load_plain
from nbdata.paths import is_inside

__all__ = ["INDEX", "load"]

#: Name of the index from file names to samples; with .json and .pkl.
INDEX = "filename2idx"
_SPLITS = ("train", "val")
# Most data sets of a split, with those that consist of others; and most info files.
_MOST = 1000
# Most characters of a file's path, as the system takes it.
_LONGEST = 4096


def load(
    config: str, root: str, key: str, *, mini: int | None, sweeps: bool = False, run: bool = False
) -> Source:
    """Read the splits of a configuration.

    Parameters
    ----------
    config : str
        The path of the configuration.
    root : str
        The folder that relative paths start from. Files are taken from there, and from the data_root of each data set,
        which lies there by its name and may be a link.
    key : str
        ``img_filename`` or ``pts_filename``.
    mini : int or None
        How many files of each split to convert; None: all.
    sweeps : bool
        Whether to include the point clouds of sweeps.
    run : bool
        Run the configuration with mmengine instead of reading it.
    """
    settings = run_config(config) if run else read_config(config)
    source, folders = Source([]), _Folders(root)
    for name in _SPLITS:
        dataset = _dataset(settings, name)
        if dataset is None:
            source.notes.append(f"the configuration has no {name} data")
            continue
        paths = _paths(_files(dataset, name, folders, key, sweeps=sweeps))
        if not paths:
            raise BadOption(
                f"the {name} data of this configuration name no files by {key}",
                path=config,
                remedy="Give another --key",
            )
        source.splits.append(_split(name, paths, folders, key, mini))
    if not source.splits:
        raise BadOption(
            "this configuration has no data",
            path=config,
            expected="data = dict(train=dict(ann_file=…)), or train_dataloader = dict(dataset=dict(ann_file=…))",
        )
    source.notes += folders.notes()
    return source


class _Folders:
    """The folders that files are taken from: info files of somebody else may name any file of this user.

    Hidden files and folders in them are left out, as a home folder is often the working folder and has keys in these.

    Attributes
    ----------
    root : str
        The folder that relative paths start from.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self._real = [os.path.realpath(root)]
        self._parents: dict[str, str] = {}  # of files: the real path of each

    def add(self, folder: str) -> None:
        """Add the data_root of a data set.

        Raises
        ------
        UnsafeMember
            If it is not in the root, or is a link to a folder around the root or to a hidden one.
        """
        real = os.path.realpath(folder)
        if any(_is_below(real, one) for one in self._real):
            return
        leads_out = not is_inside(os.path.abspath(folder), self.root) or is_inside(self._real[0], real)
        if leads_out or not _is_below(real, "/"):
            raise UnsafeMember(
                "data_root of the configuration leads out of the data set",
                path=folder,
                expected=f"a folder in {self.root}",
                got=real,
                remedy="If you trust the configuration, name the folder that holds all files with --root",
            )
        self._real.append(real)

    def real(self, path: str) -> str:
        """Return the path of a file without links.

        Raises
        ------
        UnsafeMember
            If it lies in none of the folders.
        """
        parent, name = os.path.split(path)
        if (above := self._parents.get(parent)) is None:
            above = self._parents[parent] = os.path.realpath(parent)
        real = os.path.join(above, name)
        if os.path.islink(real):
            real = os.path.realpath(real)
        if not any(_is_below(real, one) for one in self._real):
            raise UnsafeMember(
                "the info files name a file outside of the data set, or a hidden one",
                path=path,
                expected=f"a file in {' or '.join(self._real)}",
                got=real,
                remedy="If it is part of the data set, name a folder that holds all files with --root",
            )
        return real

    def notes(self) -> list[str]:
        """Return notes on the folders that only the configuration names."""
        return [f"data_root of the configuration leads to {one}" for one in self._real[1:]]


def _is_below(path: str, folder: str) -> bool:
    """True if a real path is a folder, or lies in it and neither is nor lies in a hidden one."""
    below = path[len(folder.rstrip("/")) :]
    return is_inside(path, folder) and "/." not in below


class _Contents(Sequence[bytes]):
    """The contents of files, by number."""

    def __init__(self, paths: Sequence[str], folders: _Folders) -> None:
        self._paths, self._folders = paths, folders

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: Any) -> Any:
        path = self._paths[number]
        try:
            return read_regular(self._folders.real(path), os.O_NOFOLLOW)
        except OSError as error:
            raise error if isinstance(error, NbdataError) else disk_error(error, path) from error
        except MemoryError:
            raise NbdataError(
                "this file does not fit into memory", path=path, remedy="Use fewer --workers, or leave it out"
            ) from None


def _split(name: str, paths: Sequence[str], folders: _Folders, key: str, mini: int | None) -> Split:
    count = len(paths) if mini is None else min(mini, len(paths))
    digest = hashlib.sha256(key.encode())
    for path in paths[:count]:
        real = folders.real(path)
        try:
            status = os.stat(real)
        except OSError as error:
            raise NotFound(
                f"the {name} data name a file that is not there",
                path=path,
                remedy="Relative paths begin in the working folder; --root FOLDER names another one",
            ) from error
        if not stat.S_ISREG(status.st_mode):
            raise BadOption(
                f"the {name} data name a {special_kind(status.st_mode) or 'folder'}",
                path=path,
                expected="a file",
                remedy="Take it out of the info files",
            )
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
    index = {os.path.basename(path): number for number, path in enumerate(paths[:count])}
    return Split(
        name,
        _Contents(paths, folders),
        count,
        len(paths),
        bytes,
        "bytes",
        digest.hexdigest(),
        folder="",
        beside=lambda: _index(index),
    )


def _index(index: dict[str, int]) -> Beside:
    return Beside({f"{INDEX}.json": json.dumps(index).encode(), f"{INDEX}.pkl": pickle.dumps(index)})


def _paths(files: Iterable[str]) -> list[str]:
    """List each file once.

    Raises
    ------
    BadOption
        If two files in different folders have one name: the index has only names, and would mix them up.
    """
    paths: dict[str, str] = {}
    for path in files:
        name = os.path.basename(path)
        if paths.setdefault(name, path) != path:
            raise BadOption(
                f"two files are called {name}, and mmdet3d asks for files by their name alone",
                expected="names that differ",
                got=f"{paths[name]} and {path}",
                remedy="Rename one of them",
            )
    return list(paths.values())


def _dataset(config: Mapping[str, Any], split: str) -> Any:
    """Return a configuration's entry for the data of a split; None if there is none."""
    data = config.get("data")
    if data is not None:
        return told(told(data, "data").get(split), f"data.{split}")
    loader = config.get(f"{split}_dataloader")
    if loader is None:
        return None
    return told(told(loader, f"{split}_dataloader").get("dataset"), f"{split}_dataloader.dataset")


def _files(dataset: Any, split: str, folders: _Folders, key: str, *, sweeps: bool) -> Iterator[str]:
    """Yield the paths of all files, including those of nested data sets."""
    count = 0
    for one in _datasets(dataset, split):
        given = told(one["ann_file"], f"ann_file of {split}")
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, (list, tuple)):
            raise BadOption(
                f"the {split} data of this configuration have no ann_file", expected="ann_file='….pkl'"
            )
        count += len(names)
        _refuse_many(count, split)
        yield from _named(one, names, split, folders, key, sweeps=sweeps)


def _datasets(dataset: Any, split: str) -> Iterator[Mapping[str, Any]]:
    """Yield the data sets that have info files: others consist of data sets, which consist of data sets, and so on."""
    pending, count = [dataset], 0
    while pending:
        one = told(pending.pop(), f"the {split} data")
        if isinstance(one, (list, tuple)):
            inside: Any = one
        elif not isinstance(one, dict):
            raise BadOption(f"the {split} data of this configuration are no data set", got=type(one).__name__)
        elif "ann_file" in one:
            yield one
            continue
        else:
            inside = told(one.get("datasets", one.get("dataset")), f"the {split} data")
        inside = [inside] if isinstance(inside, dict) else inside
        if not isinstance(inside, (list, tuple)) or not inside:
            raise BadOption(
                f"the {split} data of this configuration have no ann_file", expected="ann_file='….pkl'"
            )
        count += len(inside)
        _refuse_many(count, split)
        pending += reversed(inside)


def _refuse_many(count: int, split: str) -> None:
    if count > _MOST:
        raise BadOption(
            f"the {split} data of this configuration consist of too many",
            expected=f"at most {_MOST:,} data sets and info files",
            got=f"{count:,} or more",
        )


def _named(
    dataset: Mapping[str, Any], names: Sequence[Any], split: str, folders: _Folders, key: str, *, sweeps: bool
) -> Iterator[str]:
    """Yield the paths in the info files of one data set."""
    root = folders.root
    data_root = _joined(root, told(dataset.get("data_root"), f"data_root of {split}") or "")
    folders.add(data_root)
    prefix = told(dataset.get("data_prefix"), f"data_prefix of {split}") or {}
    for name in names:
        name = told(name, f"ann_file of {split}")
        path = _joined(root, name)
        if not os.path.exists(path):
            path = _joined(data_root, name)
        for info in _infos(path, split):
            try:
                yield from _of_info(info, data_root, root, prefix, key, sweeps=sweeps)
            except (KeyError, TypeError, AttributeError) as error:
                raise BadOption(
                    f"the infos of {split} do not name files by {key} in a way that is known here",
                    path=path,
                    got=f"no {error} in an info with {', '.join(map(str, info))[:200]}"
                    if isinstance(info, dict)
                    else type(info).__name__,
                    remedy="Write a DATASET.py for them",
                ) from None


def _infos(path: str, split: str) -> list[Any]:
    try:
        data = read_regular(path)
    except NbdataError:
        raise
    except OSError as error:
        raise NotFound(
            f"there is no ann_file of the {split} data",
            path=path,
            remedy="Relative paths begin in the working folder; --root FOLDER names another one",
        ) from error
    remedy = "Have mmdet3d make it again: what it writes is plain data"
    infos = json.loads(data) if path.endswith(".json") else load_plain(data, path, remedy=remedy)
    if isinstance(infos, dict):
        infos = infos.get("data_list", infos.get("infos"))
    if not isinstance(infos, list):
        raise BadOption("this ann_file has no list of infos", path=path, expected="infos or data_list")
    return infos


def _of_info(
    info: Mapping[str, Any], data_root: str, root: str, prefix: Mapping[str, Any], key: str, *, sweeps: bool
) -> Iterator[str]:
    """Yield the paths of one frame, in the first format or in the second, which has `images` and `lidar_points`."""

    def below(path: str, of: str) -> str:
        return _joined(data_root, prefix.get(of) or "", path)

    def alone(path: str) -> str:
        return _joined(root, path)

    if key == "img_filename":
        if "images" in info:
            for camera, image in info["images"].items():
                yield below(image["img_path"], camera)
        else:
            for image in info["cams"].values():
                yield alone(image["data_path"])
    elif "lidar_points" in info:
        yield below(info["lidar_points"]["lidar_path"], "pts")
        for sweep in info.get("lidar_sweeps", ()) if sweeps else ():
            yield below(sweep["lidar_points"]["lidar_path"], "sweeps")
    else:
        yield alone(info["lidar_path"])
        for sweep in info.get("sweeps", ()) if sweeps else ():
            yield alone(sweep["data_path"])


def _joined(*parts: str) -> str:
    if sum(map(len, parts)) > _LONGEST:
        raise BadOption(
            "the configuration or its info files have a path that no system takes",
            path=f"{parts[-1][:100]}…",
            expected=f"at most {_LONGEST:,} characters",
        )
    return os.path.normpath(os.path.join(*parts))
