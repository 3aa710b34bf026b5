"""Samples in shards from a real store: read once each, resumable anywhere, also by number, never silently missing."""

from __future__ import annotations

import gzip
import itertools
import json
import lzma
import multiprocessing
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadArchive, BadOption, ChecksumMismatch, NotFound, SourceChanged
from nbdata.loaders.pytorch import SampleDataset, SampleLoader, SampleStream
from tests.client.reading.test_samples import FAULTS
from tests.conftest import client_of
from tests.faults.proxy import Exchange, Fault, FaultProxy
from tests.faults.test_lines import proxy
from tests.faults.trainers import SHARDS as TRAINED
from tests.faults.trainers import trained
from tests.formats.test_shards import FILE, shard
from tests.waiting import PATIENCE

__all__ = ["proxy"]

# Number of samples per shard; the content of a sample contains its shard and number.
SIZES = [7, 1, 12, 0, 9, 5]
Open = Callable[..., Any]


def sample(number: int, at: int) -> dict[str, bytes]:
    return {"jpg": bytes([number, at]) * (900 + 100 * at), "cls": f"{number} {at}".encode(), "empty": b""}


def key(number: int, at: int) -> str:
    return f"n{number}/{at:02}"


def packed(number: int, **options: Any) -> bytes:
    return shard(
        [
            (f"{key(number, at)}.{name}", FILE, data)
            for at in range(SIZES[number])
            for name, data in sample(number, at).items()
        ],
        **options,
    )


WANTED = [
    {"__key__": key(number, at), "__url__": f"s3://shards/x-{number:03}.tar", **sample(number, at)}
    for number in range(len(SIZES))
    for at in range(SIZES[number])
]
KEYS = sorted(one["__key__"] for one in WANTED)


@pytest.fixture(scope="module")
def shards(seaweedfs: EmbeddedServer) -> Iterator[str]:
    """A URL that names all shards."""
    seaweedfs.create_bucket("shards")
    client = client_of(seaweedfs)
    for number in range(len(SIZES)):
        client.put_object(Bucket="shards", Key=f"x-{number:03}.tar", Body=packed(number))
    yield "s3://shards/x-{000..005}.tar"
    client.delete_bucket(Bucket="shards")
    client.close()


@pytest.fixture
def opened(s3: EmbeddedServer) -> Iterator[Open]:
    """Returns a function that opens samples; they are closed at the end."""
    made: list[Any] = []

    def open_samples(source: Any, **options: Any) -> Any:
        made.append(nbdata.samples(source, **{"concurrency": 16, **options}))
        return made[-1]

    yield open_samples
    for samples in made:
        samples.close()


@pytest.fixture
def ranges_of_a_kilobyte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a shard in many ranges, as is done with large ones."""
    monkeypatch.setattr("nbdata.reading.shards.content._CHUNK", 1000)


def keys(samples: Any) -> list[str]:
    return [one["__key__"] for one in samples]


def test_a_child_of_a_fork_leaves_the_pass_of_its_parent_alone(shards: str, opened: Open) -> None:
    stream = SampleStream(opened(shards))
    next(iter(stream))
    (fetcher,) = stream.samples._reading.bodies[0]._fetchers.values()  # type: ignore[attr-defined]
    held, over = threading.Event(), threading.Event()

    def hold() -> None:  # as the thread that fetches ahead does at any moment
        with fetcher._changed:
            held.set()
            over.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(PATIENCE)
        loader = DataLoader(
            stream, batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=PATIENCE / 2
        )
        assert sorted(keys(loader)) == KEYS
    finally:
        over.set()
        thread.join()


def test_a_pass_is_not_continued_by_a_child_of_a_fork(shards: str, opened: Open) -> None:
    left = opened(shards).stream()
    next(left)

    def child() -> None:
        left.close()  # does nothing here
        with pytest.raises(BadOption, match="belongs to the process that began it"):
            next(left)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert len(list(left)) == len(WANTED) - 1


@pytest.mark.usefixtures("ranges_of_a_kilobyte")
def test_a_stream_gives_all_samples_in_the_order_of_the_shards(opened: Open, shards: str) -> None:
    samples = opened(shards)
    assert list(samples.stream()) == WANTED
    assert repr(samples).startswith("<6 shards of s3://shards/x-{000..005}.tar: ")
    assert list(samples) == WANTED  # `list` first asks for the length
    assert samples.report.samples == 2 * len(WANTED)
    assert samples.report.unverified == 0
    assert repr(samples).startswith("<34 samples in 6 shards of s3://shards/x-{000..005}.tar: ")


def test_each_epoch_has_an_order_of_its_own_that_parts_do_not_change(opened: Open, shards: str) -> None:
    samples = opened(shards, window=12)
    epochs = [keys(samples.stream(shuffle=True, seed=1, epoch=epoch)) for epoch in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [KEYS, KEYS]
    assert epochs[0] != epochs[1]
    assert epochs[0] == keys(samples.stream(shuffle=True, seed=1))
    assert epochs[0] != keys(samples.stream(shuffle=True, seed=2))

    def of_shard(number: int, found: list[str]) -> list[str]:
        return [one for one in found if one.startswith(f"n{number}/")]

    parts = [keys(samples.stream(shuffle=True, seed=1, part=f"{n}/2")) for n in range(2)]
    assert sorted(parts[0] + parts[1]) == KEYS
    for number in range(len(SIZES)):
        assert of_shard(number, parts[0]) + of_shard(number, parts[1]) == of_shard(number, epochs[0])
    # Consecutive samples come from several shards, and each part gets different shards in each epoch.
    assert len({one.partition("/")[0] for one in epochs[0][:8]}) > 1
    first = [
        {one.partition("/")[0] for one in keys(samples.stream(shuffle=True, epoch=n, part="0/2"))}
        for n in range(4)
    ]
    assert len(set(map(frozenset, first))) > 1


def test_more_parts_than_shards_share_them(opened: Open, shards: str) -> None:
    samples = opened(shards)
    parts = [keys(samples.stream(shuffle=True, part=f"{n}/14")) for n in range(14)]
    assert sorted(one for part in parts for one in part) == KEYS


@given(
    data=st.data(),
    shuffle=st.booleans(),
    parts=st.integers(1, 3),
    window=st.sampled_from([1, 8, 1000]),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_part_goes_on_with_the_same_sequence(
    opened: Open, shards: str, data: st.DataObject, shuffle: bool, parts: int, window: int
) -> None:
    samples = opened(shards, window=window)
    for number in range(parts):
        order = {"shuffle": shuffle, "seed": 3, "epoch": 1, "part": f"{number}/{parts}"}
        whole = keys(samples.stream(**order))
        at = data.draw(st.integers(0, len(whole)))
        first = samples.stream(**order)
        begun = [next(first)["__key__"] for _ in range(at)]
        state = json.loads(json.dumps(first.state_dict()))
        first.close()
        second = samples.stream(**order, resume=state)
        assert begun + keys(second) == whole


@pytest.mark.long
@given(steps=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), max_size=4))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_another_number_of_parts_shares_what_is_left(
    opened: Open, shards: str, steps: list[tuple[int, int]]
) -> None:
    samples = opened(shards, window=8)
    seen, states = list[str](), None
    for parts, count in [*steps, (2, 1000)]:
        taken = []
        for number in range(parts):
            stream = samples.stream(shuffle=True, seed=4, part=f"{number}/{parts}", resume=states)
            seen += keys(itertools.islice(stream, count))
            taken.append(stream.state_dict())
            stream.close()
        states = taken
    assert sorted(seen) == KEYS


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "tar.gz": gzip.compress,
    "tgz": lambda data: gzip.compress(data[:5000]) + gzip.compress(data[5000:]),
    "tar.xz": lzma.compress,
    "tar.zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("ending", COMPRESSED)
def test_compressed_shards_are_streams(s3: EmbeddedServer, bucket: str, opened: Open, ending: str) -> None:
    client_of(s3).put_object(Bucket=bucket, Key=f"a.{ending}", Body=COMPRESSED[ending](packed(2)))
    samples = opened(f"s3://{bucket}/a.{ending}")
    assert keys(samples.stream()) == [key(2, at) for at in range(12)]
    for ask in (len, lambda samples: samples[0]):
        with pytest.raises(BadOption, match="from its beginning only"):
            ask(samples)
    # The name does not show the compression.
    client_of(s3).put_object(Bucket=bucket, Key="b.tar", Body=COMPRESSED[ending](packed(2)))
    samples = opened(f"s3://{bucket}/b.tar")
    assert len(keys(samples.stream())) == 12
    with pytest.raises(BadOption, match="from its beginning only"):
        len(samples)


def test_shards_are_named_by_braces_globs_lists_and_an_index_of_wids(
    s3: EmbeddedServer, shards: str, bucket: str, opened: Open, tmp_path: Path
) -> None:
    assert keys(opened("s3://shards/x-*.tar").stream()) == keys(opened(shards).stream())
    two = opened(["s3://shards/x-{005,002}.tar", "s3://shards/x-000.tar"])
    assert [shard.url[-7:] for shard in two.shards] == ["005.tar", "002.tar", "000.tar"]
    client_of(s3).put_object(
        Bucket=bucket,
        Key="index.json",
        Body=json.dumps(
            {
                "__kind__": "wids-shard-index-v1",
                "wids_version": 1,
                "base": "s3://shards/",
                "shardlist": [
                    {"url": "x-004.tar", "nsamples": 9},
                    {"url": "s3://shards/x-000.tar", "nsamples": 7},
                ],
            }
        ).encode(),
    )
    found = opened(f"s3://{bucket}/index.json", trust_index=True)
    assert Counter(one.partition("/")[0] for one in keys(found.stream())) == {"n4": 9, "n0": 7}
    (tmp_path / "a.tar").write_bytes(packed(0))
    assert len(opened(str(tmp_path / "a.tar"))) == 7
    assert len(opened([str(tmp_path / "a.tar"), "s3://shards/x-005.tar"])) == 12


@pytest.mark.parametrize(
    ("source", "kind", "told"),
    [
        (
            "s3://shards/x-{000..008}.tar",
            NotFound,
            "3 of 9 shards are not there: x-006.tar, x-007.tar, x-008.tar",
        ),
        ("s3://shards/y-*.tar", NotFound, "nothing matches"),
        ("s3://shards/y.tar", NotFound, "y.tar"),
        ("s3://shards/x-{000,000}.tar", BadOption, "named twice"),
        (["s3://shards/x-000.tar", "s3://shards/"], BadOption, "some of these are shards"),
        ("pipe:cat x.tar", BadOption, "never does"),
    ],
)
def test_what_names_no_shards_is_told_so(
    shards: str, opened: Open, source: Any, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        opened(source)


def test_json_that_is_no_index_of_shards_is_refused(s3: EmbeddedServer, bucket: str, opened: Open) -> None:
    for body, told in [
        (b"{}", "no index of shards"),
        (b"not json", "no index of shards"),
        (b'{"__kind__": "wids-shard-index-v1", "shardlist": []}', "no index of shards"),
        (
            b'{"__kind__": "wids-shard-index-v1", "shardlist": [{"url": "file:///etc/x.tar"}]}',
            "to a local file",
        ),
    ]:
        client_of(s3).put_object(Bucket=bucket, Key="i.json", Body=body)
        with pytest.raises(BadOption, match=told):
            opened(f"s3://{bucket}/i.json")


def test_a_shard_that_was_cut_off_is_an_error_with_its_place(
    s3: EmbeddedServer, bucket: str, opened: Open
) -> None:
    data = packed(2)
    client_of(s3).put_object(Bucket=bucket, Key="a.tar", Body=data[:10_240])
    stream = opened(f"s3://{bucket}/a.tar").stream()
    with pytest.raises(BadArchive, match=r"ends too early at byte 10,240: s3://.*/a.tar"):
        list(stream)


def test_a_shard_that_changed_is_told(s3: EmbeddedServer, bucket: str, opened: Open) -> None:
    client = client_of(s3)
    client.put_object(Bucket=bucket, Key="a.tar", Body=packed(0))
    samples = opened(f"s3://{bucket}/a.tar")
    assert len(samples) == 7
    client.put_object(Bucket=bucket, Key="a.tar", Body=packed(2))
    with pytest.raises(SourceChanged, match="begin the epoch again"):
        samples[0]
    with pytest.raises(SourceChanged, match="begin the epoch again"):
        list(samples.stream())
    assert len(opened(f"s3://{bucket}/a.tar")) == 12  # its index described another version


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if fault.kind != "flip"], ids=lambda fault: fault.kind
)
@pytest.mark.usefixtures("ranges_of_a_kilobyte")
@pytest.mark.in_ci("cut")
def test_faults_of_the_line_are_mended(
    fault: Fault, proxy: FaultProxy, shards: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault.kind == "stall":
        monkeypatch.setenv("NBDATA_STALL_TIMEOUT", "2")
    # Each of these takes seconds to be noticed, or to be tried again.
    once = fault.kind in ("stall", "refuse")
    samples = opened(shards)
    asked = Counter[str]()

    def plan(request: Exchange, _before: int) -> Fault | None:
        asked[request.key] += request.download
        now = asked[request.key] == 3 if once else asked[request.key] % 7 == 3
        return fault if request.download and now else None

    tally = proxy.begin(plan)
    assert list(samples.stream()) == WANTED
    assert tally.faults


def test_wrong_bytes_end_a_stream_and_are_fetched_again_by_number(
    proxy: FaultProxy, shards: str, opened: Open
) -> None:
    samples = opened(shards)
    assert len(samples) == len(WANTED)
    tally = proxy.begin(
        lambda request, before: Fault("flip", "body", 0.3) if request.download and not before else None
    )
    with pytest.raises(ChecksumMismatch):
        list(samples.stream())
    proxy.begin(
        lambda request, before: Fault("flip", "body", 0.3) if request.download and not before else None
    )
    assert samples.fetch(range(len(WANTED))) == WANTED
    assert tally.faults


def test_samples_by_number_are_the_same_from_any_process(opened: Open, shards: str) -> None:
    samples = opened(shards)
    assert samples.fetch([33, 0, 12, 0]) == [WANTED[n] for n in (33, 0, 12, 0)]
    assert samples[-1] == WANTED[-1]
    assert list(samples.keys) == [one["__key__"] for one in WANTED]
    again = pickle.loads(pickle.dumps(samples))
    assert again.fetch([5, 6]) == WANTED[5:7]
    again.close()
    assert [one["__key__"] for one in samples.windows(3)[0]] == [key(0, at) for at in range(3)]
    assert keys(samples.select(lambda one: one.endswith("/00"))) == [key(n, 0) for n in (0, 1, 2, 4, 5)]


def test_pickled_samples_hold_no_secret(s3: EmbeddedServer, shards: str, opened: Open) -> None:
    options = {"key": s3.access_key, "secret": s3.secret_key, "endpoint_url": s3.url}
    samples = opened(shards, storage_options=options)
    assert next(iter(samples.stream())) == WANTED[0]
    with pytest.raises(BadOption, match="env:NAME"):
        pickle.dumps(samples)


def test_a_shard_that_was_indexed_is_not_read_again(proxy: FaultProxy, shards: str, opened: Open) -> None:
    assert len(opened(shards)) == len(WANTED)
    tally = proxy.begin()
    other = opened(shards)
    assert len(other) == len(WANTED)
    assert "cls" in other.text()
    assert not tally.down


def checked(one: dict[str, Any]) -> str:
    number, at = map(int, one["cls"].split())
    assert one["jpg"] == sample(number, at)["jpg"]
    return str(one["__key__"])


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_workers_stream_each_sample_once_and_the_next_epoch_in_another_order(
    opened: Open, shards: str, context: str
) -> None:
    data = SampleStream(opened(shards), checked, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=4, num_workers=2, collate_fn=list, multiprocessing_context=context)
    epochs = []
    for epoch in range(2):
        data.set_epoch(epoch)
        epochs.append([one for batch in loader for one in batch])
    assert [sorted(epoch) for epoch in epochs] == [KEYS, KEYS]
    assert epochs[0] != epochs[1]


def test_map_style_loaders_take_shards_as_they_take_files(opened: Open, shards: str) -> None:
    samples = opened(shards)
    data = SampleDataset(samples, checked)
    batches = samples.batch_sampler(5, shuffle=True, seed=1)
    loader = DataLoader(data, batch_sampler=batches, num_workers=2, collate_fn=list)
    assert sorted(one for batch in loader for one in batch) == KEYS
    resumable = SampleLoader(samples, 5, shuffle=True, transform=checked, collate_fn=list)
    assert sorted(one for batch in resumable for one in batch) == KEYS


def test_what_is_in_no_sample_stands_in_the_report(s3: EmbeddedServer, bucket: str, opened: Open) -> None:
    members = [("README", FILE, b""), ("a.jpg", FILE, b"1"), ("a.JPG", FILE, b"2")]
    client_of(s3).put_object(Bucket=bucket, Key="a.tar", Body=shard(members))
    samples = opened(f"s3://{bucket}/a.tar")
    assert len(list(samples.stream())) == 1
    assert samples.report.left_out == 2
    assert "README (no extension)" in str(samples.report)
    assert len(samples) == 1
    assert samples.to_dict()["left_out"] == 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.in_ci("0")
def test_a_trainer_that_is_killed_again_and_again_sees_each_sample_once(
    seed: int, s3: EmbeddedServer, bucket: str, tmp_path: Path
) -> None:
    client = client_of(s3)
    for name, data in TRAINED.items():
        client.put_object(Bucket=bucket, Key=name, Body=data)
    client.close()
    url = f"s3://{bucket}/x-{{0..4}}.tar"
    made = trained(url, tmp_path / "state.json", packing="shards", seed=seed, kills=2)
    assert made.kills
    assert made.good, made.line


def test_a_sparse_member_can_be_streamed_only(
    s3: EmbeddedServer, bucket: str, opened: Open, tmp_path: Path
) -> None:
    import subprocess

    with open(tmp_path / "a.bin", "wb") as file:
        file.truncate(1 << 20)
        file.write(b"data")
    subprocess.run(["tar", "-cSf", "a.tar", "a.bin"], cwd=tmp_path, check=True)
    client_of(s3).put_object(Bucket=bucket, Key="a.tar", Body=(tmp_path / "a.tar").read_bytes())
    samples = opened(f"s3://{bucket}/a.tar")
    assert next(samples.stream())["bin"] == (tmp_path / "a.bin").read_bytes()
    with pytest.raises(BadOption, match="sparse file"):
        samples[0]


def test_a_loader_by_number_over_compressed_shards_names_the_one_that_streams(tmp_path: Path) -> None:
    place = tmp_path / "x-0.tar.gz"
    place.write_bytes(gzip.compress(packed(0)))
    (tmp_path / "y-0.tar").write_bytes(place.read_bytes())  # the name suggests a plain tar
    for name in ("x-0.tar.gz", "y-0.tar"):
        with nbdata.samples(str(tmp_path / name)) as samples:
            for act in (
                lambda samples=samples: SampleLoader(samples, batch_size=2),
                lambda samples=samples: len(SampleDataset(samples)),
                lambda samples=samples: len(samples),
                lambda samples=samples: samples.batch_sampler(2),
            ):
                with pytest.raises(BadOption, match="DataLoader over SampleStream"):
                    act()
            assert sum(map(len, DataLoader(SampleStream(samples), batch_size=2, collate_fn=list))) == SIZES[0]
