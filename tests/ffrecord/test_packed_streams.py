"""Streams of packed folders: blocks of neighbours, each sample once, exactly resumed; damage is named."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import nbdata
from nbdata.client.reading.records import making, of_records
from nbdata.client.reading.samples import Samples
from nbdata.errors import BadArchive, BadOption, ChecksumMismatch, SourceChanged
from nbdata.formats.block_order import BlockOrder
from nbdata.formats.packed_folder import names_bytes
from nbdata.loaders.pytorch import SampleStream
from nbdata.reading.records import runs
from nbdata.reading.records.heads import Heads
from nbdata.reading.records.local import LocalFile, LocalRecords
from tests.faults.proxy import Fault, FaultProxy
from tests.faults.test_lines import proxy
from tests.ffrecord.test_files import made

__all__ = ["proxy"]

Put = Callable[[dict[str, bytes]], str]

CHANCE = random.Random(2)
#: By file and path, in the order of the records: samples of one to three fields, some empty, one far over the mean.
FILES = [
    {
        f"n{n % 3}/é{n:04}.{field}": CHANCE.randbytes(CHANCE.choice([0, 1, 30, 900]))
        for n in range(*span)
        for field in ("cls", "jpg", "txt")[: 1 + n % 3]
    }
    for span in ((0, 70), (70, 71), (71, 200))
]
FILES[2]["n1/é0100.cls"] = CHANCE.randbytes(1 << 20)
WANTED = {
    key: {path.partition(".")[2]: data for path, data in group}
    for own in FILES
    for key, group in itertools.groupby(own.items(), lambda item: item[0].partition(".")[0])
}


def packed(own: dict[str, bytes]) -> bytes:
    return made([*own.values(), names_bytes(list(own))])


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    files = {f"x.ffr/PART_{n:05}.ffr": packed(own) for n, own in enumerate(FILES)}
    if request.param == "store":
        put: Put = request.getfixturevalue("put")
        return put(files) + "x.ffr/"
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return f"{tmp_path}/x.ffr/"


def key_of(sample: dict[str, Any]) -> str:
    """The key of a sample, if all of it is right."""
    key = sample.pop("__key__")
    assert sample.pop("__url__").endswith(".ffr")
    assert sample == WANTED[key]
    return str(key)


@pytest.mark.in_ci(5)
@pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 3, "epoch": 2}])
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("window", [7, 1000])
def test_streams_give_each_sample_once(place: str, options: dict[str, Any], parts: int, window: int) -> None:
    with nbdata.samples(place, window=window) as samples:
        streams = [list(map(key_of, samples.stream(part=f"{n}/{parts}", **options))) for n in range(parts)]
        found = list(itertools.chain.from_iterable(streams))
        assert sorted(found) == sorted(WANTED)
        assert (found == list(samples.keys)) is (not options)
        assert max(map(len, streams)) - min(map(len, streams)) <= 1
        assert samples.report.samples == len(WANTED)


@pytest.mark.in_ci(
    "disk-0-False", "disk-1-True", "disk-200-False", "store-0-False", "store-1-True", "store-200-False"
)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("given", [0, 1, 69, 130, 200])
def test_a_stream_goes_on_where_it_was(place: str, shuffle: bool, given: int) -> None:
    with nbdata.samples(place, window=50) as samples:
        whole = list(map(key_of, samples.stream(shuffle=shuffle, seed=1)))
        begun = samples.stream(shuffle=shuffle, seed=1)
        first = list(map(key_of, itertools.islice(begun, given)))
        state = begun.state_dict()
        begun.close()
        again: Samples = pickle.loads(pickle.dumps(samples))
        rest = list(map(key_of, again.stream(shuffle=shuffle, seed=1, resume=state)))
        again.close()
        assert first + rest == whole
        with pytest.raises(BadOption, match="another order"):
            samples.stream(shuffle=shuffle, seed=2, resume=state)
    with (
        nbdata.samples(place, window=50, by="file") as others,
        pytest.raises(BadOption, match="other samples"),
    ):
        others.stream(shuffle=shuffle, seed=1, resume=state)


def test_workers_share_a_stream(place: str) -> None:
    with nbdata.samples(place) as samples:
        stream = SampleStream(samples, key_of, shuffle=True)
        loader = DataLoader(stream, 7, num_workers=2, collate_fn=list, multiprocessing_context="fork")
        assert sorted(itertools.chain.from_iterable(loader)) == sorted(WANTED)


def test_fields_of_a_sample_and_its_neighbours_come_as_one_request(proxy: FaultProxy, put: Put) -> None:
    own = {f"{n:05}.{field}": bytes([n % 256]) * 500 for n in range(3000) for field in ("cls", "jpg")}
    place = put({"x.ffr": packed(own)}) + "x.ffr"
    asked: list[Any] = []
    with nbdata.samples(place) as samples:
        proxy.begin(lambda request, before: asked.append(request))
        for options in ({}, {"shuffle": True}):
            asked.clear()
            assert len(list(samples.stream(**options))) == 3000  # type: ignore[arg-type]
            assert len(asked) <= 10
        asked.clear()
        assert len(samples.fetch(range(100))) == 100
        assert len(samples[500]) == 4
        assert len(asked) == 2


def test_wrong_bytes_on_the_way_are_fetched_again(proxy: FaultProxy, put: Put) -> None:
    url = put({f"x.ffr/PART_{n:05}.ffr": packed(own) for n, own in enumerate(FILES)})
    with nbdata.samples(f"{url}x.ffr/") as samples:
        tally = proxy.begin(
            lambda request, before: Fault("flip", "body", 0.3) if request.download and not before else None
        )
        assert list(map(key_of, samples.stream())) == list(samples.keys)
        assert tally.faults


@pytest.mark.parametrize("options", [{}, {"shuffle": True}])
def test_damage_is_named_and_what_was_before_it_is_given(
    options: dict[str, Any], put: Put, tmp_path: Path
) -> None:
    whole = bytearray(packed(FILES[2]))
    whole[whole.index(FILES[2]["n1/é0100.cls"])] ^= 1
    (tmp_path / "x.ffr").write_bytes(whole)
    for place in (f"{tmp_path}/x.ffr", put({"x.ffr": bytes(whole)}) + "x.ffr"):
        with nbdata.samples(place) as samples:
            with pytest.raises(ChecksumMismatch, match="field 'cls' of the sample 'n1/é0100'") as caught:
                list(samples.stream(**options))
            assert caught.value.path == place
            damaged = list(samples.keys).index("n1/é0100")
            for batch in ([damaged], [0, damaged, 20, damaged], [damaged, damaged + 1, damaged + 2]):
                with pytest.raises(ChecksumMismatch, match="field 'cls' of the sample 'n1/é0100'"):
                    samples.fetch(batch)
            others = [number for number, key in enumerate(samples.keys) if key != "n1/é0100"]
            assert len(list(map(key_of, samples.fetch(others)))) == len(samples) - 1
        with nbdata.samples(place, verify="none") as samples:
            assert len(list(samples.stream(**options))) == len(samples)


def test_names_are_only_used_with_the_headers_that_they_were_read_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "x.ffr"
    path.write_bytes(packed({"a.bin": b"a", "b.bin": b"b"}))
    with nbdata.samples(str(path)) as samples:
        assert [sample["bin"] for sample in samples] == [b"a", b"b"]
        pickled, listed = pickle.dumps(samples), samples.files  # type: ignore[attr-defined]
    (tmp_path / "new").write_bytes(packed({"b.bin": b"b", "a.bin": b"a"}))
    (tmp_path / "new").rename(path)
    with (
        monkeypatch.context() as between
    ):  # the file is replaced after it was listed, and before it is opened
        between.setattr(making, "listed", lambda operation: listed)
        with pytest.raises(SourceChanged):
            nbdata.samples(str(path))
    with pytest.raises(SourceChanged):
        pickle.loads(pickled)
    with nbdata.samples(str(path)) as samples:
        assert {sample["__key__"]: sample["bin"] for sample in samples} == {"a": b"a", "b": b"b"}


def test_reads_are_bounded_whatever_the_sizes(
    monkeypatch: pytest.MonkeyPatch, place: str, tmp_path: Path
) -> None:
    reads: list[int] = []
    monkeypatch.setattr(of_records, "_MOST_BYTES", 200_000)
    read = of_records.OfRecords._read

    def noted(self: Any, chunk: Any, *rest: Any) -> Any:
        reads.append(sum(map(self.size, chunk.numbers)))
        return read(self, chunk, *rest)

    monkeypatch.setattr(of_records.OfRecords, "_read", noted)
    for options in ({}, {"shuffle": True}):
        reads.clear()
        with nbdata.samples(place) as samples:
            large = max(map(samples.size, range(len(samples))))
            assert sorted(map(key_of, samples.stream(**options))) == sorted(WANTED)  # type: ignore[arg-type]
        # Only the one that is larger than the bound, alone.
        assert sorted(reads)[-1] == large
        assert sorted(reads)[-2] <= 200_000


def test_ranges_are_bounded_and_cover_what_is_asked_for(tmp_path: Path) -> None:
    sizes = [CHANCE.choice([0, 1, 700, 9000, 400_000]) for _ in range(400)]
    sizes[200] = runs.RANGE + 5
    for name, own in (("a", sizes[:150]), ("b", sizes[150:])):
        (tmp_path / f"{name}.ffr").write_bytes(made([bytes(size) for size in own]))
    heads = Heads([LocalFile(f"{tmp_path}/{name}.ffr").head for name in "ab"])
    for numbers in (range(400), range(0, 400, 2), sorted(CHANCE.sample(range(400), 60)), [0], [149, 150], []):
        found = runs.runs_of(heads, numbers)
        assert list(itertools.chain.from_iterable(run.wanted for run in found)) == list(numbers)
        for run in found:
            assert (run.first, run.samples) == runs.Run.of_number(run.number)
            assert set(run.wanted) <= set(range(run.first, run.first + run.samples))
            file, start, _ = heads.place(run.first)
            last, _, end = heads.place(run.first + run.samples - 1)
            assert file == last
            assert end - start <= runs.RANGE or run.samples == 1
    assert len(runs.runs_of(heads, range(400))) < sum(sizes) // runs.RANGE + 5


def test_a_header_that_was_not_checked_leads_nowhere(tmp_path: Path) -> None:
    whole = bytearray(made([b"one", b"two", b"three", b"four"]))
    for wrong in (-1, 1 << 40, 0):
        whole[12 + 16 + 8 * 2 : 12 + 16 + 8 * 3] = wrong.to_bytes(8, "little", signed=True)
        (tmp_path / "x.ffr").write_bytes(whole)
        for compare in (True, False):
            records = LocalRecords([LocalFile(f"{tmp_path}/x.ffr")], compare=compare)
            with pytest.raises(BadArchive, match="does not end between"):
                records.read([0, 1, 2, 3])


def test_the_order_of_a_seed_stays() -> None:
    order = BlockOrder(1000, seed=1, epoch=0, block=10, window=100, part=(1, 3))
    assert [order[at] for at in (0, 1, 2, 99, 100, 332)] == [904, 683, 17, 292, 79, 211]
