"""`tests.check_pages` finds long lines and dead links, and `make help` names every target."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.check_pages import problems

ROOT = Path(__file__).parents[1]


def checked(tmp_path: Path, readme: str, page: str = "# Page\n") -> list[str]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(readme)
    (tmp_path / "docs" / "page.md").write_text(page)
    return problems(tmp_path)


def test_the_pages_of_this_checkout_are_in_order() -> None:
    assert problems(ROOT) == []


def test_correct_pages_give_no_message(tmp_path: Path) -> None:
    good = "# A\n[x](docs/page.md#the-second-one-50) [web](https://nowhere.example/)\n"
    good += "`[code](no.md)`\n```\n[code](no.md)\n```\n"
    assert (
        checked(tmp_path, good, '# Page\n## The *second* one: "50%"\n[up](../README.md) [here](#page)\n')
        == []
    )


@pytest.mark.parametrize(
    ("readme", "page", "told"),
    [
        ("x\n" * 131, "", "README.md: 131 lines"),
        ("x" * 161, "", "README.md:1: 161 characters"),
        ("\n[a](docs/none.md)", "", "README.md:2: docs/none.md leads to no file"),
        ("![a](docs/none.png)", "", "README.md:1: docs/none.png leads to no file"),
        ("[1]: docs/none.md", "", "README.md:1: docs/none.md leads to no file"),
        ("[a](docs/page.md#none)", "# Some", "docs/page.md#none: the page has no such heading"),
        ("", "\n\n[a](docs/page.md)", "docs/page.md:3: docs/page.md leads to no file"),
        ("[a](../../../etc)", "", "leads"),
    ],
)
def test_each_problem_is_named_with_its_line(tmp_path: Path, readme: str, page: str, told: str) -> None:
    (found,) = checked(tmp_path, readme, page)
    assert told in found


def test_make_help_has_a_line_for_each_target() -> None:
    shown = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    named = set(re.findall(r"^  make ([\w-]+)", shown, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert named == set(phony[1].split())
    assert all(len(line) <= 120 for line in shown.splitlines())
