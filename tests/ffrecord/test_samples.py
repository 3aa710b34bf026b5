"""Samples in FFRecord files, on the disk and in a real store: each read once, with the right bytes, and resumable."""

from __future__ import annotations

import itertools
import os
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

import nbdata
from nbdata.client.reading.samples import Samples
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadArchive, BadOption, ChecksumMismatch, NotFound, SourceChanged
from nbdata.formats.block_order import BlockOrder
from nbdata.loaders.pytorch import SampleDataset, SampleLoader, SampleStream
from tests.faults.proxy import Fault, FaultProxy
from tests.faults.test_lines import proxy
from tests.ffrecord.test_files import made
from tests.slow import SlowProxy

__all__ = ["proxy"]

Put = Callable[[dict[str, bytes]], str]

CHANCE = random.Random(1)
#: Samples by file. Some are empty, and small and large ones are mixed.
FILES = [
    [CHANCE.randbytes(CHANCE.choice([0, 1, 300, 9000])) for _ in range(count)] for count in (40, 0, 1, 59)
]
FILES[3][7] = CHANCE.randbytes(3 << 20)
ALL = list(itertools.chain.from_iterable(FILES))
KEYS = [f"PART_{file:05}/{at:08}" for file, own in enumerate(FILES) for at in range(len(own))]
BYTES = dict(zip(KEYS, ALL, strict=True))


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder or URL with the files."""
    files = {f"train.ffr/PART_{n:05}.ffr": made(own) for n, own in enumerate(FILES)}
    files["train.ffr/meta.pkl"] = b"?"
    if request.param == "store":
        put: Put = request.getfixturevalue("put")
        return put(files) + "train.ffr/"
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return f"{tmp_path}/train.ffr/"


@pytest.fixture
def samples(place: str) -> Iterator[Samples]:
    with nbdata.samples(place) as found:
        yield found


def bins(found: list[Any]) -> list[bytes]:
    return [sample["bin"] for sample in found]


def test_samples_are_read_by_number(samples: Samples, place: str) -> None:
    assert len(samples) == 100
    assert bins(samples.fetch(range(100))) == ALL
    wanted = [3, 99, 3, 40, 41, 0, -1, 48]
    assert bins(samples.fetch(wanted, [[5, 6], [7]])) == [ALL[index] for index in wanted]
    assert bins(samples.fetch([5, 6])) == ALL[5:7]
    sample = samples[41]
    assert sample == {
        "__key__": "PART_00003/00000000", "__url__": f"{place}PART_00003.ffr", "bin": FILES[3][0],
    }  # fmt: skip
    assert type(sample["bin"]) is bytes
    assert list(samples.keys) == KEYS
    assert samples.size(48) == 3 << 20
    with pytest.raises(IndexError):
        samples.fetch([100])


def test_the_overview_and_report_are_right(samples: Samples, place: str) -> None:
    assert "100 samples in 4 FFRecord files" in repr(samples)
    assert samples.to_dict()["fields"] == {"bin": {"objects": 100, "bytes": sum(map(len, ALL))}}
    assert "bin" in samples.text()
    assert "100" in samples._repr_html_()
    samples.fetch([0, 1, 48])
    report = samples.report
    # The overview has already read the first ones.
    assert report.samples >= 3
    assert report.bytes >= 3 << 20
    with pytest.raises(BadOption, match="need no index"):
        samples.save_index()  # type: ignore[attr-defined]


def test_slices_and_windows_are_right(samples: Samples) -> None:
    assert bins(list(samples[10:30:7])) == ALL[10:30:7]
    windows = samples.windows(3)
    assert len(windows) == 38 + 57  # each within one file
    assert bins(windows.fetch([0, 1])[1]) == ALL[1:4]
    assert bins(list((samples + samples).fetch([1, 101]))) == [ALL[1]] * 2
    assert len(samples.select(lambda key: key.endswith("0"))) == 11


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 3, "epoch": 2}])
@pytest.mark.parametrize("parts", [1, 3, 7])
@pytest.mark.in_ci("*-3-*")
def test_streams_give_each_sample_once(samples: Samples, options: dict[str, Any], parts: int) -> None:
    streams = [list(samples.stream(part=f"{n}/{parts}", **options)) for n in range(parts)]
    keys = [sample["__key__"] for sample in itertools.chain.from_iterable(streams)]
    assert all(sample["bin"] == BYTES[sample["__key__"]] for stream in streams for sample in stream)
    assert sorted(keys) == KEYS
    assert (keys == KEYS) is (not options)
    assert max(map(len, streams)) - min(map(len, streams)) <= 1


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("given", [0, 1, 29, 60, 99, 100])
@pytest.mark.in_ci("disk-29-False", "disk-99-False", "store-1-True")
def test_a_stream_goes_on_where_it_was(samples: Samples, shuffle: bool, given: int) -> None:
    whole = [sample["__key__"] for sample in samples.stream(shuffle=shuffle, seed=1)]
    begun = samples.stream(shuffle=shuffle, seed=1)
    first = [sample["__key__"] for sample in itertools.islice(begun, given)]
    state = begun.state_dict()
    begun.close()
    rest = [sample["__key__"] for sample in samples.stream(shuffle=shuffle, seed=1, resume=state)]
    assert first + rest == whole
    with pytest.raises(BadOption, match="another order"):
        samples.stream(shuffle=shuffle, seed=2, resume=state)


def test_an_order_of_blocks_has_each_number_once_and_keeps_neighbours_close() -> None:
    for count, block, window in [(0, 1, 1), (1, 4, 4), (1000, 10, 100), (997, 7, 64), (50, 100, 100)]:
        for parts in (1, 2, 5):
            orders = [
                BlockOrder(count, seed=1, epoch=0, block=block, window=window, part=(n, parts))
                for n in range(parts)
            ]
            assert sorted(order[at] for order in orders for at in range(len(order))) == list(range(count))
    order = BlockOrder(1000, seed=1, epoch=0, block=10, window=100)
    inside = sorted(order[at] for at in range(100))
    runs = 1 + sum(other - one > 1 for one, other in itertools.pairwise(inside))
    assert runs <= 12
    other = BlockOrder(1000, seed=1, epoch=1, block=10, window=100)
    assert [order[at] for at in range(1000)] != [other[at] for at in range(1000)]


def test_a_shuffled_stream_reads_blocks_in_place_of_samples(put: Put, tmp_path: Path) -> None:
    own = [bytes([n % 256]) * 5000 for n in range(2000)]
    place = put({"x.ffr": made(own)}) + "x.ffr"
    with nbdata.samples(place) as samples:
        found = [sample["bin"] for sample in samples.stream(shuffle=True)]
        assert Counter(found) == Counter(own)
        records = samples._stored._of[place]  # type: ignore[attr-defined]
        assert records.counts.samples < 40  # counts ranges, each of some 200 samples


@pytest.mark.in_ci("all", "part")
@pytest.mark.parametrize("kind", ["all", "part", "windows", "batches"])
def test_what_is_fetched_ahead_is_not_fetched_again(
    s3: EmbeddedServer, put: Put, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    own = [bytes([n % 256]) * 20_000 for n in range(200)]
    place = put({"x.ffr": made(own)}) + "x.ffr"
    with SlowProxy(s3.url, rate=1 << 30) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        with nbdata.samples(place) as samples:
            opened = proxy.answered
            if kind == "batches":
                for batch in samples.batch_sampler(16, shuffle=True):
                    samples.fetch(batch, batch.ahead)
            else:
                chosen = {"all": samples, "part": samples[:], "windows": samples.windows(2, stride=2)}[kind]
                assert len(list(chosen.stream())) == len(chosen)
        # Each response also has a head.
        assert proxy.answered - opened < 1.1 * 200 * 20_000


WAYS: list[Any] = [
    (0, {}),
    (2, {"multiprocessing_context": "fork"}),
    pytest.param(2, {"multiprocessing_context": "spawn", "persistent_workers": True}, marks=pytest.mark.long),
]


def checked(sample: dict[str, Any]) -> str:
    """Check a sample's bytes and return its key."""
    assert sample["bin"] == BYTES[sample["__key__"]]
    return str(sample["__key__"])


@pytest.mark.in_ci("disk-0-{}", "store-0-{}")
@pytest.mark.parametrize(("workers", "options"), WAYS, ids=str)
def test_loaders_have_each_sample_once(samples: Samples, workers: int, options: dict[str, Any]) -> None:
    samples[0]  # the parent opens the files before it forks
    plain = DataLoader(
        SampleDataset(samples, checked), 7, shuffle=True, num_workers=workers, collate_fn=list, **options
    )
    assert sorted(itertools.chain.from_iterable(plain)) == KEYS
    stream = DataLoader(
        SampleStream(samples, checked, shuffle=True), 7, num_workers=workers, collate_fn=list, **options
    )
    assert sorted(itertools.chain.from_iterable(stream)) == KEYS
    loader = SampleLoader(
        samples, 7, shuffle=True, seed=1, transform=checked, collate_fn=list, num_workers=workers, **options
    )
    first = list(itertools.chain.from_iterable(itertools.islice(loader, 5)))
    state = loader.state_dict()
    again = SampleLoader(samples, 9, shuffle=True, seed=1, transform=checked, collate_fn=list)
    again.load_state_dict(state)
    assert sorted(first + list(itertools.chain.from_iterable(again))) == KEYS


def test_a_pickle_opens_the_same_files_or_none(samples: Samples, place: str, tmp_path: Path) -> None:
    pickled = pickle.dumps(samples)
    assert len(pickled) < 4000
    with pickle.loads(pickled) as again:
        assert bins(again.fetch([0, 48])) == [ALL[0], ALL[48]]
        assert again.fingerprint == samples.fingerprint
    if place.startswith("/"):
        (Path(place) / "PART_00000.ffr").write_bytes(made([b"other"]))
        with pytest.raises(SourceChanged):
            pickle.loads(pickled)


def test_a_wrong_sample_fails_alone(put: Put, tmp_path: Path) -> None:
    whole = bytearray(made(FILES[0]))
    at = next(n for n, sample in enumerate(FILES[0]) if sample)
    whole[12 + 12 * len(FILES[0])] ^= 1  # the first byte of the first sample that is not empty
    (tmp_path / "x.ffr").write_bytes(whole)
    for place in (str(tmp_path / "x.ffr"), put({"x.ffr": bytes(whole)}) + "x.ffr"):
        with nbdata.samples(place) as samples:
            for _ in range(2):
                with pytest.raises(ChecksumMismatch, match=f"sample {at}"):
                    samples.fetch([at, at + 1])
            others = [n for n in range(40) if n != at]
            assert bins(samples.fetch(others)) == [FILES[0][n] for n in others]
        with nbdata.samples(place, verify="none") as samples:
            assert samples[at]["bin"] != FILES[0][at]


def test_wrong_bytes_on_the_way_are_fetched_again(proxy: FaultProxy, put: Put) -> None:
    place = put({"x.ffr": made(FILES[3])}) + "x.ffr"
    with nbdata.samples(place) as samples:
        tally = proxy.begin(
            lambda request, before: Fault("flip", "body", 0.3) if request.download and not before else None
        )
        assert bins(samples.fetch(range(59))) == FILES[3]
        assert tally.faults


def test_a_damaged_header_is_refused_in_a_store_too(put: Put) -> None:
    whole = made(FILES[3])
    place = put(
        {"cut.ffr": whole[:300], "zero.ffr": bytes(len(whole)), "flipped.ffr": whole[:20] + b"?" + whole[21:]}
    )
    for name in ("cut", "zero"):
        with pytest.raises(BadArchive):
            nbdata.samples(f"{place}{name}.ffr")
    with pytest.raises(ChecksumMismatch):
        nbdata.samples(f"{place}flipped.ffr")


def test_another_version_in_the_store_is_refused(put: Put) -> None:
    place = put({"x.ffr": made([b"one", b"two"])})
    with nbdata.samples(f"{place}x.ffr") as samples:
        put({"x.ffr": made([b"uno", b"dos"])})
        with pytest.raises(SourceChanged):
            samples.fetch([0])
    with nbdata.samples(f"{place}x.ffr") as samples:
        assert samples[0]["bin"] == b"uno"


def test_headers_are_kept_and_fetched_anew_when_they_are_spoilt(put: Put) -> None:
    from nbdata.runtime import state_folder

    place = put({"x.ffr": made([b"one", b"two"])}) + "x.ffr"
    folder = Path(state_folder()) / "samples"
    before = set(folder.glob("*.heads"))
    nbdata.samples(place).close()
    (kept,) = set(folder.glob("*.heads")) - before
    kept.write_bytes(b"spoilt")
    with nbdata.samples(place) as samples:
        assert samples[1]["bin"] == b"two"
    assert kept.read_bytes() == made([b"one", b"two"])[:36]


def length(data: bytes) -> dict[str, int]:
    return {"length": len(data)}


def test_samples_are_made_of_their_bytes(place: str) -> None:
    with nbdata.samples(place, deserialize=length) as samples:
        assert samples[48] == {**samples[48], "length": 3 << 20}
        assert set(samples[48]) == {"__key__", "__url__", "length"}
        again = pickle.loads(pickle.dumps(samples))
        assert again[48] == samples[48]
        again.close()
    with nbdata.samples(place, deserialize=len) as samples:
        assert samples[48]["bin"] == 3 << 20
    with pytest.raises(BadOption, match="not a function"):
        nbdata.samples(place, deserialize="text")
    with pytest.raises(BadOption, match="for FFRecord files"):
        nbdata.samples(place.removesuffix("train.ffr/"), by="file", deserialize=len)


def test_a_value_that_is_made_for_one_sample_is_not_that_of_another(place: str) -> None:
    """A transform may change it in place, and a batch may have a sample twice."""
    with nbdata.samples(place, deserialize=bytearray) as samples:
        one, other = samples.fetch([3, 3])
        one["bin"][:] = b"changed"
        assert other["bin"] != b"changed"
        (_, one), (other, _) = samples.windows(2).fetch([0, 1])
        assert one["__key__"] == other["__key__"]
        one["bin"][:] = b"changed"
        assert other["bin"] != b"changed"


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.ffr").write_bytes(made([b"one"]))
    (tmp_path / "empty.ffr").mkdir()
    with pytest.raises(BadOption, match="have no names"):
        nbdata.samples(f"{tmp_path}/x.ffr", include="*.jpg")
    with pytest.raises(BadOption, match="are FFRecord files, others are not"):
        nbdata.samples([f"{tmp_path}/x.ffr", f"{tmp_path}/x.tar"])
    with pytest.raises(BadOption, match="named twice"):
        nbdata.samples([f"{tmp_path}/x.ffr", f"{tmp_path}/*.ffr"])
    with pytest.raises(NotFound, match=r"no \.ffr file"):
        nbdata.samples(f"{tmp_path}/empty.ffr/")
    with pytest.raises(NotFound):
        nbdata.samples(f"{tmp_path}/no.ffr")
    with pytest.raises(BadOption, match="FFRecord files make up 1 of 1 sample here"):
        nbdata.samples(f"{tmp_path}/")


def test_no_file_stays_open(tmp_path: Path) -> None:
    (tmp_path / "x.ffr").write_bytes(made([b"one"]))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        samples = nbdata.samples(f"{tmp_path}/x.ffr")
        assert samples[0]["bin"] == b"one"
        del samples
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_through_a_cache_they_are_the_same_and_come_once(proxy: FaultProxy, put: Put, tmp_path: Path) -> None:
    url = put({f"x/PART_{n:05}.ffr": made(own) for n, own in enumerate(FILES)}) + "x/*.ffr"
    with nbdata.samples(url) as straight:
        wanted = list(straight.stream(shuffle=True, seed=4))
        by_number = straight.fetch([0, 5, len(straight) - 1])
    for epoch in range(2):
        with nbdata.samples(url, cache="50MB", cache_dir=str(tmp_path)) as cached:
            tally = proxy.begin()
            assert list(cached.stream(shuffle=True, seed=4)) == wanted
            assert cached.fetch([0, 5, len(cached) - 1]) == by_number
            assert sum(tally.down.values()) == (0 if epoch else sum(len(made(own)) for own in FILES if own))
