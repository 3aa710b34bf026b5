"""Variables in a magic's line: which are replaced, which stay, and which are refused."""

from __future__ import annotations

import random
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nbdata
from nbdata.cell_variables import has_variable
from nbdata.notebook.variables import words_of
from tests.kernel import Kernel


class Loud(dict[str, str]):
    """A dict whose use beyond plain lookup is an error."""

    @property
    def broken(self) -> str:
        raise RuntimeError("out of order")

    def __call__(self) -> str:
        raise AssertionError("it was called")


NAMES: dict[str, Any] = {
    "x": "value",
    "n": 3,
    "share": 0.5,
    "path": Path("/w/a b"),
    "job": SimpleNamespace(id="a03c", of=SimpleNamespace(name="deep")),
    "d": {"a": "s3://bucket/a", "a b": "blank", "a,b": "comma", 1: "one", "in": {"x": ["first", "last"]}},
    "urls": ["s3://bucket/0", "s3://bucket/1"],
    "loud": Loud(a="quiet"),
    "like": "{x} $x 'q",
    "flag": True,
    "option": "--delete",
    "letter": "-n",
    "less": -2.5,
}


@pytest.mark.long
def test_a_missing_place_that_is_named_like_a_variable_is_suggested_as_one(kernel: Kernel) -> None:
    kernel.run("url = 's3://bucket/d'")
    for line in ("%pull url d2 -n", "%pull url d2", "%pull url/x d2"):
        error = kernel.run(line).error or ""
        assert error.endswith(". Write {url} for the variable url"), error
    assert "Write {" not in (kernel.run("%pull other d2").error or "")


def test_code_and_comments_behind_a_command_are_named(kernel: Kernel) -> None:
    for line in ("%pull a d2 -n; print(1)", "%pull a d2; print(1)"):
        assert "what follows the ; on a line of its own" in (kernel.run(line).error or "")
    assert "the comment on a line of its own" in (kernel.run("%pull a d2 # into d2").error or "")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{x} $x ${x} a{x}b", ["value", "value", "value", "avalueb"]),
        ("{n}/{share} '{x}' \"{x}\"", ["3/0.5", "value", "value"]),
        ("{path} dd", ["/w/a b", "dd"]),
        ("{job.id} --wait", ["a03c", "--wait"]),
        ("${job.id}x {job.of.name}", ["a03cx", "deep"]),
        ("{d['a']} {d[\"a\"]} '{d['a']}'", ["s3://bucket/a", "s3://bucket/a", "s3://bucket/a"]),
        ("{d['a b']}/x {d['a,b']} {d[1]}", ["blank/x", "comma", "one"]),
        ("{urls[0]} {urls[-1]}", ["s3://bucket/0", "s3://bucket/1"]),
        ("{d['in']['x'][-1]} { x }", ["last", "value"]),
        ("{loud['a']}", ["quiet"]),
        ("{like} --tag={like}", ["{x} $x 'q", "--tag={x} $x 'q"]),
        ("s3://b/{a,b}/{000..099}.tar {} x{}", ["s3://b/{a,b}/{000..099}.tar", "{}", "x{}"]),
        ("{a,{x}} ${a,b} {a..c}", ["{a,value}", "${a,b}", "{a..c}"]),
        ("a[{]b}.txt a[{]b[}]{x}", ["a[{]b}.txt", "a[{]b[}]value"]),
        ("'*.jp[eg]' a\\ b '' $", ["*.jp[eg]", "a b", "", "$"]),
        ("--{x}={option} -{n} ./{option}", ["--value=--delete", "-3", "./--delete"]),
        ("--seed {less} -- {option} $letter", ["--seed", "-2.5", "--", "--delete", "-n"]),
    ],
)
def test_variables_are_looked_up_and_patterns_stay(line: str, words: list[str]) -> None:
    assert words_of(line, NAMES, prog="%pull") == words


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{nothing}", "{nothing} is not set. Set the variable nothing first"),
        ("$nothing", "$nothing is not set"),
        ("{nothing.id}", "{nothing.id}: nothing is not set. Set the variable nothing first"),
        ("{job.name}", "{job.name} cannot be looked up (AttributeError: "),
        ("{d['b']}", "{d['b']} cannot be looked up (KeyError: 'b')"),
        ("{urls[2]}", "{urls[2]} cannot be looked up (IndexError: list index out of range)"),
        ("{n[0]}", "{n[0]} cannot be looked up (TypeError: "),
        ("{loud.broken}", "{loud.broken} cannot be looked up (RuntimeError: out of order)"),
        ("{job.of}", "{job.of} is a SimpleNamespace (expected text, a number or a path)"),
        ("{flag}", "{flag} is a bool"),
        ("{loud()}", "{loud()} is not evaluated (expected {name}, {name.attribute}, {name[0]}, {name['key']}"),
        ("{n + 1}", "first: value = n + 1, and then write {value}"),
        ("{urls[n]}", "{urls[n]} is not evaluated"),
        ("{n:03d}", "{n:03d} is not evaluated"),
        ("{123}", "{123} is not evaluated"),
        ("{'a'.x}", "is not evaluated"),
        ("'a b", "%pull: no closing quotation. Close the quotes"),
        ("a\0b", "%pull: the command contains a NUL character"),
        ("{option} out", "the value '--delete' of a variable begins with a dash, so it would be an option"),
        ("s3://b/x ${option}=1", "the value '--delete=1' of a variable begins with a dash"),
        ("s3://b/x '$letter'", "A place of this name goes behind --"),
    ],
)  # fmt: skip
def test_all_else_is_refused_in_words(line: str, told: str) -> None:
    with pytest.raises(nbdata.BadOption) as caught:
        words_of(line, NAMES, prog="%pull")
    assert told in str(caught.value)


def test_a_line_in_which_no_variable_is_found_stays_as_it_is() -> None:
    source, plain = random.Random(1), 0
    for _ in range(20_000):
        line = "".join(source.choices("${}[]],..axn01\"'\\ ", k=source.randrange(12)))
        if has_variable(line):
            continue
        try:
            words = shlex.split(line)
        except ValueError:
            continue
        assert words_of(line, NAMES, prog="%pull") == words, line
        plain += 1
    assert plain > 1_000
    for line in ("{x}", "$x", "${x}", "{d['a']}", '{d["a,b"]}', "a{n}b", "{urls[0]}", "{x.y}", "{x!r}"):
        assert has_variable(line)
    for line in ("{a,b}", "{000..099}", "[{]x}", "a$", "$", "{}", "a b 'c'"):
        assert not has_variable(line)


def test_attributes_and_items_work_in_a_cell(kernel: Kernel, tree: Path) -> None:
    out = kernel.run(
        f"d = {{'a': {str(tree)!r}}}\n"
        "%pull {d['a']} got -b -o j\n"
        "%transfers {j.id} --wait -o report\n"
        "print(report.counts)"
    )
    assert "{'fetched': 5}" in out.text, (out.error, out.displays)
