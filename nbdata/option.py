"""The declaration of one option, and what is made of it: a checked value, and the words that say it.

An option is declared once, with its help text, as a field of its Operation; the magic, the command line, the Python
function and the panel's form are made from that.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from nbdata.errors import BadOption
from nbdata.paths import canonical
from nbdata.redaction import Hidden, redacted, remember_options
from nbdata.sizes import parse_size

__all__ = [
    "Option",
    "argument",
    "checked",
    "option",
    "options_of",
    "shown",
    "storage_pair",
    "suggest",
    "words_of",
]


@dataclass(frozen=True)
class Option:
    """The declaration of one option: all that faces need to offer, parse and explain it.

    Attributes
    ----------
    help : str
        One sentence for ``%verb?`` and ``--help``.
    kind : str
        ``text``, ``place`` (a path or URL), ``path`` (local), ``job`` (its id), ``flag``, ``size``, ``count``,
        ``texts`` (repeatable), ``sample``, ``pairs`` (KEY=VALUE, repeatable) or ``optional`` (a flag that may
        have a value: True, or that text).
    identity : bool
        Whether it decides which bytes end where, and so belongs to what *the same line* means.
    short : str
        One-letter spelling, or empty.
    choices : tuple of str
        The allowed values, or empty.
    metavar : str
        How the value is named in help texts.
    positional : bool
        Given by position, not by name.
    binding : bool
        Stays beside the Operation: it is no part of its JSON, its repr or its identity, because it
        is secret (storage options) or lives only in this process (a file system object).
    """

    help: str
    kind: str = "text"
    identity: bool = True
    short: str = ""
    choices: tuple[str, ...] = ()
    metavar: str = ""
    positional: bool = False
    binding: bool = False


def argument(help: str, *, default: Any = MISSING, kind: str = "place", metavar: str = "") -> Any:  # noqa: A002
    """Declare a positional argument of an Operation; without a default it is required."""
    return field(
        default=default, metadata={"option": Option(help, kind=kind, metavar=metavar, positional=True)}
    )


def option(default: Any, help: str, **declaration: Any) -> Any:  # noqa: A002
    """Declare a keyword-only option of an Operation; see `Option` for the declaration."""
    declared = Option(help, **declaration)
    hidden = declared.binding
    return field(
        default=default, kw_only=True, repr=not hidden, compare=not hidden, metadata={"option": declared}
    )


def options_of(cls: type[Any]) -> dict[str, tuple[Field[Any], Option]]:
    """The declared options of a verb by field name, positional ones first."""
    found = {f.name: (f, f.metadata["option"]) for f in fields(cls) if "option" in f.metadata}
    return dict(sorted(found.items(), key=lambda item: not item[1][1].positional))


def suggest(word: str, known: list[str]) -> str:
    """A remedy for a misspelt word: the nearest known one, or the list."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"Did you mean {near[0]}?" if near else f"Known are {', '.join(known)}"


# What users know as options of other programs, and what the storage option is called.
_STORAGE = {
    **{name: name for name in ("profile", "endpoint_url", "region", "anon", "token", "key", "secret")},
    "endpoint": "endpoint_url",
    "region_name": "region",
    "no_sign_request": "anon",
    "access_key": "key",
    "access_key_id": "key",
    "aws_access_key_id": "key",
    "secret_key": "secret",
    "secret_access_key": "secret",
    "aws_secret_access_key": "secret",
    "session_token": "token",
}


def storage_pair(name: str, value: str) -> str:
    """``KEY=VALUE`` for ``--option``, if `name` is what users call a storage option; else empty.

    What may be secret is not said again.
    """
    key = _STORAGE.get(name.removeprefix("--").replace("-", "_"), "")
    if key in ("key", "secret", "token"):
        return f"{key}=env:NAME"
    return key and f"{key}={'true' if key == 'anon' else shlex.quote(redacted(value)) if value else '…'}"


def shown(value: Any, declared: Option) -> Any:
    """A value as its operation's repr has it."""
    if declared.kind not in ("place", "path") or value is None:
        return value
    return tuple(map(redacted, value)) if isinstance(value, tuple) else redacted(value)


def checked(name: str, value: Any, declared: Option) -> Any:
    """One value in its canonical form, or BadOption."""
    kind = declared.kind
    if kind == "pairs":
        if not isinstance(value, Mapping):
            raise BadOption(
                f"{name.replace('-', '_')}: this is a {type(value).__name__}",
                expected="a dictionary of options",
            )
        remember_options(value)
        return Hidden(value)
    if kind in ("place", "path"):
        remember_options({"": value})
        if isinstance(value, (list, tuple)):
            return tuple(canonical(v, name=name) for v in value)
        return canonical(value, name=name)
    if kind == "size":
        return parse_size(value, option=f"--{name}")
    if kind == "flag":
        if not isinstance(value, bool):
            raise BadOption(f"--{name}: {value!r} is neither True nor False")
        return value
    if kind == "optional":
        if not isinstance(value, bool) and not (isinstance(value, str) and value):
            raise BadOption(f"--{name}: {value!r} is neither True, False nor a text")
        return value
    if kind == "count":
        return _count(name, value)
    if kind == "texts":
        try:
            values = (value,) if isinstance(value, str) else tuple(value)
        except TypeError:
            raise BadOption(f"--{name}: {value!r} is not a text or a list of texts") from None
        if not all(isinstance(v, str) and v for v in values):
            raise BadOption(f"--{name}: {value!r} is not a text or a list of texts")
        return values
    if kind == "sample":
        return _sample(name, value)
    if kind in ("text", "job") and not isinstance(value, str):
        raise BadOption(f"--{name}: {value!r} is not a text")
    if declared.choices and value not in declared.choices:
        raise BadOption(
            f"--{name}: {value!r} is not a choice", remedy=suggest(str(value), list(declared.choices))
        )
    return value


def words_of(flag: str, value: Any, declared: Option, show: Callable[[str], str]) -> list[str]:
    """One option as words of a command line."""
    if declared.kind == "flag" or value is True:
        return [flag]
    words = []
    for one in value if isinstance(value, tuple) else (value,):
        text = show(one) if declared.kind in ("place", "path") else str(one)
        # A value that looks like an option must be one word with its name.
        words += [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return words


def _count(name: str, value: Any) -> int:
    try:
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else -1
    except ValueError:
        number = -1
    if number < 0:
        raise BadOption(f"--{name}: {value!r} is not a count", expected="a whole number, 0 or more")
    return number


def _sample(name: str, value: Any) -> str:
    text = str(value).strip()
    number = text.removesuffix("%")
    try:
        good = 0 < float(number) <= 100 if text.endswith("%") else int(number) > 0
    except ValueError:
        good = False
    if not good:
        raise BadOption(
            f"--{name}: {value!r} is not a sample", expected="a number of objects or a share such as 5%"
        )
    return text
