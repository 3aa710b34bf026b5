"""A service and its consumers as programs of their own, which a test steps and kills.

usage: programs.py serve NAME COUNT OPTIONS | consume ADDRESS EPOCHS | interrupted ADDRESS TIMES. A service prints its
address and ends with its standard input. A consumer prints each number that it gets, and asks for the next one once it
reads a line.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

# The installed nbdata comes first.
sys.path.append(str(Path(__file__).parents[3]))

from tests.waiting import PATIENCE

__all__ = ["Program"]


class Program:
    """One of these programs. A context manager, which ends it."""

    def __init__(self, *words: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, *map(str, words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def line(self) -> str:
        """Return the next line that it prints; empty if it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def step(self) -> None:
        """Let a consumer ask for the next batch."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(PATIENCE)
        self.process.stdin.close()
        self.process.stdout.close()


def _serve(name: str, count: str, options: str) -> None:
    from nbdata.loaders.service import serve, serving
    from tests.loaders.service.loaders import Numbers

    serving.ABSENT = PATIENCE
    with serve(Numbers(int(count)), name=name, **json.loads(options)) as service:
        print(service.address, flush=True)
        sys.stdin.read()


def _consume(address: str, epochs: str) -> None:
    from nbdata.loaders.service import Client
    from tests.loaders.service.loaders import number_of

    with Client(address) as client:
        for _ in range(int(epochs)):
            for batch in client:
                print(number_of(batch), flush=True)
                sys.stdin.readline()
            print("end", flush=True)


def _interrupted(address: str, times: str) -> None:
    """Take batches amid so many Ctrl-Cs, at any moment; then print how often each epoch had each batch."""
    from nbdata.loaders.service import Client

    draw, got, hits = random.Random(1), Counter[tuple[int, int]](), 0

    def interrupt(_: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not Client.__iter__.__code__:
            frame = frame.f_back
        if frame is not None:  # elsewhere it is the trainer that loses the batch
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    sys.unraisablehook = lambda _: None  # Python tells of each one that comes in a destructor
    with Client(address) as client:
        while hits < int(times):
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + draw.random() * 0.01)
                hits += 1
                for batch in client:
                    got[int(batch["epoch"]), int(batch["n"][0])] += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    print(json.dumps([[*key, count] for key, count in got.items()]), flush=True)


if __name__ == "__main__":
    sys.modules["torch"] = None  # type: ignore[assignment]  # it takes seconds to import, and is not needed
    {"serve": _serve, "consume": _consume, "interrupted": _interrupted}[sys.argv[1]](*sys.argv[2:])
