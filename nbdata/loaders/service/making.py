"""Makes the batches of a service: iterates over the loader within a bound, and begins anew where it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from nbdata.disk import disk_error
from nbdata.errors import BadOption, NbdataError
from nbdata.loaders.service.batches import encoded
from nbdata.loaders.service.dealing import Batch, Consumer, Pass
from nbdata.optional_calls import fsync
from nbdata.own_files import new_record, small_file

__all__ = ["Making", "Order"]

_STATE, _STATE_BYTES = 1, 16 << 20
# How torch begins the error of a worker that was killed.
_KILLED = "DataLoader worker (pid"
# How often workers may be killed at the same batch.
_TRIES = 3
_END = object()


@dataclass(frozen=True)
class _Stand:
    """Where a pass stood: the first batch that was not acknowledged, those behind it that were, the loader's state."""

    first: int
    done: list[int]
    state: dict[str, Any] | None


@dataclass(eq=False)
class Order:
    """Where the loader shall begin anew: an epoch, or a state; and where it stood, in case that it refuses."""

    epoch: int | None = None
    state: dict[str, Any] | None = None
    back: _Stand | None = None
    error: NbdataError | None = None
    done: threading.Event = field(default_factory=threading.Event)


class Making:
    """The loader of a service, and the pass over it that is dealt. Its `lock` guards all of it.

    Parameters
    ----------
    loader, mode, consumers, ahead, state
        See `nbdata.loaders.service.serve`.

    Attributes
    ----------
    id : str
        The id of the service. One that goes on from its file keeps it.
    current : Pass
    consumers : dict of str to Consumer
    error : NbdataError or None
        Why the loader failed.
    blocked : bool
        Whether the loader waits for the consumers.
    """

    def __init__(
        self, loader: Iterable[Any], *, mode: str, consumers: int, ahead: int, state: str | None
    ) -> None:
        self._loader, self._mode, self.ahead, self._file = loader, mode, ahead, state
        self.needed = consumers
        self.id = secrets.token_hex(8)
        self.lock = threading.Condition()
        self.consumers: dict[str, Consumer] = {}
        self.error: NbdataError | None = None
        self.stopped = self.blocked = False
        self.tell: Callable[[], None] = lambda: None  # wakes the thread that sends
        self._stateful = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._order: Order | None = None
        self.current = Pass(1, mode)
        self._first, self._any = threading.Event(), False  # set once the first batch is made, or none ever is
        self._began: Callable[[], None] = lambda: None
        if state is not None:
            self._go_on(os.path.abspath(state))

    def _go_on(self, path: str) -> None:
        self._file = path
        if not self._stateful:
            raise BadOption(
                "state: this loader has no state_dict", expected="a SampleLoader, or one with that"
            )
        try:
            with small_file(path, _STATE_BYTES) as fd:
                if os.fstat(fd).st_uid != os.geteuid():
                    raise BadOption("state: this file is another user's", path=path)
                with os.fdopen(os.dup(fd), "rb") as file:
                    state = json.loads(file.read())
        except FileNotFoundError:
            if os.path.lexists(path):
                raise BadOption("state: this is no file of a service's state", path=path) from None
            return
        except ValueError:
            raise BadOption("state: this is no file of a service's state", path=path) from None
        _refuse_no_state(state)
        self.id = str(state["service"])
        absent = _absent(state)
        self._begin(Pass(state["turn"], self._mode, state["first"], state["done"], absent))
        self._order = Order(state=state["loader"])

    def _begin(self, new: Pass) -> None:
        self.current = new

    # -- the thread of the loader ---------------------------------------------------------------

    def run(self, began: Callable[[], None] = lambda: None) -> None:
        """Make batches until the service is stopped, or the loader fails; call `began` after the first one."""
        self._began = began
        try:
            tries = 0
            while not self.stopped:
                before = self.current.made
                try:
                    self._pass()
                except RuntimeError as error:
                    if not str(error).startswith(_KILLED) or not self._stateful:
                        raise
                    tries = tries + 1 if self.current.made == before else 1
                    if tries >= _TRIES:
                        raise
                    self._again()
        except NbdataError as error:
            self._fail(error)
        except Exception as error:
            self._fail(NbdataError(f"the loader failed: {type(error).__name__}: {error}"))
        finally:
            self._first.set()

    def _fail(self, error: NbdataError) -> None:
        with self.lock:
            self.error = error
            order, self._order = self._order, None
        if order is not None:
            order.error = error
            order.done.set()
        self.tell()

    def _again(self) -> None:
        """Have the next pass over the loader go on with the batch that is made next: a worker was killed."""
        with self.lock:
            if self._order is None:
                self._order = Order(state=self.current.next_state)

    def _pass(self) -> None:
        with self.lock:
            order, self._order = self._order, None
        if order is not None:
            try:
                self._apply(order)
            finally:
                order.done.set()
                self.tell()
        with self.lock:
            mine = self.current
            epoch = getattr(self._loader, "epoch", None)
            mine.epoch = epoch if type(epoch) is int else mine.turn - 1
        batches = iter(self._loader)
        while self._noted(mine):
            batch = next(batches, _END)
            if batch is _END:
                break
            content = encoded(batch) if mine.made not in mine.done else None
            with self.lock:
                if mine is not self.current:
                    return
                if content is None:
                    mine.made += 1
                else:
                    mine.add(Batch(mine.made, content, mine.next_state))
            if not self._any:
                self._any = True
                self._first.set()
                self._began()
            self.tell()
        else:
            return
        state = self._state_of_loader()
        with self.lock:
            if not mine.made:
                raise BadOption("serve: the loader yields no batch", expected="at least one in each epoch")
            mine.whole, mine.next_state = True, state
        with self.lock:
            self.blocked = True
            self.tell()
            self.lock.wait_for(lambda: self.stopped or mine is not self.current or self._order is not None)
            self.blocked = False

    def _noted(self, mine: Pass) -> bool:
        """Note the loader's state, and wait until the next batch may be made; False if it is not wanted any more."""
        state = self._state_of_loader()
        with self.lock:
            mine.next_state = state
            self.lock.wait_for(
                lambda: (
                    self.stopped
                    or mine is not self.current
                    or self._order is not None
                    or not self._is_blocked(mine)
                )
            )
            self.blocked = False
            return not self.stopped and mine is self.current and self._order is None

    def _is_blocked(self, mine: Pass) -> bool:
        self.blocked = not mine.wants_more(self.ahead, self.consumers.values())
        return self.blocked

    def _state_of_loader(self) -> dict[str, Any] | None:
        state = self._loader.state_dict() if self._stateful else None  # type: ignore[attr-defined]
        if self._file is not None and not self._any:
            _refuse_no_json(state)
        return state

    def _apply(self, order: Order) -> None:
        """Set the loader to where it shall begin; if it refuses, back to where it stood."""
        try:
            if order.state is not None:
                self._loader.load_state_dict(order.state)  # type: ignore[attr-defined]
            elif order.epoch is not None:
                self._loader.set_epoch(order.epoch)  # type: ignore[attr-defined]
        except Exception as error:
            if not self._any or order.back is None:
                raise
            order.error = (
                error if isinstance(error, NbdataError) else BadOption(f"the loader refuses it: {error}")
            )
            with self.lock:
                back = Pass(self.current.turn + 1, self._mode, order.back.first, order.back.done)
                self._begin(back)
            if order.back.state is not None:
                self._loader.load_state_dict(order.back.state)  # type: ignore[attr-defined]

    # -- other threads --------------------------------------------------------------------------

    def wait_for_first(self) -> None:
        """Wait for the first batch; raise the error if the loader fails before."""
        while not self._first.wait(0.1):
            pass
        if self.error is not None and not self._any:
            raise self.error

    def stop(self) -> None:
        """Have `run` return soon."""
        self.stopped = True
        with self.lock:
            self.lock.notify_all()

    def next_pass(self) -> None:
        """Begin the next pass, after the running one has ended. The caller has the lock."""
        ended = self.current
        self._begin(Pass(ended.turn + 1, self._mode))
        self.current.next_state, self.current.epoch = ended.next_state, ended.epoch + 1
        for one in self.consumers.values():
            # Who takes part in the one before takes no batch of another until its next question is answered.
            one.asks, one.turn, one.out = one.asks and one.turn is None, None, {}
        self.lock.notify_all()

    def rewind_to(
        self, state: dict[str, Any] | None = None, epoch: int | None = None, *, anytime: bool = False
    ) -> None:
        """Have the loader begin anew, and wait until it does: see `begin_anew`."""
        order = self.begin_anew(state, epoch, anytime=anytime)
        if order is not None:
            while not order.done.wait(0.1) and not self.stopped:
                pass
            if order.error is not None:
                raise order.error

    def begin_anew(
        self, state: dict[str, Any] | None = None, epoch: int | None = None, *, anytime: bool = False
    ) -> Order | None:
        """Have the loader begin anew at a state or an epoch; return the order, or None if it stands there already.

        Raises
        ------
        BadOption
            If the loader has no such method, or consumers are in the middle of a pass and it is not `anytime`.
        """
        with self.lock:
            now = self.current
            if state is not None:
                if not self._stateful:
                    raise BadOption("this loader has no load_state_dict", expected="a SampleLoader")
                _refuse_no_state(state)
                begun = Pass(
                    now.turn + 1, self._mode, int(state["first"]), [int(one) for one in state["done"]]
                )
                order = Order(state=state["loader"])
            elif not hasattr(self._loader, "set_epoch"):
                raise BadOption("this loader has no set_epoch", expected="a SampleLoader")
            elif epoch == now.epoch and not now.first:
                return None
            else:
                begun, order = Pass(now.turn + 1, self._mode), Order(epoch=epoch)
            if now.running and not anytime:
                raise BadOption(
                    "the service is in the middle of an epoch",
                    expected="set_epoch and load_state_dict before consumers ask for its batches",
                )
            first, done = now.position()
            order.back = _Stand(first, done, now.state_before(first))
            self.next_pass()
            self._begin(begun)
            self._order = order
            self.lock.notify_all()
            return order

    @property
    def is_known(self) -> bool:
        """True if the state of the loader is known at which the pass begins."""
        return not self._stateful or self.current.next_state is not None

    def names(self) -> list[str]:
        """Return the names of the consumers."""
        with self.lock:
            return [one.name for one in self.consumers.values()]

    def state(self, consumer: Consumer | None = None, hand: int | None = None) -> dict[str, Any]:
        """Return where the service stands; for a consumer with the batch that it has in hand.

        Raises
        ------
        BadOption
            If the loader has no ``state_dict``.
        """
        if not self._stateful:
            raise BadOption("this loader has no state_dict", expected="a SampleLoader, or one with that")
        with self.lock:
            first, done = self.current.position(consumer, hand)
            state = self.current.state_before(first)
            if consumer is not None:
                _refuse_no_json(state)
            return {
                "version": _STATE,
                "service": self.id,
                "turn": self.current.turn,
                "epoch": self.current.epoch,
                "first": first,
                "done": done,
                "loader": state,
            }

    def _state_with_consumers(self) -> dict[str, Any]:
        with self.lock:
            return {**self.state(), "out": self.current.out(self.consumers.values())}

    @property
    def length(self) -> int | None:
        """The batches of an epoch, if the loader knows."""
        with contextlib.suppress(
            Exception
        ):  # it is the loader's own, and must not end the thread that serves
            return len(self._loader)  # type: ignore[arg-type]
        return None

    def write_state(self) -> None:
        """Write the file of the state, if there is one: whole and durable, or not at all."""
        if self._file is None:
            return
        folder, name = os.path.split(self._file)
        try:
            at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                # Always the same name, so that kills leave one at most.
                with os.fdopen(new_record(f"{name}.new", at), "wb") as file:
                    file.write(json.dumps(self._state_with_consumers()).encode())
                    file.flush()
                    fsync(file.fileno())
                os.replace(f"{name}.new", name, src_dir_fd=at, dst_dir_fd=at)
            finally:
                os.close(at)
        except OSError as error:
            raise disk_error(error, self._file) from error


def _refuse_no_json(state: Any) -> None:
    """Raise BadOption for a state of a loader that cannot be sent or written."""
    try:
        json.dumps(state)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadOption(
            f"the state of this loader is no JSON ({error})"[:200],
            expected="a SampleLoader, or one like that",
        ) from None


def _refuse_no_state(state: Any) -> None:
    """Raise BadOption for what is no state of a service."""
    if (
        not isinstance(state, dict)
        or state.get("version") != _STATE
        or not isinstance(state.get("loader"), dict)
        or not isinstance(state.get("done"), list)
        or not all(type(n) is int and n >= 0 for n in [state.get("first"), state.get("turn"), *state["done"]])
    ):
        raise BadOption("this is no state of a loader service", expected="what state_dict() of it returned")


def _absent(state: dict[str, Any]) -> dict[str, list[int]]:
    """Return which consumers may have which batches, by a file of the state."""
    out = state.get("out", {})
    if not isinstance(out, dict) or not all(
        isinstance(held, list) and all(type(number) is int for number in held) for held in out.values()
    ):
        raise BadOption("state: this is no file of a service's state")
    return {str(who): held for who, held in out.items() if held}
