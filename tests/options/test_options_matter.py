"""Each shared option changes what its verb does: its plan, its result, or how it goes about it.

The groups and verbs come from the classes. So a new option or verb without a case in `cases` fails here.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nbdata.operation import Operation
from nbdata.option import option
from nbdata.verbs import VERBS
from nbdata.verbs.options import Selecting
from tests.stores.folder_server import _Handler, folder_server

from .cases import CASES, REASONS, Case
from .groups import GROUPS, Cell, cells
from .scenes import Place, empty_shelves

pytestmark = pytest.mark.usefixtures("inline")

Judge = Callable[..., str]
_FRESH = itertools.count()


class _Pages(_Handler):
    """A web server that calls every file a web page."""

    def end_headers(self) -> None:
        self.send_header("Content-Type", "text/html")
        super().end_headers()


@pytest.fixture
def judged(tmp_path: Path, request: pytest.FixtureRequest) -> Judge:
    """Return a function that says what is wrong with an option in a case; an empty text if it matters."""
    root = tmp_path / "scene"
    found: dict[str, Any] = {}

    def put(objects: dict[str, bytes]) -> str:
        if "put" not in found:  # the server starts only for the cases that need it
            found["put"] = request.getfixturevalue("put")
        return str(found["put"](objects))

    def web(folder: Path) -> str:
        if "web" not in found:
            running = folder_server(folder, _Pages)
            found["web"] = running.__enter__().url
            request.addfinalizer(lambda: running.__exit__(None, None, None))
        return str(found["web"])

    def outcome(case: Case, verb: type[Operation], given: bool) -> Any:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        with pytest.MonkeyPatch.context() as patch, empty_shelves():
            patch.setenv("NBDATA_STATE_DIR", str(tmp_path / f"state-{next(_FRESH)}"))
            place = Place(root, put, patch, f"run-{next(_FRESH)}", web)
            places, options = case.scene(place)
            if given:
                options[case.option] = case.value(place) if callable(case.value) else case.value
            return case.observe(lambda: verb(*places, **options))

    def judge(case: Case, verb: type[Operation] | None = None) -> str:
        verb = verb or VERBS[case.verb]
        without, given = (outcome(case, verb, given) for given in (False, True))
        name = f"{case.form or case.verb}: {case.option}"
        if given == without:
            return f"{name} changes nothing: {given!r}"
        if case.fewer and not (given and {*given} < {*without}):
            return f"{name} does not select some of {without!r}, but {given!r}"
        return ""

    return judge


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_option_matters(judged: Judge, case: Case) -> None:
    assert not judged(case)


def uncovered(found: Iterable[Cell]) -> list[str]:
    """Return the options that have neither a case nor a reason."""
    covered = {(case.verb, case.option) for case in CASES} | REASONS.keys()
    return [
        f"{one.verb}: {one.option} (of {one.group})" for one in found if (one.verb, one.option) not in covered
    ]


def test_each_shared_option_of_each_verb_has_a_case_or_a_reason() -> None:
    for (verb, name), reason in REASONS.items():
        print(f"not observed: {verb} {name}: {reason}")
    missing = uncovered(cells())
    assert not missing, f"add a scene to tests/options/cases.py in which each of these matters: {missing}"


def test_no_case_or_reason_is_left_of_an_option_that_is_gone() -> None:
    known = {(one.verb, one.option) for one in cells()}
    cases = {(case.verb, case.option) for case in CASES}
    assert cases | REASONS.keys() <= known
    assert not cases & REASONS.keys()


# -- the tests themselves ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _More(Selecting):
    """The group of selecting options with one more, which no verb knows yet."""

    larger: int | None = option(None, "Take only larger objects.", kind="size")


def _with_more(verb: type[Operation]) -> type[Operation]:
    return dataclass(frozen=True)(type(verb.__name__, (verb, _More), {"verb": verb.verb}))


def test_groups_and_verbs_are_found_in_the_classes() -> None:
    assert Selecting in GROUPS
    assert Cell("md5check", "max_files", "Selecting") in {*cells()}
    assert Cell("md5check", "include", "Filtering") in {*cells()}


def test_a_new_option_is_reported_until_each_verb_with_it_has_a_case() -> None:
    verbs = [verb for verb in VERBS.values() if issubclass(verb, Selecting)]
    missing = uncovered(cells(map(_with_more, verbs), [*GROUPS, _More]))
    assert missing == [f"{verb.verb}: larger (of _More)" for verb in verbs]


_CHOSEN = [case for case in CASES if case.option == "max_files"]


@pytest.mark.parametrize("case", _CHOSEN, ids=str)
def test_a_new_option_that_a_verb_ignores_is_reported(judged: Judge, case: Case) -> None:
    told = judged(replace(case, option="larger", value=5), _with_more(VERBS[case.verb]))
    assert "larger changes nothing" in told
