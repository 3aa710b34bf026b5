"""The kill campaign: kills the agent or the kernel with SIGKILL at random moments, and repeats the command.

The commands are `pull`, `push` and `untar_volumes`. The moment is chosen by bytes, not by time: the proxy counts the
bytes of objects that it carries, and stops at the chosen byte until the process is dead. After the kill no file with a
final name is wrong. The repeated command succeeds with the same result as without a kill. The proxy checks that no more
is transferred twice than

* one part per connection, for a pull or a push;
* the data after the last checkpoint, for an extraction: the second command's report states where it resumed.

A kernel runs its command in a cell. When the kernel is killed, the job continues in the agent. A new kernel runs the
same cell at once and attaches to the job, or finds it done. In a third of these cases the agent is killed right after
its kernel.
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
from nbdata.lock_files import held
from nbdata.operation import Operation
from nbdata.runtime import endpoint
from nbdata.transfer.part_records import NOTED
from tests.faults.proxy import FaultProxy, Tally
from tests.faults.trees import FORMS, Tree, on_disk, stored
from tests.kernel import Kernel

__all__ = ["AGENT", "ATTACHED", "BOTH", "DONE", "KERNEL", "PART", "VERBS", "Killed", "agent", "kill_all"]

#: Size of a part, which is transferred in one piece and then recorded.
PART = 16 << 20
VERBS = ("pull", "push", "untar_volumes")
#: The process to kill, and what happens after the kill of a kernel.
AGENT, KERNEL = "agent", "kernel"
ATTACHED, DONE, BOTH = "attached", "found done", "the agent killed, too"
# Bytes that may be transferred twice in addition: unrecorded small objects, and a part's bytes since its last record.
_SLACK = 2_000_000 + NOTED
# Seconds within which a command must end, and the additional seconds per byte.
_BOUND, _SLOWEST = 120.0, 1 / 5_000_000
RIGHT = "right"


@dataclass
class Killed:
    """The outcome of one kill.

    Attributes
    ----------
    tree : int
        Size of the tree in bytes.
    form : str
        Format of the volumes; '' for pull and push.
    then : str
        What followed the kernel's death: `ATTACHED`, `DONE` or `BOTH`; '' for an agent.
    share : float
        The moment of the kill, as a share of the bytes.
    end : str
        `RIGHT`, or a description of the bug.
    again : int
        Bytes of objects that were transferred twice.
    allowed : int
        Upper limit on `again`.
    resumed_at : int
        Position in the volumes at which an extraction resumed, in bytes.
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
        """True if the run ended as required."""
        return self.end == RIGHT

    @property
    def moves_again(self) -> bool:
        """True if the killed process is the one that moves the bytes."""
        return self.victim == AGENT or self.then == BOTH

    @property
    def line(self) -> str:
        """The outcome as one line of text."""
        what = f"{self.verb} {self.form}".strip()
        return (
            f"{self.number:4} {what} of {self.tree / 1e6:.0f} MB: {self.victim} killed at {self.share:4.0%}, "
            f"{f'{self.then}, ' if self.then else ''}{self.connections} connections, "
            f"{self.again / 1e6:5.1f} of at most {self.allowed / 1e6:5.1f} MB again, {self.seconds:4.1f} s: {self.end}"
        )


def agent() -> int:
    """Return the process id of the agent; start the agent if necessary."""
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
    """Kill each process this many times, with the verbs in turn.

    `switch` sets the commands' environment variables. No new kill starts once `over` returns true.
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
    """Choose the kills in random order; the verbs, formats and follow-ups of each process alternate."""
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
    """A supply of running kernels that wait for a cell; a context manager."""

    def __init__(self, tree: Tree) -> None:
        self._folder = tree.work
        self._living, self._waiting = list[Kernel](), list[Kernel]()

    def __enter__(self) -> _Kernels:
        return self

    def __exit__(self, *exc: object) -> None:
        for kernel in list(self._living):
            self.end(kernel)

    def take(self) -> Kernel:
        """Take a kernel that is ready."""
        if self._waiting:
            return self._waiting.pop()
        kernel = Kernel(self._folder).__enter__()
        self._living.append(kernel)
        assert kernel.run("%load_ext nbdata").error is None
        return kernel

    def give_back(self, kernel: Kernel) -> None:
        """Return a kernel that is alive and idle."""
        self._waiting.append(kernel)

    def end(self, kernel: Kernel) -> None:
        """End a kernel that may be dead."""
        self._living.remove(kernel)
        kernel.__exit__(None, None, None)


class _Case:
    """One kill with its resources; a context manager."""

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
        """Run a command, kill a process, check, run the command again and check again."""
        try:
            self._by_kernel() if self._killed.victim == KERNEL else self._by_agent()
            self._look(whole=True)
            if (self._target / ".nbdata").exists():
                raise _Wrong("its own folder is left in the target")
        except _Wrong as wrong:
            self._killed.end = str(wrong)
        except Exception as error:  # of any kind: the other kills still have to run
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

    # -- the result -----------------------------------------------------------------------------------

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
    """Raised if a run did not end as required."""
