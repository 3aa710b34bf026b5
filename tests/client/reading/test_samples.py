"""Samples read to memory from a real store: the right bytes in the requested order, and errors with advice."""

from __future__ import annotations

import io
import itertools
import os
import pickle
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
import numpy as np
import pytest

import nbdata
from nbdata.client.reading.samples import Samples
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, ChecksumMismatch, NbdataError, NotFound, SourceChanged
from tests.conftest import client_of
from tests.faults.proxy import BEFORE, BODY, HEAD, Exchange, Fault, FaultProxy, Plan
from tests.faults.test_lines import proxy
from tests.waiting import wait_until

__all__ = ["proxy"]

Put = Callable[[dict[str, bytes]], str]
Open = Callable[..., Samples]

FILES = {
    **{f"n{n % 3}/{n:03}.jpg": bytes([n]) * (2000 + n) for n in range(60)},
    **{f"n{n % 3}/{n:03}.cls": str(n).encode() for n in range(60)},
}


@pytest.fixture(scope="module")
def images(seaweedfs: EmbeddedServer) -> Iterator[str]:
    """The URL of a bucket with all files; no test changes it."""
    seaweedfs.create_bucket("images")
    client = client_of(seaweedfs)
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda file: client.put_object(Bucket="images", Key=file[0], Body=file[1]), FILES.items()
            )
        )
    yield "s3://images/"
    client.delete_bucket(Bucket="images")
    client.close()


@pytest.fixture
def opened() -> Iterator[Open]:
    """Returns a function that opens samples; they are closed at the end."""
    made: list[Samples] = []

    def open_samples(source: str, **options: Any) -> Samples:
        # The proxy accepts 64 connections, including those of retries.
        made.append(nbdata.samples(source, **{"concurrency": 16, **options}))
        return made[-1]

    yield open_samples
    for samples in made:
        samples.close()


def sample_of(number: int, url: str) -> dict[str, Any]:
    key = f"n{number % 3}/{number:03}"
    return {
        "__key__": key, "__url__": f"{url}{key}.cls", "cls": FILES[f"{key}.cls"], "jpg": FILES[f"{key}.jpg"],
    }  # fmt: skip


def in_order(url: str) -> list[dict[str, Any]]:
    return [sample_of(n, url) for folder in range(3) for n in range(60) if n % 3 == folder]


def test_samples_come_by_number_in_batches_and_as_a_stream(
    s3: EmbeddedServer, images: str, opened: Open
) -> None:
    url = images
    samples, wanted = opened(url), in_order(url)
    assert len(samples) == 60
    assert list(samples.keys) == [sample["__key__"] for sample in wanted]
    assert samples.keys[-1] == wanted[-1]["__key__"]
    assert [samples[0], samples[-1]] == [wanted[0], wanted[-1]]
    assert samples.fetch([5, 3, 5]) == [wanted[5], wanted[3], wanted[5]]
    assert samples.fetch([]) == []
    assert list(samples) == wanted
    shuffled = list(samples.stream(shuffle=True, seed=1))
    assert shuffled != wanted
    assert sorted(s["__key__"] for s in shuffled) == sorted(s["__key__"] for s in wanted)
    halves = [list(samples.stream(shuffle=True, seed=1, part=f"{n}/2")) for n in range(2)]
    assert [s for pair in zip(*halves, strict=True) for s in pair] == shuffled
    assert (
        repr(samples)
        == f"<60 samples of {url}: cls, jpg; {nbdata.report.format_size(sum(map(len, FILES.values())))}>"
    )
    with pytest.raises(IndexError, match="sample 60 of 60"):
        samples[60]


def test_a_fetch_gives_dicts_that_the_caller_owns(s3: EmbeddedServer, images: str, opened: Open) -> None:
    samples = opened(images)
    one, other = samples.fetch([0, 0])
    one["jpg"] = b""
    assert other["jpg"] != b""


def test_what_comes_next_is_fetched_ahead_once(proxy: FaultProxy, images: str, opened: Open) -> None:
    url = images
    samples, wanted = opened(url), in_order(url)
    tally = proxy.begin()
    assert samples.fetch([0, 1], ahead=[[2, 3], [4, 5]]) == wanted[:2]
    names = {f"{wanted[n]['__key__']}.jpg" for n in range(6)}
    assert wait_until(lambda: names <= tally.down.keys())
    assert samples.fetch([2, 3], ahead=[[4, 5]]) == wanted[2:4]
    assert samples.fetch([4, 5]) == wanted[4:6]
    assert all(tally.down[name] == len(FILES[name]) for name in names)


def test_a_stream_that_is_left_early_holds_nothing(images: str, s3: EmbeddedServer, opened: Open) -> None:
    samples = opened(images)
    stream = samples.stream(shuffle=True)
    next(stream)
    fetcher = samples._fetcher  # type: ignore[attr-defined]
    wait_until(lambda: fetcher._ahead_used > 0)
    stream.close()
    assert (fetcher._ahead_used, fetcher._samples) == (0, {})
    assert len(list(samples.stream())) == 60


def test_what_is_fetched_ahead_stays_within_its_bytes(proxy: FaultProxy, images: str, opened: Open) -> None:
    samples = opened(images, ahead_bytes=10_000)
    tally = proxy.begin()
    batches = [[n, n + 1] for n in range(2, 60, 2)]
    samples.fetch([0, 1], ahead=batches)
    assert wait_until(lambda: sum(tally.down.values()) >= 12_000)
    fetcher = samples._fetcher  # type: ignore[attr-defined]
    assert wait_until(lambda: fetcher._session_wake is None), "it has nothing more to fetch"
    # A sample that is begun while there is room may exceed the room.
    assert sum(tally.down.values()) <= 2 * 2100 + 10_000 + 2100
    samples.fetch([30], ahead=[[31]])  # unused samples give their room back
    assert samples.fetch([58])[0]["__key__"] == samples.keys[58]


def test_windows_stay_in_a_folder_and_share_their_frames(
    proxy: FaultProxy, images: str, opened: Open
) -> None:
    url = images
    samples, wanted = opened(url), in_order(url)
    windows = samples.windows(4)
    assert len(windows) == 3 * 17
    tally = proxy.begin()
    assert list(windows.stream()) == [wanted[at + n : at + n + 4] for at in (0, 20, 40) for n in range(17)]
    assert sum(tally.down.values()) == sum(map(len, FILES.values()))
    tally = proxy.begin()
    for at in range(0, 51, 3):  # without readahead, the frames of the last windows are still in memory
        windows.fetch([at, at + 1, at + 2])
    assert sum(tally.down.values()) <= 1.05 * sum(map(len, FILES.values()))
    assert len(samples.windows(4, stride=4)) == 3 * 5
    assert [len(samples.windows(6, within=r)) for r in ("n[01]", "$")] == [30, 55]
    for size, options in ((21, {}), (6, {"within": r"(\d)$"})):
        with pytest.raises(BadOption, match=f"nowhere are there {size} neighbours"):
            samples.windows(size, **options)
    with pytest.raises(BadOption, match="regular expression"):
        samples.windows(2, within="(")


def test_samples_are_selected_sliced_and_added(s3: EmbeddedServer, images: str, opened: Open) -> None:
    url = images
    samples, wanted = opened(url), in_order(url)
    chosen = samples.select(lambda key: key.startswith("n2/"))
    assert list(chosen) == wanted[40:]
    assert list(samples[10:50:20]) == wanted[10:50:20]
    with pytest.raises(nbdata.BadOption, match="'a' is none"):
        samples["a"]
    both = chosen + samples[:2]
    assert (len(both), both[-1], both.keys[20]) == (22, wanted[1], wanted[0]["__key__"])
    assert both.fetch([21, 0]) == [wanted[1], wanted[40]]
    assert (chosen.windows(5) + samples.windows(2))[16] == [wanted[0], wanted[1]]


def test_what_is_no_number_no_function_or_no_state_is_refused_with_what_would_do(
    s3: EmbeddedServer, images: str, opened: Open
) -> None:
    samples = opened(images)
    for wrong in (lambda: samples["n0/003"], lambda: samples.fetch("abc"), lambda: samples.fetch([1.5])):
        with pytest.raises(BadOption, match=r"read by number, .*samples\.keys\.index\(KEY\)"):
            wrong()
    assert samples[samples.keys.index("n0/003")]["__key__"] == "n0/003"
    assert samples.fetch(np.array([1]))[0] == samples[np.int64(1)] == samples[1]
    with pytest.raises(BadOption, match="'a/\\*' is no function"):
        samples.select("a/*")  # type: ignore[arg-type]
    for state in ("x", 3, [], ["x"], {}, {"model": 1}):
        with pytest.raises(BadOption, match="no state of a stream"):
            samples.stream(resume=state)
    other = samples[::-1].stream(epoch=2).state_dict()
    with pytest.raises(
        BadOption, match=r"the same source and selection.*begin the epoch anew: epoch=2"
    ) as told:
        samples.stream(epoch=2, resume=other)
    assert other["samples"] not in str(told.value), "a digest tells a reader nothing"


def test_a_stream_takes_its_state_from_those_of_all_parts(
    s3: EmbeddedServer, images: str, opened: Open
) -> None:
    samples = opened(images)
    begun = [samples.stream(part=f"{n}/2") for n in range(2)]
    for at, part in enumerate(begun):
        list(itertools.islice(part, 3 + at))
    states = [part.state_dict() for part in begun]
    for part, state in zip(begun, states, strict=True):
        expected = list(part)
        assert list(samples.stream(part=state["part"], resume=[state])) == expected
        assert list(samples.stream(part=state["part"], resume=states)) == expected
    with pytest.raises(BadOption, match="another number of workers"):
        samples.stream(part="0/3", resume=[states[0]])
    with pytest.raises(BadOption, match=r"none is of the part 0/3.*as many as before"):
        samples.stream(part="0/3", resume=states)
    with pytest.raises(BadOption, match="another epoch"):
        samples.stream(part="0/2", resume=[states[0], {**states[1], "epoch": 1}])


def test_a_sample_that_fails_reaches_its_own_batch_and_nothing_else(
    s3: EmbeddedServer, bucket: str, put: Put, opened: Open
) -> None:
    url = put({name: data for name, data in FILES.items() if name < "n0/015"})
    samples, wanted = opened(url), in_order(url)[:5]
    client = client_of(s3)
    client.put_object(Bucket=bucket, Key="n0/003.jpg", Body=b"other bytes")
    client.delete_object(Bucket=bucket, Key="n0/006.cls")
    client.close()
    assert samples.fetch([0], ahead=[[1, 4], [2], [3]]) == wanted[:1]
    with pytest.raises(SourceChanged, match=r"n0/003\.jpg.*begin the epoch again"):
        samples.fetch([1, 4], ahead=[[2], [3]])
    with pytest.raises(SourceChanged, match=r"n0/006\.cls"):
        samples.fetch([2], ahead=[[3]])
    assert samples.fetch([3, 4]) == wanted[3:]


FAULTS = [
    Fault("flip", BODY, 0.5), Fault("cut", BODY, 0.5), Fault("reset", HEAD), Fault("drop", BEFORE),
    Fault("refuse", BEFORE, status=503), Fault("stall", BODY, 0.5), Fault("stall", HEAD),
]  # fmt: skip


def often(fault: Fault) -> Plan:
    """Return a plan that injects the fault into every fifth object, at the first attempt."""

    def plan(request: Exchange, before: int) -> Fault | None:
        return fault if request.download and not before and hash(request.key) % 5 == 0 else None

    return plan


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
@pytest.mark.in_ci("cut")
def test_faults_of_the_line_are_mended(
    fault: Fault, proxy: FaultProxy, images: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault.kind == "stall":
        monkeypatch.setenv("NBDATA_STALL_TIMEOUT", "2")
    url = images
    samples = opened(url)
    tally = proxy.begin(often(fault))
    got = list(samples.stream(shuffle=True))
    assert sorted(got, key=lambda s: s["__key__"]) == in_order(url)
    assert tally.faults


def test_wrong_bytes_are_never_handed_out(proxy: FaultProxy, images: str, opened: Open) -> None:
    url = images
    samples = opened(url)
    proxy.begin(lambda request, _before: Fault("flip", BODY, 0.5) if request.key == "n1/001.jpg" else None)
    with pytest.raises(ChecksumMismatch, match=r"n1/001\.jpg"):
        samples[20]
    assert opened(url, verify="none")[20]["jpg"] != FILES["n1/001.jpg"]


def test_large_objects_come_in_ranges_side_by_side(
    proxy: FaultProxy, s3: EmbeddedServer, bucket: str, put: Put, opened: Open
) -> None:
    data = os.urandom(21 << 20)
    url = put({"big.bin": data, "big.txt": b"x"})
    proxy.begin(often(Fault("cut", BODY, 0.3)))
    samples = opened(url)
    assert samples[0]["bin"] == data
    client = client_of(s3)
    upload = client.create_multipart_upload(Bucket=bucket, Key="big.bin")["UploadId"]
    parts = []
    for number, at in enumerate(range(0, len(data), 5 << 20), 1):
        body = io.BytesIO(data[at : at + (5 << 20)])
        answer = client.upload_part(
            Bucket=bucket, Key="big.bin", UploadId=upload, PartNumber=number, Body=body
        )
        parts.append({"ETag": answer["ETag"], "PartNumber": number})
    client.complete_multipart_upload(
        Bucket=bucket, Key="big.bin", UploadId=upload, MultipartUpload={"Parts": parts}
    )
    client.close()
    with pytest.raises(SourceChanged):
        samples[0]
    assert opened(url)[0]["bin"] == data


def test_the_index_is_built_anew_when_the_store_has_changed(put: Put, opened: Open) -> None:
    url = put({"1.jpg": b"1", "1.cls": b"2"})
    assert len(opened(url)) == 1
    put({"2.jpg": b"1", "2.cls": b"2"})
    assert len(opened(url, refresh="never")) == 1
    assert len(opened(url)) == 2
    assert len(opened(url, refresh="never")) == 2
    put({"2.jpg": b"other"})
    assert opened(url)[1]["jpg"] == b"other"


def test_files_functions_and_filters_say_what_a_sample_is(put: Put, opened: Open) -> None:
    url = put(
        {"images/1.jpg": b"i", "masks/1.png": b"m", "images/2.jpg": b"j", "masks/2.png": b"n", "README": b"r"}
    )
    by = opened(
        url, by=lambda path: None if "." not in path else (path[path.index("/") + 1 : -4], path.split("/")[0])
    )
    assert [(s["__key__"], s["images"], s["masks"]) for s in by] == [("1", b"i", b"m"), ("2", b"j", b"n")]
    files = opened(url, by="file", include="*.jpg")
    assert [(s["__key__"], s["jpg"], s["__url__"]) for s in files] == [
        ("images/1", b"i", f"{url}images/1.jpg"), ("images/2", b"j", f"{url}images/2.jpg"),
    ]  # fmt: skip
    assert opened(url).index.about["left_out_names"] == ["README"]  # type: ignore[attr-defined]


def test_samples_are_those_that_a_function_says_now_although_its_source_is_the_same(
    put: Put, opened: Open
) -> None:
    url = put({"a/1.jpg": b"a1", "b/1.jpg": b"b1", "a/2.jpg": b"a2", "b/2.jpg": b"b2"})

    def by(part: int) -> Callable[[str], tuple[str, str]]:
        return lambda path: (path[:-4].split("/")[part], path[:-4].split("/")[1 - part])

    assert [one["__key__"] for one in opened(url, by=by(0))] == ["a", "b"]
    other = opened(url, by=by(1))
    assert list(other) == [
        {"__key__": "1", "__url__": f"{url}a/1.jpg", "a": b"a1", "b": b"b1"},
        {"__key__": "2", "__url__": f"{url}a/2.jpg", "a": b"a2", "b": b"b2"},
    ]
    assert opened(url, by=by(0), refresh="never").fingerprint != other.fingerprint
    parts = [0, 1]

    def said(path: str) -> tuple[str, str]:
        name = path[:-4].split("/")
        return name[parts[0]], name[parts[1]]

    assert [one["__key__"] for one in opened(url, by=said)] == ["a", "b"]
    parts.reverse()
    assert [one["__key__"] for one in opened(url, by=said)] == ["1", "2"]


@pytest.mark.parametrize(
    ("objects", "options", "error", "says"),
    [
        ({"a.jpg": b"1"}, {"include": "*.png"}, NotFound, "nothing passes --include"),
        ({"README": b"1", ".x.jpg": b"2"}, {}, NotFound, 'none of the 2 objects.*by="file"'),
        ({"a.jpg": b"1", "a.JPG": b"2"}, {}, BadOption, "'a' has two files for its field 'jpg'"),
        ({"a.jpg": b"1"}, {"by": lambda path: path}, BadOption, "expected.*None to leave the file out"),
        ({"a.jpg": b"1"}, {"by": "folder"}, BadOption, "by"),
        ({"a.jpg": b"1"}, {"bye": "file"}, BadOption, "bye.*Did you mean by?"),
    ],
)
def test_what_is_no_data_set_is_told(
    put: Put, objects: dict[str, bytes], options: dict[str, Any], error: type[Exception], says: str
) -> None:
    url = put(objects)
    with pytest.raises(error, match=f"(?s){says}"):
        nbdata.samples(url, **options)


def test_a_place_that_is_not_there_is_told(s3: EmbeddedServer) -> None:
    with pytest.raises(NotFound):
        nbdata.samples("s3://no-such-bucket-anywhere/x/")


def test_pickled_samples_hold_no_secret_and_read_the_same(
    s3: EmbeddedServer, images: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = images
    again = pickle.loads(pickle.dumps(opened(url).windows(3)))
    assert again[0][1] == in_order(url)[1]
    again.close()
    options = {"key": s3.access_key, "secret": s3.secret_key, "endpoint_url": s3.url}
    with pytest.raises(BadOption, match="env:NAME"):
        pickle.dumps(opened(url, storage_options=options))
    monkeypatch.setenv("MY_SECRET", s3.secret_key)
    monkeypatch.setenv("MY_KEY", s3.access_key)
    options |= {"key": "env:MY_KEY", "secret": "env:MY_SECRET"}
    named = pickle.loads(pickle.dumps(opened(url, storage_options=options)))
    assert named[0] == in_order(url)[0]
    named.close()


def test_pickled_samples_whose_place_was_indexed_anew_are_refused(put: Put, opened: Open) -> None:
    url = put({"2.jpg": b"2", "3.jpg": b"3"})
    told = pickle.dumps(opened(url))
    put({"1.jpg": b"1"})
    assert len(opened(url)) == 3
    with pytest.raises(NbdataError, match="is of others by now"):
        pickle.loads(told)


def test_closed_samples_leave_no_thread_and_begin_anew(s3: EmbeddedServer, images: str) -> None:
    url = images
    samples = nbdata.samples(url)
    samples.fetch([0], ahead=[[1]])
    samples.close()

    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("samples")]

    assert wait_until(lambda: not threads())
    assert samples[0] == in_order(url)[0]
    known = weakref.ref(samples)
    del samples
    assert known() is None
    assert wait_until(lambda: not threads())


def test_a_report_says_what_was_read(s3: EmbeddedServer, images: str, opened: Open) -> None:
    samples = opened(images)
    samples.fetch([0, 1])
    assert str(samples.report).startswith("2 samples, 4.")
    assert "no checksum" not in str(samples.report)


def test_a_report_names_objects_without_a_checksum_but_no_files_of_a_disk(
    tmp_path: Any, opened: Open
) -> None:
    (tmp_path / "1.jpg").write_bytes(b"x")
    with nbdata.write_shards(str(tmp_path / "shards" / "x-%06d.tar")) as shards:
        shards.write({"__key__": "1", "jpg": b"x"})
    memory = fsspec.filesystem("memory")
    memory.pipe("/without-checksums/1.jpg", b"x")
    said = []
    for source in ("memory://without-checksums/", str(tmp_path), str(tmp_path / "shards" / "x-000000.tar")):
        samples = opened(source, exclude="shards/") if source == str(tmp_path) else opened(source)
        assert [sample["jpg"] for sample in samples.stream()] == [b"x"]
        said.append("1 object had no checksum" in str(samples.report))
    memory.rm("/without-checksums", recursive=True)
    assert said == [True, False, False]


def test_samples_are_read_from_the_disk_too(tmp_path: Any, opened: Open) -> None:
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    samples = opened(str(tmp_path))
    assert list(samples) == in_order(f"{tmp_path}/")


def test_large_bodies_are_held_by_nobody_but_who_asked(put: Put, opened: Open) -> None:
    """Sixteen connections transfer objects of six megabytes, but few objects are in memory at a time."""
    url = put({f"{n:02}.bin": os.urandom(6 << 20) for n in range(24)})
    samples = opened(url, ahead_bytes="6MiB", verify="none")
    samples[0]
    tracemalloc.start()
    try:
        for sample in samples.stream(shuffle=True):
            assert len(sample["bin"]) == 6 << 20
        # 32 MiB in transfer, one requested sample, one ahead, and copies of them.
        most = tracemalloc.get_traced_memory()[1]
        samples.stream().close()
        wait_until(lambda: tracemalloc.get_traced_memory()[0] < 16 << 20)
    finally:
        tracemalloc.stop()
    assert most < 80 << 20


def test_a_folder_for_a_cache_without_a_cache_is_a_mistake(images: str, tmp_path: Any) -> None:
    with pytest.raises(BadOption, match="--cache-dir is for --cache"):
        nbdata.samples(images, cache_dir=str(tmp_path))


@pytest.mark.in_ci("x.part{}.tar", "x.tar.gz.{:02}")
@pytest.mark.parametrize(
    "name", ["x.tar.gz.{:02}", "x.tar.gz.a{}", "x.part{}.tar", "x.tar.zst.part{}", "x.zip.{:03}"]
)
def test_volumes_of_an_archive_are_no_samples(name: str, put: Put) -> None:
    letters = "abcdefgh" if "a{}" in name else range(1, 9)
    volumes = {f"v/{name.format(one)}": b"x" for one in letters}
    url = put({**volumes, "v/README.txt": b"", "w/0.cam.00": b"", "w/0.cam.01": b""})
    with pytest.raises(BadOption, match=r"8 of 9 files here are volumes of archives.*untar_volumes"):
        nbdata.samples(f"{url}v/")
    assert len(nbdata.samples(f"{url}v/", by="file")) == 9
    assert len(nbdata.samples(f"{url}w/")) == 1
