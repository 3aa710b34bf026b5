"""What every store must do with many reads and writes in one session."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from nbdata.errors import NotFound, SourceChanged
from nbdata.stores.another_try import worth_retrying
from nbdata.stores.base import ObjectInfo
from nbdata.stores.sessions import Answer, Read, Session, Unusual, Write
from tests.conformance.conftest import Place
from tests.waiting import PATIENCE

MAX_BYTES = 8 << 20
_DO_NOT_SAY = (SourceChanged, NotFound, Unusual)


def by(threads: int) -> Callable[[], int]:
    return lambda: threads


def taken(session: Session[Any]) -> list[Answer[Any]]:
    """Return all answers with copies of their bytes, because the bytes are valid only until the next answer."""
    return [
        Answer(answer.request, answer.told, memoryview(bytes(answer.data)), answer.error)
        for answer in session.results()
        if answer is not None
    ]


def bytes_of(place: Place, answer: Answer[Read[Any]]) -> bytes:
    """Return the bytes of an answer; if its meaning needs a separate read, those of that read."""
    request = answer.request
    if isinstance(answer.error, Unusual):
        whole = place.get(request.info.key[len(place.prefix) :], match=request.info)
        return whole[request.start : request.end]
    assert answer.error is None
    assert answer.told is not None
    assert answer.told.size == request.info.size
    return bytes(answer.data)


@pytest.mark.in_ci(4)
def test_each_of_many_is_answered_once_whatever_its_size_and_range(readable: Place) -> None:
    place = readable
    sizes = [0, 1, 5_000, 300_000, 2_000_000, *range(100, 130)]
    data = {f"{n:02}": os.urandom(size) for n, size in enumerate(sizes)}
    for name, value in data.items():
        place.put(name, value)
    listed = [*place.store.list(place.prefix)]
    ranges = [(0, None), (0, 10), (3, 1000), (90, None)]
    wanted = [
        Read(
            (info.key[len(place.prefix) :], start, end),
            info,
            start,
            None if end is None else min(end, info.size),
        )
        for info in listed
        for start, end in ranges
        if start < info.size or (start == 0 and end is None)
    ]
    with place.store.reading(by(6), MAX_BYTES) as session:
        for read in wanted:
            session.submit(read)
        answers = taken(session)
        assert Counter(id(answer.request) for answer in answers) == Counter(map(id, wanted))
        for answer in answers:
            name, start, end = answer.request.of
            assert bytes_of(place, answer) == data[name][start:end]
        for read in wanted[:5]:  # read them again
            session.submit(read)
        assert len(taken(session)) == 5


def test_bytes_come_into_the_buffer_of_who_wants_them(readable: Place) -> None:
    place = readable
    data = os.urandom(1_500_000)
    place.put("x", data)
    (info,) = place.store.list(place.prefix)
    whole, part = bytearray(len(data)), bytearray(1000)
    with place.store.reading(by(2), MAX_BYTES) as session:
        session.submit(Read("whole", info, into=lambda: memoryview(whole)))
        session.submit(Read("part", info, 500, 1500, lambda: memoryview(part)))
        answers = {answer.request.of: answer for answer in taken(session)}
    assert {name: bytes_of(place, answer) for name, answer in answers.items()} == {
        "whole": data,
        "part": data[500:1500],
    }
    for name, buffer in (("whole", whole), ("part", part)):
        assert answers[name].error or bytes(buffer) == bytes_of(place, answers[name])


def test_another_version_and_what_is_gone_are_errors(readable: Place) -> None:
    place = readable
    for name in ("changed", "gone", "same"):
        place.put(name, b"before")
    changed, gone, same = place.store.list(place.prefix)
    place.put("changed", b"behind, and longer")
    place.delete(["gone"])
    with place.store.reading(by(4), MAX_BYTES) as session:
        for info in (changed, gone, same):
            session.submit(Read(info.key[len(place.prefix) :], info))
        answers = {answer.request.of: answer for answer in taken(session)}
    for name in ("changed", "gone"):
        assert isinstance(answers[name].error, _DO_NOT_SAY), name
        assert answers[name].told is None
    assert bytes_of(place, answers["same"]) == b"before"


def test_what_is_submitted_meanwhile_by_another_thread_is_answered_too(readable: Place) -> None:
    place = readable
    for number in range(10):
        place.put(f"{number}", b"x" * number)
    infos = [*place.store.list(place.prefix)]
    handed = threading.Event()
    seen: list[Any] = []
    with place.store.reading(by(2), MAX_BYTES) as session:

        def more() -> None:
            for info in infos[1:]:
                session.submit(Read(info.key, info))
            handed.set()

        session.submit(Read(infos[0].key, infos[0]))
        other = threading.Thread(target=more)
        for answer in session.results():
            if answer is not None:
                seen.append(answer.request.of)
            if len(seen) == 1 and not other.ident:
                other.start()
                assert handed.wait(PATIENCE)
        other.join()
    assert sorted(seen) == sorted(info.key for info in infos)


def test_who_waits_for_answers_can_be_woken(readable: Place) -> None:
    place = readable
    place.put("x", b"x")
    (info,) = place.store.list(place.prefix)
    with place.store.reading(by(2), MAX_BYTES) as session:
        session.submit(Read(0, info))
        session.wake()
        answers = [*session.results()]
        assert len([answer for answer in answers if answer is not None]) == 1
        assert session.free > 0


@pytest.mark.in_ci("!s3fs", "!sftp")
def test_a_session_may_be_left_before_its_end(readable: Place) -> None:
    place = readable
    for number in range(20):
        place.put(f"{number}", os.urandom(100_000))
    for _ in range(3):
        with place.store.reading(by(4), MAX_BYTES) as session:
            for info in place.store.list(place.prefix):
                session.submit(Read(None, info))
            assert next(iter(session.results())) is not None
    assert len(place.get("7")) == 100_000


@pytest.mark.in_ci("!s3fs", 3)
def test_many_small_objects_are_made_together(place: Place) -> None:
    data = {f"{n:03}": os.urandom(n * 50) for n in range(60)}
    with place.store.writing(by(5), MAX_BYTES) as session:
        for name, value in data.items():
            session.submit(Write(name, place.prefix + name, value, hashlib.md5(value).hexdigest()))
        answers = taken(session)
    assert sorted(answer.request.of for answer in answers) == sorted(data)
    made: dict[str, ObjectInfo] = {}
    for answer in answers:
        if answer.error is not None:
            assert isinstance(answer.error, Unusual) or worth_retrying(answer.error)
            place.put(answer.request.of, answer.request.data)
        else:
            assert answer.told is not None
            made[answer.request.of] = answer.told
    assert {name: place.get(name) for name in data} == data
    assert all(info.key == place.prefix + name for name, info in made.items())


@pytest.mark.parametrize("max_bytes", [1, 150_000])
@pytest.mark.in_ci("!sftp-*", "!zip-150000")
def test_no_more_than_so_many_bytes_are_asked_for_together(readable: Place, max_bytes: int) -> None:
    place = readable
    for number in range(6):
        place.put(f"{number}", os.urandom(100_000))
    with place.store.reading(by(6), max_bytes) as session:
        for info in place.store.list(place.prefix):
            session.submit(Read(info.key[len(place.prefix) :], info))
        answers = taken(session)
    assert sorted(answer.request.of for answer in answers) == [f"{n}" for n in range(6)]
    assert all(len(bytes_of(place, answer)) == 100_000 for answer in answers)
