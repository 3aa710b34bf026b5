"""Whatever lies in ``.nbdata/``: nothing outside changes, nothing hangs or fills memory, and each error says why."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.scenes import ENTRIES, KINDS, VERBS
from tests.waiting import PATIENCE

_ROOT = Path(__file__).parents[2]
_PLAY = f"import sys; sys.path.append({str(_ROOT)!r}); from tests.hostile.scenes import main; main()"
# The most bytes of memory that the scenes of one process may take beyond what the verbs take anyway.
_MEMORY = 200 << 20


def scenes(verb: str, *, all_of_them: bool) -> Iterator[str]:
    """Name scenes of a verb. All verbs together have each entry with each kind, if not `all_of_them`."""
    turn = list(VERBS).index(verb)
    for row, entry in enumerate(ENTRIES):
        for column, kind in enumerate(KINDS):
            if all_of_them or (row + column) % len(VERBS) == turn:
                yield f"{verb} {entry} {kind}"


def played(names: list[str], folder: Path) -> list[dict[str, Any]]:
    """Play scenes in a process of their own, and return what came of each; fails if that process hangs."""
    (folder / "names").write_text("\n".join(names))
    with (folder / "names").open() as asked:
        out = subprocess.run(
            [sys.executable, "-c", _PLAY], cwd=folder, stdin=asked, capture_output=True, text=True,
            timeout=PATIENCE + 2 * len(names),
        )  # fmt: skip
    assert out.returncode == 0, out.stderr
    return [json.loads(line) for line in out.stdout.splitlines()]


def check(names: list[str], folder: Path) -> None:
    answers = played(names, folder)
    assert [one["scene"] for one in answers] == names
    assert [one for one in answers if one["touched"]] == []
    assert [one for one in answers if "internal error" in one["said"]] == []
    assert max(one["memory"] for one in answers) < _MEMORY


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.in_ci("untar", "cleanup", 1)
def test_what_lies_in_the_place_of_an_own_file_leads_no_verb_astray(tmp_path: Path, verb: str) -> None:
    check(list(scenes(verb, all_of_them=False)), tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("verb", VERBS)
def test_no_entry_of_any_kind_leads_a_verb_astray(tmp_path: Path, verb: str) -> None:
    check(list(scenes(verb, all_of_them=True)), tmp_path)


@pytest.mark.in_ci("link-to-folder")
@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("kind", ["link-to-folder", "folder"])
def test_what_has_the_place_of_a_replaced_split_is_not_moved_into_the_data_set(
    tmp_path: Path, kind: str
) -> None:
    """A conversion that was killed between two renames moves the split that it would have replaced back."""
    (said,) = played([f"convert .nbdata/converting/train.old {kind}"], tmp_path)
    assert (said["said"], said["touched"]) == ("", False)
