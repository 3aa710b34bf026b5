"""Expands the user's variables in a magic's command: ``$name``, ``{name}``, ``{job.id}``, ``{urls[0]}``,
``{made['a']}``.

Nothing is evaluated. Names, attributes and items with a constant key are looked up; anything else in braces is refused.
IPython's own expansion would evaluate the text in braces, turn ``{a,b}`` into a tuple and misread ``{000..099}``.
"""

from __future__ import annotations

import ast
import numbers
import os
import re
import shlex
from collections.abc import Mapping, Sequence

from nbdata.cell_variables import BRACES
from nbdata.errors import BadOption
from nbdata.paths import is_brace_pattern

__all__ = ["meant_variable", "words_and_written", "words_of"]

# Placeholder for braces while the command is split: it must be one word, whatever the braces contain.
_HELD = re.compile(r"\0(\d+)\0|\$(\w+)")
_NUMBER = re.compile(r"-[\d.]+(e[-+]?\d+)?")


def words_of(line: str, names: Mapping[str, object], *, prog: str) -> list[str]:
    """Return the words of a command; see `words_and_written`."""
    return words_and_written(line, names, prog=prog)[0]


def words_and_written(line: str, names: Mapping[str, object], *, prog: str) -> tuple[list[str], list[str]]:
    """Split a command into words as a shell does, and expand its variables from `names`.

    ``{a,b}`` and ``{000..099}`` are brace patterns and stay as they are. Values are not expanded again. The second list
    has the words as the cell has them: with nothing in place of a variable.

    Raises
    ------
    BadOption
        If quotes are not closed, if a variable is not set or is not text, a number or a path, if the braces contain
        anything else, or if a value would count as an option: it may be the name of a foreign file.
    """
    values: list[str] = []

    def held(match: re.Match[str]) -> str:
        written, inner = match[0], match[1]
        node = _parsed(inner)
        if node is None and (not inner or is_brace_pattern(f"{{{inner}}}")):
            return written
        values.append(_text(written, _found(written, inner, node, names)))
        return f"\0{len(values) - 1}\0"

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return values[int(match[1])]
        return _text(match[0], _found(match[0], match[2], ast.Name(match[2]), names))

    if "\0" in line:
        raise BadOption(f"{prog}: the command contains a NUL character")
    line = BRACES.sub(held, line)
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise BadOption(f"{prog}: {str(error).lower()}", remedy="Close the quotes") from None
    expanded = [_HELD.sub(value, word) for word in words]
    end = words.index("--") if "--" in words else len(words)
    for word, text in zip(words[:end], expanded, strict=False):
        if text.startswith("-") and not word.startswith("-") and not _NUMBER.fullmatch(text):
            raise BadOption(
                f"{prog}: the value {text[:80]!r} of a variable begins with a dash, so it would be an option",
                remedy="Write options into the line itself. A place of this name goes behind --",
            )
    return expanded, [_HELD.sub("", word) for word in words]


def meant_variable(words: Sequence[str], missing: str, names: Mapping[str, object]) -> str:
    """Return the remedy if the place that is missing was written as the name of a variable; else empty."""
    for word in words:
        name = word.partition("/")[0]
        if missing.endswith(f"/{word}") and name and isinstance(names.get(name), (str, os.PathLike)):
            return f"Write {{{name}}} for the variable {name}"
    return ""


def _parsed(inner: str) -> ast.expr | None:
    """Parse the text in braces; None unless it is a name with attributes and items."""
    try:
        node = top = ast.parse(inner.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Subscript) and not _is_constant(node.slice):
            return None
        node = node.value
    return top if isinstance(node, ast.Name) else None


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant)


def _found(written: str, inner: str, node: ast.expr | None, names: Mapping[str, object]) -> object:
    """Look up the value of an expression."""
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise BadOption(
                f"{written} is not set" if inner == node.id else f"{written}: {node.id} is not set",
                remedy=f"Set the variable {node.id} first; names in single quotes are replaced too",
            )
        return names[node.id]
    if not isinstance(node, (ast.Attribute, ast.Subscript)):
        raise BadOption(
            f"{written} is not evaluated",
            expected="{name}, {name.attribute}, {name[0]}, {name['key']}, or a pattern such as {a,b} or {00..99}",
            remedy=f"Put it into a variable first: value = {inner.strip()}, and then write {{value}}",
        )
    of = _found(written, inner, node.value, names)
    try:
        if isinstance(node, ast.Attribute):
            return getattr(of, node.attr)
        return of[ast.literal_eval(node.slice)]  # type: ignore[index]  # what has no items says so
    except Exception as error:  # any error of the user's own object
        raise BadOption(
            f"{written} cannot be looked up ({type(error).__name__}: {error})",
            remedy=f"Look at what {ast.unparse(node.value)} holds",
        ) from None


def _text(written: str, value: object) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bool) or not isinstance(value, (str, numbers.Real)):
        raise BadOption(f"{written} is a {type(value).__name__}", expected="text, a number or a path")
    return str(value)
