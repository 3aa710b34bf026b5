"""The thread of a service that talks to its consumers, over one ROUTER socket.

A consumer says HELLO, and NEXT for each batch: that acknowledges the one before. Each message says all that counts, so
one that is lost is replaced by the next one. Answers carry the number of the last message whose acknowledgements are
written to the file of the state. A consumer whose connection is gone has no route; its batches are dealt again.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message
from zmq.utils.z85 import encode

from nbdata.errors import BadOption, NbdataError
from nbdata.loaders.service.address import Place, endpoint_of
from nbdata.loaders.service.batches import in_pieces
from nbdata.loaders.service.dealing import Batch, Consumer, Pass
from nbdata.loaders.service.making import Making, Order
from nbdata.loaders.service.telling import Telling
from nbdata.version import __version__

__all__ = ["Serving"]

# The most bytes of a consumer's message; the most consumers, batches that one may hold, and numbers in a message.
_MESSAGE, _CONSUMERS, _ROOM, _NUMBERS = 16 << 20, 1024, 64, 4096
# The most batches that a consumer of a broadcast may be before a service that was started again.
_FAR = 1 << 20
# Milliseconds between two signs of life on a connection, and until one without them is closed.
_BEAT, _SILENCE = 2_000, 10_000
# Seconds between two looks for consumers that are gone, and for how long it looks after a connection has ended.
_LOOK, _LOOKING = 0.05, 1.0
# Seconds that batches wait for consumers that had them before a restart. A trainer comes back with its next question.
ABSENT = 30.0
# Milliseconds that a last message has at the end, and the most messages that are answered together.
_FAREWELL, _TOGETHER = 200, 256
_ZAP = "inproc://zeromq.zap.01"


class Serving:
    """Answers consumers until the service is stopped.

    Parameters
    ----------
    making : Making
    place : Place
    """

    def __init__(self, making: Making, place: Place) -> None:
        self._making, self._place = making, place
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._zap = self._context.socket(zmq.REP)
        self._monitor: zmq.Socket[bytes] | None = None
        self._woken, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._routes: dict[bytes, Consumer] = {}
        self._orders: list[tuple[bytes, int, Order]] = []
        self._ended = making.current.turn - 1  # the last pass that came to its end
        self._look_until = self._looked = 0.0
        self._acknowledged = False
        self._leaving: list[tuple[bytes, int]] = []
        self._absent_until = 0.0
        self._at: Any = None
        self._closed, self._waking = False, threading.Lock()
        self._telling = Telling(making, place)

    def listen(self) -> None:
        """Bind the socket; write the address file."""
        router = self._router
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.linger = 0
        router.sndhwm = 0  # each consumer's room bounds it
        router.setsockopt(zmq.MAXMSGSIZE, _MESSAGE)
        router.setsockopt(zmq.HEARTBEAT_IVL, _BEAT)
        router.setsockopt(zmq.HEARTBEAT_TIMEOUT, _SILENCE)
        router.setsockopt(zmq.HEARTBEAT_TTL, _SILENCE)
        router.setsockopt(zmq.IPC_FILTER_UID, os.geteuid())
        self._zap.linger = 0
        self._zap.bind(_ZAP)
        self._monitor = router.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._place.bind(router)
        self._making.tell = self.wake
        last = endpoint_of(router)
        self._at = last.removeprefix("ipc://") if last.startswith("ipc://") else int(last.rpartition(":")[2])

    def is_at(self, name: Any) -> bool:
        """True if a socket with this local address is the service's, or of one of its connections."""
        return bool(name) and (name == self._at if isinstance(name, str) else name[1] == self._at)

    def wake(self) -> None:
        """Have the thread look at what there is to do."""
        with contextlib.suppress(BlockingIOError), self._waking:  # else it is full
            if not self._closed:
                os.write(self._wakes, b"x")

    def close(self) -> None:
        """Close all sockets; after the thread has ended."""
        with self._waking:  # a loader that takes long may still be running
            if self._closed:
                return
            self._closed = True
        if self._monitor is not None:
            self._router.disable_monitor()
            self._monitor.close(0)
        self._router.close(_FAREWELL if self._making.error else 0)
        self._zap.close(0)
        self._context.term()
        os.close(self._wakes)
        os.close(self._woken)

    # -- the thread -----------------------------------------------------------------------------

    def run(self) -> None:
        """Answer until the service is stopped."""
        assert self._monitor is not None
        poller = zmq.Poller()
        for one in (self._router, self._zap, self._monitor):
            poller.register(one, zmq.POLLIN)
        poller.register(self._woken, zmq.POLLIN)
        try:
            self._absent_until = time.monotonic() + ABSENT
            while not self._making.stopped:
                poller.poll(self._most_to_wait())
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._authenticate()
                self._receive()
                self._look()
                self._deal()
                self._telling.look()
        except Exception as error:  # such as a file of the state that cannot be written
            told = (
                error
                if isinstance(error, NbdataError)
                else NbdataError(f"the service failed: {error!r}"[:500])
            )
            self._making.error = self._making.error or told
            self._making.stop()
        finally:
            failure = self._making.error
            if failure is not None:
                for consumer in list(self._routes.values()):
                    self._send(consumer.route, {"type": "refused", "error": failure.to_dict()})

    def _most_to_wait(self) -> int | None:
        """Return the milliseconds after which there is something to do, even if nobody says anything."""
        now = time.monotonic()
        if self._look_until > now:
            return int(1000 * _LOOK)
        absent = max(_LOOK, self._absent_until - now) if self._making.current.absent else None
        waits = [seconds for seconds in (absent, self._telling.seconds) if seconds is not None]
        return 1 + int(1000 * min(waits)) if waits else None

    def _authenticate(self) -> None:
        """Answer ZeroMQ, which asks who may connect: only a client with the key of the address file."""
        with contextlib.suppress(zmq.Again):
            while True:
                version, number, _, _, _, how, *keys = self._zap.recv_multipart(zmq.NOBLOCK)
                known = how == b"CURVE" and [encode(key).decode() for key in keys] == [self._place.client_key]
                status = (b"200", b"OK") if known else (b"400", b"unknown key")
                self._zap.send_multipart([version, number, *status, b"", b""])

    def _receive(self) -> None:
        with contextlib.suppress(zmq.Again):
            for _ in range(_TOGETHER):
                route, *parts = self._router.recv_multipart(zmq.NOBLOCK)
                try:
                    if len(parts) != 1:
                        raise ValueError
                    self._answer(route, json.loads(parts[0]))
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                    error = BadOption("the loader service does not understand this", remedy="Use its Client")
                    self._send(route, {"type": "refused", "error": error.to_dict()})
            self.wake()

    def _send(self, route: bytes, told: dict[str, Any], *frames: Any) -> bool:
        """Send a message; return False if its receiver is gone."""
        try:
            header = json.dumps(told).encode()
            self._router.send_multipart([route, header, *frames], zmq.NOBLOCK, copy=not frames)
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                self._forget(route)
            return False
        return True

    def _forget(self, route: bytes) -> None:
        """Deal again what a consumer had whose connection is gone."""
        consumer = self._routes.pop(route, None)
        if consumer is not None:
            with self._making.lock:
                if self._making.consumers.get(consumer.id) is consumer:
                    del self._making.consumers[consumer.id]
                self._making.current.gone(consumer, self._making.consumers.values())
                self._making.lock.notify_all()
            self._acknowledged = True  # the file of the state must not have it wait for this one
            self.wake()

    def _look(self) -> None:
        """After a connection has ended: see which consumers have no route any more."""
        assert self._monitor is not None
        now = time.monotonic()
        with contextlib.suppress(zmq.Again):
            while True:
                parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
                # ZeroMQ takes the route away a moment after it tells so.
                self._look_until, self._looked = now + _LOOKING, 0.0
        if now < self._look_until and now - self._looked >= _LOOK:
            self._looked = now
            for route in list(self._routes):
                self._send(route, {"type": "ping"})

    def _deal(self) -> None:
        """Send what there is to send, after the file of the state says what was acknowledged."""
        making = self._making
        if not making.is_known and making.error is None:
            return
        told = list[Consumer]()
        with making.lock:
            now = making.current
            if now.running and now.ended(making.consumers.values()):
                self._ended = now.turn
                told = [one for one in making.consumers.values() if one.turn == now.turn and one.asks]
                making.next_pass()
                for consumer in told:
                    consumer.asks, consumer.ended = False, now.turn
            begins = self._begin_if_all_ask()
            now = making.current
            if now.absent and time.monotonic() > self._absent_until:
                now.release_all(making.consumers.values())
            dealt = [(consumer, list(now.deal(consumer))) for consumer in self._routes.values()]
        if self._acknowledged or told or begins or any(batches for _, batches in dealt):
            self._acknowledged = False
            making.write_state()
        for consumer in told:
            assert consumer.ended is not None
            self._end(consumer, consumer.ended)
        while self._leaving:
            self._reply(*self._leaving.pop(), None)
        for route, seq, order in list(self._orders):
            if order.done.is_set():
                self._orders.remove((route, seq, order))
                self._reply(route, seq, order.error)
        for consumer, batches in dealt:
            self._send_batches(consumer, now, batches)

    def _begin_if_all_ask(self) -> bool:
        """Let consumers take part that ask; return True if the pass begins by that."""
        making = self._making
        now, asking = making.current, [one for one in making.consumers.values() if one.asks]
        begins = not now.running and len(asking) >= making.needed
        now.running = now.running or begins
        if now.running:
            for one in asking:
                if one.turn is None and one.ended != now.turn:
                    now.join(one)
            making.lock.notify_all()
        return begins

    def _send_batches(self, consumer: Consumer, now: Pass, batches: list[Batch]) -> None:
        making = self._making
        with making.lock:
            ends = now.mode == "broadcast" and consumer.turn == now.turn and now.ended_for(consumer)
            if making.error is not None and consumer.asks and not consumer.out:
                self._send(consumer.route, {"type": "refused", "error": making.error.to_dict()})
            if now is not making.current:  # it was set to another position after these were dealt
                return
            for batch in batches:
                told = {
                    "type": "batch",
                    "turn": now.turn,
                    "epoch": now.epoch,
                    "number": batch.number,
                    "seen": consumer.seen,
                }
                frames = in_pieces(batch.content.frames, self._place.piece)
                if not self._send(consumer.route, told, batch.content.header, *frames):
                    return
                self._telling.sent(batch.content.size)
        if ends and consumer.asks:
            self._end(consumer, now.turn)

    def _end(self, consumer: Consumer, turn: int) -> None:
        consumer.asks, consumer.turn, consumer.ended = False, None, turn
        self._send(consumer.route, {"type": "end", "turn": turn, "seen": consumer.seen})

    # -- what consumers say ---------------------------------------------------------------------

    def _answer(self, route: bytes, told: dict[str, Any]) -> None:
        kind, seq = told["type"], _number(told["seq"])
        if kind == "hello":
            self._hello(route, seq, told)
            return
        consumer = self._routes.get(route)
        if consumer is None:
            self._send(route, {"type": "who"})
            return
        answer: dict[str, Callable[[Consumer, int, dict[str, Any]], None]] = {
            "next": self._next,
            "state": self._tell_state,
            "load": self._load,
            "bye": self._bye,
        }
        self._acknowledge(consumer, told)
        consumer.seen = seq
        answer[kind](consumer, seq, told)

    def _hello(self, route: bytes, seq: int, told: dict[str, Any]) -> None:
        making = self._making
        if told["version"] != __version__:
            error = BadOption(
                "the loader service has another version of nbdata",
                expected=__version__,
                got=str(told["version"])[:40],
                remedy="Install the same version on both sides",
            )
            self._send(route, {"type": "refused", "error": error.to_dict()})
            return
        who, room = str(told["id"])[:40], min(max(1, _number(told["room"])), _ROOM)
        following = told["following"] if making.current.mode == "broadcast" else None
        if following is not None and _number(following) > making.current.made + _FAR:
            raise ValueError("it cannot expect that batch")
        with making.lock:
            before = making.consumers.pop(who, None)
            if before is not None:  # its connection broke, and nobody has noticed so far
                self._routes.pop(before.route, None)
            if len(making.consumers) >= _CONSUMERS:
                error = BadOption(
                    "the loader service has too many consumers", expected=f"at most {_CONSUMERS}"
                )
                self._send(route, {"type": "refused", "error": error.to_dict()})
                return
            consumer = Consumer(who, str(told["name"])[:80], route, room, seq)
            theirs, missed, now = list[int](), 0, making.current
            known = told["service"] == making.id
            if before is not None:
                now.gone(before, making.consumers.values())
            if known:
                self._acknowledge(consumer, told)
            making.consumers[who] = self._routes[route] = consumer
            if known:
                consumer.ended = told["ended"]
                if told["turn"] == now.turn:
                    now.running = True  # it was dealing before it was killed
                    theirs = now.rejoin(consumer, _numbers(told["holds"]), following)
                    if following is not None:
                        missed = max(0, consumer.next - following)
                elif now.mode == "broadcast" and told["turn"] is not None and told["turn"] == self._ended:
                    missed = int(before is None or before.ended != self._ended)  # at least
            making.lock.notify_all()
        self._send(
            route,
            {
                "type": "welcome",
                "service": making.id,
                "turn": consumer.turn,
                "current": now.turn,
                "epoch": now.epoch,
                "mode": now.mode,
                "len": making.length,
                "theirs": theirs,
                "missed": missed,
            },
        )

    def _acknowledge(self, consumer: Consumer, told: dict[str, Any]) -> None:
        making = self._making
        done = _numbers(told["done"])
        with making.lock:
            if done and told["turn"] == making.current.turn:
                self._telling.used(consumer, sum(number in consumer.out for number in done))
                making.current.acknowledge(consumer, done, making.consumers.values())
                self._acknowledged = True
                making.lock.notify_all()

    def _next(self, consumer: Consumer, seq: int, told: dict[str, Any]) -> None:
        """A consumer asks for a batch: it takes part, or waits for the next pass."""
        making, turn = self._making, told["turn"]
        with making.lock:
            now = making.current
            if turn is not None and turn != now.turn:
                if turn == self._ended:  # the message that said so was lost
                    self._end(consumer, turn)
                else:
                    self._send(consumer.route, {"type": "anew"})
                return
            consumer.asks = True
            if turn is not None and consumer.turn is None:
                now.rejoin(consumer, [], None)
            making.lock.notify_all()
        if told["again"]:  # it has waited for a while, and wants a sign of life
            self._send(consumer.route, {"type": "wait"})

    def _tell_state(self, consumer: Consumer, seq: int, told: dict[str, Any]) -> None:
        hand = told["hand"] if told["turn"] == self._making.current.turn else None
        try:
            state = self._making.state(consumer, None if hand is None else _number(hand))
        except NbdataError as error:
            self._reply(consumer.route, seq, error)
            return
        self._send(consumer.route, {"type": "reply", "to": seq, "state": state})

    def _load(self, consumer: Consumer, seq: int, told: dict[str, Any]) -> None:
        try:
            order = self._making.begin_anew(told["state"], told["epoch"])
        except NbdataError as error:
            self._reply(consumer.route, seq, error)
            return
        if order is None:
            self._reply(consumer.route, seq, None)
        elif len(self._orders) < _CONSUMERS:
            self._orders.append((consumer.route, seq, order))

    def _bye(self, consumer: Consumer, seq: int, told: dict[str, Any]) -> None:
        self._forget(consumer.route)
        self._leaving.append((consumer.route, seq))

    def _reply(self, route: bytes, seq: int, error: NbdataError | None) -> None:
        told = {"type": "reply", "to": seq, "error": None if error is None else error.to_dict()}
        self._send(route, told)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise ValueError("no number")
    return value


def _numbers(values: Any) -> list[int]:
    if not isinstance(values, list) or len(values) > _NUMBERS:
        raise ValueError("no numbers")
    return [_number(value) for value in values]
