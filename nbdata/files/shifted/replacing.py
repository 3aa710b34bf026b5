"""Puts functions that take URLs in the place of Python's own, wherever a module holds them, and restores those.

A replacement looks at the paths of a call. It passes the call on, unchanged, if none of them is a URL, or if no shift
is on any more.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import glob
import importlib
import os
import pathlib
import posixpath
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from nbdata.files.shifted import globbing, os_calls, os_paths, pathlib_calls, shutil_calls
from nbdata.files.shifted.places import may_lead, target

__all__ = ["REFUSED", "REPLACED", "replace", "restore"]


class _Replaced(NamedTuple):
    """A function of Python that is replaced.

    Attributes
    ----------
    holder : module or class
        What holds it.
    name : str
    ours : callable
        Called with the same arguments if one of the paths is a URL. For a method: called with it once, and returns the
        method in its place, which looks at its path itself.
    paths : tuple of str
        The names of the arguments that are paths; they are the first ones. Empty: all arguments are.
    passes : bool
        Whether `ours` takes Python's function as its first argument.
    always : bool
        Whether `ours` is called whatever the arguments are.
    """

    holder: Any
    name: str
    ours: Callable[..., Any]
    paths: tuple[str, ...] = ("path",)
    passes: bool = False
    always: bool = False


_TWO = ("src", "dst")
#: What is replaced. Functions of Python that only call these need no replacement: `os.makedirs`, `shutil.move` …
REPLACED = (
    _Replaced(builtins, "open", os_calls.open_url, ("file",)),
    *(
        _Replaced(os, name, ours)
        for name, ours in (
            *(("listdir", os_calls.listdir), ("scandir", os_calls.scandir), ("stat", os_calls.stat)),
            *(("lstat", os_calls.stat), ("access", os_calls.access), ("mkdir", os_calls.mkdir)),
            *(("remove", os_calls.remove), ("unlink", os_calls.remove), ("rmdir", os_calls.rmdir)),
        )
    ),
    _Replaced(os, "walk", os_calls.walk, ("top",)),
    _Replaced(os, "rename", os_calls.rename, _TWO),
    _Replaced(os, "replace", os_calls.rename, _TWO),
    *(
        _Replaced(posixpath, name, ours)
        for name, ours in (
            *(("exists", os_paths.exists), ("lexists", os_paths.exists), ("isfile", os_paths.isfile)),
            *(("isdir", os_paths.isdir), ("ismount", os_paths.ismount), ("normpath", os_paths.normpath)),
            *(("abspath", os_paths.absolute), ("realpath", os_paths.absolute)),
        )
    ),
    *(
        _Replaced(posixpath, name, ours, ("s", "p", "path"))
        for name, ours in (
            *(("isabs", os_paths.isabs), ("split", os_paths.split), ("dirname", os_paths.dirname)),
        )
    ),
    _Replaced(posixpath, "join", os_paths.join, (), passes=True),
    _Replaced(posixpath, "relpath", os_paths.relpath, ("path", "start"), passes=True),
    _Replaced(posixpath, "commonpath", os_paths.commonpath, passes=True, always=True),
    _Replaced(glob, "iglob", globbing.iterated, ("pathname", "root_dir"), passes=True),
    _Replaced(shutil, "copyfile", shutil_calls.copyfile, _TWO, passes=True),
    _Replaced(shutil, "copymode", shutil_calls.copymode, _TWO, passes=True),
    _Replaced(shutil, "copystat", shutil_calls.copystat, _TWO, passes=True),
    _Replaced(shutil, "copytree", shutil_calls.copytree, _TWO, passes=True),
    _Replaced(shutil, "rmtree", shutil_calls.rmtree, passes=True),
    _Replaced(shutil, "disk_usage", shutil_calls.disk_usage),
    _Replaced(pathlib.PurePath, "__str__", pathlib_calls.text),
    _Replaced(pathlib.PurePath, "is_absolute", pathlib_calls.is_absolute),
    _Replaced(pathlib.PurePath, "as_uri", pathlib_calls.as_uri),
    _Replaced(pathlib.Path, "absolute", pathlib_calls.absolute),
    _Replaced(pathlib.Path, "touch", pathlib_calls.touch),
)
#: Functions of `os` that no store has: with a URL they raise OSError (EOPNOTSUPP).
REFUSED = (
    *("open", "chmod", "chown", "lchown", "utime", "truncate", "chdir", "chroot", "readlink"),
    *("link", "symlink", "mkfifo", "mknod", "statvfs", "pathconf"),
    *("getxattr", "setxattr", "listxattr", "removexattr", "fwalk"),
)
# Modules whose classes hold functions under names of their own.
_WITH_CLASSES = ("pathlib", "pathlib._local", "pathlib._abc", "glob")
# Modules that are left alone: Python's own machinery holds what it needs to work.
_LEFT_ALONE = frozenset(
    {"posix", "_io", "_pyio", "importlib._bootstrap", "importlib._bootstrap_external", "zipimport"}
)

# Python's function and ours, and the reverse, by the identity of the first; each is made when first needed.
_ours: dict[int, tuple[Any, Any]] = {}
_theirs: dict[int, tuple[Any, Any]] = {}


def replace() -> None:
    """Replace the functions, also in modules that came since the last time."""
    for one in (*REPLACED, *_refused()):
        # Another function than the last time, if a test has a mock in its place, or the module was loaded again.
        python = vars(one.holder)[one.name]
        if id(python) not in _ours and id(python) not in _theirs:
            ours = _stand_in(python, one)
            _ours[id(python)], _theirs[id(ours)] = (python, ours), (ours, python)
    _exchange(_ours)


def restore() -> None:
    """Give Python's functions back to all modules that hold ours."""
    _exchange(_theirs)


def _refused() -> Iterator[_Replaced]:
    for name in REFUSED:
        if hasattr(os, name):
            yield _Replaced(os, name, os_calls.unsupported(f"os.{name}"), ("path", "src", "dst"))


def _exchange(by_id: dict[int, tuple[Any, Any]]) -> None:
    for namespace in _namespaces():
        for name, value in list(namespace.items()):
            found = by_id.get(id(value))
            if found is not None and found[0] is value:
                namespace[name] = found[1]
    for cls in _classes():
        for name, value in list(vars(cls).items()):
            inner = value.__func__ if isinstance(value, staticmethod) else value
            found = by_id.get(id(inner))
            if found is not None and found[0] is inner:
                setattr(cls, name, staticmethod(found[1]) if isinstance(value, staticmethod) else found[1])


def _namespaces() -> Iterator[dict[str, Any]]:
    for name, module in list(sys.modules.items()):
        if name not in _LEFT_ALONE and not name.startswith("nbdata.files.shifted."):
            with contextlib.suppress(AttributeError):  # some modules of extensions have no dict
                namespace = object.__getattribute__(module, "__dict__")  # a lazy module is not loaded by this
                if isinstance(namespace, dict):
                    yield namespace


def _classes() -> Iterator[type]:
    seen = set[type]()
    for name in _WITH_CLASSES:
        for value in list(vars(sys.modules.get(name, object)).values()):
            if isinstance(value, type) and value.__module__.partition(".")[0] in ("pathlib", "glob"):
                seen.add(value)
    yield from seen


# -- stand-ins -----------------------------------------------------------------------------------


def _stand_in(python: Any, one: _Replaced) -> Any:
    if isinstance(one.holder, type):
        return one.ours(python)
    ours = functools.partial(one.ours, python) if one.passes else one.ours
    if not isinstance(python, types.FunctionType):
        return BuiltinStandIn(python, ours, one)
    count, paths, always = len(one.paths) or None, one.paths, one.always
    at_once = count == 1 and not always

    @functools.wraps(python)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if (
            at_once and args and type(args[0]) is str and ":/" not in args[0]
        ):  # nearly all; the rest is slower
            return python(*args, **kwargs)
        if always or _lead(args, kwargs, count, paths):
            return ours(*args, **kwargs)
        return python(*args, **kwargs)

    return stand_in


def _lead(args: tuple[Any, ...], kwargs: dict[str, Any], count: int | None, paths: tuple[str, ...]) -> bool:
    """Return whether one of the paths of a call is a URL that a shift is for."""
    for one in args if count is None else args[:count]:
        if may_lead(one) and target(one) is not None:
            return True
    if kwargs:
        for name in paths:
            if name in kwargs and may_lead(one := kwargs[name]) and target(one) is not None:
                return True
    return False


class BuiltinStandIn:
    """In the place of a function that is written in C; like that, it does not become a method where a class holds it.

    It is equal to the function, so `os.supports_fd` and its like hold it, too. It is pickled by its name.
    """

    def __init__(self, python: Any, ours: Callable[..., Any], one: _Replaced) -> None:
        functools.update_wrapper(self, python)
        self._python, self._ours, self._paths, self._count = python, ours, one.paths, len(one.paths)
        self._at_once = self._count == 1
        self._holder, self._name = one.holder.__name__, one.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._at_once and args and type(args[0]) is str and ":/" not in args[0]:  # nearly all
            return self._python(*args, **kwargs)
        if _lead(args, kwargs, self._count, self._paths):
            return self._ours(*args, **kwargs)
        return self._python(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._python

    def __hash__(self) -> int:
        return hash(self._python)

    def __repr__(self) -> str:
        return f"<{self._python!r}, shifted by nbdata>"

    def __copy__(self) -> BuiltinStandIn:
        return self

    def __deepcopy__(self, memo: object) -> BuiltinStandIn:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (_ByName(self._holder), self._name)


class _ByName:
    """Stands for a module in a pickle, so that nbdata is not needed to load it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self._name,)
