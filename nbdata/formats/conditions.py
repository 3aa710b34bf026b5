"""Conditions on samples, for ``pack --select``. They are parsed, and never evaluated as Python.

::

    condition  = also {"or" also}
    also       = single {"and" single}
    single     = "not" single | "(" condition ")" | comparison
    comparison = "key" ("=" | "!=") GLOB
               | "size" ["(" FIELD ")"] ("<" | "<=" | ">" | ">=" | "=" | "!=") SIZE
               | FIELD

A FIELD is one of the sample's fields. Words with blanks, brackets or another meaning must be quoted.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from nbdata.errors import BadOption
from nbdata.globs import glob_filter
from nbdata.sizes import parse_size

__all__ = ["Condition", "parse"]

#: True if a sample is selected, given its key and the bytes of each of its fields.
Condition = Callable[[str, Mapping[str, int]], bool]

_TOKEN = re.compile(r"""\s*(?:(<=|>=|!=|==|[<>=()])|'([^']*)'|"([^"]*)"|([^\s<>=!()'"]+))""")
# Most characters of a condition, and deepest nesting of brackets and "not".
_MOST, _DEEPEST = 4096, 50
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_END = ("end", "")


def parse(text: str) -> Condition:
    """Parse a condition into a function.

    Raises
    ------
    BadOption
        If the text is not a condition; the error gives the place of the mistake.

    Examples
    --------
    >>> condition = parse("jpg and size(jpg) < 1MB and not key = 'test/*'")
    >>> condition("train/1", {"jpg": 5000, "cls": 1}), condition("test/1", {"jpg": 5000})
    (True, False)
    """
    return _Parser(text).whole()


class _Parser:
    """Reads the tokens one by one; a token is (``sign``, ``text`` or ``word``; its text)."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        if len(text) > _MOST:
            raise self._wrong("it is too long", f"at most {_MOST:,} characters")
        self._next = _END
        self._advance()

    def whole(self) -> Condition:
        """Parse the whole text."""
        condition = self._either()
        if self._next != _END:
            raise self._wrong(_there(self._next), "and, or, or the end")
        return condition

    def _wrong(self, what: str, expected: str) -> BadOption:
        return BadOption(f"--select {self._text[:200]!r}: {what}", expected=expected)

    def _advance(self) -> tuple[str, str]:
        """Return the next token, and move past it."""
        token = self._next
        rest = self._text[self._at :]
        if not rest.strip():
            self._next = _END
            return token
        match = _TOKEN.match(rest)
        if match is None:
            raise self._wrong(f"{rest.strip()[:20]!r} cannot be read", "words, signs, and quotes that end")
        self._at += match.end()
        sign, single, double, word = match.groups()
        if sign is not None:
            self._next = ("sign", sign)
        elif word is not None:
            self._next = ("word", word)
        else:
            self._next = ("text", single if single is not None else double)
        return token

    def _take(self, *wanted: str) -> str:
        """Return the next sign or word and move past it, if it is one of these; else ''."""
        kind, text = self._next
        if kind != "text" and text in wanted:
            self._advance()
            return text
        return ""

    def _needed(self, wanted: str) -> None:
        if not self._take(wanted):
            raise self._wrong(_there(self._next), f"{wanted!r}")

    def _either(self) -> Condition:
        parts = [self._also()]
        while self._take("or"):
            parts.append(self._also())
        return parts[0] if len(parts) == 1 else lambda key, sizes: any(part(key, sizes) for part in parts)

    def _also(self) -> Condition:
        parts = [self._single()]
        while self._take("and"):
            parts.append(self._single())
        return parts[0] if len(parts) == 1 else lambda key, sizes: all(part(key, sizes) for part in parts)

    def _single(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong("brackets and not are nested too deep", f"at most {_DEEPEST}")
        if self._take("not"):
            inner = self._single()
            condition: Condition = lambda key, sizes: not inner(key, sizes)  # noqa: E731
        elif self._take("("):
            condition = self._either()
            self._needed(")")
        else:
            condition = self._comparison()
        self._depth -= 1
        return condition

    def _comparison(self) -> Condition:
        kind, text = self._advance()
        if kind not in ("word", "text") or (kind == "word" and text in ("and", "or")):
            raise self._wrong(_there((kind, text)), "the name of a field, key = GLOB, or size < SIZE")
        if kind == "word" and text == "key":
            return self._of_key()
        if kind == "word" and text == "size":
            return self._of_size()
        return lambda _, sizes: text in sizes

    def _of_key(self) -> Condition:
        sign = self._take("=", "==", "!=")
        if not sign:
            raise self._wrong("key is compared with a glob", "key = GLOB, or key != GLOB")
        matches = glob_filter((self._word("a glob"),), ())
        wanted = sign != "!="
        return lambda key, _: matches(key) == wanted

    def _of_size(self) -> Condition:
        field = None
        if self._take("("):
            field = self._word("the name of a field")
            self._needed(")")
        sign = self._take(*_COMPARE)
        if not sign:
            raise self._wrong("size is compared with a number of bytes", "as in size < 1MB")
        compare, limit = _COMPARE[sign], parse_size(self._word("a size"), option="--select")
        if field is None:
            return lambda _, sizes: compare(sum(sizes.values()), limit)
        return lambda _, sizes: field in sizes and compare(sizes[field], limit)

    def _word(self, wanted: str) -> str:
        kind, text = self._advance()
        if kind not in ("word", "text") or not text:
            raise self._wrong(_there((kind, text)), wanted)
        return text


def _there(token: tuple[str, str]) -> str:
    """Describe the token that was found where something else was expected."""
    return "it ends too early" if token == _END else f"{token[1]!r} is in the wrong place"
