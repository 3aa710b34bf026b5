"""The kill campaign for loader services: the service, a worker of its loader, or a consumer is killed repeatedly.

Two consumers share the epochs of one service. After each kill the service goes on from its file of the state, or a new
consumer comes. In the end each epoch must have had each sample as often as docs/service.md says, and nothing is left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.slow import take
from tests.waiting import PATIENCE, wait_until

__all__ = ["VICTIMS", "Served", "kill_services", "serve_amid_kills"]

SERVICE, WORKER, CONSUMER = "service", "worker", "consumer"
#: Who is killed, and where the service listens.
VICTIMS = ((SERVICE, "ipc"), (SERVICE, "tcp://127.0.0.1:0"), (WORKER, "ipc"), (CONSUMER, "ipc"))
_SAMPLES, _BATCH, _CONSUMERS, _NAME = 80, 2, 2, "killed"
# The fewest and the most batches between two kills, and the most seconds that a consumer takes for one. More are made
# than can be ready: a service gives up after three kills of workers at the same batch.
_FEWEST, _BETWEEN, _TAKES = {SERVICE: 1, WORKER: 10, CONSUMER: 1}, 20, 0.02
# Runs this module with the installed nbdata, as the tests do.
_RUN = (
    f"import runpy, sys; sys.path.append({str(Path(__file__).parents[2])!r}); "
    "runpy.run_module('tests.faults.services', run_name='__main__', alter_sys=True)"
)


@dataclass
class Served:
    """The outcome of the epochs of a service with kills.

    Attributes
    ----------
    victim, listen : str
    seed, kills, epochs : int
    lost : int
        Samples that an epoch did not have.
    again : int
        Samples that an epoch had twice, as the definition permits for what a killed consumer had in its hand.
    twice : int
        Samples that it had twice otherwise.
    left : list of str
        What was left: processes, sockets and files.
    """

    victim: str
    listen: str
    seed: int
    kills: int
    epochs: int
    lost: int
    again: int
    twice: int
    left: list[str]

    @property
    def good(self) -> bool:
        """True if no sample was lost or doubled, and nothing was left."""
        return not (self.lost or self.twice or self.left)

    @property
    def line(self) -> str:
        """The outcome as one line of text."""
        became = f"{self.lost} lost, {self.twice} twice, {self.again} dealt again, left: {self.left}"
        return (
            f"{'' if self.good else 'BAD '}service at {self.listen}, seed {self.seed}: {self.kills} kills of the "
            f"{self.victim} in {self.epochs} epochs: {became}"
        )


def kill_services(folder: Path, *, kills: int, seed: int) -> Iterator[Served]:
    """Kill each of `VICTIMS` so often."""
    folder.mkdir()
    for number, (victim, listen) in enumerate(VICTIMS):
        yield serve_amid_kills(folder / str(number), victim, listen, kills=kills, seed=seed)


def serve_amid_kills(folder: Path, victim: str, listen: str = "ipc", *, kills: int, seed: int) -> Served:
    """Run epochs of a service until a victim was killed so often, and the running epoch has ended."""
    draw = random.Random(f"{seed} {victim} {listen}")
    # The paths of sockets must be short.
    with _Programs(folder) as programs, tempfile.TemporaryDirectory(prefix="nbdata-s-") as runtime:
        programs.environment["NBDATA_RUNTIME_DIR"] = runtime
        address = programs.serve(listen)
        for _ in range(_CONSUMERS):
            programs.consume(address)
        for _ in range(kills):
            at = programs.seen + draw.randint(_FEWEST[victim], _BETWEEN)
            wait_until(lambda at=at: programs.seen >= at)
            take(draw.random() * _TAKES)  # another moment, between two events
            if victim == SERVICE:
                programs.kill(programs.service)
                assert programs.serve(listen) == address
            elif victim == WORKER:
                programs.kill_worker(draw)
            else:
                programs.kill(draw.choice([*programs.consumers]))
                programs.consume(address)
        programs.stop.touch()
        for consumer in programs.consumers:
            assert consumer.wait(PATIENCE) == 0
        programs.end_service()
        wait_until(lambda: not programs.alive())
        epochs, lost, again, twice = programs.counted()
        left = [*_files(Path(runtime, "services")), *programs.left(runtime)]
    return Served(victim, listen, seed, kills, epochs, lost, again, twice, left)


class _Programs:
    """A service, and its consumers, each of which writes what it gets into a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.stop = folder, folder / "stop"
        self.consumers: dict[subprocess.Popen[str], Path] = {}
        self._killed: set[Path] = set()
        self._logs: list[Path] = []
        self._started: list[subprocess.Popen[str]] = []
        for name in ("data", "tmp"):
            (folder / name).mkdir(parents=True)
        for number in range(_SAMPLES):
            (folder / f"data/{number:04}.bin").write_bytes(bytes(600))
        self.environment = {**os.environ, "TMPDIR": str(folder / "tmp")}

    def __enter__(self) -> _Programs:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._started:
            program.kill()
            program.wait()
            for end in (program.stdin, program.stdout):
                assert end is not None
                end.close()

    def _start(self, *words: object) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-c", _RUN, *map(str, words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self._folder, env=self.environment,
            start_new_session=True,
        )  # fmt: skip
        self._started.append(program)
        return program

    def serve(self, listen: str) -> str:
        """Start the service and return its address."""
        self.service = self._start("serve", self._folder / "data", listen, self._folder / "state")
        assert self.service.stdout is not None
        address = self.service.stdout.readline().strip()
        assert address, "the service has not started"
        return address

    def consume(self, address: str) -> None:
        """Start a consumer."""
        log = self._folder / f"log-{len(self._logs)}"
        self._logs.append(log)
        log.touch()
        self.consumers[self._start("consume", address, log, self.stop)] = log

    def kill(self, program: subprocess.Popen[str]) -> None:
        """Kill the service or a consumer (SIGKILL)."""
        program.kill()
        program.wait()
        if program in self.consumers:
            self._killed.add(self.consumers.pop(program))

    def kill_worker(self, draw: random.Random) -> None:
        """Kill one of the workers of the service's loader."""
        service = self.service.pid

        def killed() -> bool:
            workers = [pid for pid, session in _sessions() if session == service and pid != service]
            with contextlib.suppress(
                IndexError, ProcessLookupError
            ):  # they end, too, where one was killed before
                os.kill(draw.choice(workers), signal.SIGKILL)
                return True
            return False

        wait_until(killed)

    def end_service(self) -> None:
        """Let the service end."""
        assert self.service.stdin is not None
        self.service.stdin.close()
        assert self.service.wait(PATIENCE) == 0

    @property
    def seen(self) -> int:
        """The batches that consumers have got."""
        return sum(len(_lines(log)) for log in self._logs)

    def alive(self) -> list[int]:
        """Return the processes that are left, also the workers of services that were killed."""
        started = {program.pid for program in self._started}
        return [pid for pid, session in _sessions() if session in started]

    def counted(self) -> tuple[int, int, int, int]:
        """Return the epochs, and the samples that they lost, had twice as permitted, and had twice otherwise."""
        times: dict[int, Counter[int]] = {}
        permitted = set[tuple[int, int]]()
        for log in self._logs:
            batches = [(epoch, key) for epoch, *keys in _lines(log) for key in keys]
            for epoch, key in batches:
                times.setdefault(epoch, Counter())[key] += 1
            if log in self._killed:  # the batch in its hand, and one whose use it had just reported
                permitted |= set(batches[-2 * _BATCH :])
        lost = sum(_SAMPLES - len(seen) for seen in times.values())
        twice = [
            (epoch, key) for epoch, seen in times.items() for key, n in seen.items() for _ in range(n - 1)
        ]
        again = sum(one in permitted for one in twice)
        return len(times), lost, again, len(twice) - again

    def left(self, runtime: str) -> list[str]:
        """Return the files and sockets that are left."""
        sockets = [
            line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if runtime in line
        ]
        started = {str(program.pid) for program in self._started}
        shared = [name for name in os.listdir("/dev/shm") if started & {*name.split("_")}]
        beside = {"data", "tmp", "state", "stop", *(log.name for log in self._logs)}
        others = [path.name for path in self._folder.iterdir() if path.name not in beside]
        return [*sockets, *shared, *others, *_files(self._folder / "tmp")]


def _files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name != f"{_NAME}.lock"]


def _lines(log: Path) -> list[list[int]]:
    """Return the epoch and the keys of each batch; a consumer that was killed may have left half a line."""
    return [[*map(int, line.split())] for line in log.read_text().split("\n")[:-1]]


def _sessions() -> Iterator[tuple[int, int]]:
    """Yield each process that runs, and its session."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                state, _, _, session = (
                    Path("/proc", entry, "stat").read_text().rpartition(") ")[2].split()[:4]
                )
            except OSError:
                continue
            if state != "Z":
                yield int(entry), int(session)


# -- the programs -----------------------------------------------------------------------------------


def _keyed(sample: dict[str, Any]) -> int:
    return int(sample["__key__"])


def _serve(data: str, listen: str, state: str) -> None:
    import nbdata
    from nbdata.loaders.pytorch import SampleLoader
    from nbdata.loaders.service import serve

    loader = SampleLoader(
        nbdata.samples(data), _BATCH, transform=_keyed, shuffle=True, seed=1, num_workers=2, collate_fn=list
    )
    with serve(loader, name=_NAME, listen=listen, state=state, ahead=1) as service:
        print(service.address, flush=True)
        sys.stdin.read()


def _consume(address: str, log: str, stop: str) -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]  # it takes seconds to import, and is not needed
    from nbdata.loaders.service import Client

    draw = random.Random(log)
    with Client(address) as client, open(log, "ab", buffering=0) as file:
        while True:
            for keys in client:
                file.write(f"{client.epoch} {' '.join(map(str, keys))}\n".encode())
                take(draw.random() * _TAKES)
            if os.path.exists(stop):  # at the end of an epoch only, so that the last one is whole
                break


if __name__ == "__main__":
    {"serve": _serve, "consume": _consume}[sys.argv[1]](*sys.argv[2:])
