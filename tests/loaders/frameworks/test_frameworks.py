"""Inside Lightning, Accelerate, torchrun and torchdata's loader each sample of an epoch comes, and none is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

import nbdata
from nbdata.loaders.pytorch import SampleDataset
from tests.waiting import PATIENCE

COUNT, ROOT = 203, Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("samples")
    for number in range(COUNT):
        (made / f"{number:04}.bin").write_bytes(b"%d" % number)
    return f"{made}/"


def trained(command: list[str], notes: Path) -> subprocess.CompletedProcess[str]:
    """Run a training to its end, in a session of its own: Lightning kills its group when it fails."""
    notes.mkdir()
    # torchrun leaves files, and workers pass tensors through sockets, whose paths must be short.
    with tempfile.TemporaryDirectory() as short:
        env = {**os.environ, "NBDATA_HOST": "inline", "OMP_NUM_THREADS": "1", "TMPDIR": short}
        return subprocess.run(
            [sys.executable, *command, str(notes)], cwd=ROOT, env=env, capture_output=True, text=True,
            timeout=PATIENCE, start_new_session=True, check=False,
        )  # fmt: skip


def epochs(notes: Path) -> list[list[list[int]]]:
    """Return what each rank got in each epoch."""
    return [
        [[int(word) for word in path.read_text().split()] for path in sorted(notes.glob(f"{epoch}.*"))]
        for epoch in range(2)
    ]


TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "tests.loaders.frameworks.training"]


def check(seen: list[list[list[int]]], *, repeated: int) -> None:
    for ranks in seen:
        counts = Counter(number for rank in ranks for number in rank)
        assert len(ranks) == 2
        assert sorted(counts) == list(range(COUNT)), "a sample was lost"
        assert counts.total() <= COUNT + repeated, "samples came twice"
        assert max(counts.values()) <= 2
    assert seen[0] != seen[1], "a new order in each epoch"


@pytest.mark.parametrize("kind", ["loader", "stream", "source"])
def test_a_loader_that_was_made_before_the_process_group(folder: str, tmp_path: Path, kind: str) -> None:
    run = trained([*TORCHRUN, f"torchrun {kind}", folder], tmp_path / "notes")
    assert run.returncode == 0, run.stderr[-3000:]
    check(epochs(tmp_path / "notes"), repeated=0)


@pytest.mark.parametrize("kind", ["loader", "sampler", "stream"])
def test_accelerate_deals_all_samples_out(folder: str, tmp_path: Path, kind: str) -> None:
    run = trained([*TORCHRUN, f"accelerate {kind}", folder], tmp_path / "notes")
    assert run.returncode == 0, run.stderr[-3000:]
    check(epochs(tmp_path / "notes"), repeated=13)  # it fills the last step up from the first ones


def test_a_stream_that_accelerate_would_split_again_is_refused(folder: str, tmp_path: Path) -> None:
    run = trained([*TORCHRUN, "accelerate stream refused", folder], tmp_path / "notes")
    assert run.returncode != 0
    assert "give rank=0, world_size=1" in run.stderr


def test_lightning_leaves_a_loader_as_it_is(folder: str, tmp_path: Path) -> None:
    run = trained(["-m", "tests.loaders.frameworks.lightning_training", folder], tmp_path / "notes")
    assert run.returncode == 0, run.stderr[-3000:]
    check(epochs(tmp_path / "notes"), repeated=13)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata calls it
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_saves_its_state_resumes_in_the_epoch(folder: str, workers: int) -> None:
    with nbdata.samples(folder, quiet=True) as samples:

        def made() -> StatefulDataLoader[Any]:
            order = samples.batch_sampler(7, shuffle=True, seed=3)
            return StatefulDataLoader(
                SampleDataset(samples), batch_sampler=order, collate_fn=list, num_workers=workers
            )

        def keys(batches: Any) -> list[str]:
            return [sample["__key__"] for batch in batches for sample in batch]

        loader = made()
        orders = [keys(loader) for _ in range(3)]
        for drawn in (0, 1, 5, 28):
            begun = made()
            assert keys(begun) == orders[0]
            batches = iter(begun)
            got = keys(next(batches) for _ in range(drawn))
            resumed = made()
            resumed.load_state_dict(begun.state_dict())
            assert got + keys(resumed) == orders[1]
            assert keys(resumed) == orders[2]
