"""Opens the cluster of a job: starts one on this machine, or connects to a scheduler; and tells its workers of the job.

A scheduler without TLS runs the code of whoever reaches its port, also that of another user of the machine. So a
cluster that is started here has certificates of its own, in memory only, and no pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, wait
from typing import Any

from nbdata.cluster import performer
from nbdata.cluster.credentials import PLACE, Sent, sent_credentials
from nbdata.cluster.listeners import refuse_theirs
from nbdata.clusters import address_of, local_workers
from nbdata.ending import Daemon
from nbdata.engine.runner import forget, new_folder
from nbdata.errors import BadOption, NbdataError, error_from_dict
from nbdata.operation import Context, Operation
from nbdata.redaction import Hidden, secret_options
from nbdata.runtime import package_folder
from nbdata.threads import processors
from nbdata.transfer.control import Control

__all__ = ["Cluster", "distributed", "refuse_unguarded"]

# Seconds until a scheduler, or all workers of a new cluster, must have answered.
_PATIENCE = 60.0
# Seconds that a job which ends waits for workers to be told so.
_FAREWELL = 2.0
# Seconds until newer credentials are asked for again, if none could be had.
_RENEW_AGAIN = 30.0
# Seconds between two checks whether the job must end, while a cluster opens.
_LOOK = 0.1
# Connections keep the latest messages for developers, with all rows of their parts.
_FORGETFUL: dict[str, object] = {"distributed.admin.low-level-log-length": 1}
_GUARD = (
    "Put what a script runs below `if __name__ == '__main__':`, since each worker imports the script again; "
    "notebooks need no guard"
)


def distributed() -> Any:
    """Return the package dask.distributed.

    Raises
    ------
    BadOption
        If it is not installed.
    """
    try:
        import distributed as package
    except ImportError:
        raise BadOption(
            "--cluster needs dask.distributed, which is not installed",
            remedy="pip install distributed cryptography",
        ) from None
    return package


def refuse_unguarded() -> None:
    """Raise BadOption in a worker that imports the caller's script, which would start workers without end."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise BadOption("a worker of a cluster came to the line that starts the cluster", remedy=_GUARD)


class Cluster:
    """The workers of one job. A context manager, which ends what was started for the job.

    Parameters
    ----------
    job : str
        The id of the job.
    operation, context
    control : Control
        Ends the waiting for the cluster.

    Attributes
    ----------
    client : distributed.Client
    workers : dict of str to int
        The workers when it last looked, and how many parts each performs at a time.
    name : str
        The cluster for messages.
    """

    def __init__(self, job: str, operation: Operation, context: Context, control: Control) -> None:
        self._job, self._operation, self._context, self._control = job, operation, context, control
        self._cluster = operation.cluster  # type: ignore[attr-defined]  # of Dealing
        self._local = local_workers(self._cluster)
        self._sends = operation.send_credentials and self._local is None  # type: ignore[attr-defined]
        self._credentials: Sent | None = None
        self._renews_at = float("inf")
        self.name = address_of(self._cluster)
        self._open = contextlib.ExitStack()
        self.client: Any = None
        self.workers: dict[str, int] = {}

    def __enter__(self) -> Cluster:
        begun: Future[contextlib.ExitStack] = Future()
        Daemon(self._begin, begun, name="cluster").start()
        while not wait([begun], _LOOK).done:
            if self._control.is_set():
                begun.add_done_callback(_close)
                self._control.checkpoint()
        self._open = begun.result()
        try:
            self.enter(self._waited(self.client.nthreads))
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    # -- opening ------------------------------------------------------------------------------

    def _begin(self, begun: Future[contextlib.ExitStack]) -> None:
        stack = contextlib.ExitStack()
        try:
            self.client = self._connected(stack)
            self.client.wait_for_workers(1, timeout=_PATIENCE)
        except BaseException as error:
            stack.close()
            begun.set_exception(self._told(error))
        else:
            begun.set_result(stack)

    def _connected(self, stack: contextlib.ExitStack) -> Any:
        package = distributed()
        if self._local is not None:
            folder = new_folder()  # which only this user may enter
            stack.callback(forget, folder)
            stack.callback(_restore)
            cluster = stack.enter_context(_started(package, self._local or processors(), folder))
            client = _forgetful(package, cluster)
        elif isinstance(self._cluster, str):
            if not self._operation.insecure_cluster:  # type: ignore[attr-defined]  # of Dealing
                refuse_theirs(self._cluster)
            client = _client(package, stack, self._cluster, _security(package, self._context.env))
        else:
            if self._cluster.asynchronous:
                raise BadOption(
                    "cluster: this client is asynchronous", remedy="Make it without asynchronous=True"
                )
            stack.callback(self._farewell, self._cluster)
            return self._cluster
        stack.callback(client.close, timeout=_FAREWELL)
        stack.callback(self._farewell, client)
        return client

    def _told(self, error: BaseException) -> NbdataError:
        """Return the error of a cluster that could not be opened."""
        if isinstance(error, NbdataError):
            return error
        what = f"{type(error).__name__}: {error}".strip().rstrip(".:")
        if self._local is not None:
            return NbdataError(f"the workers could not be started ({what})", remedy=_GUARD)
        return NbdataError(
            f"the scheduler does not answer ({what})",
            path=self.name,
            remedy="Check the address, and the certificates in the configuration of Dask (distributed.comm.tls)",
        )

    # -- its workers --------------------------------------------------------------------------

    def look(self) -> None:
        """Ask which workers there are; send newer credentials once the last ones are about to end."""
        self.workers = self._waited(self.client.nthreads)
        if time.time() >= self._renews_at:
            self._renews_at = float("inf")
            Daemon(self._renew, list(self.workers), name="credentials").start()

    def parts_of_workers(self) -> dict[str, Iterable[str]]:
        """Ask for the keys of the tasks that each worker has and has not ended."""
        found: dict[str, Iterable[str]] = self._waited(self.client.processing)
        return found

    def fetched(self, key: str) -> Future[Any]:
        """Begin to fetch what a task has returned; None comes if that is lost with its worker: see `wait_again`.

        Each task by itself: `Client.gather` may fetch several together, and then one worker that hangs holds up all.
        """

        async def fetch() -> Any:
            answer = await self.client.scheduler.gather(keys=[key])
            return answer["data"][key] if answer["status"] == "OK" else None

        return asyncio.run_coroutine_threadsafe(fetch(), self.client.loop.asyncio_loop)

    def wait_again(self, key: str) -> None:
        """Wait for a task once more whose answer is lost: the scheduler has another worker do it.

        As `Client.gather` does.
        """

        def reset() -> None:
            if (state := self.client.futures.get(key)) is not None:
                state.reset()
                self.client._send_to_scheduler({"op": "report-key", "key": key})

        self.client.loop.add_callback(reset)

    def _waited(self, function: Any, *args: Any, **options: Any) -> Any:
        """Call something that waits for the scheduler or for workers, which may hang; a stop of the job ends the wait.

        Raises
        ------
        TimeoutError
            If they do not answer.
        """
        answer: Future[Any] = Future()

        def ask() -> None:
            try:
                answer.set_result(function(*args, **options))
            except BaseException as error:
                answer.set_exception(error)

        Daemon(ask, name="question").start()
        until = time.monotonic() + _PATIENCE
        while not wait([answer], _LOOK).done:
            if self._control.is_set():
                self._control.checkpoint()
            if time.monotonic() > until:
                raise TimeoutError("no answer")
        return answer.result()

    def enter(self, workers: Iterable[str]) -> None:
        """Tell workers of the job.

        Raises
        ------
        BadOption
            If a worker has another version of nbdata or Python, or cannot take the job; its name is told.
        """
        asked = list(workers)
        mine = performer.hello()
        if self._sends and (open_one := next((one for one in asked if not one.startswith("tls://")), "")):
            raise BadOption(
                "--send-credentials: a worker has no TLS, so others could read them",
                path=open_one,
                expected="an address tls://HOST:PORT",
                remedy="Start the workers with --protocol tls",
            )
        for worker, answer in self._run(asked, performer.hello).items():
            if answer != mine:
                raise _unlike(worker, answer, mine)
        for worker, answer in self._run(asked, performer.enter, self._job, self._hidden()).items():
            if not isinstance(answer, dict):
                raise NbdataError(f"a worker does not take the job: {answer}", path=worker)
            if "error" in answer:
                raise error_from_dict(answer["error"])

    def _run(self, workers: list[str], function: Any, *args: object) -> dict[str, Any]:
        """Call a function on workers, outside of tasks; return the answers, or errors of those that cannot run it.

        A worker that just died has no answer. One that comes in its place learns of the job with its first part.
        """
        try:
            found: dict[str, Any] = self._waited(
                self.client.run, function, *args, workers=workers, on_error="return"
            )
        except TimeoutError:
            raise NbdataError(
                "a worker does not answer", path=self.name, remedy="Look at the workers; one of them may hang"
            ) from None
        except (OSError, ValueError):  # none of them is there any more
            return {}
        return {worker: answer for worker, answer in found.items() if not isinstance(answer, OSError)}

    def _hidden(self, *, renews: bool = False) -> Hidden:
        """Return what workers are told of the job."""
        how = {"whole": self._local is not None, "alone": self._sends, "renews": renews}
        return Hidden({"operation": self._said(), "context": self._sent(), **how})

    def _resolve(self) -> None:
        self._credentials = sent_credentials(self._operation, self._context, self._control)
        self._renews_at = self._credentials.renew_at

    def _renew(self, workers: list[str]) -> None:
        """Send newer credentials. Nobody waits for it: a worker may hang, and the old ones last for some minutes."""
        try:
            self._resolve()
            told = self._hidden(renews=True)
            self.client.run(performer.enter, self._job, told, workers=workers, on_error="return")
        except Exception:  # the login may have ended: what needs it will say so
            self._renews_at = time.time() + _RENEW_AGAIN

    def _said(self) -> dict[str, Any]:
        """Return the operation as parts perform it: the coordinator deletes."""
        other = {"cluster": None, "insecure_cluster": False, "send_credentials": False, "delete": False}
        said = {name: other.get(name, value) for name, value in self._operation.to_dict().items()}
        if self._local is None and (secret := secret_options(said)):
            raise BadOption(
                f"{secret[0]} holds a password, a key or a signature, which is not sent to the workers of {self.name}",
                remedy="Set it on the workers, in their environment or their profile, and leave it out of the URL",
            )
        return said

    def _sent(self) -> dict[str, Any]:
        """Return the context for the workers: all of it for processes of this job's own, else what is not secret."""
        if self._local is not None:
            return self._context.to_dict()
        if self._sends and self._credentials is None:
            self._waited(self._resolve)
        sent = self._credentials or self._context
        for options in () if self._sends else (self._context.storage_options, self._context.target_options):
            if secret := [name for name in options if name not in PLACE] or secret_options(options):
                raise BadOption(
                    f"--option {secret[0]} is not sent to the workers of {self.name}, which have credentials of "
                    "their own",
                    remedy="Set it on the workers, in their environment or their profile",
                )
        return {
            "umask": self._context.umask,
            "storage_options": sent.storage_options,
            "target_options": sent.target_options,
            "origins": self._context.origins,
            "allow_html": self._context.allow_html,
        }

    def _farewell(self, client: Any) -> None:
        """Have the workers stop parts of the job and forget it; one that does not answer is not waited for."""
        if client.status == "running":
            told = threading.Thread(target=self._tell_end, args=(client,), name="farewell", daemon=True)
            told.start()
            told.join(_FAREWELL)

    def _tell_end(self, client: Any) -> None:
        with contextlib.suppress(Exception):
            client.run(performer.leave, self._job, on_error="ignore")


def _close(begun: Future[contextlib.ExitStack]) -> None:
    """Close a cluster that nobody waits for any more."""
    if begun.exception() is None:
        begun.result().close()


def _client(package: Any, stack: contextlib.ExitStack, address: str, security: Any) -> Any:
    """Return a client of a scheduler, whose loop ends with the stack.

    A client that cannot connect would leave its loop running. So the address is tried first.
    """
    from distributed.utils import LoopRunner, sync

    runner = LoopRunner(asynchronous=False)
    runner.start()  # type: ignore[no-untyped-call]
    stack.callback(runner.stop)
    args = security.get_connection_args("client")

    async def tried() -> None:
        comm = await package.core.connect(address, timeout=_PATIENCE, **args)
        await comm.close()

    sync(runner.loop, tried)
    return _forgetful(package, address, loop=runner.loop, timeout=_PATIENCE, security=security)


def _forgetful(package: Any, *args: Any, **options: Any) -> Any:
    """Return a client that keeps nothing of what it has sent."""
    import dask

    with dask.config.set(_FORGETFUL):
        return package.Client(*args, set_as_default=False, **options)


# What a worker of this machine runs first: it imports nbdata from where this process has it, as agents do, since the
# import path may have another.
_PRELOAD = """
import sys
from importlib import util
spec = util.spec_from_file_location(
    "nbdata", {package!r} + "/__init__.py", submodule_search_locations=[{package!r}]
)
sys.modules["nbdata"] = util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["nbdata"])
"""
# Variables that Dask sets where it starts workers, as they were before.
_BEFORE = {name: os.environ.get(name) for name in ("PYTHONHASHSEED", "__DASK_PARENT_PID")}


def _restore() -> None:
    """Restore the variables of this process."""
    for name, value in _BEFORE.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _started(package: Any, workers: int, folder: str) -> Any:
    import dask

    closed: dict[str, object] = {
        # Pages would show the names of objects to whoever reaches their port.
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        # It would set variables of this process.
        "distributed.nanny.pre-spawn-environ": {},
        # It looks at the stacks of all threads, which in CPython 3.11 can stop a process for ever (gh-106883).
        "distributed.worker.profile.enabled": False,
        # Watching loops and processes up to 50 times a second, for pages that are off, took most of its time.
        "distributed.admin.tick.interval": "1s",
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.admin.system-monitor.gil.enabled": False,
        "distributed.scheduler.active-memory-manager.start": False,
        "temporary-directory": folder,
        **_FORGETFUL,
    }
    with dask.config.set(closed):
        return package.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            security=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            memory_limit=None,
            local_directory=folder,
            preload=[_PRELOAD.format(package=package_folder())],
            silence_logs=logging.CRITICAL,
        )


def _security(package: Any, env: dict[str, str]) -> Any:
    """Return the certificates of the user, whose environment this process may not have."""
    import dask

    config = dask.config.collect(env=env)
    names = {"tls_ca_file": "ca-file", "tls_client_cert": "client.cert", "tls_client_key": "client.key"}
    given = {
        name: dask.config.get(f"distributed.comm.tls.{said}", default=None, config=config)
        for name, said in names.items()
    }
    return package.Security(**{name: value for name, value in given.items() if value})


def _unlike(worker: str, answer: Any, mine: dict[str, str]) -> BadOption:
    """Return the error for a worker that is not like this process."""
    if not isinstance(answer, dict):
        return BadOption(
            f"the worker {worker} cannot run nbdata ({answer})",
            remedy=f"Install nbdata {mine['nbdata']} there",
        )
    name = next(name for name in mine if answer.get(name) != mine[name])
    return BadOption(
        f"the worker {worker} has another {name}",
        expected=mine[name],
        got=str(answer.get(name)),
        remedy="Give the workers the same environment",
    )
