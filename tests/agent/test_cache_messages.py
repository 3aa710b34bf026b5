"""On a connection through which a process uses a cache, no message is too long, however long the keys are."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any, cast

import pytest

from nbdata import wire
from nbdata.agent.cache_messages import serve
from nbdata.cache.contents import CacheContents
from nbdata.client.agent_cache import AgentCache
from nbdata.client.connection import Connection
from nbdata.engine.job.shared_cache import Consumer, OpenCache, SharedCache
from nbdata.errors import NotFound
from nbdata.protocols import Acquired, Epoch
from nbdata.wire import MAX_FRAME


class _Connection:
    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.said.append(message)


def test_long_keys_of_any_script_are_announced_in_several_messages() -> None:
    connection = _Connection()
    objects = [(f"{n:032x}", "\u732b" * 337 + str(n), 5, "etag", 1.5, "") for n in range(1200)]
    AgentCache(cast(Connection, connection), "", (0, 0)).announce(objects)
    assert [one for said in connection.said for one in said["announce"]] == objects
    assert all(len(json.dumps(said)) < MAX_FRAME for said in connection.said)


class _Failing:
    def acquire(self, names: list[str], living: object) -> Acquired:
        error = NotFound("no such object", path="x" * 1000, remedy="y" * 500)
        return Acquired(dict.fromkeys(names, error), 0)


def test_of_thousands_of_keys_that_failed_only_some_are_reported() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(
            target=serve,
            args=(theirs, cast(Consumer, _Failing()), lambda message: wire.send(theirs, message)),
        )
        thread.start()
        wire.send(ours, {"acquire": [str(n) for n in range(2000)]})
        answer = wire.receive(ours)
        assert answer is not None
        assert answer["failed"]["0"]["path"] == "x" * 1000
        ours.shutdown(socket.SHUT_WR)
        thread.join()


def test_an_epoch_arrives_as_it_was_told_and_what_is_none_ends_the_connection() -> None:
    told: list[tuple[str, Epoch]] = []

    class Noting:
        def note_epoch(self, name: str, epoch: Epoch) -> None:
            told.append((name, epoch))

    cache = OpenCache(cast(CacheContents, Noting()), "", (0, 0), 1)
    consumer = Consumer("us", cache, cast(SharedCache, None))
    connection = _Connection()
    epoch = Epoch("loop", "2", whole=False, over=True)
    AgentCache(cast(Connection, connection), "", (0, 0)).note_epoch(epoch)
    wrong: list[Any] = [["loop"], ["loop", 2], ["l" * 201, "2"], ["loop", "2", 1], 5]
    for said in (connection.said[0], *({"epoch": one} for one in wrong)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            wire.send(ours, said)
            ours.shutdown(socket.SHUT_WR)
            if said is connection.said[0]:
                serve(theirs, consumer, lambda message: None)
            else:
                with pytest.raises(wire.FrameError, match="is not asked so"):
                    serve(theirs, consumer, lambda message: None)
    assert told == [("us", epoch)]
