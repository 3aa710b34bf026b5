"""A loader service tells the panel what it does: how much was used, and who waits for whom."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbdata.loaders.service import Client, serve, telling
from nbdata.lock_files import file_lock
from nbdata.runtime import runtime_folder
from nbdata.services import ServiceStatus, services
from tests.loaders.service.loaders import Numbers
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let services tell fifty times a second."""
    monkeypatch.setattr(telling, "_EVERY", 0.02)


def told(name: str = "samples") -> ServiceStatus:
    """Wait until a service tells something, and return that."""
    return wait_until(lambda: next((one for one in services() if one.name == name), None))


def test_what_is_used_and_by_whom_is_told_until_the_end() -> None:
    with serve(Numbers(30), consumers=2, ahead=10**6) as service:
        first = told()
        assert (first.process, first.listen, first.mode) == (os.getpid(), "ipc", "share")
        assert (first.of, first.needed, first.ahead) == (30, 2, 10**6)
        with Client(service.address) as one, Client(service.address) as other:
            wait_until(lambda: told().count == 0)
            ones, others = iter(one), iter(other)
            thread = threading.Thread(target=lambda: [next(others) for _ in range(3)])
            thread.start()
            for _ in range(5):
                next(ones)
            thread.join()
            wait_until(lambda: told().used == 6)  # each has one in its hand
            assert sorted(consumer.used for consumer in told().consumers) == [2, 4]
            assert told().count == 2
            wait_until(lambda: told().held > 0)
    assert services() == []
    assert os.listdir(os.path.dirname(service.address)) == ["samples.lock"]


def test_a_loader_that_waits_for_its_trainers_is_told_and_then_the_file_rests() -> None:
    with serve(Numbers(30), ahead=3 * 41_000) as service, Client(service.address) as one:
        next(iter(one))
        wait_until(lambda: told().waits > 0.9)
        wait_until(lambda: told().consumers[0].waits < 0.1)
        wait_until(lambda: service._serving._telling.seconds is None)  # type: ignore[attr-defined]
        assert told().rate == 0


class Odd(Numbers):
    """A loader whose length cannot be asked for."""

    def __len__(self) -> int:
        raise ValueError("not yet")


def test_a_loader_that_fails_to_tell_its_length_is_served() -> None:
    with serve(Odd(3)) as service, Client(service.address) as one:
        assert told().of == -1
        assert [batch["n"][0] for batch in one] == [0, 1, 2]


class Slow:
    """A loader that makes a batch only when it may."""

    def __init__(self) -> None:
        self.may = threading.Semaphore(1)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(3):
            self.may.acquire()
            yield {"n": number}


def test_a_trainer_that_waits_for_the_loader_is_told() -> None:
    loader = Slow()
    with serve(loader) as service, Client(service.address) as one:
        got: list[int] = []
        thread = threading.Thread(target=lambda: got.extend(batch["n"] for batch in one))
        thread.start()
        try:
            wait_until(lambda: (told().consumers or [None])[0] and told().consumers[0].waits > 0.9)
            wait_until(lambda: told().waits < 0.1)
        finally:
            loader.may.release(1000)  # also for what is made ahead of the end
            thread.join()
        assert got == [0, 1, 2]


@pytest.mark.parametrize("text", ["{", "[]", "{}", "an infinite rate", "a folder", "a link", "not locked"])
def test_what_is_no_status_is_left_out(tmp_path: Path, text: str) -> None:
    with serve(Numbers(3)):
        good = told()
        folder = Path(runtime_folder(), "services")
        path = folder / "odd.status"
        whole = (folder / "samples.status").read_text()
        if text == "a folder":
            path.mkdir()
        elif text == "a link":
            (tmp_path / "s").write_text(whole)
            path.symlink_to(tmp_path / "s")
        elif text == "an infinite rate":
            path.write_text(json.dumps({**json.loads(whole), "rate": "inf"}))
        else:
            path.write_text(whole if text == "not locked" else text)
        lock = file_lock(str(folder / "odd.lock"))
        try:
            assert text == "not locked" or lock.acquire(wait=False)
            assert [one.name for one in services()] == [good.name]
        finally:
            lock.release()
            path.rmdir() if text == "a folder" else path.unlink()
            (folder / "odd.lock").unlink(missing_ok=True)
