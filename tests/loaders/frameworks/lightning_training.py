"""A training in Lightning with two processes.

``python -m tests.loaders.frameworks.lightning_training FOLDER NOTES``.
"""

from __future__ import annotations

import sys
from typing import Any

import lightning
import torch

import nbdata
from nbdata.loaders.pytorch import SampleLoader
from tests.loaders.frameworks.training import BATCH, EPOCHS, note, number


class Model(lightning.LightningModule):
    """A model that notes its samples."""

    def __init__(self, notes: str) -> None:
        super().__init__()
        self.layer, self.notes, self.seen = torch.nn.Linear(1, 1), notes, list[int]()

    def training_step(self, batch: Any, _: int) -> Any:
        """Note a batch."""
        self.seen += batch.tolist()
        return self.layer(batch.float()[:, None]).sum() * 0

    def on_train_epoch_end(self) -> None:
        """Write what came."""
        note(self.notes, self.current_epoch, self.global_rank, self.seen)
        self.seen = []

    def configure_optimizers(self) -> Any:
        """Change nothing."""
        return torch.optim.SGD(self.parameters(), 0.0)


def main(folder: str, notes: str) -> None:
    """Train for some epochs, with Lightning's own settings for several devices."""
    loader = SampleLoader(
        nbdata.samples(folder, quiet=True),
        BATCH,
        shuffle=True,
        seed=2,
        transform=number,
        num_workers=1,
        uneven="repeat",
    )
    trainer = lightning.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Model(notes), loader)


if __name__ == "__main__":
    main(*sys.argv[1:])
