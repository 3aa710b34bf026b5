"""Measures whole processes: wall and CPU seconds and peak memory, of nbdata with its agent, and of the server."""

from __future__ import annotations

import filecmp
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nbdata.client.launch import connect

BIN = Path(sys.executable).parent
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Run:
    """The cost of one run: wall seconds, CPU seconds of the client (with the agent) and of the server, and peak memory.

    `agent` is the agent's share of `memory`, in bytes. `others` is the number of cores that unrelated processes used.
    """

    wall: float
    cpu: float
    server: float
    memory: int
    others: float
    agent: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the run as JSON-serializable data."""
        return asdict(self)


def process_cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used so far; 0 if it has ended."""
    with suppress(OSError):
        user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / TICKS
    return 0.0


def machine_cpu() -> float:
    """Return the CPU seconds that the machine has used so far, for all processes.

    This includes time that other virtual machines stole.
    """
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / TICKS


def agent_pid() -> int:
    """Return the agent's process id; start the agent if necessary."""
    with connect() as connection:
        return int(connection.ask({"do": "hello"})["pid"])


def agent_cpu() -> float:
    """Return the CPU seconds that the agent has used so far."""
    return process_cpu(agent_pid())


def _reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): resets the peak of its memory


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


class _Memory(threading.Thread):
    """Repeatedly measures the memory of a process and its children, and keeps the maximum.

    The kernel's own figure for an ended child would start with the memory of its parent.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.most, self.over = pid, 0, threading.Event()
        self.start()

    def run(self) -> None:
        """Measure until `over` is set."""
        while not self.over.wait(0.02):
            with suppress(OSError, ValueError):
                children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
                peaks = []
                for pid in (self.pid, *map(int, children)):
                    with suppress(OSError, IndexError):
                        peaks.append(_peak(pid))
                self.most = max(self.most, sum(peaks))


def timed(
    command: Sequence[str],
    *,
    servers: Sequence[int] = (),
    agent: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> Run:
    """Run a command to its end, discard its output, and return the cost.

    Parameters
    ----------
    servers : sequence of int
        Processes whose CPU time counts as the server's.
    agent : bool
        Whether the agent's CPU time and memory count as the client's.
    """
    keeper = agent_pid() if agent else 0
    if keeper:
        _reset_peak(keeper)
    before = process_cpu(keeper), sum(map(process_cpu, servers)), machine_cpu()
    own = os.times()
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env, cwd=cwd)
    assert process.stderr is not None
    watch = _Memory(process.pid)
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    watch.over.set()
    watch.join()
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[:3]} ended with status {process.returncode}: {said[-2000:].decode()}")
    now = os.times()
    cpu = used.ru_utime + used.ru_stime + process_cpu(keeper) - before[0]
    server = sum(map(process_cpu, servers)) - before[1]
    mine = now.user + now.system - own.user - own.system
    others = max(0.0, machine_cpu() - before[2] - cpu - server - mine) / wall
    held = _peak(keeper) if keeper else 0
    return Run(wall, cpu, server, watch.most + held, others, held)


def same(one: Path, other: Path) -> bool:
    """True if two folders hold the same files, byte for byte."""
    compared = filecmp.dircmp(one, other)
    if compared.left_only or compared.right_only or compared.funny_files:
        return False
    _, wrong, errors = filecmp.cmpfiles(one, other, compared.common_files, shallow=False)
    return not wrong and not errors and all(same(one / n, other / n) for n in compared.common_dirs)


def interval(ratios: Sequence[float], *, draws: int = 2000) -> tuple[float, float, float]:
    """Return the median of ratios and its 95 % bootstrap interval.

    The bootstrap is B. Efron's, Annals of Statistics 7(1), 1979.
    """
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(draws))
    return statistics.median(ratios), medians[int(0.025 * draws)], medians[int(0.975 * draws)]
