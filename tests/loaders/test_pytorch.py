"""The PyTorch data set in real DataLoaders with real workers: it yields each item once, for any number of workers."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import nbdata
from nbdata.errors import BadOption
from nbdata.loaders.pytorch import CacheStreamDataset, SampleStream
from nbdata.loaders.pytorch.ranks import Passes, _shared
from nbdata.protocols import Item
from tests.waiting import wait_until
from tests.watcher import Watcher

Put = Callable[[dict[str, bytes]], str]

FILES = {f"{n:03}.bin": bytes([n]) * (1000 + n) for n in range(60)}


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def empties(folder: Path) -> bool:
    return wait_until(lambda: not any(folder.iterdir()), why=lambda: [*folder.rglob("*")])


def first(batch: list[object]) -> object:
    return batch[0]


def loader(data: CacheStreamDataset, workers: int, **options: object) -> DataLoader:
    return DataLoader(data, num_workers=workers, batch_size=1, collate_fn=first, **options)


@pytest.mark.parametrize(
    ("workers", "options"),
    [
        (0, {}),
        (2, {"multiprocessing_context": "fork"}),
        (2, {"multiprocessing_context": "fork", "persistent_workers": True}),
        (2, {"multiprocessing_context": "spawn", "persistent_workers": True}),
    ],
)
@pytest.mark.in_ci("2-options1")
def test_each_item_comes_once_an_epoch_and_each_epoch_in_an_order_of_its_own(
    put: Put, tmp_path: Path, workplace: Path, workers: int, options: dict[str, object]
) -> None:
    url = put(FILES)
    data = CacheStreamDataset(url, by="file", max_size=120_000, shuffle=True, seed=7)
    made = loader(data, workers, **options)
    with Watcher(workplace, tmp_path / "watched") as watcher:
        passes = [dict(made), dict(made)]
    assert passes == [FILES, FILES]
    assert list(passes[0]) != list(passes[1])
    assert watcher.most <= 120_000 + 2 * 4096
    # The same seed gives the same orders, even if a loader starts with the second epoch.
    again = loader(CacheStreamDataset(url, by="file", max_size="1MB", shuffle=True, seed=7, epoch=1), workers)
    assert list(dict(again)) == list(passes[1])
    del made, again
    assert empties(workplace)


def test_ranks_and_their_workers_get_parts_that_are_disjoint_and_together_all(put: Put) -> None:
    url = put(FILES)
    seen: list[str] = []
    for rank in range(2):
        data = CacheStreamDataset(url, by="file", max_size="1MB", shuffle=True, rank=rank, world_size=2)
        seen += [key for key, _ in loader(data, 2, multiprocessing_context="fork")]
    assert sorted(seen) == sorted(FILES)


def test_samples_come_as_webdataset_gives_them(put: Put) -> None:
    url = put({f"{n}.{end}": f"{n}{end}".encode() for n in range(4) for end in ("cls", "seg.png")})
    found = list(loader(CacheStreamDataset(url, by="sample", max_size="1MB"), 0))
    assert found == [
        {"__key__": str(n), "cls": f"{n}cls".encode(), "seg.png": f"{n}seg.png".encode()} for n in range(4)
    ]


def lines(item):
    for path in item.files:
        yield from Path(path).read_text().split()


def test_a_generator_gives_several_samples_of_one_item(put: Put) -> None:
    url = put({"a/1": b"x y", "b/1": b"z"})
    assert list(loader(CacheStreamDataset(url, lines, max_size="1MB"), 0)) == ["x", "y", "z"]


def test_a_loader_that_is_left_in_the_middle_leaves_nothing(put: Put, workplace: Path) -> None:
    url = put(FILES)
    made = iter(loader(CacheStreamDataset(url, by="file", max_size="1MB"), 2, multiprocessing_context="fork"))
    next(made)
    assert any(workplace.iterdir())
    del made
    assert empties(workplace)


def read_shard(item: Item) -> Iterator[str]:
    """Yield the names in a shard as its samples."""
    with tarfile.open(item.path) as shard:
        yield from shard.getnames()


def test_workers_share_the_shards_and_each_sample_comes_once(put: Put) -> None:
    shards, names = {}, []
    for n in range(5):
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for m in range(3):
                names.append(f"{n}-{m}.txt")
                archive.addfile(tarfile.TarInfo(names[-1]))
        shards[f"train-{n}.tar"] = made.getvalue()
    source = f"{put(shards)}train-{{0..4}}.tar"
    data = CacheStreamDataset(source, read_shard, by="shard", max_size="1MB", shuffle=True)
    passes = [list(loader(data, 2)) for _ in range(2)]
    assert [sorted(found) for found in passes] == [names, names]
    assert passes[0] != passes[1]


@pytest.mark.long
def test_an_error_in_a_worker_reaches_the_training(put: Put) -> None:
    data = CacheStreamDataset(put(FILES), by="file", max_size=40_000)  # 20 kB per worker
    with pytest.raises(BadOption, match="--max-size"):
        next(iter(loader(data, 2, multiprocessing_context="fork")))


@pytest.mark.parametrize(
    "options", [{"epochs": 2}, {"by": "folder"}, {"by": "shard"}, {"max_size": "5X"}, {"by": "nothing"}]
)
def test_what_makes_no_sense_is_said_where_the_data_set_is_made(options: dict[str, object]) -> None:
    with pytest.raises(BadOption):
        CacheStreamDataset("s3://bucket/x", **options)


def test_nbdata_does_not_import_torch() -> None:
    code = "import sys, nbdata, nbdata.loaders; nbdata.cache_stream; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def in_worker(passes: Passes) -> Passes:
    return _shared(passes._lock, passes._next, passes._known, passes._ended)


def test_workers_of_loaders_that_begin_at_once_agree_on_the_epoch_of_their_pass() -> None:
    passes = Passes(3)
    one, other, late = (in_worker(passes) for _ in range(3))
    assert one.begin(11) == 3
    assert other.begin(22) == 4
    assert late.begin(11) == 3, "a worker of the first loader"


def test_a_worker_that_is_many_passes_behind_has_the_same_epochs() -> None:
    passes = Passes(3)
    fast, slow, other = (in_worker(passes) for _ in range(3))
    fast_first, other_first = [fast.begin(11) for _ in range(9)], other.begin(22)
    assert (fast_first, other_first) == ([*range(3, 12)], 12)
    assert fast.begin(11) == 13, "12 is an epoch of the other loader"
    assert [slow.begin(11) for _ in range(11)] == [*range(3, 12), 13, 14]


def test_an_epoch_that_is_set_holds_although_the_seed_is_that_of_the_pass_before() -> None:
    passes = Passes(0)
    assert in_worker(passes).begin(11) == 0
    passes.set(5)
    assert [in_worker(passes).begin(11) for _ in range(2)] == [5, 5]


def test_the_pass_after_a_resumed_one_is_the_next_epoch() -> None:
    passes = Passes(0)
    assert [in_worker(passes).begin(11, 4) for _ in range(2)] == [4, 4]
    assert in_worker(passes).begin(22) == 5


@pytest.mark.long
def test_a_stream_starts_no_program_that_imports_from_the_working_folder(tmp_path: Path) -> None:
    """multiprocessing's tracker of locks does, as ``python -c``."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_bytes(b"1")
    (tmp_path / "multiprocessing.py").write_text("raise SystemExit(9)")
    code = """
import sys
sys.path = [path for path in sys.path if path not in ("", ".")]
import nbdata
from multiprocessing import resource_tracker
from nbdata.loaders.pytorch import SampleStream
from torch.utils.data import DataLoader
stream = SampleStream(nbdata.samples("data"))
for workers in (0, 1):
    assert len([*DataLoader(stream, batch_size=None, num_workers=workers)]) == 1
assert resource_tracker._resource_tracker._pid is None
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ, capture_output=True, text=True
    )
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.long
def test_spawned_workers_agree_on_the_epoch_of_their_pass(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"1")
    (tmp_path / "b.txt").write_bytes(b"2")
    stream = SampleStream(nbdata.samples(str(tmp_path)), shuffle=True, seed=1)
    loader = DataLoader(stream, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    for _ in range(2):
        assert sorted(sample["txt"] for sample in loader) == [b"1", b"2"]


@pytest.mark.long
def test_a_copy_counts_its_passes_by_itself() -> None:
    passes = Passes(2)
    for own in (copy.copy(passes), copy.deepcopy(passes), pickle.loads(pickle.dumps(passes))):
        assert own.begin(1) == 2
    assert passes.next == 2
