"""docs/verbs.md documents every verb with all its options; it is generated from the verbs' declarations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nbdata
from nbdata.cli import _EXAMPLES, _extra
from nbdata.option import options_of
from nbdata.verbs import VERBS
from nbdata.verbs.parsing import flag_of, help_text
from tests.pages import same_page

HEAD = """# The verbs

For everybody who looks for a verb or an option. This page has every verb with all its options, as
`nbdata VERB --help` prints them.

In a notebook, write `%VERB` with the same options, and `-o NAME` in place of `--json`. In Python, the options are
keyword arguments with underscores (`max_bytes="4GB"`).
"""


def test_the_page_of_the_verbs_is_what_the_declarations_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    parts = [HEAD]
    for verb, cls in VERBS.items():
        parts.append(
            f"\n## {verb}\n\n```\n{help_text(cls, f'nbdata {verb}', _extra(cls), _EXAMPLES.get(verb))}```\n"
        )
    same_page("verbs.md", "".join(parts))


def test_every_option_is_explained_and_every_verb_has_examples() -> None:
    for verb, cls in VERBS.items():
        text = help_text(cls, f"nbdata {verb}", _extra(cls))
        documentation = getattr(nbdata, verb).__doc__
        assert cls.examples, verb
        for name, (_, declared) in options_of(cls).items():
            assert declared.help[0].isupper() or declared.choices, (verb, name)
            assert declared.help.endswith("."), (verb, name)
            assert f"\n{name} : " in documentation
            if not declared.positional and declared.kind != "object":
                assert flag_of(name) in text


def test_no_text_says_to_install_nbdata_from_a_registry() -> None:
    """In a checkout the command is ``pip install '.[gs]'``.

    An installed nbdata can only lack packages of other projects.
    """
    root = Path(__file__).parents[1]
    told = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("nbdata/**/*.py")]
    told += root.glob("notebooks/*.ipynb")
    assert [file for file in told if re.search(r"pip install \S*nbdata", file.read_text())] == []
