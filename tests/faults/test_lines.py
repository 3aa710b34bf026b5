"""One fault in one command: which bytes are transferred again, and which are not."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import TransferFailed
from tests.conftest import client_of
from tests.faults.proxy import AFTER, BEFORE, BODY, Exchange, Fault, FaultProxy, Plan
from tests.faults.scene import objects_of
from tests.faults.trees import put_parts

PART = 16 << 20
BIG = random.Random(5).randbytes(40_000_000)
SMALL = BIG[:2000]


@pytest.fixture
def proxy(s3: EmbeddedServer, inline: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    with FaultProxy(s3.url) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
        yield made


def always(fault: Fault, **what: str) -> Plan:
    """Return a plan that injects the fault into each request that matches `what`."""

    def plan(request: Exchange, before: int) -> Fault | None:
        return fault if all(getattr(request, name) == value for name, value in what.items()) else None

    return plan


def once(fault: Fault, **what: str) -> Plan:
    """Return a plan that injects the fault only into the first attempt of each request that matches `what`."""
    each = always(fault, **what)
    return lambda request, before: None if before else each(request, before)


@pytest.fixture
def push(s3: EmbeddedServer, bucket: str, tmp_path: Path) -> Iterator[Callable[..., nbdata.Report]]:
    """Return a function that pushes one file, `x`."""

    def say(data: bytes, **options: Any) -> nbdata.Report:
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / "x").write_bytes(data)
        return nbdata.push(tmp_path / "in", f"s3://{bucket}/", quiet=True, **options)  # type: ignore[no-any-return]

    return say


@pytest.fixture
def there(s3: EmbeddedServer, bucket: str) -> Iterator[Callable[[], dict[str, bytes]]]:
    """Return a function that returns the bucket's content."""
    client = client_of(s3)
    yield lambda: objects_of(client, bucket)
    client.close()


@pytest.mark.parametrize(
    "fault",
    [Fault("refuse", BEFORE, status=500), Fault("drop", BEFORE), Fault("swallow", AFTER)],
    ids=["refused", "never came", "answer lost"],
)
@pytest.mark.in_ci("answer lost")
def test_an_upload_that_is_not_completed_at_once_is_not_sent_again(
    fault: Fault, proxy: FaultProxy, push: Any, there: Any
) -> None:
    tally = proxy.begin(once(fault, action="complete"))
    report = push(BIG)
    assert report.ok
    assert len(tally.faults) == 1
    assert tally.up == {"x": len(BIG)}
    assert there() == {"x": BIG}


def test_only_the_part_that_arrived_wrong_is_sent_again(proxy: FaultProxy, push: Any, there: Any) -> None:
    tally = proxy.begin(once(Fault("flip", BODY, 0.5), action="part", part="2"))
    assert push(BIG).ok
    assert len(tally.faults) == 1
    assert tally.up == {"x": len(BIG) + PART}
    assert there() == {"x": BIG}


def test_an_object_that_cannot_be_verified_is_not_deleted(proxy: FaultProxy, push: Any, there: Any) -> None:
    with FaultProxy(proxy.url, opaque="x") as opaque, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", opaque.url)
        with pytest.raises(TransferFailed, match="no MD5"):
            push(SMALL, verify="md5")
    assert there() == {"x": SMALL}


def test_a_part_that_broke_off_goes_on_where_it_stopped(
    proxy: FaultProxy, put: Callable[[dict[str, bytes]], str], tmp_path: Path
) -> None:
    url = put({"x": BIG})
    tally = proxy.begin(once(Fault("cut", BODY, 0.5), action="get", part=str(2 * PART - 1)))
    assert nbdata.pull(url, tmp_path / "out", quiet=True).ok
    assert len(tally.faults) == 1
    assert tally.down == {"x": len(BIG)}
    assert (tmp_path / "out" / "x").read_bytes() == BIG


@pytest.mark.parametrize("number", ["1", "3"])
@pytest.mark.parametrize(
    "fault", [Fault("drop", BEFORE), Fault("refuse", BEFORE, status=500)], ids=["lost", "refused"]
)
@pytest.mark.in_ci("lost-3")
def test_bytes_are_checked_although_the_question_for_their_parts_was_lost(
    number: str, fault: Fault, proxy: FaultProxy, s3: EmbeddedServer, bucket: str, tmp_path: Path
) -> None:
    client = client_of(s3)
    put_parts(client, bucket, "x", io.BytesIO(BIG), PART)
    client.close()
    asked = once(fault, action="head", part=number)
    wrong = once(Fault("flip", BODY, 0.5), action="get", part=str(2 * PART - 1))
    tally = proxy.begin(lambda request, before: asked(request, before) or wrong(request, before))
    report = nbdata.pull(f"s3://{bucket}/", tmp_path / "out", quiet=True)
    assert len(tally.faults) == 2
    assert (tmp_path / "out" / "x").read_bytes() == BIG
    assert all(note.startswith("retried") for note in report.notes)  # none was not verified


def test_a_silent_connection_is_given_up_after_the_stall_timeout(
    proxy: FaultProxy,
    put: Callable[[dict[str, bytes]], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = put({"x": SMALL})
    monkeypatch.setenv("NBDATA_STALL_TIMEOUT", "2")
    proxy.begin(once(Fault("stall", BODY, 0.5), action="get"))
    report = nbdata.pull(url, tmp_path / "out", quiet=True)
    assert report.ok
    assert report.retries >= 1
    assert any(note.startswith("retried") and "it took too long" in note for note in report.notes)
    assert report.seconds >= 2
