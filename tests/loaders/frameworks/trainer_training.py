"""A training with the Trainer of transformers.

``python -m tests.loaders.frameworks.trainer_training WAY FOLDER NOTES``.

WAY is the kind of the data set, the step at which the training is stopped and resumed by a new Trainer, if any, and
then "in workers" if they read.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import nbdata
from nbdata.loaders.pytorch import SampleDataset, SampleStream
from tests.loaders.frameworks.training import BATCH, EPOCHS, note, number

#: Steps of an epoch of all ranks together, by their number.
STEPS = {1: 29, 2: 15}


def features(sample: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return what the model takes: the sample's number is its only word."""
    return {"input_ids": torch.tensor([number(sample)]), "labels": torch.tensor(0)}


class Noting(Trainer):  # type: ignore[misc]
    """Notes the samples of each step."""

    seen: list[int]

    def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
        """Train with a batch."""
        self.seen += inputs["input_ids"][:, 0].tolist()
        return super().training_step(model, inputs, *rest)


class AtTheEnd(TrainerCallback):  # type: ignore[misc]
    """Writes what came in an epoch, and stops the training at a step."""

    def __init__(self, trainer: Noting, notes: str, stop: int) -> None:
        self.trainer, self.notes, self.stop = trainer, notes, stop
        self.epoch = 0

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin anew."""
        self.trainer.seen = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop here, after a checkpoint."""
        if state.global_step == self.stop:
            control.should_save = control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write what came."""
        steps = STEPS[args.world_size]
        note(self.notes, (state.global_step - 1) // steps, args.process_index, self.trainer.seen)


def made(kind: str, samples: Any) -> Any:
    """Return the data set of a kind."""
    if kind == "map":
        return SampleDataset(samples, features)
    alone = {} if kind == "refused" else {"rank": 0, "world_size": 1}
    return SampleStream(samples, features, shuffle=True, **alone)


def main(way: str, folder: str, notes: str) -> None:
    """Train for some epochs."""
    kind, _, rest = way.partition(" ")
    stop, _, workers = rest.partition(" ")
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    places = os.environ["TMPDIR"]  # the same for all ranks, and gone afterwards
    for at in (int(stop), 0) if stop else (0,):
        samples = nbdata.samples(folder, quiet=True)
        data = made(kind, samples)
        torch.manual_seed(0)
        model = BertForSequenceClassification(
            BertConfig(
                vocab_size=300, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
            )
        )
        steps = EPOCHS * STEPS[ranks]
        options: dict[str, Any] = {"num_train_epochs": EPOCHS} if kind == "map" else {"max_steps": steps}
        trainer = Noting(
            model,
            TrainingArguments(
                os.path.join(places, "checkpoints"), per_device_train_batch_size=BATCH, save_strategy="no",
                use_cpu=True, dataloader_num_workers=2 if workers else 0,
                report_to=[], disable_tqdm=True, remove_unused_columns=False, seed=3, **options,
            ),
            train_dataset=data,
        )  # fmt: skip
        trainer.seen = []
        trainer.add_callback(AtTheEnd(trainer, notes, at))
        trainer.train(resume_from_checkpoint=bool(stop) and not at)
    if torch.distributed.is_initialized():  # its threads may abort the process otherwise: docs/training.md
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
