"""Parses the words of a command into an operation: one parser per verb, for magics and the command line.

argparse does the parsing. Its errors become BadOption, with a suggestion for a misspelt option.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import Any, NoReturn

from nbdata.errors import BadOption
from nbdata.operation import Operation
from nbdata.option import Option, options_of, storage_pair, suggest, takes_several
from nbdata.redaction import is_secret_name
from nbdata.verbs.options import FACE_OPTIONS

__all__ = ["face_options", "flag_of", "help_text", "pairs", "parse", "written_secrets"]

_FLAGS = {
    "storage_options": "option",
    "target_options": "target-option",
}  # fields whose option has another name


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # argparse's own messages are written for programmers
        without = re.fullmatch(r"argument (?:-\w/)?(-[\w-]+): expected one argument", message)
        with_one = re.fullmatch(
            r"argument (?:-\w/)?(-[\w-]+): ignored explicit argument .*", message, re.DOTALL
        )
        if without:
            message = f"{without[1]} needs a value"
        elif with_one:
            message = f"{with_one[1]} takes no value"
        raise BadOption(f"{self.prog}: {message}", remedy=f"{self.prog} --help explains the options")


def flag_of(name: str) -> str:
    """Return the flag of an option."""
    return "--" + _FLAGS.get(name, name).replace("_", "-")


def _add(parser: argparse.ArgumentParser, name: str, declared: Option, default: object) -> None:
    names = [f"-{declared.short}"] * bool(declared.short) + [flag_of(name)]
    text = declared.help.replace("%", "%%")
    if declared.kind == "flag":
        parser.add_argument(*names, dest=name, action="store_true", default=None, help=text)
        return
    if declared.kind == "optional":
        parser.add_argument(*names, dest=name, nargs="?", const=True, metavar=declared.metavar, help=text)
        return
    if default not in (None, MISSING, ()):
        text += f" (default: {default})"
    repeat = declared.kind in ("texts", "pairs")
    metavar = (
        "|".join(declared.choices)
        or declared.metavar
        or ("KEY=VALUE" if declared.kind == "pairs" else _METAVARS[declared.kind])
    )
    parser.add_argument(*names, dest=name, action="append" if repeat else "store", metavar=metavar, help=text)


_METAVARS = {
    "size": "SIZE",
    "count": "N",
    "path": "FILE",
    "place": "PATH",
    "text": "TEXT",
    "texts": "TEXT",
    "sample": "N|P%%",
    "moment": "WHEN",
}


_SIZES = "SIZE is a number of bytes, or has a unit: 5GB is 5·10⁹ bytes, 5GiB and 5g are 5·2³⁰."


def _parser(
    cls: type[Operation], prog: str, extra: Mapping[str, Option], examples_of: Sequence[str]
) -> _Parser:
    import inspect

    description = f"{cls.summary}\n\n{inspect.cleandoc(cls.__doc__ or '')}"
    examples = "\n".join(f"  {prog.removesuffix(cls.verb)}{example}" for example in examples_of)
    sizes = _SIZES if any(o.kind == "size" for _, o in options_of(cls).values()) else ""
    parser = _Parser(
        prog=prog,
        description=description,
        epilog="\n\n".join(filter(None, [sizes, f"examples:\n{examples}" if examples else ""])) or None,
        add_help=False,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=_usage(cls, prog).replace("%", "%%"),
    )
    places = parser.add_argument_group("arguments")
    options = parser.add_argument_group("options")
    for name, (declared_field, declared) in options_of(cls).items():
        if declared.positional:
            places.add_argument(
                f"_{name}", metavar=declared.metavar, nargs="?", help=declared.help.replace("%", "%%")
            )
        elif declared.kind != "object":
            _add(options, name, declared, declared_field.default)  # type: ignore[arg-type]  # a group has add_argument
    face = parser.add_argument_group("common options")
    for name, declared in extra.items():
        _add(face, name, declared, None)  # type: ignore[arg-type]
    face.add_argument("-h", "--help", dest="help", action="store_true", help="Show this text.")
    return parser


def _usage(cls: type[Operation], prog: str) -> str:
    words, several = [], takes_several(cls)
    for name, (declared_field, declared) in options_of(cls).items():
        if declared.positional:
            metavar = declared.metavar + "…" * (name == several)
            words.append(metavar if declared_field.default is MISSING else f"[{metavar}]")
    return " ".join([prog, *words, "[options]"])


def face_options(cls: type[Operation], extra: Mapping[str, Option]) -> dict[str, Option]:
    """Return the options that a face adds to a verb; queries have no plan, and queries and streams no background."""
    absent = {"dry_run", "background"} if cls.query else {"background"} if cls.bound else set()
    common = {n: o for n, o in FACE_OPTIONS.items() if n not in absent}
    return {**common, **extra}


def help_text(
    cls: type[Operation], prog: str, extra: Mapping[str, Option], examples: Sequence[str] | None = None
) -> str:
    """Return the manual of a verb for one face, which may have its own examples."""
    return _parser(cls, prog, face_options(cls, extra), examples or cls.examples).format_help()


def parse(
    cls: type[Operation],
    words: Sequence[str],
    *,
    prog: str,
    extra: Mapping[str, Option],
    env: Mapping[str, str] | None = None,
    streams: bool = False,
) -> tuple[Operation | None, dict[str, Any]]:
    """Return the operation of a command and the values of the face's own options; None if help is requested.

    Parameters
    ----------
    extra : dict
        Options of this face beside the common ones.
    env : dict, optional
        The environment for ``KEY=env:NAME`` (None: that of this process).
    streams : bool
        Whether ``-`` may mean standard input or output of this process.

    Raises
    ------
    BadOption
        If the words are not a valid command.
    """
    own = face_options(cls, extra)
    declared = options_of(cls)
    places = [name for name, (_, o) in declared.items() if o.positional]
    flags = {flag_of(n): n for n, (_, o) in declared.items() if not o.positional and o.kind != "object"}
    flags |= {flag_of(n): n for n in own}
    parser = _Parser(prog=prog, add_help=False, allow_abbrev=False)
    for name, (_, option) in declared.items():
        if not option.positional and option.kind != "object":
            _add(parser, name, option, None)
    for name, option in own.items():
        _add(parser, name, option, None)
    parser.add_argument("-h", "--help", dest="help", action="store_true")
    parser.add_argument("places", nargs="*")
    words = list(words)
    at = words.index("--") if "--" in words else len(words)
    found, unknown = parser.parse_known_intermixed_args(words[:at])
    if found.help:
        return None, {}
    found.places += words[at + 1 :]  # behind --, all are places
    for word in unknown:
        name, equals, value_in_word = word.partition("=")
        after = words[words.index(word) + 1 :] if word in words else []
        if not equals and after and not after[0].startswith("-"):
            value_in_word = after[0]
        pair = storage_pair(name, value_in_word) if "--option" in flags else ""
        remedy = f"Write --option {pair}" if pair else suggest(name, list(flags))
        raise BadOption(f"{prog}: unknown option {name}", remedy=remedy)
    several = takes_several(cls)
    if several is not None and (more := len(found.places) - len(places)) > 0:
        at = places.index(several)
        found.places[at : at + more + 1] = [tuple(found.places[at : at + more + 1])]
    if len(found.places) > len(places):
        raise BadOption(
            f"{prog}: {len(found.places)} paths are too many",
            expected=" ".join(declared[n][1].metavar for n in places),
            remedy="Put a path with spaces in quotes, and a glob, which a shell would expand",
        )
    needed = sum(declared[name][0].default is MISSING for name in places)
    for name in [n for n, (_, o) in declared.items() if o.kind == "optional"]:
        # ``verb --option PLACE``: a word that a required place lacks is no value of the option.
        value = getattr(found, name)
        if len(found.places) < needed and value in words:
            before = sum(words.index(place) < words.index(value) for place in found.places)
            found.places.insert(before, value)
            setattr(found, name, True)
    for name in places[len(found.places) :]:
        if declared[name][0].default is MISSING:
            raise BadOption(
                f"{prog}: {declared[name][1].metavar} is missing", remedy=f"Usage: {_usage(cls, prog)}"
            )
    values: dict[str, Any] = dict(zip(places, found.places, strict=False))
    for name, value in values.items():
        if streams and value == "-" and declared[name][1].stream:
            values[name] = declared[name][1].stream
    for name in declared:
        value = getattr(found, name, None)
        if name not in places and value is not None:
            values[name] = pairs(value, env) if declared[name][1].kind == "pairs" else value
    return cls(**values), {name: getattr(found, name) for name in own}


def written_secrets(words: Sequence[str]) -> list[str]:
    """Return the storage options among `words` that contain a secret, instead of ``KEY=env:NAME``."""
    found = []
    for before, word in zip(["", *words], words, strict=False):
        flag, _, pair = word.partition("=") if word.startswith("--") else (before, "", word)
        key, _, value = pair.partition("=")
        names = key not in ("key", "username") and is_secret_name(key)  # an access key is no secret by itself
        if flag in ("--option", "--target-option") and names and value and not value.startswith("env:"):
            found.append(f"{flag} {key}")
    return found


def pairs(words: list[str], env: Mapping[str, str] | None) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` words; a dot in KEY makes a nested dictionary, ``env:NAME`` reads the environment."""
    out: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise BadOption(f"--option: {key!r} has no value", expected="KEY=VALUE or KEY=env:NAME")
        if value.startswith("env:"):
            name = value[4:]
            text_of_env = (os.environ if env is None else env).get(name)
            if text_of_env is None:
                raise BadOption(f"--option {key}: the environment has no {name}", remedy=f"Set {name} first")
            value = text_of_env
        *outer, last = key.split(".")
        at = out
        for part in outer:
            at = at.setdefault(part, {})
        at[last] = value
    return out
