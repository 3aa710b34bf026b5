"""What the functions of `os` do with a URL. Each takes the arguments of the function that it stands for.

A folder of an object store is there while an object lies below it, or an empty object stands for it, whose key ends in
a slash: `mkdir` makes one, as the web consoles of stores do.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from nbdata.errors import AccessDenied, BadOption, NbdataError, NotFound
from nbdata.files.opening import open_file
from nbdata.files.shifted import globbing, trees
from nbdata.files.shifted.places import Target, os_errors, target, url_in
from nbdata.files.shifted.status import FolderEntries, StoreEntry, status
from nbdata.origins import origin_of
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.retry import listing_of_folder, retrying

__all__ = [
    "access",
    "check_name",
    "fail",
    "info_of",
    "listdir",
    "mkdir",
    "open_url",
    "remove",
    "rename",
    "require",
    "rmdir",
    "scandir",
    "stat",
    "unsupported",
    "walk",
]


def fail(number: int, path: object, *more: object) -> NoReturn:
    """Raise the OSError of an error number, as the operating system's calls do."""
    raise OSError(number, os.strerror(number), path, None, *more)


def require(path: object) -> Target:
    """Return the place of a path that was found to be a URL."""
    found = target(path)
    assert found is not None
    return found


def check_name(place: Target) -> None:
    """Raise the OSError of a name that is not UTF-8: stores refuse it, or keep another one in its place."""
    try:
        place.url.encode()
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, "its name is not UTF-8, as keys are", place.url) from None


def open_url(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """Open a file in a store: see `nbdata.open`."""
    place = require(file)
    if not closefd:
        raise ValueError("Cannot use closefd=False with file name")
    if opener is not None:
        raise io.UnsupportedOperation(f"a file in a store is opened by nbdata, not by an opener: {place.url}")
    with os_errors(file):
        if place.slash:
            if not {"w", "x", "a"} & set(mode):
                info_of(place)
            fail(errno.EISDIR, file)
        if "r" not in mode:
            check_name(place)
        try:
            if "+" in mode:
                _refuse_both(place, mode)
            if "r" not in mode and _is_folder_only(place):
                fail(errno.EISDIR, file)
            opened = open_file(
                place.url,
                mode,
                buffering,
                encoding,
                errors,
                newline,
                verify=place.by.verify,
                storage_options=place.options,
            )
            # As the builtin does: programs look at them.
            getattr(opened, "buffer", opened).name = os.fspath(file)
            if "b" not in mode:
                opened.mode = mode
            return opened
        except NotFound:
            if "r" in mode and _is_folder(place):
                fail(errno.EISDIR, file)
            raise


def _is_folder_only(place: Target) -> bool:
    """Return whether a file would stand beside a folder of its name."""
    found = place.place
    return found.key != "" and trees.holds_anything(place, itself=True)


def _is_folder(place: Target) -> bool:
    try:
        return info_of(place) is None
    except NotFound:
        return False


def _refuse_both(place: Target, mode: str) -> NoReturn:
    """Raise the error for a file that would be read and written at a time.

    zipfile tries ``w+b`` before ``wb``, which it takes after an OSError. But after one for ``r+b``, with which it
    appends, it would make a new archive over the old one; so that is no OSError, unless there is none.
    """
    if "r" in mode:
        info_of(place)
        raise BadOption(
            f"the mode {mode!r} would change a part of a file in a store",
            path=place.url,
            expected="r, w, x or a, with b for bytes",
            remedy="Copy it to the disk, change it there, and copy it back",
        )
    raise io.UnsupportedOperation(
        f"the mode {mode!r} is none of a file in a store: it is read or written, not both: {place.url}"
    )


# -- looking -------------------------------------------------------------------------------------


def info_of(place: Target) -> ObjectInfo | None:
    """Return the metadata of the object at a place; None if there is a folder.

    Raises
    ------
    NotFound
        If there is neither.
    NotADirectoryError
        If there is an object, and the place was written as a folder, with a slash at its end.
    """
    info = _info_of(place)
    if info is not None and place.slash:
        fail(errno.ENOTDIR, f"{place.url}/")
    return info


def _info_of(place: Target) -> ObjectInfo | None:
    listed = globbing.known(place.url)
    if listed is not None:
        return listed if isinstance(listed, ObjectInfo) else None
    found = place.place
    if found.key:
        try:
            return retrying(found.control, lambda: found.store.head(found.key))
        except (NotFound, IsADirectoryError):
            pass
    if found.key and found.store.is_folder(found.prefix):
        return None
    # A missing bucket is an error of the listing.
    if next(iter(listing_of_folder(found.control, found.store, found.prefix)), None) is None and found.key:
        raise NotFound("no such file or folder", path=place.url)
    return None


def stat(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
    """Return the status of a file or folder."""
    place = require(path)
    with os_errors(path):
        info = info_of(place)
    if info is None:
        return status(place.url, folder=True)
    return status(place.url, folder=False, size=info.size, modified=info.modified)


def access(path: Any, mode: int, **ignored: Any) -> bool:
    """Return whether it is there. What the store allows shows only when it is asked to do it."""
    place = require(path)
    try:
        info_of(place)
    except (NotFound, NotADirectoryError, AccessDenied):
        return False
    return not (mode & os.W_OK and place.place.store.read_only)


def scandir(path: Any = ".") -> FolderEntries:
    """List a folder, page by page."""
    place = require(path)
    try:
        with os_errors(path):
            return FolderEntries(
                _entries(place, os.fspath(path) if hasattr(path, "__fspath__") else str(path))
            )
    except NbdataError as error:
        globbing.passed_over(error)
        raise


def _entries(place: Target, given: str) -> Iterator[StoreEntry]:
    """Return the entries of a folder, once it is known that it is one."""
    begin = given if given.endswith("/") else given + "/"
    known = globbing.known(place.url)
    if isinstance(known, ObjectInfo):
        fail(errno.ENOTDIR, given)
    if known is not None:
        return _of_tree(known, begin)
    found = place.place
    listed = listing_of_folder(found.control, found.store, found.prefix)
    first = next(listed, None)
    if first is None and found.key and not found.store.is_folder(found.prefix):
        try:
            retrying(found.control, lambda: found.store.head(found.key))
        except (NotFound, IsADirectoryError):
            raise NotFound("no such folder", path=place.url) from None
        fail(errno.ENOTDIR, given)

    def entries() -> Iterator[StoreEntry]:
        one = first
        while one is not None:
            name = one.key[len(found.prefix) :]
            # Else it is the object that stands for the folder itself, or no path leads to it.
            if name.rstrip("/") not in ("", ".", ".."):
                folder = name.endswith("/")
                name = name.rstrip("/")
                yield StoreEntry(
                    begin + name,
                    name,
                    folder=folder,
                    size=one.size,
                    modified=None if folder else one.modified,
                )
            one = next(listed, None)

    return entries()


def _of_tree(tree: trees.Tree, begin: str) -> Iterator[StoreEntry]:
    for name in sorted(tree.folders):
        yield StoreEntry(begin + name, name, folder=True)
    for name, info in sorted(tree.files.items()):
        yield StoreEntry(begin + name, name, folder=False, size=info.size, modified=info.modified)


def listdir(path: Any = ".") -> list[str]:
    """Return the names in a folder."""
    with scandir(path) as entries:
        return [entry.name for entry in entries]


def walk(
    top: Any,
    topdown: bool = True,
    onerror: Callable[[OSError], object] | None = None,
    followlinks: object = False,
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder below one, as `os.walk` does; without `onerror`, only a missing folder is passed over.

    A tree of up to `nbdata.files.shifted.trees.MOST` objects is listed by one listing at the start.
    """
    place = require(top)
    given = os.fspath(top) if hasattr(top, "__fspath__") else str(top)
    try:
        tree = trees.tree_of(place)
        yield from _walk(given, tree, topdown, onerror)
    except OSError as error:
        _pass_on(error, onerror)


def _walk(
    top: str, tree: trees.Tree | None, topdown: bool, onerror: Callable[[OSError], object] | None
) -> Iterator[tuple[str, list[str], list[str]]]:
    folders, files = list[str](), list[str]()
    try:
        if tree is not None:
            folders, files = tree.names()
        else:
            with scandir(top) as entries:
                for entry in entries:
                    (folders if entry.is_dir() else files).append(entry.name)
    except OSError as error:
        _pass_on(error, onerror)
        return
    if topdown:
        yield top, folders, files
    for name in list(folders):
        below = None if tree is None else tree.folders.get(name)
        if tree is None or below is not None:  # else the caller has put in a name that is not there
            yield from _walk(f"{top}{'' if top.endswith('/') else '/'}{name}", below, topdown, onerror)
    if not topdown:
        yield top, folders, files


def _pass_on(error: OSError, onerror: Callable[[OSError], object] | None) -> None:
    if onerror is not None:
        onerror(error)
    elif not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


# -- changing ------------------------------------------------------------------------------------


def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    """Make a folder: in an object store, an empty object whose key ends in a slash."""
    place = require(path)
    check_name(place)
    found = place.place
    with os_errors(path):
        try:
            info_of(place)
        except NotFound:
            if not found.key:
                raise AccessDenied(
                    "buckets are not made by os.mkdir", path=place.url,
                    remedy="Make it with the store's own tools, such as aws s3 mb",
                ) from None  # fmt: skip
        else:
            fail(errno.EEXIST, path)
        above = found.key.rpartition("/")[0]
        if above:
            parent = place.url.rpartition("/")[0]
            if info_of(place._replace(url=parent)) is not None:
                fail(errno.ENOTDIR, path)
        if found.store.flat:
            retrying(found.control, lambda: found.store.write(found.prefix, io.BytesIO(), 0))
        else:
            retrying(found.control, lambda: found.store.make_folder(found.prefix))


def remove(path: Any, *, dir_fd: int | None = None) -> None:
    """Delete a file."""
    place = require(path)
    found = place.place
    with os_errors(path):
        if info_of(place) is None:
            fail(errno.EISDIR, path)
        retrying(found.control, lambda: found.store.delete([found.key]))


def rmdir(path: Any, *, dir_fd: int | None = None) -> None:
    """Remove an empty folder; one that went with its last file is gone already, and that is no error."""
    place = require(path)
    found = place.place
    with os_errors(path):
        if not found.key:
            fail(errno.EBUSY, path)
        for info in listing_of_folder(found.control, found.store, found.prefix):
            if info.key != found.prefix:
                fail(errno.ENOTEMPTY, path)
        try:
            retrying(found.control, lambda: found.store.head(found.key))
        except (NotFound, IsADirectoryError):
            retrying(found.control, lambda: found.store.remove_folder(found.prefix))
        else:
            fail(errno.ENOTDIR, path)


def rename(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
    """Give a file or folder another name: it is copied by the store, and then deleted.

    Between a store and the disk, and between stores, it fails as between two disks; `shutil.move` copies then.
    """
    source, there = target(src), target(dst)
    if source is None or there is None or source.by is not there.by:
        fail(errno.EXDEV, src, dst)
    if source.url == there.url:
        with os_errors(src):
            info_of(source)
        return
    if origin_of(source.url) != origin_of(there.url):
        fail(errno.EXDEV, src, dst)
    check_name(there)
    with os_errors(src):
        info = info_of(source)
    try:
        with os_errors(dst):
            replaced = info_of(there)
            is_folder = replaced is None
    except NotFound:
        replaced, is_folder = None, False
    if info is not None:
        if is_folder:
            fail(errno.EISDIR, src, dst)
        if there.slash:
            fail(errno.ENOTDIR, src, dst)
        with os_errors(src):
            trees.move_file(source, info, there)
        return
    if replaced is not None:
        fail(errno.ENOTDIR, src, dst)
    if f"{there.url}/".startswith(f"{source.url}/") or not source.place.key:
        fail(errno.EINVAL, src, dst)
    if is_folder and trees.holds_anything(there):
        fail(errno.ENOTEMPTY, src, dst)
    with os_errors(src):
        trees.move_folder(source, there)


def unsupported(name: str) -> Callable[..., Any]:
    """Return what stands for a function that has no meaning for a store: it raises, and says so."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        path = next(one for one in (*args, *kwargs.values()) if url_in(one))
        raise OSError(errno.EOPNOTSUPP, f"a store has nothing like {name}", os.fspath(path))

    return refuse
