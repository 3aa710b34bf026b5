"""Lists of paths that come by a pipe: kept in a file, for the agent that reads them, and for who says the line again.

``--files-from -`` is standard input and ``--files-from <(…)`` a pipe of the shell's: both exist only in the process
that was given them. Lists are kept in ``lists`` in the state folder, under a hash of what they hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from nbdata.errors import BadOption, NotFound
from nbdata.operation import Operation
from nbdata.runtime import state_folder

__all__ = ["keep_list", "stdin_named"]

_FLAG, _STDIN = "--files-from", "/dev/stdin"
# Lists that are kept, newest first; and bytes of one: some ten million paths.
_KEPT, _LARGEST = 100, 1 << 30
_PIECE = 1 << 20

_Op = TypeVar("_Op", bound=Operation)


def stdin_named(words: Sequence[str]) -> list[str]:
    """The words of a line, with ``-`` for a list of paths replaced by the file that standard input is."""
    named = list[str]()
    for before, word in zip(["", *words], words, strict=False):
        if word == f"{_FLAG}=-" or (before == _FLAG and word == "-"):
            word = word[:-1] + _STDIN
        named.append(word)
    return named


def keep_list(operation: _Op) -> _Op:
    """The operation, with its list of paths in a file that others can read too.

    Raises
    ------
    BadOption
        If the list is typed, or is too long for one.
    """
    given: str | None = getattr(operation, "files_from", None)
    if given is None:
        return operation
    try:
        with open(given, "rb", buffering=0) as source:
            if stat.S_ISREG(os.fstat(source.fileno()).st_mode) and not given.startswith(("/dev/", "/proc/")):
                return operation
            if source.isatty():
                raise BadOption(
                    f"{_FLAG}: nothing is sent to standard input",
                    remedy="For example: cut -f1 table | nbdata …",
                )
            return replace(operation, files_from=_kept(source.fileno()))  # type: ignore[call-arg]  # it has it
    except OSError as error:
        raise NotFound(
            f"{_FLAG} cannot be read ({os.strerror(error.errno or 0)})", path=given,
            remedy="Name a file with relative paths, one a line",
        ) from error  # fmt: skip


def _kept(source: int) -> str:
    folder = os.path.join(state_folder(), "lists")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    digest, size = hashlib.blake2b(digest_size=8), 0
    being_written = os.path.join(folder, f"{secrets.token_hex(8)}.new")
    try:
        with open(
            os.open(being_written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
        ) as kept:
            while piece := os.read(source, _PIECE):
                size += len(piece)
                if size > _LARGEST:
                    raise BadOption(
                        f"{_FLAG}: the list is longer than {_LARGEST >> 30} GiB", remedy="Send a part"
                    )
                digest.update(piece)
                kept.write(piece)
        path = os.path.join(folder, f"{digest.hexdigest()}.txt")
        os.replace(being_written, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(being_written)
        raise
    _forget_old(folder)
    return path


def _forget_old(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # somebody else forgets them at the same time
        with os.scandir(folder) as entries:
            newest_first = sorted(entries, key=lambda entry: -entry.stat().st_mtime)
        for entry in newest_first[_KEPT:]:
            os.unlink(entry.path)
