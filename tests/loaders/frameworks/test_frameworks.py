"""Inside Lightning, Accelerate, transformers, datasets, torchrun and torchdata's loader no sample is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets.distributed import split_dataset_by_node
from torchdata.stateful_dataloader import StatefulDataLoader

import nbdata
from nbdata.client.reading.samples import Samples
from nbdata.loaders.pytorch import SampleDataset, SampleStream
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


def torchrun(ranks: int, module: str) -> list[str]:
    return ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "-m", f"{MODULES}.{module}"]


MODULES = "tests.loaders.frameworks"
TORCHRUN = torchrun(2, "training")


def check(seen: list[list[list[int]]], *, repeated: int, among: int = 2) -> None:
    for ranks in seen:
        counts = Counter(number for rank in ranks for number in rank)
        assert len(ranks) == among
        assert sorted(counts) == list(range(COUNT)), "a sample was lost"
        assert counts.total() <= COUNT + repeated, "samples came twice"
        assert max(counts.values()) <= 2
    assert seen[0] != seen[1], "a new order in each epoch"


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("kind", ["loader", "stream", "source"])
def test_a_loader_that_was_made_before_the_process_group(
    folder: str, tmp_path: Path, kind: str, ranks: int
) -> None:
    run = trained([*torchrun(ranks, "training"), f"torchrun {kind}", folder], tmp_path / "notes")
    assert run.returncode == 0, run.stderr[-3000:]
    check(epochs(tmp_path / "notes"), repeated=0, among=ranks)
    told = 1 if kind != "loader" and ranks > 1 else 0  # of 203 samples some ranks get one more
    assert run.stderr.count("nbdata: of ") == told


def test_the_order_is_the_same_before_and_after_the_process_group_and_whatever_the_workers(
    folder: str, tmp_path: Path
) -> None:
    seen = []
    for way in ("loader", "loader later", "loader in workers"):
        run = trained([*TORCHRUN, f"torchrun {way}", folder], tmp_path / way.replace(" ", "-"))
        assert run.returncode == 0, run.stderr[-3000:]
        seen.append(epochs(tmp_path / way.replace(" ", "-")))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize(
    "way",
    [
        "loader", "batches", "stream", "shard", "batches split", "indices split", "batches dispatched",
        "loader resumed", "batches resumed", "stream resumed",
    ],
)  # fmt: skip
def test_accelerate_deals_all_samples_out(folder: str, tmp_path: Path, way: str) -> None:
    run = trained([*TORCHRUN, f"accelerate {way}", folder], tmp_path / "notes")
    assert run.returncode == 0, run.stderr[-3000:]
    check(epochs(tmp_path / "notes"), repeated=13)  # it fills the last step up from the first ones


@pytest.mark.parametrize("kind", ["loader", "indices", "stream"])
def test_accelerate_skips_batches_of_an_epoch_that_nobody_has_said_with_a_warning(
    folder: str, tmp_path: Path, kind: str
) -> None:
    run = trained([*TORCHRUN, f"accelerate {kind} skipped", folder], tmp_path / "notes")
    assert run.returncode == 0, run.stderr[-3000:]
    told = [(tmp_path / "notes" / f"{run_number}.0").read_text() for run_number in range(3)]
    assert told == ["1 ", "0 ", "0 "]


def test_batches_of_which_accelerate_would_drop_all_are_refused(folder: str, tmp_path: Path) -> None:
    run = trained([*TORCHRUN, "accelerate few", folder], tmp_path / "notes")
    assert run.returncode != 0
    assert "a batch of 150 for each of 2 ranks" in run.stderr


def test_a_stream_that_accelerate_would_split_again_is_refused(folder: str, tmp_path: Path) -> None:
    run = trained([*TORCHRUN, "accelerate refused", folder], tmp_path / "notes")
    assert run.returncode != 0
    assert "give rank=0, world_size=1" in run.stderr


@pytest.mark.parametrize(
    "way",
    [
        "loader", "loader resumed", "loader resumed scheduled", "loader resumed whole", "loader anew", "dataset",
        "stream",
    ],
)  # fmt: skip
def test_lightning_trains_with_all_samples(folder: str, tmp_path: Path, way: str) -> None:
    run = trained(["-m", f"{MODULES}.lightning_training", way, folder], tmp_path / "notes")
    assert run.returncode == 0, run.stderr[-3000:]
    check(epochs(tmp_path / "notes"), repeated=13)


@pytest.mark.parametrize(("way", "told"), [("unequal", 1), ("limited", 0)])
def test_lightning_hangs_over_no_unequal_steps_without_a_warning(
    folder: str, tmp_path: Path, way: str, told: int
) -> None:
    run = trained(["-m", f"{MODULES}.lightning_training", f"stream {way}", folder], tmp_path / "notes")
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stderr.count("nbdata: of 2 ranks, some make 1 step of this epoch and others 2 steps") == told


def test_lightning_goes_on_with_no_other_number_of_ranks(folder: str, tmp_path: Path) -> None:
    run = trained(["-m", f"{MODULES}.lightning_training", "loader resumed by 3", folder], tmp_path / "notes")
    assert run.returncode != 0
    assert "Go on with as many ranks and the same batch size" in run.stderr


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("way", ["map", "stream", "map 5", "map 20", "stream 5"])
def test_the_trainer_of_transformers_trains_with_all_samples(
    folder: str, tmp_path: Path, way: str, ranks: int
) -> None:
    run = trained([*torchrun(ranks, "trainer_training"), way, folder], tmp_path / "notes")
    assert run.returncode == 0, run.stderr[-3000:]
    check(epochs(tmp_path / "notes"), repeated=13, among=ranks)


def test_the_trainer_of_transformers_goes_on_in_the_first_epoch_of_a_stream_in_workers(
    folder: str, tmp_path: Path
) -> None:
    run = trained([*torchrun(2, "trainer_training"), "stream 5 in workers", folder], tmp_path / "notes")
    assert run.returncode == 0, run.stderr[-3000:]
    check(epochs(tmp_path / "notes"), repeated=13)


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("refused", "give rank=0, world_size=1"),
        ("stream 20", "Train with SampleDataset"),
        ("stream 20 in workers", "Train with SampleDataset"),
    ],
)
def test_the_trainer_of_transformers_gets_no_stream_that_would_lose_samples(
    folder: str, tmp_path: Path, way: str, told: str
) -> None:
    run = trained([*torchrun(2, "trainer_training"), way, folder], tmp_path / "notes")
    assert run.returncode != 0
    assert told in run.stderr


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [Samples.stream, SampleStream])
def test_a_generator_of_datasets_is_split_once(
    folder: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nbdata.samples(folder, quiet=True) as samples:

        def generated() -> Iterator[dict[str, str]]:
            for sample in kind(samples, shuffle=True):
                yield {"key": sample["__key__"]}

        monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", "True")  # an import of datasets sets it, and leaves it
        monkeypatch.setenv("WORLD_SIZE", "2")
        read: list[str] = []
        for rank in range(2):
            monkeypatch.setenv("RANK", str(rank))
            data = split_dataset_by_node(datasets.IterableDataset.from_generator(generated), rank, 2)
            read += [one["key"] for one in data]
        assert sorted(read) == list(samples.keys)


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
