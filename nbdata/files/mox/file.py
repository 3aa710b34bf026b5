"""``mox.file``: moxing's functions for files, over those of Python that `nbdata.shift` has take URLs.

Names and meaning as in Huawei's documentation of moxing.file. Paths are of the disk, or URLs of any store. What moxing
passes over in silence (to remove a folder without ``recursive``, to copy a folder as a file) is an error here.
"""

from __future__ import annotations

import contextlib
import glob as _glob
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import nbdata.files.shifted as _shifted
from nbdata.errors import BadOption

__all__ = [
    "File",
    "append",
    "append_remote",
    "copy",
    "copy_parallel",
    "exists",
    "get_size",
    "glob",
    "is_directory",
    "list_directory",
    "make_dirs",
    "mk_dir",
    "read",
    "remove",
    "rename",
    "scan_dir",
    "set_auth",
    "shift",
    "stat",
    "walk",
    "write",
]

# The options of `set_auth`.
_options: dict[str, Any] = {}
# What `shift` has switched on.
_on: list[_shifted.Shift] = []


@contextlib.contextmanager
def _files() -> Iterator[None]:
    """Have Python's functions take URLs during a call, if they do not yet; in other threads all stays as it is."""
    if _on:
        yield
    else:
        with _shifted.shift_of_thread(_options):
            yield


def shift(before: str, after: str) -> None:
    """Have Python's own functions for files take URLs: ``shift("os", "mox")``; undone by ``shift("mox", "os")``."""
    if (before, after) not in (("os", "mox"), ("mox", "os")):
        raise BadOption(f"mox.file.shift({before!r}, {after!r})", expected='shift("os", "mox")')
    while _on:
        _on.pop().off()
    if after == "mox":
        _on.append(_shifted.shift(storage_options=_options))


def set_auth(
    ak: str | None = None,
    sk: str | None = None,
    server: str | None = None,
    port: int | None = None,
    is_secure: bool = True,
    **others: Any,
) -> None:
    """Set the key, the secret and the server that are used from now on.

    Other options of moxing's (retries, time limits, path_style …) have no effect: nbdata finds its own.
    """
    given = {"key": ak, "secret": sk}
    if server is not None:
        host = server if "://" in server else f"{'https' if is_secure else 'http'}://{server}"
        given["endpoint_url"] = host if port is None else f"{host.rstrip('/')}:{port}"
    _options.update({name: value for name, value in given.items() if value is not None})
    if _on:
        shift("os", "mox")


def File(name: str, mode: str = "r", **options: Any) -> Any:  # noqa: N802  moxing's name
    """Open a file; in a store it appears when it is closed."""
    with _files():
        return open(name, mode, **options)


def read(url: str, client_id: object = None, binary: bool = False) -> Any:
    """Return the content of a file: text in UTF-8, or bytes."""
    with _files(), _opened(url, "r", binary) as file:
        return file.read()


def write(url: str, data: str | bytes, binary: bool = False) -> None:
    """Write a file, over what is there."""
    with _files(), _opened(url, "w", binary or isinstance(data, bytes)) as file:
        file.write(data)


def append(url: str, data: str | bytes, binary: bool = False) -> None:
    """Append to a file; in a store, what is there is sent again."""
    with _files(), _opened(url, "a", binary or isinstance(data, bytes)) as file:
        file.write(data)


def append_remote(src_url: str, dst_url: str, client_id: object = None) -> None:
    """Append a file to another one."""
    with _files(), open(src_url, "rb") as source, open(dst_url, "ab") as target:
        shutil.copyfileobj(source, target, 8 << 20)


def _opened(url: str, mode: str, binary: bool) -> Any:
    return open(url, f"{mode}b") if binary else open(url, mode, encoding="utf-8")


def exists(url: str) -> bool:
    """Return whether there is such a file or folder."""
    with _files():
        return os.path.exists(url)


def is_directory(url: str) -> bool:
    """Return whether there is such a folder."""
    with _files():
        return os.path.isdir(url)


def get_size(url: str, recursive: bool = False) -> int:
    """Return the bytes of a file; of a folder 0, or with `recursive` the sum of all below it."""
    with _files():
        if not os.path.isdir(url):
            return os.path.getsize(url)
        return sum(_sizes(url)) if recursive else 0


def _sizes(folder: str) -> Iterator[int]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _sizes(entry.path)
            else:
                yield entry.stat().st_size


def list_directory(
    url: str,
    recursive: bool = False,
    remove_sep: bool = True,
    skip_file: bool = False,
    skip_dir: bool = False,
) -> list[str]:
    """Return the names in a folder, relative to it; with `recursive` also those below its folders.

    `remove_sep` leaves out the slash at the end of the names of folders.
    """
    with _files():
        names = list[str]()
        for top, folders, files in os.walk(url):
            above = top[len(url.rstrip("/")) :].strip("/")
            begin = f"{above}/" if above else ""
            if not skip_dir:
                names += [begin + name + ("" if remove_sep else "/") for name in folders]
            if not skip_file:
                names += [begin + name for name in files]
            if not recursive:
                break
        else:
            if not names and not os.path.isdir(url):
                os.listdir(url)  # raises what is wrong
        return sorted(names)


def glob(pattern: str) -> list[str]:
    """Return the paths that match a pattern; ``**`` crosses folders."""
    with _files():
        return _glob.glob(pattern, recursive=True)


def make_dirs(url: str) -> None:
    """Make a folder and those above it; one that is there is no error."""
    with _files():
        os.makedirs(url, exist_ok=True)


def mk_dir(url: str) -> None:
    """Make a folder in one that is there."""
    with _files():
        os.mkdir(url)


def remove(url: str, recursive: bool = False) -> None:
    """Delete a file, or with `recursive` a folder with all that is below it."""
    with _files():
        if recursive and os.path.isdir(url):
            shutil.rmtree(url)
        else:
            os.remove(url)


def rename(src_url: str, dst_url: str) -> None:
    """Give a file or folder another name, also between a store and the disk."""
    with _files():
        shutil.move(src_url, dst_url)


def scan_dir(url: str) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder, as `os.scandir` does."""
    with _files(), os.scandir(url) as entries:
        found = list(entries)
    yield from found


class Stat:
    """What `stat` returns: ``length`` in bytes, ``mtime_nsec``, ``is_directory``."""

    def __init__(self, status: os.stat_result, is_directory: bool) -> None:
        self.length, self.mtime_nsec, self.is_directory = status.st_size, status.st_mtime_ns, is_directory


def stat(url: str) -> Stat:
    """Return size, time and kind of a file or folder."""
    with _files():
        return Stat(os.stat(url), os.path.isdir(url))


def walk(url: str, topdown: bool = True, onerror: Any = None) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder below one, as `os.walk` does."""
    with _files():
        yield from os.walk(url, topdown, onerror)


def copy(src_url: str, dst_url: str, client_id: object = None) -> None:
    """Copy a file, over what is there."""
    with _files():
        shutil.copyfile(src_url, dst_url)


def copy_parallel(
    src_url: str,
    dst_url: str,
    file_list: Sequence[str] | None = None,
    threads: int = 16,
    is_processing: bool = True,
    use_queue: bool = True,
) -> None:
    """Copy a folder into another one, which is made if it is not there; also a single file.

    Parameters
    ----------
    file_list : list of str, optional
        Only these paths below the folder. None: all.
    threads, is_processing, use_queue
        Without effect: the number of requests adapts to the store.
    """
    with _files():
        if not os.path.isdir(src_url):
            shutil.copy(src_url, dst_url)
            return
        wanted = None if file_list is None else {name.strip("/") for name in file_list}
        shutil.copytree(
            src_url,
            dst_url,
            ignore=None if wanted is None else _all_but(src_url, wanted),
            dirs_exist_ok=True,
        )


def _all_but(folder: str, wanted: set[str]) -> Any:
    """Return what tells copytree to leave out all that is not wanted."""
    kept = {name[:at] for name in wanted for at in (*_slashes(name), len(name))}

    def ignore(at: str, names: list[str]) -> list[str]:
        above = os.fspath(at)[len(folder.rstrip("/")) :].strip("/")
        begin = f"{above}/" if above else ""
        return [name for name in names if begin + name not in kept]

    return ignore


def _slashes(name: str) -> list[int]:
    return [at for at, letter in enumerate(name) if letter == "/"]
