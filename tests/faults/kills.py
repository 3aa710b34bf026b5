"""kill -9 of the agent at random moments of pull and push; then the same line again.

The moment is chosen by bytes, not by time: the proxy counts the bytes of objects that it carries, and at the chosen one
it carries nothing more until the process is dead. Afterwards nothing wrong stands under a final name; the same line,
said again, goes well, and all is as if nothing had happened; and no more than a part a connection was fetched or sent
twice, as the proxy counted it.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import nbdata
from nbdata.client.launch import connect
from nbdata.errors import AgentUnavailable, NbdataError
from nbdata.operation import Operation
from nbdata.runtime import endpoint, held
from tests.faults.campaign import environment
from tests.faults.proxy import FaultProxy
from tests.faults.scene import Scene, differences, files_of, objects_of

__all__ = ["Killed", "agent", "kill_all"]

#: What is fetched or sent in one piece, and recorded then.
PART = 16 << 20
# What small objects may add to that: a batch that was not recorded yet.
_SLACK = 2_000_000
_BOUND = 120.0
RIGHT = "right"

#: Gives the process id of who is to be killed.
Victim = Callable[[], int]


@dataclass
class Killed:
    """What became of one kill.

    Attributes
    ----------
    share : float
        The moment, as a share of the bytes.
    end : str
        `RIGHT`, or what is wrong.
    again : int
        Bytes of objects that went over the wire twice.
    allowed : int
        How many those may be.
    """

    number: int
    verb: str
    share: float
    connections: int
    end: str = RIGHT
    again: int = 0
    allowed: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether it ended as it must."""
        return self.end == RIGHT

    @property
    def line(self) -> str:
        """It in one line."""
        return (
            f"{self.number:4} {self.verb}: killed at {self.share:4.0%}, {self.connections} connections, "
            f"{self.again / 1e6:5.1f} of at most {self.allowed / 1e6:5.1f} MB again, {self.seconds:4.1f} s: {self.end}"
        )


def agent() -> int:
    """The process id of the agent, which is started if it does not run."""
    with connect() as connection:
        return int(connection.ask({"do": "hello"})["pid"])


def kill_all(
    scene: Scene,
    *,
    seed: int,
    kills: int,
    told: Callable[[str], None],
    switch: Callable[[dict[str, str]], None],
) -> Iterator[Killed]:
    """So many kills, of pull and push in turn; `switch` sets the variables that lines are to be said with."""
    with FaultProxy(scene.server.url) as proxy:
        switch(environment(scene, proxy))
        for number in range(kills):
            source = random.Random(f"{seed} kill {number}")
            killed = Killed(
                number, ("pull", "push")[number % 2], source.uniform(0.05, 0.95), source.choice((1, 2, 3))
            )
            _pull(scene, proxy, killed) if killed.verb == "pull" else _push(scene, proxy, killed)
            told(killed.line)
            yield killed


def _pull(scene: Scene, proxy: FaultProxy, killed: Killed) -> None:
    target = scene.target("killed")
    line = nbdata.Pull(f"s3://{scene.bucket}/", str(target), concurrency=killed.connections)
    _say_twice(proxy, killed, line, agent, scene.now(), lambda: files_of(target) if target.exists() else {})
    if (target / ".nbdata").exists():
        killed.end = "its own folder is left in the target"


def _push(scene: Scene, proxy: FaultProxy, killed: Killed) -> None:
    bucket = f"kills-{killed.number}-{secrets.token_hex(4)}"
    scene.server.create_bucket(bucket)
    try:
        line = nbdata.Push(str(scene.folder), f"s3://{bucket}/", concurrency=killed.connections)
        _say_twice(proxy, killed, line, agent, scene.files, lambda: objects_of(scene.client, bucket))
    finally:
        scene.client.delete_bucket(Bucket=bucket)


def _say_twice(
    proxy: FaultProxy,
    killed: Killed,
    line: Operation,
    victim: Victim,
    wanted: dict[str, bytes],
    found: Callable[[], dict[str, bytes]],
) -> None:
    """Say a line, kill, look, say it again, look again."""
    began = time.monotonic()
    total = sum(map(len, wanted.values()))
    killed.allowed = killed.connections * PART + _SLACK
    pid = victim()
    first = proxy.begin(at=int(total * killed.share), then=lambda: os.kill(pid, signal.SIGKILL))
    try:
        line.start().wait(_BOUND)
        killed.end = "it went well, and was to be killed"
        return
    except AgentUnavailable:
        pass
    except (NbdataError, TimeoutError) as error:
        killed.end = f"it was to be killed: {error}"
        return
    while held(endpoint().alive):
        time.sleep(0.01)
        if time.monotonic() > began + _BOUND:
            killed.end = "the process did not die"
            return
    if wrong := differences(found(), wanted):
        killed.end = f"wrong after the kill: {wrong}"
        return
    second = proxy.begin()
    try:
        line.start().wait(_BOUND)
    except (NbdataError, TimeoutError) as error:
        killed.end = f"said again: {error}"
        return
    killed.seconds = time.monotonic() - began
    killed.again = sum(sum(tally.values()) for run in (first, second) for tally in (run.down, run.up)) - total
    if wrong := differences(found(), wanted):
        killed.end = f"wrong: {wrong}"
    elif missing := wanted.keys() - found().keys():
        killed.end = f"{len(missing)} missing, such as {min(missing)}"
    elif killed.again > killed.allowed:
        killed.end = "too much was moved again"
