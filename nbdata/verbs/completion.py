"""Tab completion: options and their choices, jobs, local paths, and places in stores, for an unfinished command.

The notebook and the shells share it. Stores are listed through the host, which shares the agent's connections and
cache. The wait for a store is short.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from nbdata.errors import NbdataError
from nbdata.operation import Operation, slots
from nbdata.option import Option, options_of
from nbdata.paths import is_url, last_component
from nbdata.redaction import printable
from nbdata.report import Snapshot
from nbdata.verbs.complete import Complete
from nbdata.verbs.parsing import face_options, flag_of, pairs

__all__ = ["completions", "described", "in_quotes", "split_line"]

_Found = TypeVar("_Found")

# Seconds to wait for a store; a later answer is in the cache for the next Tab.
_PATIENCE = 1.0
# Most jobs that are offered: the unfinished ones, then the newest.
_JOBS = 20
# Maximum number of names that are read in a local folder.
_LOOKED_AT = 5000


def completions(
    cls: type[Operation],
    words: Sequence[str],
    current: str,
    *,
    extra: Mapping[str, Option],
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the possible completions of the word that is being typed; each begins with `current`.

    See `described`.
    """
    return list(described(cls, words, current, extra=extra, env=env))


def described(
    cls: type[Operation],
    words: Sequence[str],
    current: str,
    *,
    extra: Mapping[str, Option],
    env: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the possible completions with a description each, in the order in which to offer them.

    Only ids of jobs have a description, such as ``pull data, running``; that of others is empty. Names with control
    characters are left out: a line break would begin another command.

    Parameters
    ----------
    cls : type
        The verb.
    words : sequence of str
        The words before, without the verb.
    current : str
        The typed part of the word; may be empty.
    extra : dict
        Options of this face beside the common ones.
    """
    if _wants_job(cls, current):
        return _jobs(current)
    found = _completions(cls, words, current, extra, env)
    return {text: "" for text in found if text.startswith(current) and printable(text) == text}


def _wants_job(cls: type[Operation], current: str) -> bool:
    takes = any(declared.positional and declared.kind == "job" for _, declared in options_of(cls).values())
    return takes and not current.startswith("-")


def _jobs(current: str) -> dict[str, str]:
    """Return the ids of the jobs that are probably meant."""

    def ask() -> dict[str, str]:
        found = [job for job in slots.host().look()[0] if job.id.startswith(current)]
        found.sort(key=lambda job: (job.finished, -job.created))
        return {job.id: _description(job) for job in found[:_JOBS]}

    return _in_time(ask, {})


def _description(job: Snapshot) -> str:
    state = job.condition if job.state == "RUNNING" else job.state.lower()
    return printable(f"{job.verb} {last_component(job.target or job.source)}, {state}")


def _completions(
    cls: type[Operation],
    words: Sequence[str],
    current: str,
    extra: Mapping[str, Option],
    env: Mapping[str, str] | None,
) -> list[str]:
    flags = {
        flag_of(name): declared
        for name, (_, declared) in options_of(cls).items()
        if not declared.positional and declared.kind != "object"
    }
    flags |= {flag_of(name): declared for name, declared in face_options(cls, extra).items()}
    short = {f"-{declared.short}": declared for declared in flags.values() if declared.short}
    before = words[-1] if words else ""
    flag, equals, value = current.partition("=")
    if equals and flag in flags:
        return [f"{flag}={found}" for found in _values(flags[flag], value)]
    waiting = flags.get(before) or short.get(before)
    if waiting is not None and waiting.kind != "flag":
        return _values(waiting, current)
    if current.startswith("-"):
        used = {word.partition("=")[0] for word in words}
        again = ("texts", "pairs")
        return sorted(
            f for f, o in flags.items() if f.startswith(current) and (f not in used or o.kind in again)
        )
    if is_url(current):
        return _remote(current, _storage_options(words, env))
    return _local(current)


def in_quotes(line: str) -> bool:
    """True if a line ends within quotes."""
    try:
        shlex.split(line)
    except ValueError:  # or behind a backslash, which quotes as well
        return True
    return False


def split_line(line: str) -> tuple[list[str], str]:
    """Return the complete words of a line, and the word that is being typed, without its open quote."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words = list[str]()
    try:
        words.extend(lexer)
    except ValueError:  # an open quote: the text after it is being typed
        return words, str(lexer.token)
    if not words or line[-1].isspace():
        return words, ""
    return words[:-1], words[-1]


def _values(declared: Option, value: str) -> list[str]:
    if declared.choices:
        return [choice for choice in declared.choices if choice.startswith(value)]
    return _local(value) if declared.is_path else []


def _local(text: str) -> list[str]:
    """Return files and folders that start with a text; hidden ones only if the text starts with a dot."""
    folder, name = os.path.split(text)
    base = text[: len(text) - len(name)]
    found = []
    with contextlib.suppress(OSError), os.scandir(os.path.expanduser(folder) or ".") as entries:
        for _, entry in zip(range(_LOOKED_AT), entries, strict=False):
            if entry.name.startswith(name) and (name or not entry.name.startswith(".")):
                found.append(base + entry.name + ("/" if entry.is_dir() else ""))
    return sorted(found)


def _storage_options(words: Sequence[str], env: Mapping[str, str] | None) -> dict[str, object]:
    """Return the storage options of the complete ``--option`` words."""
    given = [value for word, value in itertools.pairwise(words) if word == "--option"]
    given += [word.partition("=")[2] for word in words if word.startswith("--option=")]
    with contextlib.suppress(NbdataError):
        return pairs(given, env)
    return {}


def _remote(prefix: str, storage_options: dict[str, object]) -> list[str]:
    """Return the places in a store that start with a text."""

    def ask() -> list[str]:
        asked = Complete(prefix=prefix, storage_options=storage_options or None)
        places: list[str] = slots.host().submit(asked, background=False).wait().details["places"]
        return places

    return _in_time(ask, [])


def _in_time(ask: Callable[[], _Found], nothing: _Found) -> _Found:
    """Return the answer of `ask`; `nothing` if it takes long or fails, since Tab shows no errors."""
    answer: queue.Queue[_Found] = queue.Queue()

    def asked() -> None:
        found = nothing
        with contextlib.suppress(NbdataError):
            found = ask()
        answer.put(found)

    threading.Thread(target=asked, name="nbdata-complete", daemon=True).start()
    try:
        return answer.get(timeout=_PATIENCE)
    except queue.Empty:
        return nothing
