"""Packs a folder into one FFRecord file, and reads its files by path."""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from nbdata.client.records.reader import FileReader
from nbdata.client.records.writer import FileWriter
from nbdata.disk import disk_error, open_regular, special_kind
from nbdata.errors import BadOption, NbdataError, NotFound, SourceChanged
from nbdata.formats.packed_folder import Tree, files_of, names_of, names_sample, refuse_large_names
from nbdata.paths import canonical, is_own_name
from nbdata.sizes import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PackedFolder", "pack_folder"]


def pack_folder(
    folder: str | os.PathLike[str], out_file: str | os.PathLike[str], verbose: bool = False
) -> None:
    """Make one FFRecord file of a folder: one sample per file, and one with all names.

    Modes, times and links are not kept: a link to a file is stored as that file. Empty folders are kept. ``.nbdata``
    is left out.

    Parameters
    ----------
    folder : path
    out_file : path
        Must end in ``.ffr``, and not lie in the folder.
    verbose : bool
        Print how many files were packed.

    Raises
    ------
    BadOption
        If there is an entry that is neither a file nor a folder, or a link to a folder.
    SourceChanged
        If a file grows or shrinks meanwhile.
    """
    root, out = canonical(folder, name="folder").rstrip("/") or "/", canonical(out_file, name="out_file")
    if out.startswith(root.rstrip("/") + "/"):
        raise BadOption(
            "the file would lie in the folder that it is made of", path=out, remedy="Write it elsewhere"
        )
    tree, files = _walk(root)
    with FileWriter(out, len(files) + 1) as writer:
        for path, size in files:
            writer.write_one(_read(path, size))
        writer.write_one(names_sample(tree))
    if verbose:
        print(f"{counted(len(files), 'files')} of {root} in {out}")  # noqa: T201


def _walk(root: str) -> tuple[Tree, list[tuple[str, int]]]:
    """Return the names, and the files in their order with their sizes."""
    tree: Tree = OrderedDict()
    files: list[tuple[str, int]] = []
    levels: list[tuple[str, Tree, Iterator[str]]] = [(root, tree, iter(_names(root)))]
    while levels:
        folder, inside, names = levels[-1]
        for name in names:
            path = os.path.join(folder, name)
            status = os.stat(path) if os.path.exists(path) else os.lstat(path)
            if stat.S_ISDIR(status.st_mode) and not os.path.islink(path):
                inside[name] = OrderedDict()
                levels.append((path, inside[name], iter(_names(path))))
                break
            if not stat.S_ISREG(status.st_mode):
                kind = special_kind(status.st_mode) or (
                    "link to a folder" if stat.S_ISDIR(status.st_mode) else "broken link"
                )
                raise BadOption(f"a {kind} cannot be packed", path=path, remedy="Take it out of the folder")
            inside[name] = len(files)
            files.append((path, status.st_size))
        else:
            levels.pop()
    return tree, files


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not is_own_name(name))
    except OSError as error:
        raise disk_error(error, folder) from error


def _read(path: str, size: int) -> bytes:
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read(size + 1)
    except OSError as error:
        raise error if isinstance(error, NbdataError) else disk_error(error, path) from error
    if len(data) != size:
        raise SourceChanged("a file changed while the folder was packed", path=path, remedy="Pack it again")
    return data


class PackedFolder:
    """Reads the files of a packed folder by their paths. The names are read without unpickling.

    Parameters
    ----------
    ffr_file : path
    check_data : bool, default True
        See `FileReader`.

    Raises
    ------
    BadArchive
        If the file is not a packed folder, or its names lead out of it.
    """

    def __init__(self, ffr_file: str | os.PathLike[str], check_data: bool = True) -> None:
        self._reader = FileReader(ffr_file, check_data)
        path = self._reader.fnames[0]
        if len(self._reader.fnames) > 1:
            raise BadOption("a packed folder is one file", path=os.path.dirname(path), remedy="Name the file")
        last = b""
        if self._reader.n:
            start, end = self._reader.get_offsets(0)[-2:].tolist()
            refuse_large_names(end - start, self._reader.n, path)
            last = bytes(self._reader.read_one(self._reader.n - 1))
        self._tree = names_of(last, self._reader.n - 1, path)
        self._path = path

    def num_files(self) -> int:
        """The number of files."""
        return self._reader.n - 1

    def read_one(self, path: str | os.PathLike[str]) -> NDArray[np.uint8]:
        """Return the bytes of a file."""
        return self.read([path])[0]

    def read(self, paths: Sequence[str | os.PathLike[str]]) -> list[NDArray[np.uint8]]:
        """Return the bytes of several files at once.

        Raises
        ------
        NotFound
            If one does not exist.
        """
        if isinstance(paths, (str, os.PathLike)):
            raise BadOption("read takes a list of paths", remedy="Write read_one(path) for one")
        return self._reader.read([self._number(path) for path in paths])

    def _number(self, path: str | os.PathLike[str]) -> int:
        entry = self._find(path)
        if isinstance(entry, int):
            return entry
        what = "is no such file" if entry is None else "is a folder of that name, and no file"
        raise NotFound(f"there {what} in this packed folder: {os.fspath(path)}", path=self._path)

    def _find(self, path: str | os.PathLike[str]) -> Any:
        """Return the number of a file, a folder, or None."""
        entry: Any = self._tree
        for name in PurePosixPath(path).parts:
            entry = entry.get(name) if isinstance(entry, OrderedDict) else None
        return entry

    def list(
        self,
        path: str | os.PathLike[str] | None = None,
        list_file: bool = True,
        list_dir: bool = True,
        recursive: bool = False,
    ) -> list[str | Path]:
        """List the names in a folder; with `recursive` also those in its subfolders, as paths relative to `path`."""
        folder = self._tree if path is None else self._find(path)
        if not isinstance(folder, OrderedDict):
            raise NotFound(f"there is no such folder in this packed folder: {path}", path=self._path)
        return list(self._listed(folder, Path(), list_file, list_dir, recursive))

    def _listed(
        self, folder: Tree, above: Path, files: bool, folders: bool, recursive: bool
    ) -> Iterator[str | Path]:
        for name, child in folder.items():
            is_folder = isinstance(child, OrderedDict)
            if folders if is_folder else files:
                yield above / name if above.parts else name
            if is_folder and recursive:
                yield from self._listed(child, above / name, files, folders, recursive)

    def files(self) -> Iterator[str]:
        """Yield the paths of all files, in their order."""
        return (path for path, _ in files_of(self._tree))

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """True if there is a file or folder."""
        return self._find(path) is not None

    def is_file(self, path: str | os.PathLike[str]) -> bool:
        """True if there is a file."""
        return isinstance(self._find(path), int)

    def is_dir(self, path: str | os.PathLike[str]) -> bool:
        """True if there is a folder."""
        return isinstance(self._find(path), OrderedDict)

    def close(self) -> None:
        """Release the file."""
        self._reader.close()

    def __enter__(self) -> PackedFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PackedFolder {self._path}: {counted(self.num_files(), 'files')}>"
