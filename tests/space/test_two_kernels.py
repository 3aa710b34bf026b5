"""Two kernels pull below one limit: the second is refused before it transfers a byte, and runs when there is room."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nbdata.demo.server import EmbeddedServer
from tests.faults.gate import Gate
from tests.kernel import Kernel
from tests.slow import SlowProxy
from tests.waiting import wait_until

MB = 10**6


@pytest.fixture
def kernels(
    s3: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Kernel, Gate, Kernel, SlowProxy]]:
    """Two kernels with separate proxies to the store: one proxy can be held, the other counts bytes."""
    with ExitStack() as stack:
        gate = stack.enter_context(Gate(s3.url, limit=12 * MB))
        counted = stack.enter_context(SlowProxy(s3.url, rate=10**9))
        running = []
        for url in (gate.url, counted.url):
            monkeypatch.setenv("AWS_ENDPOINT_URL", url)
            running.append(stack.enter_context(Kernel(tmp_path)))
            assert running[-1].run("%load_ext nbdata").error is None
        yield running[0], gate, running[1], counted


def test_the_second_of_two_kernels_waits_until_the_first_is_cleaned_up(
    kernels: tuple[Kernel, Gate, Kernel, SlowProxy],
    put: Callable[[dict[str, bytes]], str],
    tmp_path: Path,
) -> None:
    first, gate, second, counted = kernels
    url = put({f"{name}/{number}": os.urandom(3 * MB) for name in "ab" for number in range(10)})
    room = tmp_path / "room"
    room.mkdir()
    assert first.run(f"%quota {room} --limit 50MB").error is None
    try:
        cell = first.start(f"%pull {url}a/ {room}/a -o report")
        gate.wait_until_it_holds()  # halfway through the pull
        refused = second.run(f"%pull {url}b/ {room}/b")
        assert "needed  30" in (refused.error or "") + refused.text, refused
        assert "reserved by other jobs" in (refused.error or "") + refused.text
        assert not (room / "b").exists()
        assert counted.answered < 100_000, "more than a listing went over its line"
        gate.open()
        assert first.collect(cell).error is None
        assert len(list((room / "a").iterdir())) == 10
        refused = second.run(f"%pull {url}b/ {room}/b")
        assert "needed  30" in (refused.error or "") + refused.text
        assert not (room / "b").exists()
        assert first.run(f"%cleanup {room}/a --all").error is None
        wait_until(lambda: not (room / "a").exists() or not any((room / "a").iterdir()))
        assert second.run(f"%pull {url}b/ {room}/b").error is None
        assert len(list((room / "b").iterdir())) == 10
    finally:
        second.run(f"%quota {room} --limit none")
