"""kill -9 of the agent or of the kernel at random moments of pull, push and extraction; then the same command again.

The moment is chosen by bytes, not by time: the proxy counts the bytes of objects that it carries, and at the chosen one
it carries nothing more until the process is dead. Afterwards nothing wrong stands under a final name; the same command,
said again, goes well, and all is as if nothing had happened; and no more is moved twice, as the proxy counted it, than

* a part a connection, by a pull or a push;
* what lies behind the last checkpoint, by an extraction: the report of the second line says where it went on.

A kernel says its line as a cell. When it is killed the job goes on in the agent; a new kernel says the same cell at
once and is attached to it, or finds it done; in a third of the cases the agent is killed right behind its kernel.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import nbdata
from nbdata.client.launch import connect
from nbdata.client.remote import AgentHost
from nbdata.errors import AgentUnavailable, NbdataError
from nbdata.operation import Operation
from nbdata.runtime import endpoint, held
from nbdata.transfer.part_records import NOTED
from tests.faults.proxy import FaultProxy, Tally
from tests.faults.trees import FORMS, Tree, on_disk, stored
from tests.kernel import Kernel

__all__ = ["AGENT", "ATTACHED", "BOTH", "DONE", "KERNEL", "PART", "VERBS", "Killed", "agent", "kill_all"]

#: What is fetched or sent in one piece, and recorded then.
PART = 16 << 20
VERBS = ("pull", "push", "untar_volumes")
#: Who is killed; and of a kernel's kills, what comes next.
AGENT, KERNEL = "agent", "kernel"
ATTACHED, DONE, BOTH = "attached", "found done", "the agent killed, too"
# What may come to that: small objects that were not recorded yet, and what of a part came since it was last noted.
_SLACK = 2_000_000 + NOTED
# Seconds within which a line must end, and those for each byte.
_BOUND, _SLOWEST = 120.0, 1 / 5_000_000
RIGHT = "right"


@dataclass
class Killed:
    """What became of one kill.

    Attributes
    ----------
    tree : int
        Bytes of the tree.
    form : str
        Of the volumes; '' of pull and push.
    then : str
        What was done when a kernel was dead: `ATTACHED`, `DONE` or `BOTH`; '' of an agent.
    share : float
        The moment, as a share of the bytes.
    end : str
        `RIGHT`, or what is wrong.
    again : int
        Bytes of objects that went over the wire twice.
    allowed : int
        How many those may be.
    resumed_at : int
        Where an extraction went on, in bytes of the volumes.
    """

    number: int
    victim: str
    verb: str
    share: float
    connections: int
    tree: int
    form: str = ""
    then: str = ""
    end: str = RIGHT
    again: int = 0
    allowed: int = 0
    resumed_at: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether it ended as it must."""
        return self.end == RIGHT

    @property
    def moves_again(self) -> bool:
        """Whether somebody died who moved bytes."""
        return self.victim == AGENT or self.then == BOTH

    @property
    def line(self) -> str:
        """It in one line."""
        what = f"{self.verb} {self.form}".strip()
        return (
            f"{self.number:4} {what} of {self.tree / 1e6:.0f} MB: {self.victim} killed at {self.share:4.0%}, "
            f"{f'{self.then}, ' if self.then else ''}{self.connections} connections, "
            f"{self.again / 1e6:5.1f} of at most {self.allowed / 1e6:5.1f} MB again, {self.seconds:4.1f} s: {self.end}"
        )


def agent() -> int:
    """The process id of the agent, which is started if it does not run."""
    with connect() as connection:
        return int(connection.ask({"do": "hello"})["pid"])


def kill_all(
    tree: Tree,
    *,
    seed: int,
    kills: int,
    kernel_kills: int,
    told: Callable[[str], None],
    switch: Callable[[dict[str, str]], None],
    over: Callable[[], bool] = lambda: False,
) -> Iterator[Killed]:
    """So many kills of each, in turns of verbs; `switch` sets the variables that lines are to be said with.

    Nothing more is begun when it is `over`.
    """
    chosen = _chosen(tree.size, seed, kills, kernel_kills)
    with FaultProxy(tree.server.url) as proxy, ExitStack() as stack:
        switch(
            {
                **tree.server.environment(),
                "AWS_ENDPOINT_URL": proxy.url,
                "NBDATA_HOST": "agent",
                "NBDATA_STALL_TIMEOUT": "30",
            }
        )
        kernels = stack.enter_context(_Kernels(tree))
        for killed in chosen:
            if over():
                return
            began = time.monotonic()
            with _Case(tree, proxy, kernels, killed) as case:
                case.run()
            killed.seconds = time.monotonic() - began
            told(killed.line)
            yield killed


def _chosen(tree: int, seed: int, kills: int, kernel_kills: int) -> list[Killed]:
    """Victims in any order, but of each the verbs in turn, and of extractions the forms, and what comes next."""
    victims = [AGENT] * kills + [KERNEL] * kernel_kills
    random.Random(f"{seed} victims").shuffle(victims)
    found, turn = [], {AGENT: 0, KERNEL: 0}
    for number, victim in enumerate(victims):
        source = random.Random(f"{seed} kill {number} {tree}")
        turn[victim] += 1
        round_, place = divmod(turn[victim] - 1, len(VERBS))
        killed = Killed(number, victim, VERBS[place], source.random(), source.choice((1, 2, 3)), tree)
        if killed.verb == "untar_volumes":
            killed.form, killed.connections = FORMS[round_ % len(FORMS)], 1
        if victim == KERNEL:
            killed.then = (BOTH, ATTACHED, DONE)[(round_ + place) % 3]
        found.append(killed)
    return found


class _Kernels:
    """Real kernels that wait to be told a cell; a context manager."""

    def __init__(self, tree: Tree) -> None:
        self._folder = tree.work
        self._living, self._waiting = list[Kernel](), list[Kernel]()

    def __enter__(self) -> _Kernels:
        return self

    def __exit__(self, *exc: object) -> None:
        for kernel in list(self._living):
            self.end(kernel)

    def take(self) -> Kernel:
        """One that is ready."""
        if self._waiting:
            return self._waiting.pop()
        kernel = Kernel(self._folder).__enter__()
        self._living.append(kernel)
        assert kernel.run("%load_ext nbdata").error is None
        return kernel

    def give_back(self, kernel: Kernel) -> None:
        """It lives, and has nothing to do."""
        self._waiting.append(kernel)

    def end(self, kernel: Kernel) -> None:
        """It is dead, or may be."""
        self._living.remove(kernel)
        kernel.__exit__(None, None, None)


class _Case:
    """One kill; a context manager around what it needs."""

    def __init__(self, tree: Tree, proxy: FaultProxy, kernels: _Kernels, killed: Killed) -> None:
        self._tree, self._proxy, self._kernels, self._killed = tree, proxy, kernels, killed
        self._stack = ExitStack()
        self._target = tree.target(f"killed-{killed.number}")
        self._bucket = ""
        self._total = tree.size

    def __enter__(self) -> _Case:
        tree, killed, target = self._tree, self._killed, str(self._target)
        some = {"concurrency": killed.connections}
        if killed.verb == "push":
            self._bucket = f"kills-{killed.number}-{secrets.token_hex(4)}"
            tree.server.create_bucket(self._bucket)
            self._stack.callback(tree.client.delete_bucket, Bucket=self._bucket)
            self._line: Operation = nbdata.Push(str(tree.folder), f"s3://{self._bucket}/", **some)
        elif killed.verb == "pull":
            self._line = nbdata.Pull(tree.url, target, **some)
        else:
            url, self._total = tree.volumes(killed.form)
            self._line = nbdata.UntarVolumes(url, target)
        self._stack.callback(tree.target, f"killed-{killed.number}")
        return self

    def __exit__(self, *exc: object) -> None:
        self._proxy.begin()
        self._stack.close()

    def run(self) -> None:
        """Say a line, kill, look, say it again, look again."""
        try:
            self._by_kernel() if self._killed.victim == KERNEL else self._by_agent()
            self._look(whole=True)
            if (self._target / ".nbdata").exists():
                raise _Wrong("its own folder is left in the target")
        except _Wrong as wrong:
            self._killed.end = str(wrong)
        except Exception as error:  # whatever it is: the others are still to be run
            self._killed.end = f"an accident: {error!r}"

    # -- the agent ------------------------------------------------------------------------------------

    def _by_agent(self) -> None:
        victim = agent()
        first = self._proxy.begin(at=self._at, then=lambda: os.kill(victim, signal.SIGKILL))
        try:
            self._line.start().wait(self._bound)
        except AgentUnavailable:
            pass
        except (NbdataError, TimeoutError) as error:
            raise _Wrong(f"it was to be killed: {error}") from error
        else:
            raise _Wrong("it went well, and was to be killed")
        self._wait_for(lambda: not held(endpoint().alive), "the process did not die")
        self._look(whole=False)
        second = self._proxy.begin()
        try:
            report = self._line.start().wait(self._bound)
        except (NbdataError, TimeoutError) as error:
            raise _Wrong(f"said again: {error}") from error
        self._count(first, second, resumed_at=int(report.details.get("resumed_at", 0)))

    # -- the kernel -----------------------------------------------------------------------------------

    def _by_kernel(self) -> None:
        killed, said = self._killed, self._magic()
        first, second = self._kernels.take(), self._kernels.take()
        victims = [first.manager.provisioner.pid, *([agent()] if killed.then == BOTH else [])]
        dead = threading.Event()

        def kill() -> None:
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
            dead.set()

        tallies = [self._proxy.begin(at=self._at, then=kill)]
        first.start(said)
        if not dead.wait(self._bound):
            raise _Wrong("the moment did not come")
        self._kernels.end(first)
        if killed.then == BOTH:
            self._wait_for(lambda: not held(endpoint().alive), "the agent did not die")
            self._look(whole=False)
            tallies.append(self._proxy.begin())
        elif killed.then == DONE:
            self._wait_for(lambda: all(job.finished for job in AgentHost().jobs()), "the job did not go on")
        out = second.run(f"{said}\nprint('at', r.details.get('resumed_at', 0), r.ok)", self._bound)
        if out.error is not None or "True" not in out.text:
            raise _Wrong(f"said again: {out.error or out.text}")
        self._kernels.give_back(second)
        self._count(*tallies, resumed_at=int(out.text.split("at ")[-1].split()[0]))

    def _magic(self) -> str:
        line = self._line
        some = f" --concurrency {self._killed.connections}" if self._killed.verb != "untar_volumes" else ""
        return f"r = %{self._killed.verb} {line.source} {line.target}{some}"  # type: ignore[attr-defined]

    # -- what came of it ------------------------------------------------------------------------------

    @property
    def _at(self) -> int:
        return max(1, int(self._total * self._killed.share))

    @property
    def _bound(self) -> float:
        return _BOUND + self._total * _SLOWEST

    def _wait_for(self, condition: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + self._bound
        while not condition():
            if time.monotonic() > end:
                raise _Wrong(otherwise)
            time.sleep(0.01)

    def _look(self, *, whole: bool) -> None:
        if self._bucket:
            wrong = stored(self._tree, self._bucket, whole=whole)
        else:
            wrong = on_disk(self._tree, self._target, whole=whole, unpacked=bool(self._killed.form))
        if wrong:
            raise _Wrong(f"{'at the end' if whole else 'after the kill'}: {wrong}")

    def _count(self, first: Tally, *others: Tally, resumed_at: int) -> None:
        killed, carried = self._killed, [sum(t.down.values()) + sum(t.up.values()) for t in (first, *others)]
        killed.again, killed.resumed_at = sum(carried) - self._total, resumed_at
        killed.allowed = _SLACK
        if killed.moves_again:
            killed.allowed += max(0, carried[0] - resumed_at) if killed.form else killed.connections * PART
        if killed.again > killed.allowed:
            raise _Wrong("too much was moved again")


class _Wrong(Exception):
    """It did not end as it must."""
