"""What the functions of `shutil` do if a URL is among their paths.

`copy`, `copy2` and `move` are Python's own: they call these, and the functions of `os`.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nbdata.errors import AccessDenied, NotFound
from nbdata.files.shifted import jobs, trees
from nbdata.files.shifted.os_calls import check_name, fail, info_of, require
from nbdata.files.shifted.places import Target, os_errors, target
from nbdata.optional_calls import set_time
from nbdata.paths import join
from nbdata.transfer.names import unrepresentable
from nbdata.transfer.retry import listing

__all__ = ["copyfile", "copymode", "copystat", "copytree", "disk_usage", "rmtree"]


def copyfile(original: Any, src: Any, dst: Any, *, follow_symlinks: bool = True) -> Any:
    """Copy a file over what is there: to the disk whole and verified, or not at all."""
    source, there = target(src), target(dst)
    if source is not None and there is not None and source.url == there.url:
        raise shutil.SameFileError(f"{src!r} and {dst!r} are the same file")
    if there is not None:
        check_name(there)
        with os_errors(dst):
            try:
                if info_of(there) is None:
                    fail(errno.EISDIR, dst)
            except NotFound:
                if there.slash:  # else the next file with the same target would replace this one
                    raise NotFound("no such folder", path=f"{there.url}/") from None
                if not there.place.key:
                    raise
    if source is not None:
        with os_errors(src):
            info = info_of(source)
        if info is None:
            fail(errno.EISDIR, src)
    if source is not None and there is not None:
        with os_errors(src):
            _within_stores(source, there)
    elif source is not None:
        assert info is not None
        _to_disk(original, source, src, dst, info.size)
    else:
        assert there is not None
        _from_disk(src, there, follow_symlinks)
    return dst


def _within_stores(source: Target, there: Target) -> None:
    if source.by is there.by and there.place.store.can_copy(source.place.store):
        there.files.cp_file(source.url, there.url)
    elif jobs.is_pattern(source.url) or jobs.mixes_options(source, there):
        with source.files.open(source.url, "rb") as reading, there.files.open(there.url, "wb") as writing:
            shutil.copyfileobj(reading, writing, 8 << 20)
    else:
        jobs.copy_file(source, there)


def _to_disk(original: Any, source: Target, src: Any, dst: Any, size: int) -> None:
    path = os.path.realpath(os.fspath(dst))  # what is written through a link is the file that it leads to
    if os.path.isdir(path):
        fail(errno.EISDIR, dst)
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        fail(errno.ENOTDIR if os.path.exists(above) else errno.ENOENT, dst)
    if os.path.exists(path) and not os.path.isfile(path):  # such as /dev/null; Python refuses a named pipe
        original(src, dst)
        return
    with os_errors(dst):
        jobs.pull_file(source, path, size)


def _from_disk(src: Any, there: Target, follow_symlinks: bool) -> None:
    path = os.fspath(src)
    if not follow_symlinks and os.path.islink(path):
        raise OSError(errno.EOPNOTSUPP, "a store has no links", path)
    status = os.stat(path)  # raises what is wrong with it
    if os.path.isdir(path):
        fail(errno.EISDIR, path)
    if not os.path.isfile(path):
        raise shutil.SpecialFileError(f"`{path}` is no regular file")
    with open(path, "rb"):  # so is that it may not be read
        pass
    with os_errors(there.url):
        jobs.push_file(os.path.realpath(path), there, status.st_size)


def copystat(original: Any, src: Any, dst: Any, *, follow_symlinks: bool = True) -> None:
    """Give a file of the disk the time of an upload; to a store nothing is copied, which keeps its own times."""
    if target(dst) is not None:
        return
    found = os.stat(src)
    if found.st_mtime_ns and not os.path.isdir(src):  # a folder of a store has no time
        path = os.fspath(dst)
        set_time(os.path.realpath(path) if follow_symlinks else path, found.st_mtime_ns)


def copymode(original: Any, src: Any, dst: Any, *, follow_symlinks: bool = True) -> None:
    """Do nothing: stores keep no modes."""


def copytree(
    original: Any,
    src: Any,
    dst: Any,
    symlinks: bool = False,
    ignore: Callable[[Any, list[str]], Iterable[str]] | None = None,
    copy_function: Callable[..., Any] = shutil.copy2,
    ignore_dangling_symlinks: bool = False,
    dirs_exist_ok: bool = False,
) -> Any:
    """Copy a folder by pull, push or copy; file by file if a function to copy with is given, or if links matter."""
    source, there = target(src), target(dst)
    by_file = copy_function not in _copies() or jobs.is_pattern(_text(src, source), _text(dst, there))
    if source is None:
        by_file = by_file or symlinks or ignore_dangling_symlinks
    elif there is not None:
        by_file = by_file or jobs.mixes_options(source, there)
    if by_file:
        return original(src, dst, symlinks, ignore, copy_function, ignore_dangling_symlinks, dirs_exist_ok)
    if not os.path.isdir(src):
        os.scandir(src).close()  # raises what is wrong
        fail(errno.ENOTDIR, src)
    if os.path.isdir(dst):
        if not dirs_exist_ok:
            fail(errno.EEXIST, dst)
    elif there is not None:
        if os.path.exists(dst):
            fail(errno.EEXIST, dst)
    else:
        os.makedirs(dst)  # Python's own error if it cannot be made
    chosen = None if ignore is None and source is not None else _Chosen(src, ignore)
    failed, report = _copied(src, dst, source, there, None if ignore is None else chosen)
    empty = chosen.empty if chosen is not None else () if source is None else _markers(source)
    for path in empty:
        _make_empty(path, dst, there)
    told = {one for one, _, _ in failed}
    for path in () if chosen is None else chosen.apart:
        one = join(os.path.abspath(src), path)
        if one not in told:
            failed += _copied_apart(original, one, join(os.fspath(dst), path), ignore)
    if failed:
        error = shutil.Error(failed)
        error.report = report  # type: ignore[attr-defined]  # for who wants to know more than shutil tells
        raise error
    if there is not None and not os.path.isdir(dst):
        trees.make_marker(there)
    return dst


def _copied(
    src: Any, dst: Any, source: Target | None, there: Target | None, chosen: _Chosen | None
) -> tuple[list[tuple[str, str, str]], Any]:
    """Copy the files of a folder by a verb; return what failed, as shutil.Error has it, and the Report."""
    try:
        with os_errors(dst if source is None else src):
            if source is not None:
                _from_store(source, dst, there, chosen)
            else:
                assert there is not None
                jobs.push_folder(os.fspath(src), there, chosen)
    except shutil.Error as error:
        return list(error.args[0]), getattr(error, "report", None)
    except NotFound:  # to a verb, a folder without files is none
        if source is not None and trees.holds_files(source):
            raise
    return [], None


def _copied_apart(original: Any, src: str, dst: str, ignore: Any) -> list[tuple[str, str, str]]:
    """Copy what a link leads to, or a file with an odd name; return what failed."""
    try:
        if os.path.isdir(src):
            _refuse_circle(src)
            copytree(original, src, dst, ignore=ignore, dirs_exist_ok=True)
        else:
            os.makedirs(os.path.dirname(dst), exist_ok=True)
            shutil.copy2(src, dst)
    except shutil.Error as error:
        return list(error.args[0])
    except OSError as error:
        return [(src, dst, str(error))]
    return []


def _refuse_circle(link: str) -> None:
    """Raise the error of a link to a folder that leads back to where it is."""
    above, leads = os.path.realpath(os.path.dirname(link)), os.path.realpath(link)
    if f"{above}/".startswith(f"{leads.rstrip('/')}/"):
        fail(errno.ELOOP, link)


def _from_store(source: Target, dst: Any, there: Target | None, chosen: Iterable[str] | None) -> None:
    if there is None:
        jobs.pull_folder(source, os.fspath(dst), chosen)
    else:
        jobs.copy_folder(source, there, chosen)


def _copies() -> tuple[Any, ...]:
    """Return the functions that copytree may be given and that mean no more than a copy."""
    plain = (shutil.copy2, shutil.copy, shutil.copyfile)
    return (*plain, *(getattr(one, "__wrapped__", one) for one in plain))


def _text(path: Any, found: Target | None) -> str:
    return os.fspath(path) if found is None else found.url


class _Chosen(Iterable[str]):
    """The paths of the files that the `ignore` of copytree leaves; it is called for each folder, as by shutil.

    It looks at the folder when it is made.

    Attributes
    ----------
    empty : list of str
        The folders without anything.
    apart : list of str
        What a verb leaves out, or cannot be told by a list: links to folders, what is no file, folders that cannot be
        read, names with a line break.
    """

    def __init__(self, folder: Any, ignore: Callable[[Any, list[str]], Iterable[str]] | None) -> None:
        self._ignore, self.empty, self.apart = ignore, list[str](), list[str]()
        self._paths = list[str]()
        self._look(os.fspath(folder), "")

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def _look(self, folder: str, path: str) -> None:
        try:
            with os.scandir(folder) as listed:
                entries = list(listed)
        except OSError:
            if not path:
                raise
            self.apart.append(path.rstrip("/"))  # to be told when it is copied
            return
        if self._ignore is not None:
            ignored = set(self._ignore(folder, [entry.name for entry in entries]))
            entries = [entry for entry in entries if entry.name not in ignored]
        if not entries and path:
            self.empty.append(path.rstrip("/"))
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                self._look(join(folder, entry.name), f"{path}{entry.name}/")
            elif not entry.is_file() or (self._ignore is not None and {"\n", "\r"} & {*path, *entry.name}):
                self.apart.append(path + entry.name)
            elif self._ignore is not None:
                self._paths.append(path + entry.name)


def _markers(source: Target) -> Iterator[str]:
    """Yield the paths of all folders below one in a store that an object stands for."""
    found = source.place
    for info in listing(found.control, found.store, found.prefix):
        path = info.key[len(found.prefix) :]
        if path.endswith("/"):
            yield path.rstrip("/")


def _make_empty(path: str, dst: Any, there: Target | None) -> None:
    if there is not None:
        trees.make_marker(there, f"{path}/")
    elif not unrepresentable(path):  # else the name would lead elsewhere
        top = os.path.realpath(os.fspath(dst))
        made = os.path.realpath(os.path.join(top, path))
        if made.startswith(f"{top.rstrip('/')}/"):
            os.makedirs(made, exist_ok=True)


def rmtree(
    original: Any,
    path: Any,
    ignore_errors: bool = False,
    onerror: Any = None,
    *,
    onexc: Any = None,
    **dir_fd: Any,
) -> None:
    """Delete a folder with all that is below it; a whole bucket is refused."""
    place = require(path)
    try:
        with os_errors(path):
            if not place.place.key:
                raise AccessDenied(
                    "shutil.rmtree deletes no whole bucket", path=place.url, remedy="Name a folder in it"
                )
            if info_of(place) is not None:
                fail(errno.ENOTDIR, path)
            trees.delete_below(place)
    except OSError as error:
        if ignore_errors:
            return
        if onexc is not None:
            onexc(shutil.rmtree, path, error)
        elif onerror is not None:
            onerror(shutil.rmtree, path, sys.exc_info())
        else:
            raise


def disk_usage(path: Any) -> Any:
    """Return what says that a store never fills."""
    with os_errors(path):
        info_of(require(path))
    return shutil._ntuple_diskusage(sys.maxsize, 0, sys.maxsize)
