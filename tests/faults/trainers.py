"""Trainers that are killed again and again, each going on where the last one had saved that it was."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.waiting import PATIENCE

__all__ = ["FILES", "Trained", "train_all", "trained"]

#: What the trainers go through: forty samples of two files.
FILES = {f"{n:03}.{name}": f"{name} {n}".encode() * (n + 1) for n in range(40) for name in ("jpg", "cls")}
_ROOT = Path(__file__).parents[2]


@dataclass
class Trained:
    """What an epoch with kills came to.

    Attributes
    ----------
    seed : int
    kills : int
        Trainers that were killed in it.
    seen : list of (key, text)
        Of the samples in the order in which they were given out.
    """

    seed: int
    kills: int
    seen: list[tuple[str, str]]

    @property
    def good(self) -> bool:
        """Whether each sample was seen exactly once, with the right bytes."""
        right = {name[:3]: data.decode() for name, data in FILES.items() if name.endswith(".jpg")}
        return len(self.seen) == len(right) and dict(self.seen) == right

    @property
    def line(self) -> str:
        """In one line."""
        became = "each sample once" if self.good else f"BAD: {self.seen}"
        return f"trainer, seed {self.seed}: {self.kills} kills, {became}"


def trained(url: str, saved: Path, *, seed: int, kills: int) -> Trained:
    """One epoch, in which so many trainers are killed; each has other workers and batches than the one before."""
    chosen, killed = random.Random(seed), 0
    for number in range(kills + 1):
        words = [url, str(saved), str(chosen.randrange(3)), str(chosen.randrange(1, 6))]
        command = [sys.executable, "-m", "tests.loaders.train", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT) as trainer:
            assert trainer.stdout is not None
            if number < kills:
                for _ in range(chosen.randrange(1, 6)):
                    trainer.stdout.readline()
                trainer.kill()
            killed += trainer.wait(PATIENCE) == -9
    return Trained(seed, killed, [(key, text) for key, text in json.loads(saved.read_text())["seen"]])


def train_all(server: EmbeddedServer, folder: Path, *, count: int, seed: int) -> Iterator[Trained]:
    """Epochs until `count` trainers were killed."""
    server.create_bucket("trainers")
    client = client_of(server)
    for name, data in FILES.items():
        client.put_object(Bucket="trainers", Key=name, Body=data)
    client.close()
    folder.mkdir()
    while count > 0:
        made = trained("s3://trainers/", folder / f"{seed}.json", seed=seed, kills=min(count, 3))
        count, seed = count - max(1, made.kills), seed + 1
        yield made
