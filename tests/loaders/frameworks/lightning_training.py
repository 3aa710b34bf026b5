"""A training in Lightning with two processes.

``python -m tests.loaders.frameworks.lightning_training WAY FOLDER NOTES``. WAY is the kind of the loader, and "resumed"
if a new Trainer goes on in the middle of the second epoch; with "resumed by 3", that has so many processes. "unequal"
has batches of which the ranks get two and one, and ends after the first; "limited", too, since its epochs have one.
With "scheduled", the model asks for the number of steps before the checkpoint is read; "whole" goes on from the end of
the first epoch; with "anew", each epoch has a new loader.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader

import nbdata
from nbdata.loaders.pytorch import SampleDataset, SampleLoader, SampleStream
from tests.loaders.frameworks.training import BATCH, EPOCHS, note, number

#: The steps of an epoch of both ranks, and the one at which a training is stopped in the second.
WHOLE, STOP = 15, 19
CHECKPOINT = os.path.join(tempfile.gettempdir(), "lightning.ckpt")


class Model(lightning.LightningModule):
    """A model that notes its samples."""

    def __init__(self, notes: str, *, scheduled: bool = False) -> None:
        super().__init__()
        self.scheduled = scheduled
        self.layer, self.notes, self.seen = torch.nn.Linear(1, 1), notes, list[int]()

    def training_step(self, batch: Any, _: int) -> Any:
        """Note a batch."""
        self.seen += batch.tolist()
        return self.layer(batch.float()[:, None]).sum() * 0

    def on_train_batch_end(self, *_: Any) -> None:
        """Save a checkpoint in the middle of the second epoch."""
        if self.global_step == STOP:
            self.trainer.save_checkpoint(CHECKPOINT)

    def on_train_epoch_end(self) -> None:
        """Write what came."""
        note(self.notes, self.current_epoch, self.global_rank, self.seen)
        self.seen = []

    def configure_optimizers(self) -> Any:
        """Change nothing."""
        if self.scheduled:
            assert self.trainer.estimated_stepping_batches
        return torch.optim.SGD(self.parameters(), 0.0)


class Data(lightning.LightningDataModule):
    """Makes a loader whenever it is asked for one."""

    def __init__(self, kind: str, samples: Any, batch_size: int) -> None:
        super().__init__()
        self.given = kind, samples, batch_size

    def train_dataloader(self) -> Any:
        """Return a new loader."""
        return made(*self.given)


def made(kind: str, samples: Any, batch_size: int) -> Any:
    """Return the loader of a kind."""
    if kind == "stream":
        return DataLoader(SampleStream(samples, number, shuffle=True, seed=2), batch_size=batch_size)
    if kind == "dataset":  # Lightning puts a sampler for several ranks there
        return DataLoader(SampleDataset(samples, number), batch_size=BATCH, shuffle=True)
    return SampleLoader(
        samples, BATCH, shuffle=True, seed=2, transform=number, num_workers=1, uneven="repeat"
    )


def main(way: str, folder: str, notes: str) -> None:
    """Train for some epochs, with Lightning's own settings for several devices."""
    kind, _, resumed = way.partition(" ")
    unequal = resumed in ("unequal", "limited")
    ranks = int(resumed.removeprefix("resumed by ")) if "by" in resumed else 2
    if ranks != 2 and "LOCAL_RANK" not in os.environ:  # two other processes make the checkpoint
        subprocess.run([sys.executable, "-m", __spec__.name, f"{kind} stopped", folder, notes], check=True)
    stops = {
        "stopped": (STOP,), "resumed": (STOP, -1), "resumed scheduled": (STOP, -1), "resumed whole": (WHOLE, -1),
    }.get(resumed, (1 if unequal else -1,))  # fmt: skip
    for steps in stops:
        trainer = lightning.Trainer(
            max_epochs=1 if steps == WHOLE else EPOCHS, max_steps=steps, accelerator="cpu", devices=ranks,
            strategy="ddp", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, limit_train_batches=1 if resumed == "limited" else 1.0,
            reload_dataloaders_every_n_epochs=1 if resumed == "anew" else 0,
        )  # fmt: skip
        model = Model(notes, scheduled="scheduled" in resumed)
        given = kind, nbdata.samples(folder, quiet=True), 101 if unequal else BATCH
        data = Data(*given) if resumed == "anew" else made(*given)
        trainer.fit(model, data, ckpt_path=CHECKPOINT if "resumed" in resumed and steps < 0 else None)
        if steps == WHOLE:
            trainer.save_checkpoint(CHECKPOINT)


if __name__ == "__main__":
    main(*sys.argv[1:])
