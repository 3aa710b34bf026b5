"""Retries: which errors are retried, how often, and the limit per job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.engine.runner import Planning
from nbdata.errors import NotFound, StoreUnavailable
from nbdata.transfer import retry
from nbdata.transfer.retry import TRIES, TRIES_UNREACHED, retrying


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without delays."""
    monkeypatch.setattr(retry, "_FIRST", 0.0)


class Failing:
    """Fails several times, then works."""

    def __init__(self, times: int, **details: object) -> None:
        self._left, self._details, self.calls = times, {"retry": True, **details}, 0

    def __call__(self) -> str:
        self.calls += 1
        if self._left:
            self._left -= 1
            raise StoreUnavailable("broken", details=self._details)
        return "done"


def test_temporary_errors_are_retried_and_counted() -> None:
    control, attempt = Planning(), Failing(TRIES - 1)
    assert retrying(control, attempt) == "done"
    assert control.pulse().retries == TRIES - 1


@pytest.mark.parametrize(
    ("details", "calls"), [({}, TRIES), ({"unreached": True}, TRIES_UNREACHED), ({"retry": False}, 1)]
)
def test_tries_have_a_bound(details: dict[str, object], calls: int) -> None:
    attempt = Failing(100, **details)
    with pytest.raises(StoreUnavailable):
        retrying(Planning(), attempt)
    assert attempt.calls == calls


def test_permanent_errors_are_not_retried() -> None:
    def attempt() -> None:
        raise NotFound("no such object")

    control = Planning()
    with pytest.raises(NotFound):
        retrying(control, attempt)
    assert control.pulse().retries == 0


def test_a_job_has_a_bound_of_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "BUDGET", 10)
    control = Planning()
    for _ in range(3):
        assert retrying(control, Failing(3)) == "done"
    with pytest.raises(StoreUnavailable):
        retrying(control, Failing(3))
    assert control.pulse().retries == 10
    control.advance(files=5)
    assert retrying(control, Failing(3)) == "done", "who gets on may go on"


@pytest.mark.parametrize("details", [{"status": 503}, {"status": 429}, {"silent": True}])
def test_an_overloaded_store_is_recognized(details: dict[str, object]) -> None:
    control = Planning()
    retrying(control, Failing(2, **details))
    retrying(control, Failing(2, status=500))
    assert control.pulse().pushed_back == 2


def test_a_key_that_is_not_below_the_place_is_refused(
    put: Callable[[dict[str, bytes]], str], tmp_path: Path
) -> None:
    """SeaweedFS treats two slashes as one, so names below such a place would be cut at the wrong position."""
    url = put({"set/take-0": b"0", "set/take-1": b"1"})
    with pytest.raises(nbdata.BadOption, match="the store lists 'set/take-0' when it is asked for '/set/'"):
        nbdata.pull(f"{url}/set/", tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()
