"""The trainer's side of a loader service: an iterable of batches that are ready."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import zmq

from nbdata.ending import at_end
from nbdata.errors import BadOption, NbdataError, NotFound, StoreUnavailable, error_from_dict
from nbdata.loaders.service.address import OVER_TCP, SEALED, Address, is_tcp, reached
from nbdata.loaders.service.batches import FRAME_MOST, PIECE, decoded, joined, refuse_too_many
from nbdata.sizes import format_size
from nbdata.version import __version__

if TYPE_CHECKING:
    _Dataset = object
else:
    try:
        from torch.utils.data import IterableDataset as _Dataset
    except ImportError:
        _Dataset = object

__all__ = ["Client"]

# Milliseconds between two signs of life, and until a connection without them is closed and opened again.
_BEAT, _SILENCE, _HANDSHAKE, _AGAIN = 2_000, 6_000, 2_000, 50
# Seconds after which a message is said again, and after which the address file is read again.
_REPEAT, _REREAD = 1.0, 1.0
# Batches that may be here at most, those in the hand of the trainer included.
_ROOM = 64
_END = object()


_contexts: dict[int, zmq.Context[zmq.Socket[bytes]]] = {}


def _context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return the context of this process for all clients. It is never ended: a Ctrl-C amid that would make it hang."""
    if (pid := os.getpid()) not in _contexts:
        _contexts.clear()  # the one of the parent of a fork
        _contexts[pid] = zmq.Context()
    return _contexts[pid]


class _Received(NamedTuple):
    number: int
    epoch: int
    header: Any
    frames: list[Any]


class Client(_Dataset):
    """The batches of a loader service, as an iterable and as an ``IterableDataset`` of PyTorch.

    A pass is an epoch of the service, or the rest of one that runs; after a ``break``, if nothing is left of that one,
    the next. A batch counts as used when the next one is asked for. If this process dies before, another consumer gets
    it. Large arrays and tensors are views of received bytes.

    Parameters
    ----------
    address : str
        The path of the address file, which the service prints.
    ahead : int
        Batches that are here or on their way, the one in your hand included.
    patience : float
        Seconds to wait for a service that does not answer, for example while it is started again.
    endpoint : str, optional
        ``tcp://HOST:PORT``, where this machine reaches the service under another name, as through an SSH tunnel.

    Examples
    --------
    >>> client = Client("/run/user/1000/nbdata/services/samples.json")  # doctest: +SKIP
    >>> for images, labels in client:  # doctest: +SKIP
    ...     train(images, labels)
    """

    def __init__(
        self, address: str, *, ahead: int = 3, patience: float = 60.0, endpoint: str | None = None
    ) -> None:
        if type(ahead) is not int or not 1 <= ahead <= _ROOM:
            raise BadOption(f"ahead: {ahead!r}", expected=f"1 to {_ROOM}")
        self._path, self._ahead, self._patience = os.path.abspath(address), ahead, patience
        self._endpoint = endpoint
        self._address = Address.read(self._path)
        if endpoint is not None and not (self._address.secret and is_tcp(endpoint)):
            raise BadOption(
                f"endpoint: {endpoint!r}", expected="tcp://HOST:PORT, of a service that listens at tcp"
            )
        self._forget_all()
        at_end(self, Client._disconnect)

    def _forget_all(self) -> None:
        self._id, self._pid = secrets.token_hex(8), os.getpid()
        self._open = contextlib.ExitStack()
        self._socket: zmq.Socket[bytes] | None = None
        self._welcome: dict[str, Any] = {}
        self._service, self._seq = "", 0
        # The pass, the last one that ended, the batch in hand, and broadcast: the batch that is expected next.
        self._turn: int | None = None
        self._ended: int | None = None
        self._hand: int | None = None
        self._following: int | None = None
        self._epoch = 0
        self._received: deque[_Received] = deque()
        self._done: dict[int, int] = {}  # what was used, and in which message that was said first
        self._heard = self._said = self._read = 0.0
        self._replies: dict[int, dict[str, Any]] = {}
        self._end = self._asking = False
        self._greetings = 0
        self._cut = False  # whether a Ctrl-C has come amid a message

    # -- iterating ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        self._refuse_workers()
        self._own()
        goes_on = self._turn is not None
        while True:
            batch = self._next()
            if batch is not _END:
                yield batch
            elif not goes_on:
                return
            goes_on = False  # if nothing was left of the pass that goes on, this is the next one

    def _next(self) -> Any:
        """Return the next batch of the pass, which is then in hand; `_END` at its end."""
        if self._hand is not None:
            self._done[self._hand], self._hand = self._seq + 1, None
        self._asking = True
        try:
            self._say_next(again=False)
            self._wait(lambda: self._end or bool(self._received), again=self._say_next)
        finally:
            self._asking = False
        if self._received:
            received = self._received[0]
            batch = decoded(received.header, received.frames)
            # It is taken out last, so that a Ctrl-C does not lose it.
            self._hand, self._epoch = received.number, received.epoch
            self._received.popleft()
            return batch
        self._end, self._ended, self._turn = False, self._turn, None
        self._following = None
        self._done.clear()
        return _END

    @staticmethod
    def _refuse_workers() -> None:
        with contextlib.suppress(ImportError):
            if "torch" not in sys.modules:
                return
            from torch.utils.data import get_worker_info

            if get_worker_info() is not None:
                raise BadOption(
                    "a client of a loader service is for the trainer's own process",
                    expected="DataLoader(client, batch_size=None, num_workers=0), or the client itself",
                )

    def __len__(self) -> int:
        self._greet()
        if self._welcome["len"] is None:
            raise TypeError("the loader of this service does not know its length")
        return int(self._welcome["len"])

    @property
    def epoch(self) -> int:
        """The epoch of the last batch, or that of the service before the first one."""
        if self._socket is None:
            self._greet()
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the service's next pass.

        Raises
        ------
        BadOption
            If consumers are in the middle of another epoch, or the loader has no ``set_epoch``.
        """
        self._request({"type": "load", "state": None, "epoch": epoch})

    def state_dict(self) -> dict[str, Any]:
        """Return where the service stands: small JSON. The batch in your hand counts as used.

        Raises
        ------
        BadOption
            If the loader has no ``state_dict``.
        """
        state: dict[str, Any] = self._request({"type": "state", "hand": self._hand})["state"]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the service go on from a state, before any consumer asks for a batch.

        Raises
        ------
        BadOption
            If it is the state of other samples, or consumers are in the middle of an epoch.
        """
        self._request({"type": "load", "state": state, "epoch": None})

    def close(self, *, used: bool = True) -> None:
        """Leave the service. The batch in hand counts as used; those behind it go to other consumers.

        With `used` false, the batch in hand is dealt again, too: so it is if a ``with`` block ends by an error.
        """
        if self._pid == os.getpid() and self._socket is not None and self._welcome:
            if used and self._hand is not None:
                self._done[self._hand] = self._seq + 1
            self._hand = None
            with contextlib.suppress(NbdataError):
                self._request({"type": "bye"}, patience=1.0)
        self._disconnect()
        self._forget_all()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(used=error is None)

    def __repr__(self) -> str:
        return f"Client({self._path!r})"

    def __getstate__(self) -> dict[str, Any]:
        raise BadOption("a client of a loader service cannot be pickled", remedy="Make it in the trainer")

    # -- the connection -------------------------------------------------------------------------

    def _own(self) -> None:
        """See to it that this process has a connection of its own: a fork has copied its parent's."""
        if self._pid != os.getpid():
            self._forget_all()
        if self._socket is None or self._cut:
            self._connect()  # whatever was lost is sent again

    def _connect(self) -> None:
        self._disconnect()
        self._open = contextlib.ExitStack()
        try:
            dealer = _context().socket(zmq.DEALER)
            self._open.callback(dealer.close)
            dealer.linger = 0
            endpoint = self._endpoint or self._address.endpoint
            self._piece = PIECE if is_tcp(endpoint) else FRAME_MOST
            # Whoever has the port of a service that ended may send as much before the keys are compared.
            dealer.setsockopt(zmq.MAXMSGSIZE, self._piece + SEALED)
            dealer.setsockopt(zmq.HEARTBEAT_IVL, _BEAT)
            dealer.setsockopt(zmq.HEARTBEAT_TIMEOUT, _SILENCE)
            dealer.setsockopt(zmq.HEARTBEAT_TTL, _SILENCE)
            dealer.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE)
            dealer.setsockopt(zmq.RECONNECT_IVL, _AGAIN)
            dealer.setsockopt(zmq.RECONNECT_IVL_MAX, 20 * _AGAIN)
            dealer.sndhwm = (
                1000  # messages to a service that is gone: as many as `_wait` says in its patience
            )
            if self._address.secret:
                dealer.curve_serverkey = self._address.service.encode()
                dealer.curve_publickey = self._address.public.encode()
                dealer.curve_secretkey = self._address.secret.encode()
            dealer.setsockopt(zmq.IPV6, int("[" in endpoint))
            dealer.connect(self._open.enter_context(reached(endpoint)))
        except BaseException:
            self._disconnect()
            raise
        self._socket, self._welcome, self._cut = dealer, {}, False
        self._heard = self._read = time.monotonic()
        self._hello()

    def _disconnect(self) -> None:
        if self._pid == os.getpid():
            self._socket = None
            self._open.close()

    def _reconnect_if_moved(self) -> None:
        """Connect again if the service was started again: it may have other keys, or another port."""
        now = time.monotonic()
        if now - self._heard < _REREAD or now - self._read < _REREAD:
            return
        self._read = now
        with contextlib.suppress(NotFound, BadOption):
            address = Address.read(self._path)
            if address != self._address:
                self._address, heard = address, self._heard
                self._connect()
                self._heard = heard

    def _say(self, told: dict[str, Any]) -> int:
        assert self._socket is not None
        self._seq += 1
        self._said = time.monotonic()
        told = {"seq": self._seq, "turn": self._turn, "done": [*self._done], **told}
        data = json.dumps(told).encode()
        if len(data) > OVER_TCP and is_tcp(self._endpoint or self._address.endpoint):
            raise BadOption(
                "this is too long for a loader service",
                expected=f"at most {format_size(OVER_TCP)}",
                got=format_size(len(data)),
            )
        with contextlib.suppress(zmq.Again):  # it is said again
            self._socket.send(data, zmq.NOBLOCK)
        return self._seq

    def _hello(self) -> None:
        holds = [batch.number for batch in self._received]
        if self._hand is not None:
            holds.insert(0, self._hand)
        follows = [] if self._following is None else [self._following]
        self._say(
            {
                "type": "hello",
                "version": __version__,
                "id": self._id,
                "name": f"{socket.gethostname()[:40]}:{os.getpid()}",
                "room": self._ahead,
                "service": self._service,
                "ended": self._ended,
                "holds": holds,
                "following": max([*follows, *(number + 1 for number in holds)], default=None),
            }
        )

    def _say_next(self, *, again: bool = True) -> None:
        if self._welcome:
            self._say({"type": "next", "again": again})
        elif again:
            self._hello()

    def _request(self, told: dict[str, Any], *, patience: float | None = None) -> dict[str, Any]:
        """Say something and return the answer."""
        self._greet(patience)
        seq = 0
        while seq not in self._replies:
            seq, greetings = self._say(told), self._greetings
            self._wait(
                lambda seq=seq, before=greetings: seq in self._replies or self._greetings > before,
                patience=patience,
            )
        reply = self._replies.pop(seq)
        if reply.get("error"):
            raise error_from_dict(reply["error"])
        return reply

    def _greet(self, patience: float | None = None) -> None:
        self._own()
        self._wait(lambda: bool(self._welcome), again=self._hello, patience=patience)

    def _wait(self, until: Any, *, again: Any = None, patience: float | None = None) -> None:
        """Take messages until there is what is waited for.

        Raises
        ------
        StoreUnavailable
            If the service does not answer.
        """
        patience = self._patience if patience is None else patience
        self._heard = max(self._heard, time.monotonic() - _REREAD)
        began = time.monotonic()
        while not until():
            assert self._socket is not None
            if self._socket.poll(int(1000 * _REPEAT / 4)):
                self._take()
                continue
            now = time.monotonic()
            if now - max(began, self._heard) > patience:
                raise StoreUnavailable(
                    f"the loader service has not answered for {patience:.0f} seconds",
                    path=self._path,
                    remedy="Start it again with the same name, then go on",
                )
            self._reconnect_if_moved()
            if again is not None and now - self._said > _REPEAT:
                again()

    def _take(self) -> None:
        """Receive one message."""
        assert self._socket is not None
        self._cut = True
        frames, size = [self._socket.recv(zmq.NOBLOCK, copy=False)], 0
        while frames[-1].more:
            size += len(frames[-1].buffer)
            refuse_too_many(len(frames), size)
            frames.append(self._socket.recv(zmq.NOBLOCK, copy=False))
        self._heard = time.monotonic()
        try:
            told = json.loads(frames[0].bytes)
            kind = told["type"]
        except (ValueError, TypeError, KeyError):  # a Ctrl-C has cut a message in two
            self._connect()
            return
        if "seen" in told:
            self._done = {number: seq for number, seq in self._done.items() if seq > told["seen"]}
        if kind == "batch" and told["turn"] in (self._turn, told["turn"] if self._turn is None else None):
            self._turn = int(told["turn"])
            self._keep(told, frames)
        elif kind == "end" and told["turn"] in (self._turn, told["turn"] if self._turn is None else None):
            self._turn, self._end = int(told["turn"]), True
        elif kind == "reply":
            self._replies = {int(told["to"]): told}
        elif kind == "welcome":
            self._welcomed(told)
        elif kind == "who":
            self._hello()
        elif kind == "anew":
            self._drop()
            if self._asking:
                self._say_next(again=False)
        elif kind == "refused":
            self._disconnect()
            raise error_from_dict(told["error"])
        self._cut = False

    def _keep(self, told: dict[str, Any], frames: list[Any]) -> None:
        number = int(told["number"])
        header, content = frames[1].bytes, list(joined((frame.buffer for frame in frames[2:]), self._piece))
        self._received.append(_Received(number, int(told["epoch"]), header, content))
        self._following = number + 1  # last, so that a Ctrl-C does not leave the batch out

    def _drop(self) -> None:
        """Forget the pass: the service is in another one."""
        self._received.clear()
        self._done.clear()
        self._turn = self._hand = self._following = None
        self._end = False

    def _welcomed(self, told: dict[str, Any]) -> None:
        turn = self._turn
        if told["service"] != self._service:
            self._drop()
            self._ended = None
        elif turn is not None and told["turn"] != turn:
            # If the pass has ended meanwhile, the answer to the next message says so.
            self._drop()
            self._turn = turn if told["current"] == turn + 1 else None
        theirs = set(told["theirs"])
        self._received = deque(one for one in self._received if one.number not in theirs)
        if told["missed"]:
            warnings.warn(
                "the connection to the loader service was lost, and the others got on: batches were missed",
                stacklevel=2,
            )
        self._service, self._welcome, self._epoch = told["service"], told, told["epoch"]
        self._greetings += 1
        if self._asking:
            self._say_next(again=False)
