"""CPython's own tests of the functions that are shifted pass with the shift on as without it."""

from __future__ import annotations

import sys

import pytest

from tests.files.shifted.cpython import SUITES, outcomes


@pytest.mark.in_ci("test_glob")
@pytest.mark.parametrize("suite", SUITES)
def test_pythons_own_suite_passes_with_the_shift_on(suite: str) -> None:
    off, on = (outcomes(sys.executable, how, suite) for how in ("off", "on"))
    assert (off.pop("the shift"), on.pop("the shift")) == ("off", "on")
    assert len(on) > 10
    assert {name: told for name, told in on.items() if told != off.get(name)} == {}
    assert on.keys() == off.keys()
