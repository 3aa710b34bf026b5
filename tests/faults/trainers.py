"""The kill campaign for trainers: a trainer is killed repeatedly, and the next one resumes from the last saved state.

If the trainer uses a cache, the victim is the trainer, one of its workers, or the agent that keeps the cache.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.faults.kills import agent
from tests.waiting import PATIENCE

__all__ = ["FILES", "PROGRAMS", "SHARDS", "Trained", "train_all", "trained"]

#: The training data: forty samples of two files each.
FILES = {f"{n:03}.{name}": f"{name} {n}".encode() * (n + 1) for n in range(40) for name in ("jpg", "cls")}
#: The trainer program for each way of packing the data.
PROGRAMS = {
    "objects": "tests.loaders.train",
    "shards": "tests.loaders.train_shards",
    "objects in a cache": "tests.loaders.train_cached",
}
# Runs a test module with the installed nbdata, as the tests do. So both use the same agent.
_RUN = (
    f"import runpy, sys; sys.path.append({str(Path(__file__).parents[2])!r}); module = sys.argv.pop(1); "
    "runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def _shard(numbers: range) -> bytes:
    """Return a shard with the samples of these numbers."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for number in numbers:
            for name in ("jpg", "cls"):
                member = tarfile.TarInfo(f"{number:03}.{name}")
                member.size = len(FILES[member.name])
                archive.addfile(member, io.BytesIO(FILES[member.name]))
    return packed.getvalue()


#: The same samples in shards.
SHARDS = {f"x-{number}.tar": _shard(range(number * 8, number * 8 + 8)) for number in range(5)}


@dataclass
class Trained:
    """The outcome of an epoch with kills.

    Attributes
    ----------
    packing : str
        A key of `PROGRAMS`.
    seed : int
    kills : int
        Number of kills in the epoch.
    seen : list of (key, text)
        The samples in the order in which the trainers got them.
    """

    packing: str
    seed: int
    kills: int
    seen: list[tuple[str, str]]

    @property
    def good(self) -> bool:
        """True if the trainers got each sample exactly once, with the right bytes."""
        right = {name[:3]: data.decode() for name, data in FILES.items() if name.endswith(".jpg")}
        return len(self.seen) == len(right) and dict(self.seen) == right

    @property
    def line(self) -> str:
        """The outcome as one line of text."""
        became = "each sample once" if self.good else f"BAD: {self.seen}"
        return f"trainer of {self.packing}, seed {self.seed}: {self.kills} kills, {became}"


def trained(url: str, saved: Path, *, packing: str = "objects", seed: int, kills: int) -> Trained:
    """Run one epoch with this many kills.

    Each trainer has other workers and batches, or other parts and readahead, than the one before.
    """
    chosen, killed = random.Random(seed), 0
    for number in range(kills + 1):
        words = [url, str(saved), str(chosen.randrange(3)), str(chosen.randrange(1, 6))]
        command = [sys.executable, "-c", _RUN, PROGRAMS[packing], *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/") as trainer:
            assert trainer.stdout is not None
            if number < kills:
                for _ in range(chosen.randrange(1, 6)):
                    trainer.stdout.readline()
                killed += _kill(trainer, chosen.choice(VICTIMS) if "cache" in packing else "trainer")
            trainer.communicate(timeout=PATIENCE)
    return Trained(
        packing, seed, killed, [(key, text) for key, text in json.loads(saved.read_text())["seen"]]
    )


#: The possible victims if a trainer uses a cache.
VICTIMS = ("trainer", "worker", "agent")


def _kill(trainer: subprocess.Popen[bytes], victim: str) -> bool:
    """Kill one process and return whether it was alive. A trainer dies with its worker, but not with the agent."""
    if trainer.poll() is not None:
        return False
    if victim == "agent":
        os.kill(agent(), signal.SIGKILL)
        return True
    workers = Path(f"/proc/{trainer.pid}/task/{trainer.pid}/children").read_text().split()
    if victim == "worker" and workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(workers[-1]), signal.SIGKILL)
        return True
    trainer.kill()
    return True


def train_all(server: EmbeddedServer, folder: Path, *, count: int, seed: int) -> Iterator[Trained]:
    """Run epochs until `count` trainers of each packing were killed."""
    server.create_bucket("trainers")
    client = client_of(server)
    for name, data in FILES.items():
        client.put_object(Bucket="trainers", Key=f"objects/{name}", Body=data)
    for name, data in SHARDS.items():
        client.put_object(Bucket="trainers", Key=f"shards/{name}", Body=data)
    client.close()
    folder.mkdir()
    objects = "s3://trainers/objects/"
    places = {
        "objects": objects,
        "shards": "s3://trainers/shards/x-{0..4}.tar",
        "objects in a cache": objects,
    }
    for packing, url in places.items():
        left, one = count, seed
        while left > 0:
            saved = folder / packing.replace(" ", "-") / f"{one}.json"
            saved.parent.mkdir(exist_ok=True)
            made = trained(url, saved, packing=packing, seed=one, kills=min(left, 3))
            left, one = left - max(1, made.kills), one + 1
            yield made
