"""Declares options, checks their values, and formats them as words of a command.

An option is declared once, with its help text, as a field of its Operation. The magic, the command line, the Python
function and the panel's form are made from that.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Set
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from nbdata.clusters import address_of, checked_cluster
from nbdata.errors import BadOption
from nbdata.moments import MOMENTS, moment_text
from nbdata.paths import canonical, path_text
from nbdata.redaction import Hidden, redacted, remember_options
from nbdata.sizes import parse_size
from nbdata.suggestions import suggest

__all__ = [
    "Option",
    "argument",
    "checked",
    "option",
    "options_of",
    "shown",
    "storage_pair",
    "suggest",
    "takes_several",
    "words_of",
]

# How deep an error looks for the value that is wrong in nested dictionaries.
_DEEPEST = 10


@dataclass(frozen=True)
class Option:
    """The declaration of one option, with everything that a face needs to offer, parse and explain it.

    Attributes
    ----------
    help : str
        One sentence for ``%verb?`` and ``--help``.
    kind : str
        ``text``, ``place`` (a path or URL), ``places`` (one or several), ``path`` (local), ``job`` (its
        id), ``flag``, ``size``, ``count``, ``texts`` (repeatable), ``sample``, ``moment`` (a date, or how long ago; in
        Python also a date, datetime or timedelta), ``pairs`` (KEY=VALUE, repeatable),
        ``optional`` (a flag that may have a value: True, or that text), ``cluster`` (its address; in Python also a
        client) or ``object`` (a file system, only in Python).
    identity : bool
        Whether it is part of the operation's identity, because it decides which bytes end up at which place.
    short : str
        The one-letter form, such as ``n``; or empty.
    choices : tuple of str
        The allowed values, or empty.
    metavar : str
        The name of the value in help texts.
    positional : bool
        Whether it is given by position and not by name.
    binding : bool
        Whether it is left out of the operation's JSON, repr and identity, because it is secret (storage options) or
        exists only in this process (a file system object).
    expected : str
        For a count: its range in words.
    per_second : bool
        For a size: whether it is a rate, which may end in ``/s``.
    stream : str
        For a place: what ``-`` means on a command line, such as ``/dev/stdin``; empty if it means nothing.
    """

    help: str
    kind: str = "text"
    identity: bool = True
    short: str = ""
    choices: tuple[str, ...] = ()
    metavar: str = ""
    positional: bool = False
    binding: bool = False
    expected: str = "a whole number, 0 or more"
    per_second: bool = False
    stream: str = ""

    @property
    def is_path(self) -> bool:
        """True if its values are paths or URLs."""
        return self.kind in ("place", "places", "path")


def argument(
    help: str,  # noqa: A002
    *,
    default: Any = MISSING,
    kind: str = "place",
    metavar: str = "",
    stream: str = "",
) -> Any:
    """Declare a positional argument of an Operation; without a default it is required."""
    declared = Option(help, kind=kind, metavar=metavar, positional=True, stream=stream)
    return field(default=default, metadata={"option": declared})


def option(default: Any, help: str, **declaration: Any) -> Any:  # noqa: A002
    """Declare a keyword-only option of an Operation; see `Option` for the declaration."""
    declared = Option(help, **declaration)
    hidden = declared.binding
    return field(
        default=default, kw_only=True, repr=not hidden, compare=not hidden, metadata={"option": declared}
    )


def options_of(cls: type[Any]) -> dict[str, tuple[Field[Any], Option]]:
    """Return the declared options of a verb by field name, positional ones first."""
    declared = {f.name: (f, f.metadata["option"]) for f in fields(cls) if "option" in f.metadata}
    return dict(sorted(declared.items(), key=lambda item: not item[1][1].positional))


def takes_several(cls: type[Any]) -> str | None:
    """Return the positional argument of a verb that takes several words; None if there is none.

    If another argument may be left out, it is not clear which words belong to which.
    """
    places = {name: one for name, one in options_of(cls).items() if one[1].positional}
    if any(declared_field.default is not MISSING for declared_field, _ in places.values()):
        return None
    return next((name for name, (_, declared) in places.items() if declared.kind == "places"), None)


# Names of storage options in other programs, and their names in nbdata, with the value that a flag stands for.
_STORAGE = {
    **{name: name for name in ("profile", "endpoint_url", "region", "token", "key", "secret")},
    **dict.fromkeys(("anon", "no_sign_request"), "anon=true"),
    **dict.fromkeys(("insecure", "no_check_certificate", "no_verify_ssl"), "verify=false"),
    "endpoint": "endpoint_url",
    "region_name": "region",
    "access_key": "key",
    "access_key_id": "key",
    "aws_access_key_id": "key",
    "secret_key": "secret",
    "secret_access_key": "secret",
    "aws_secret_access_key": "secret",
    "session_token": "token",
}


def storage_pair(name: str, value: str) -> str:
    """Return ``KEY=VALUE`` for ``--option`` if `name` is a user's word for a storage option; else empty.

    A value that may be secret is not repeated.
    """
    key = _STORAGE.get(name.removeprefix("--").replace("-", "_"), "")
    if key in ("key", "secret", "token"):
        return f"{key}=env:NAME"
    if not key or "=" in key:
        return key
    return f"{key}={shlex.quote(redacted(value)) if value else '…'}"


def shown(value: Any, declared: Option) -> Any:
    """Return a value as its operation's repr shows it."""
    if declared.kind == "cluster" and value is not None:
        return address_of(value)
    if not declared.is_path or value is None:
        return value
    return tuple(map(redacted, value)) if isinstance(value, tuple) else redacted(value)


def checked(name: str, value: Any, declared: Option) -> Any:
    """Return one value in its canonical form, or raise BadOption; no value raises another error."""
    kind = declared.kind
    if kind == "pairs":
        return _pairs(name, value)
    if kind == "places":
        return _places(name, value)
    if declared.is_path:
        return _place(name, value)
    if kind == "object" and declared.metavar == "FUNCTION":
        return _called(name, value)
    if kind == "object":
        return _file_system(name, value)
    if kind == "function" and callable(value):
        return value
    if kind == "cluster":
        return checked_cluster(name, value)
    if kind == "size":
        if not isinstance(value, (int, str)):
            raise _wrong(f"--{name}", value, "not a size", "a number of bytes, or a text such as 5GB")
        if declared.per_second and isinstance(value, str):
            value = value.strip().removesuffix("/s")
        return parse_size(value, option=f"--{name}")
    if kind == "flag":
        if not isinstance(value, bool):
            raise _wrong(f"--{name}", value, "neither True nor False")
        return value
    if kind == "optional":
        if not isinstance(value, bool) and not (isinstance(value, str) and value):
            raise _wrong(f"--{name}", value, "neither True, False nor a text")
        return value
    if kind == "count":
        return _count(name, value, declared.expected)
    if kind == "texts":
        values = (value,) if isinstance(value, str) else _several(value)
        if values is None or not all(isinstance(v, str) and v for v in values):
            if any(isinstance(v, str) and not v for v in values or ()):
                raise BadOption(
                    f"--{name}: one value is empty", remedy="Leave it out, or set the variable in it"
                )
            raise _wrong(f"--{name}", value, "not a text or a list of texts")
        return values
    if kind == "moment":
        if (text := moment_text(value)) is None:
            raise _wrong(f"--{name.replace('_', '-')}", value, "not a time", MOMENTS)
        return text
    if kind == "sample":
        return _sample(name, value)
    if not isinstance(value, str):
        texts = ", ".join(declared.choices) or (declared.metavar and f"the text {declared.metavar}")
        raise _wrong(f"--{name}", value, "not a text", texts or None)
    if declared.choices and value not in declared.choices:
        raise BadOption(
            f"--{name}: {value!r} is not a choice", remedy=suggest(str(value), list(declared.choices))
        )
    return value


def words_of(flag: str, value: Any, declared: Option, show: Callable[[str], str]) -> list[str]:
    """Return one option as words of a command line."""
    if declared.kind == "flag" or value is True:
        return [flag]
    words = []
    for one in value if isinstance(value, tuple) else (value,):
        text = show(one) if declared.is_path else address_of(one) if declared.kind == "cluster" else str(one)
        # A value that looks like an option must share one word with its name.
        words += [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return words


def _wrong(
    name: str, value: Any, what: str, expected: str | None = None, remedy: str | None = None
) -> BadOption:
    """Make the error for a value of a wrong kind; it shows short values, and of others the type.

    The option of a text may come from a command line; anything else comes from Python, and gets its name there.
    """
    if not isinstance(value, str) and name.startswith("--"):
        name = name.removeprefix("--").replace("-", "_")
    if isinstance(value, (str, int, float)):
        return BadOption(f"{name}: {value!r} is {what}", expected=expected, remedy=remedy)
    return BadOption(f"{name}: this is {what}", expected=expected, got=type(value).__name__, remedy=remedy)


def _several(value: Any) -> tuple[Any, ...] | None:
    """Return the values of an iterable, or None if it is not iterable."""
    try:
        return tuple(value)
    except TypeError:
        return None


def _place(name: str, value: Any) -> str:
    text = path_text(value)
    if text is None:
        raise _wrong(name, value, "not a path", "one path or URL, as a text or a pathlib.Path")
    remember_options({"": text})
    return canonical(text, name=name)


def _places(name: str, value: Any) -> str | tuple[str, ...]:
    """Check one place, or several in their order."""
    unordered = isinstance(value, (bytes, bytearray, Mapping, Set))
    if path_text(value) is not None or unordered or (values := _several(value)) is None:
        return _place(name, value)
    if not values:
        raise BadOption(f"{name}: this list is empty", remedy="Give at least one path or URL")
    return tuple(_place(f"{name}[{number}]", one) for number, one in enumerate(values))


def _pairs(name: str, value: Any) -> dict[str, Any]:
    name = name.replace("-", "_")
    if not isinstance(value, Mapping):
        raise _wrong(name, value, "not a dictionary of options")
    options = Hidden(value)
    remember_options(options)
    for key, one in options.items():
        try:
            json.dumps({key: one})
        except (TypeError, ValueError, RecursionError):
            inner, odd = _odd(str(key), one)
            remedy = (
                "Write bytes as text, in base64"
                if isinstance(odd, bytes)
                else "Hand in what is an object with fs="
            )
            raise BadOption(
                f"{name}: {inner!r} is neither text nor number, nor made of them",
                got=type(odd).__name__,
                remedy=remedy,
            ) from None
    return options


def _odd(name: str, value: Any) -> tuple[str, Any]:
    """Return the first value within nested dictionaries that is none of JSON, with its name for ``--option``."""
    for _ in range(_DEEPEST):
        if not isinstance(value, Mapping):
            break
        for key, one in value.items():
            try:
                json.dumps({key: one})
            except (TypeError, ValueError, RecursionError):
                name, value = f"{name}.{key}", one
                break
        else:
            break
    return name, value


def _called(name: str, value: object) -> object:
    if not callable(value):
        raise BadOption(f"{name}: this is not a function", got=type(value).__name__)
    return value


def _file_system(name: str, value: Any) -> Any:
    from fsspec import AbstractFileSystem

    if not isinstance(value, AbstractFileSystem):
        raise _wrong(
            name, value, "not a file system", "an object of fsspec, as fsspec.filesystem(…) gives it"
        )
    return value


def _count(name: str, value: Any, expected: str) -> int:
    try:
        number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else -1
    except ValueError:
        number = -1
    if number < 0:
        raise _wrong(f"--{name}", value, "not a count", expected)
    return number


def _sample(name: str, value: Any) -> str:
    text = str(value).strip() if isinstance(value, (str, int, float)) else ""
    number = text.removesuffix("%")
    try:
        good = 0 < float(number) <= 100 if text.endswith("%") else int(number) > 0
    except ValueError:
        good = False
    if not good:
        raise _wrong(f"--{name}", value, "not a sample", "a number of objects or a share such as 5%")
    return text
