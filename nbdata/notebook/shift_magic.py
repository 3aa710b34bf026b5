"""``%shift on|off|status``: `nbdata.shift` for a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.magic import no_var_expand

from nbdata.errors import BadOption, NbdataError
from nbdata.files.shifted import Shift, active, shift
from nbdata.notebook.variables import words_and_written
from nbdata.verbs.parsing import pairs, written_secrets

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["HELP", "NAME", "shift_magic"]

#: The name of the magic.
NAME = "shift"
#: The manual.
HELP = """Have Python's own functions for files take URLs, until %shift off.

  %shift on [PLACE …] [--option KEY=VALUE …] [--verify auto|none]
  %shift off
  %shift status

open, os, os.path, glob, shutil and pathlib then take s3://bucket/file where they take a path. Paths of the disk are
handled as before. shutil copies between store and disk as pull, push and copy do: with a check of the space, verified,
and resumed after a kill. What opens files in C (h5py, cv2) is not reached; %shift status names it, and what to do.

  PLACE                a protocol such as s3, or the beginning of URLs: only for these (default: all stores)
  --option KEY=VALUE   a storage option by its fsspec name; KEY=env:NAME takes it from the environment; repeatable
  --verify auto|none   auto (default) compares files that are read or written as a whole with the store's checksum

Examples
  %shift on
  %shift on s3://bucket --option profile=work
  %shift off
"""
_EXPECTED = "%shift on, %shift off or %shift status"

# What ``%shift on`` has made: of the process, as the shift itself is.
_made: list[Shift] = []


def shift_magic(shell: InteractiveShell, refused: Callable[[NbdataError], Exception]) -> Callable[[str], Any]:
    """Create the magic for a shell; `refused` converts an error into one that can be shown."""

    @no_var_expand
    def magic(line: str) -> None:
        try:
            _run(line, shell)
        except NbdataError as error:
            raise refused(error) from None

    magic.__name__ = magic.__qualname__ = NAME
    magic.__doc__ = HELP
    return magic


def _run(line: str, shell: InteractiveShell) -> None:
    from nbdata.files.shifted.reach import described

    words, saved = words_and_written(line, shell.user_ns, prog=f"%{NAME}")
    for option in written_secrets(saved):
        sys.stderr.write(
            f"{option}=… is saved with this cell; {option}=env:NAME takes it from the environment\n"
        )
    if words in (["-h"], ["--help"]):
        sys.stdout.write(HELP)
        return
    action, *rest = words or ["status"]
    if action == "on":
        places, options, verify = _parsed(rest)
        before, _made[:] = list(_made), [shift(*places, storage_options=options, verify=verify)]
        for one in before:  # saying it again gives other options, and needs to be undone once
            one.off()
    elif action in ("off", "status") and rest:
        raise BadOption(f"%{NAME} {action} takes nothing more: {rest[0]}", expected=_EXPECTED)
    elif action == "off":
        while _made:
            _made.pop().off()
        if active:
            sys.stdout.write("still on, by nbdata.shift() in Python: call off() of what it returned\n")
    elif action != "status":
        raise BadOption(f"%{NAME}: {action!r} is no action", expected=_EXPECTED)
    sys.stdout.write(described() + "\n")


def _parsed(words: list[str]) -> tuple[list[str], dict[str, Any], str]:
    """Return the places, the storage options and `verify` of ``%shift on``."""
    places, written, verify = list[str](), list[str](), "auto"
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if flag not in ("--option", "--verify"):
            if word.startswith("-"):
                raise BadOption(f"%{NAME}: unknown option {flag}", expected="--option or --verify")
            places.append(word)
            continue
        value = value if equals else next(rest, "")
        if not value:
            raise BadOption(f"%{NAME}: {flag} needs a value", remedy=f"%{NAME}? explains it")
        if flag == "--option":
            written.append(value)
        else:
            verify = value
    return places, pairs(written, None), verify
