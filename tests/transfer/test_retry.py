"""The policy of retries: which errors are retried, how often, after which pauses, and the limit per job."""

from __future__ import annotations

import pytest

from nbdata.engine.runner import Planning
from nbdata.errors import ChecksumMismatch, NbdataError, NotFound, StoreUnavailable
from nbdata.stores.sessions import Unusual
from nbdata.transfer import retry
from nbdata.transfer.retry import MISMATCHES, TRIES, TRIES_UNREACHED, Tries, retrying


class Recording(Planning):
    """Notes the pauses, and makes none."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses = list[float]()

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.fixture(autouse=True)
def longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the longest pause each time."""
    monkeypatch.setattr("random.uniform", lambda _shortest, longest: longest)


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
    control, attempt = Recording(), Failing(TRIES - 1)
    assert retrying(control, attempt) == "done"
    assert control.pulse().retries == TRIES - 1


@pytest.mark.parametrize(
    ("details", "calls"), [({}, TRIES), ({"unreached": True}, TRIES_UNREACHED), ({"retry": False}, 1)]
)
def test_tries_have_a_bound(details: dict[str, object], calls: int) -> None:
    attempt = Failing(100, **details)
    with pytest.raises(StoreUnavailable):
        retrying(Recording(), attempt)
    assert attempt.calls == calls


def test_permanent_errors_are_not_retried() -> None:
    def attempt() -> None:
        raise NotFound("no such object")

    control = Recording()
    with pytest.raises(NotFound):
        retrying(control, attempt)
    assert control.pulse().retries == 0


def test_a_job_has_a_bound_of_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "BUDGET", 10)
    control = Recording()
    for _ in range(3):
        assert retrying(control, Failing(3)) == "done"
    with pytest.raises(StoreUnavailable):
        retrying(control, Failing(3))
    assert control.pulse().retries == 10
    control.advance(files=5)
    assert retrying(control, Failing(3)) == "done", "who gets on may go on"


@pytest.mark.parametrize("details", [{"status": 503}, {"status": 429}, {"silent": True}])
def test_an_overloaded_store_is_recognized(details: dict[str, object]) -> None:
    control = Recording()
    retrying(control, Failing(2, **details))
    retrying(control, Failing(2, status=500))
    assert control.pulse().pushed_back == 2


def test_pauses_double_up_to_a_bound() -> None:
    control = Recording()
    retrying(control, Failing(TRIES - 1))
    assert control.pauses == [0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 20.0]


@pytest.mark.parametrize(("asked", "pause"), [(0.1, 0.4), (7.0, 7.0), (3600.0, 120.0)])
def test_a_store_may_ask_for_a_longer_pause(asked: float, pause: float) -> None:
    control = Recording()
    retrying(control, Failing(1, retry_after=asked))
    assert control.pauses == [pause]


def test_after_a_success_the_count_starts_again() -> None:
    control = Recording()
    tries = Tries(control)
    for _ in range(3):
        tries.run(Failing(TRIES - 1))
        tries.succeeded()
    assert control.pauses == 3 * control.pauses[: TRIES - 1]


def test_a_first_try_in_a_session_counts_as_one() -> None:
    control, attempt = Recording(), Failing(100)
    with pytest.raises(StoreUnavailable):
        Tries(control, StoreUnavailable("broken", details={"retry": True})).run(attempt)
    assert (attempt.calls, control.pauses[:2]) == (TRIES - 1, [0.4, 0.8])
    assert control.pulse().retries == TRIES - 1


def test_a_first_try_that_failed_for_good_is_the_only_one() -> None:
    attempt = Failing(0)
    with pytest.raises(NotFound):
        Tries(Recording(), NotFound("no such object")).until_matching(attempt)
    assert attempt.calls == 0


@pytest.mark.parametrize(
    ("failed", "retries"), [(ChecksumMismatch("wrong bytes"), 1), (Unusual("alone"), 0), (None, 0)]
)
def test_a_first_try_that_does_not_blame_the_store_leaves_all_tries(
    failed: NbdataError | None, retries: int
) -> None:
    control, attempt = Recording(), Failing(TRIES - 1)
    assert Tries(control, failed).run(attempt) == "done"
    assert control.pauses[0] == 0.4, "nothing waits before the second try"
    assert control.pulse().retries == retries + TRIES - 1


def test_wrong_bytes_are_moved_again_at_once_and_each_time_with_all_tries() -> None:
    control, moved = Recording(), 0
    tries = Tries(control)

    def wrong() -> None:
        nonlocal moved
        tries.run(Failing(TRIES - 1))
        moved += 1
        raise ChecksumMismatch("wrong bytes")

    with pytest.raises(ChecksumMismatch):
        tries.until_matching(wrong)
    assert moved == MISMATCHES
    assert len(control.pauses) == MISMATCHES * (TRIES - 1)


def test_wrong_bytes_that_no_try_can_mend_are_moved_once() -> None:
    moved = 0

    def wrong() -> None:
        nonlocal moved
        moved += 1
        raise ChecksumMismatch("nothing to compare with", details={"retry": False})

    with pytest.raises(ChecksumMismatch):
        Tries(Recording()).until_matching(wrong)
    assert moved == 1
