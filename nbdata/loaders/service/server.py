"""The service: takes batches from a loader in one thread, and hands them to its consumers in another."""

from __future__ import annotations

import contextlib
import os
import socket as sockets
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from nbdata.ending import Daemon, at_end
from nbdata.errors import BadOption
from nbdata.loaders.service.address import Place
from nbdata.loaders.service.making import Making
from nbdata.loaders.service.serving import Serving

__all__ = ["Service", "serve"]

# Seconds that the end waits for the threads: a loader that is in the middle of a batch ends after it.
_PATIENCE = 10.0
_FAMILIES = (sockets.AF_UNIX, sockets.AF_INET, sockets.AF_INET6)


class Service:
    """A running service; `serve` starts it. End it with `close`, or by leaving its ``with`` block.

    Attributes
    ----------
    address : str
        The path of the address file, for `Client`.
    """

    def __init__(self, making: Making, serving: Serving, place: Place, files: contextlib.ExitStack) -> None:
        self._making, self._serving, self._files = making, serving, files
        self.address = place.path
        self._maker: threading.Thread | None = None
        self._server = Daemon(serving.run, name="loader-service")
        self._pid = os.getpid()
        _services.add(self)
        at_end(self, Service._stop)

    def run(self, began: Callable[[], None]) -> None:
        """Serve until it is closed or interrupted, with the loader in this thread.

        Parameters
        ----------
        began : callable
            Called once the first batch is made.

        Raises
        ------
        NbdataError
            If the loader fails.
        """
        self._server.start()
        try:
            self._making.run(began)
        finally:
            self.close()
        if self._making.error is not None:
            raise self._making.error

    def start(self) -> None:
        """Serve in the background; return once the first batch is made.

        Raises
        ------
        NbdataError
            If the loader fails, or makes what cannot be handed over.
        """
        self._maker = Daemon(self._making.run, name="loader-service-batches")
        self._maker.start()
        self._server.start()
        try:
            self._making.wait_for_first()
        except BaseException:
            self.close()
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return where the service stands: the loader's state, and which batches behind it are acknowledged.

        Raises
        ------
        BadOption
            If the loader has no ``state_dict``.
        """
        return self._making.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state. Consumers may use what they have received before; all else comes from there.

        Raises
        ------
        BadOption
            If the state is of other samples, or of another kind of loader.
        """
        self._making.rewind_to(state, anytime=True)

    @property
    def consumers(self) -> list[str]:
        """The names of the consumers that are connected."""
        return self._making.names()

    def close(self) -> None:
        """End the service: consumers wait for another one with its name, and then fail."""
        if self._pid != os.getpid():
            return
        self._stop()
        if self._server.ident is not None:
            self._server.join(_PATIENCE)
        if self._maker is not None and self._maker is not threading.current_thread():
            self._maker.join(_PATIENCE)
        self._files.close()

    def _stop(self) -> None:
        self._making.stop()
        self._serving.wake()

    def __enter__(self) -> Service:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<loader service: Client({self.address!r})>"

    def let_go(self) -> None:
        """In the child of a fork: close the copies of its sockets, which would outlive a service that is killed.

        A worker also gets an empty standard input, as `multiprocessing` would give it. That closes the parent's before,
        which hangs forever if another thread of the parent was reading it.
        """
        if threading.current_thread() is self._maker:
            with contextlib.suppress(OSError):
                self._parents_stdin, sys.stdin = sys.stdin, open(os.devnull, encoding="utf-8")  # noqa: SIM115
        for fd in _descriptors():
            with contextlib.suppress(OSError):
                if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                    continue
                with sockets.socket(fileno=os.dup(fd)) as copy:
                    ours = copy.family in _FAMILIES and self._serving.is_at(copy.getsockname())
                if ours:
                    os.close(fd)


_services: weakref.WeakSet[Service] = weakref.WeakSet()


def _descriptors() -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/proc/self/fd")]
    return []


def _after_fork() -> None:
    for service in list(_services):
        service.let_go()
    _services.clear()


os.register_at_fork(after_in_child=_after_fork)


def opened(
    loader: Iterable[Any],
    *,
    listen: str = "ipc",
    name: str = "samples",
    mode: str = "share",
    consumers: int = 1,
    ahead: int = 256 << 20,
    state: str | None = None,
) -> Service:
    """Return a service that listens and has not started; for parameters see `serve`."""
    if mode not in ("share", "broadcast"):
        raise BadOption(f"mode: {mode!r}", expected="share or broadcast")
    if not 1 <= consumers <= 1024:
        raise BadOption(f"consumers: {consumers!r}", expected="1 to 1,024")
    if ahead < 1:
        raise BadOption(f"ahead: {ahead!r} bytes", expected="at least 1")
    if isinstance(loader, Iterator):
        raise BadOption(
            "serve: an iterator has one pass only", expected="a loader, or an iterable that begins anew"
        )
    files = contextlib.ExitStack()
    try:
        place = files.enter_context(Place(name, listen, state))
        making = Making(loader, mode=mode, consumers=consumers, ahead=ahead, state=state)
        serving = Serving(making, place)
        files.callback(serving.close)
        serving.listen()
        return Service(making, serving, place, files)
    except BaseException:
        files.close()
        raise


def serve(
    loader: Iterable[Any],
    *,
    listen: str = "ipc",
    name: str = "samples",
    mode: str = "share",
    consumers: int = 1,
    ahead: int = 256 << 20,
    state: str | None = None,
) -> Service:
    """Serve the batches of a loader to the trainers of this user, from threads of this process.

    Parameters
    ----------
    loader : iterable
        A `SampleLoader`, any other DataLoader, or an iterable of batches that can be iterated again and again. Each
        pass is an epoch. Batches are dicts, lists and tuples of arrays, tensors, bytes, str and numbers; nobody may
        change them once they are yielded.
    listen : str
        ``ipc``: a socket for processes of this user on this machine. ``tcp://HOST:PORT``: encrypted, for who has a
        copy of the address file.
    name : str
        The name of the service, one for each that runs.
    mode : {"share", "broadcast"}
        Whether each batch goes to one consumer, or to each of them.
    consumers : int
        How many must ask for an epoch before it begins.
    ahead : int
        Bytes of batches that are ready or not acknowledged; at least one batch for each consumer.
    state : str, optional
        A file that records which batches were used. A service that starts with this file goes on where it stopped,
        also after a kill. The loader must have a ``state_dict``, as `SampleLoader` has.

    Returns
    -------
    Service

    Raises
    ------
    BadOption
        If a batch has anything that cannot be handed over: it names that.

    Examples
    --------
    >>> service = serve(SampleLoader(samples, 64, shuffle=True, transform=load, num_workers=2))  # doctest: +SKIP
    >>> service  # doctest: +SKIP
    <loader service: Client('/run/user/1000/nbdata/services/samples.json')>
    """
    service = opened(
        loader, listen=listen, name=name, mode=mode, consumers=consumers, ahead=ahead, state=state
    )
    service.start()
    return service
