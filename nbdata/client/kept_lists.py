"""Keeps lists of paths that come by a pipe in files, so that the agent and a repeated command can read them.

``--files-from -`` is standard input and ``--files-from <(…)`` a pipe of the shell's. Both exist only in the process
that received them, and are read from their current position. The lists are kept in ``lists`` in the state folder, each
under a hash of its contents.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.operation import Operation
from nbdata.own_files import folder_of, new_record
from nbdata.paths import PIPED_LISTS
from nbdata.runtime import state_folder

__all__ = ["keep_list", "stdin_named"]

_FLAG, _STDIN = "--files-from", "/dev/stdin"
_FROM_STDIN, _FROM_PIPE = PIPED_LISTS
# The system's names of this process's own descriptors: standard input, or one by its number.
_OWN = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/(\d+)")
# The names of the lists.
_NAMES = re.compile(rf"[0-9a-f]{{16}}(\.new|{'|'.join(map(re.escape, PIPED_LISTS))})")
# Seconds for which a list is kept after it last came; if all lists exceed the bytes, only those of the last day.
_KEPT, _ENOUGH, _LAST_DAY = 30 * 86400.0, 2 << 30, 86400.0
# Most bytes of one list: some ten million paths.
_LARGEST = 1 << 30
_PIECE = 1 << 20

_Op = TypeVar("_Op", bound=Operation)


def stdin_named(words: Sequence[str]) -> list[str]:
    """Return the words of a command, with ``-`` for a list of paths replaced by the path of standard input."""
    named = list[str]()
    for before, word in zip(["", *words], words, strict=False):
        if word == f"{_FLAG}=-" or (before == _FLAG and word == "-"):
            word = word[:-1] + _STDIN
        named.append(word)
    return named


def keep_list(operation: _Op) -> _Op:
    """Return the operation with its list of paths in a file that other processes can read too.

    Raises
    ------
    NotFound, BadOption, NbdataError
        If there is no list, if it is typed in or too long, or if there is no room to keep it.
    """
    given: str | None = getattr(operation, "files_from", None)
    if given is None:
        return operation
    try:
        own = _OWN.fullmatch(given)
        # Opening by name would read a file from its start, and fail for a socket or another user's file.
        source = os.dup(int(own[1] or 0)) if own else os.open(given, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFound(
            f"{_FLAG} cannot be read ({os.strerror(error.errno or 0)})",
            path=given,
            remedy="Name a file with relative paths, one a line",
        ) from error
    try:
        if stat.S_ISREG(os.fstat(source).st_mode) and not own:
            return operation
        if os.isatty(source):
            raise BadOption(
                f"{_FLAG}: nothing is sent to standard input", remedy="For example: cut -f1 table | nbdata …"
            )
        suffix = _FROM_STDIN if given == _STDIN or (own and own[1] == "0") else _FROM_PIPE
        kept = replace(operation, files_from=_kept(source, suffix))  # type: ignore[call-arg]  # it has it
        kept.made_in(operation.here)
        return kept
    except OSError as error:
        raise NbdataError(
            f"{_FLAG}: the list cannot be kept ({os.strerror(error.errno or 0)})",
            path=_folder(),
            remedy="Make room there, or write the list into a file and name that",
        ) from error
    finally:
        os.close(source)


def _folder() -> str:
    return os.path.join(state_folder(), "lists")


def _kept(source: int, suffix: str) -> str:
    folder = _folder()
    with folder_of(os.path.join(folder, ""), make=True) as (at, _):
        return os.path.join(folder, _kept_in(at, source, suffix))


def _kept_in(folder: int, source: int, suffix: str) -> str:
    """Keep a list in an open folder, and return its name."""
    digest, size = hashlib.blake2b(digest_size=8), 0
    being_written = f"{secrets.token_hex(8)}.new"
    try:
        with open(new_record(being_written, folder), "wb") as kept:
            while piece := os.read(source, _PIECE):
                size += len(piece)
                if size > _LARGEST:
                    raise BadOption(
                        f"{_FLAG}: the list is longer than {_LARGEST >> 30} GiB", remedy="Send a part"
                    )
                digest.update(piece)
                kept.write(piece)
        name = digest.hexdigest() + suffix
        os.replace(being_written, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(being_written, dir_fd=folder)
        raise
    _forget_old(folder, keep=name)
    return name


def _forget_old(folder: int, *, keep: str) -> None:
    """Remove lists that no job needs any more; not by number, because many jobs may wait with a list each."""
    now, total = time.time(), 0
    with contextlib.suppress(FileNotFoundError):  # another process removes them at the same time
        with os.scandir(folder) as entries:
            old = [
                (entry.stat(follow_symlinks=False), entry.name)
                for entry in entries
                if entry.name != keep and _NAMES.fullmatch(entry.name)
            ]
        for look, name in sorted(old, key=lambda one: -one[0].st_mtime):
            age, total = now - look.st_mtime, total + look.st_size
            if age > _KEPT or (age > _LAST_DAY and (total > _ENOUGH or name.endswith(".new"))):
                os.unlink(name, dir_fd=folder)
