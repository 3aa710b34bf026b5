"""cache_stream on a real server: it keeps its limit, leaves no files behind, and never blocks a consumer forever."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.client.launch import connect
from nbdata.demo.server import EmbeddedServer
from nbdata.display import Follower
from nbdata.operation import slots
from nbdata.report import WAITS_FOR_LOOP, Snapshot
from nbdata.verbs.transfers import JobList
from tests.conftest import client_of
from tests.faults.gate import Gate
from tests.slow import SlowProxy
from tests.waiting import PATIENCE, wait_until
from tests.watcher import Watcher

Put = Callable[[dict[str, bytes]], str]

FOLDERS = {
    f"f{n:02}/{name}": bytes([n]) * size for n in range(12) for name, size in (("a", 300_000), ("b/c", 1000))
}


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory; the test fails if a stream leaves anything in it."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    yield work
    gc.collect()
    assert empties(work), list(work.rglob("*"))


def empties(folder: Path) -> bool:
    return wait_until(lambda: not any(folder.iterdir()), why=lambda: [*folder.rglob("*")])


def reserved(folder: Path) -> int:
    details = nbdata.quota(str(folder), quiet=True).details
    return sum(room["reserved"] for room in details["rooms"])


def content(item: nbdata.protocols.Item) -> dict[str, bytes]:
    """Read the files of an item, by path relative to the item."""
    return {path[len(item.path) :].lstrip("/"): Path(path).read_bytes() for path in item.files}


@pytest.mark.in_ci("agent")
@pytest.mark.parametrize("host", ["agent", "inline"])
def test_every_folder_comes_once_in_order_with_all_its_bytes(
    put: Put, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("NBDATA_HOST", host)
    url = put({**FOLDERS, "loose.txt": b"x", "marker/": b""})
    stream = nbdata.cache_stream(url, max_size="2MB", quiet=True)
    seen = {}
    for item in stream:
        path, size = item
        assert path == item.path
        assert os.path.basename(path) == item.key
        found = content(item)
        assert size == sum(map(len, found.values()))
        seen.update({f"{item.key}/{name}": data for name, data in found.items()})
    assert list(seen) == sorted(FOLDERS)
    assert seen == FOLDERS
    report = stream.report
    assert report is not None
    assert report.files == 12
    assert report.bytes == sum(map(len, FOLDERS.values()))
    assert report.counts["items"] == 12
    assert "; your code " in report.line
    assert any("loose.txt" in note for note in report.notes)


def test_samples_are_the_files_that_share_a_name(put: Put) -> None:
    url = put({f"x/{n}.{end}": f"{n}{end}".encode() for n in range(5) for end in ("jpg", "cls.txt")})
    found = {
        item.key: content(item) for item in nbdata.cache_stream(url, by="sample", max_size="1MB", quiet=True)
    }
    assert found == {
        f"x/{n}": {".jpg": f"{n}jpg".encode(), ".cls.txt": f"{n}cls.txt".encode()} for n in range(5)
    }


SHARDS = {f"train-{n}.tar": {f"{n}-{m}.txt": f"{n} {m}" for m in range(3)} for n in range(6)}


@pytest.fixture
def shards(put: Put) -> str:
    """The URL of a folder with six shards and other files beside them."""
    objects = {"read.me": b"x", "train.json": b"{}"}
    for shard, members in SHARDS.items():
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for name, text in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
        objects[shard] = made.getvalue()
    return put(objects)


def test_shards_are_items_as_they_are_and_can_be_read_from_the_disk(shards: str) -> None:
    seen = dict[str, list[str]]()
    stream = nbdata.cache_stream(
        f"{shards}train-{{0..5}}.tar", by="shard", max_size="1MB", shuffle=True, seed=1, epochs=2, quiet=True
    )
    assert len(stream) == 12
    orders = list[list[str]]()
    for _, items in stream.by_epoch():
        order = []
        for item in items:
            path, size = item
            order.append(item.key)
            assert (item.files, os.path.getsize(path), os.path.basename(path)) == ([path], size, item.key)
            seen[item.key] = [sample["txt"].decode() for sample in nbdata.samples(path).stream()]
        orders.append(order)
    assert seen == {shard: list(members.values()) for shard, members in SHARDS.items()}
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(seen)
    assert orders[0] != orders[1]
    assert sorted(seen) not in orders


def test_parts_share_shards_in_a_shuffled_order(shards: str) -> None:
    found = [
        item.key
        for part in ("0/2", "1/2")
        for item in nbdata.cache_stream(
            shards, by="shard", max_size="1MB", shuffle=True, part=part, quiet=True
        )
    ]
    assert len(found) == 6
    assert sorted(found) == sorted(SHARDS)


def test_what_lies_beside_shards_is_named_and_left_out(shards: str) -> None:
    plan = nbdata.cache_stream(shards, max_size="1MB", by="shard", dry_run=True)
    assert {row.path for row in plan.rows} == SHARDS.keys()
    (note,) = plan.notes
    assert "files beside the shards are not streamed: " in note
    assert "read.me" in note
    with pytest.raises(nbdata.BadOption, match="no tar shards below"):
        nbdata.cache_stream(f"{shards}*.me", by="shard", max_size="1MB", quiet=True)


def test_shards_that_braces_name_must_all_be_there(shards: str) -> None:
    source = f"{shards}train-{{4..7}}.tar"
    with pytest.raises(nbdata.NotFound, match=r"2 of 4 shards are not there: train-6\.tar, train-7\.tar"):
        nbdata.cache_stream(source, by="shard", max_size="1MB", quiet=True)
    assert len(nbdata.cache_stream(source, by="shard", max_size="1MB", max_files=1, quiet=True)) == 1
    assert len(nbdata.cache_stream(source, by="file", max_size="1MB", quiet=True)) == 2


@pytest.mark.long
def test_big_objects_arrive_in_parts_and_right(put: Put) -> None:
    big = os.urandom(1 << 20) * 40
    url = put({"one/big": big, "one/small": b"s", "two/big": big[::-1]})
    found = {}
    for item in nbdata.cache_stream(url, max_size="100MB", quiet=True):
        found[item.key] = content(item)
    assert found == {"one": {"big": big, "small": b"s"}, "two": {"big": big[::-1]}}


@pytest.mark.parametrize("by", ["folder", "file"])
@pytest.mark.parametrize("keep", ["none", "lru"])
@pytest.mark.in_ci("lru-file")
def test_an_outside_watcher_never_sees_more_than_the_limit(
    put: Put, tmp_path: Path, workplace: Path, by: str, keep: str
) -> None:
    """The runs vary item sizes, epochs and consumers. The limit is not a multiple of an item's size."""
    url = put(
        {
            **{f"small{n:02}/{m}": os.urandom(5000) for n in range(6) for m in range(30)},
            **{f"large{n}/{m}": os.urandom(2_000_000) for n in range(4) for m in range(2)},
        }
    )
    limit = 9_500_000
    code = """
        import os, sys, time, nbdata
        url, part, by, keep, size, watched = sys.argv[1:]
        stream = nbdata.cache_stream(
            url, part=part, by=by, keep=keep, max_size=int(size), epochs=3, shuffle=True, quiet=True
        )
        count = most = 0
        for item in stream:
            count += len(item.files)
            if not most and sum(map(os.path.getsize, item.files)) >= 2_000_000:
                while most < 2_000_000:  # until the watcher has seen one of the large objects
                    time.sleep(0.01)
                    most = int(open(watched).read().split()[1]) if os.path.exists(watched) else 0
        print(count)
    """
    notes = tmp_path / "watched"
    with Watcher(workplace, notes) as watcher:
        consumers = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    textwrap.dedent(code),
                    url,
                    f"{n}/2",
                    by,
                    keep,
                    str(limit // 2),
                    notes,
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(2)
        ]
        handed = [int(consumer.communicate(timeout=PATIENCE)[0]) for consumer in consumers]
    assert sum(handed) == 3 * (6 * 30 + 4 * 2)
    assert watcher.samples
    block = 4096  # for the common .nbdata folder
    assert 2_000_000 <= watcher.most <= limit + 2 * block


def test_a_limit_too_small_is_refused_with_the_size_that_would_do(put: Put) -> None:
    url = put(FOLDERS)
    with pytest.raises(nbdata.BadOption, match=r"f00.*at least") as caught:
        nbdata.cache_stream(url, max_size="200k", quiet=True)
    least = int(str(caught.value.expected).removeprefix("at least ").split(" bytes")[0].replace(",", ""))
    assert sum(1 for _ in nbdata.cache_stream(url, max_size=least, quiet=True)) == 12
    with pytest.raises(nbdata.BadOption):
        nbdata.cache_stream(url, max_size=least - 1, quiet=True)


def test_the_room_is_reserved_before_and_given_back_after(put: Put, workplace: Path) -> None:
    url = put(FOLDERS)
    before = reserved(workplace)
    stream = nbdata.cache_stream(url, max_size="1MB", quiet=True)
    assert reserved(workplace) - before > 0
    stream.close()
    assert reserved(workplace) == before
    nbdata.quota(str(workplace), limit="500k", quiet=True)
    try:
        with pytest.raises(nbdata.NotEnoughSpace):
            nbdata.cache_stream(url, max_size="1MB", quiet=True)
        # Without a size, the stream takes the room that the limit leaves.
        assert sum(1 for _ in nbdata.cache_stream(url, quiet=True)) == 12
    finally:
        nbdata.quota(str(workplace), limit="none", quiet=True)


def test_what_fits_stays_for_the_next_epoch(
    put: Put, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put(FOLDERS)
    with SlowProxy(s3.url, rate=1 << 40) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        stream = nbdata.cache_stream(url, max_size="8MB", epochs=5, keep="lru", shuffle=True, quiet=True)
        orders = [[item.key for item in items] for _, items in stream.by_epoch()]
        assert proxy.answered < 1.5 * sum(map(len, FOLDERS.values()))
    assert all(sorted(order) == sorted({key.split("/")[0] for key in FOLDERS}) for order in orders)
    assert len({tuple(order) for order in orders}) == 5
    assert stream.report is not None
    assert stream.report.counts["from the cache"] == 4 * 12


def test_items_are_fetched_ahead_while_the_loop_is_busy(put: Put, workplace: Path) -> None:
    url = put(FOLDERS)
    items = iter(nbdata.cache_stream(url, max_size="2MB", quiet=True))
    next(items)
    cache = next(workplace.glob(".nbdata/cache-*/"))
    wait_until(lambda: len(list(cache.glob("*/*/a"))) >= 5)  # these fit beside the one in use
    items.close()


@pytest.mark.parametrize("leave", ["break", "raise", "close", "forget", "next"])
@pytest.mark.in_ci("break")
def test_however_a_loop_is_left_nothing_stays(put: Put, workplace: Path, leave: str) -> None:
    url = put(FOLDERS)
    before = reserved(workplace)
    stream = nbdata.cache_stream(url, max_size="2MB", quiet=True)
    if leave == "forget":
        del stream
    elif leave == "close":
        stream.close()
    elif leave == "next":
        items = iter(stream)
        next(items)
        del items
    else:
        with contextlib.suppress(ZeroDivisionError):
            for item in stream:
                assert item.files
                if leave == "break":
                    break
                raise ZeroDivisionError
    gc.collect()
    assert empties(workplace)
    assert reserved(workplace) == before


def test_each_loop_is_a_pass_of_its_own(put: Put) -> None:
    url = put(FOLDERS)
    with nbdata.cache_stream(url, max_size="2MB", quiet=True) as stream:
        assert [item.key for item in stream] == [item.key for item in stream]


def test_an_error_reaches_the_loop_at_once(put: Put, s3: EmbeddedServer, bucket: str) -> None:
    url = put({f"f{n:02}/a": os.urandom(100_000) for n in range(60)})
    stream = nbdata.cache_stream(url, max_size="500k", quiet=True)
    client = client_of(s3)
    client.delete_object(Bucket=bucket, Key="f50/a")
    client.close()
    seen = []

    def loop() -> None:
        for item in stream:
            seen.append(item.key)
            content(item)

    with pytest.raises(nbdata.SourceChanged, match="f50"):  # the listing contained it
        loop()
    assert len(seen) <= 50
    assert nbdata.transfers()[0].state == "FAILED"  # the newest comes first


def test_with_report_the_items_that_cannot_be_had_are_left_out_and_named(
    put: Put, s3: EmbeddedServer, bucket: str
) -> None:
    url = put(FOLDERS)
    stream = nbdata.cache_stream(url, max_size="800k", on_error="report", quiet=True)
    client = client_of(s3)
    client.delete_object(Bucket=bucket, Key="f10/b/c")
    client.close()
    assert [item.key for item in stream] == [f"f{n:02}" for n in range(12) if n != 10]
    report = stream.report
    assert report is not None
    assert report.state == "FAILED"
    assert report.failures[0][0] == "f10/b/c"


def test_an_object_that_grew_is_never_given_more_than_its_room(
    put: Put, s3: EmbeddedServer, bucket: str
) -> None:
    url = put(FOLDERS)
    stream = nbdata.cache_stream(url, max_size="700k", quiet=True)
    put({"f11/a": b"x" * 5_000_000})
    with pytest.raises(nbdata.SourceChanged):
        for _ in stream:
            pass


def test_a_bad_checksum_never_reaches_the_loop(put: Put, s3: EmbeddedServer) -> None:
    url = put({"d/a": b"right"})
    with pytest.raises(nbdata.ChecksumMismatch):
        for _ in nbdata.cache_stream(url, max_size="1MB", verify="sha256", quiet=True):
            pass


def test_cancel_from_outside_ends_the_loop(put: Put, gate: Gate) -> None:
    url = put({f"f{n}/a": os.urandom(2_000_000) for n in range(20)})
    gate.close(after=18_000_000)  # at most four are in progress
    stream = nbdata.cache_stream(url, max_size="9MB", quiet=True)
    (job,) = [s for s in nbdata.transfers() if s.verb == "cache_stream" and not s.finished]

    def loop() -> None:
        for number, _ in enumerate(stream):
            if number == 1:
                nbdata.transfers(job.id, cancel=True)

    with pytest.raises(nbdata.Cancelled):
        loop()
    gate.open()


def test_a_killed_consumer_leaves_nothing(put: Put, workplace: Path) -> None:
    url = put(FOLDERS)
    before = reserved(workplace)
    code = """
        import signal, sys, nbdata
        items = iter(nbdata.cache_stream(sys.argv[1], max_size="2MB"))
        next(items)
        print(1, flush=True)
        signal.pause()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), url], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        assert any(workplace.iterdir())
        process.kill()
    assert empties(workplace)
    assert reserved(workplace) == before


def test_a_killed_agent_is_told_to_the_loop_and_cleared_up_after(
    put: Put, workplace: Path, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put(FOLDERS)
    size = 2_000_000
    with Gate(s3.url, limit=1_500_000) as gate:
        monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
        items = iter(
            nbdata.cache_stream(url, max_size=size, concurrency=1, quiet=True)
        )  # one folder is complete
        next(items)
        with connect() as connection:
            agent = connection.ask({"do": "hello"})["pid"]
        os.kill(agent, signal.SIGKILL)
        with pytest.raises(nbdata.AgentUnavailable):
            for _ in items:
                pass
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    assert any(workplace.glob(".nbdata/cache-*/*"))
    assert nbdata.cleanup(str(workplace), quiet=True).ok
    assert empties(workplace)
    assert reserved(workplace) == 0
    assert sum(1 for _ in nbdata.cache_stream(url, max_size=size, quiet=True)) == 12


def test_cleanup_leaves_a_living_cache_alone(put: Put, workplace: Path) -> None:
    url = put(FOLDERS)
    items = iter(nbdata.cache_stream(url, max_size="2MB", quiet=True))
    item = next(items)
    report = nbdata.cleanup(str(workplace), quiet=True)
    assert report.counts.get("in use")
    assert content(item)
    assert sum(1 for _ in items) == 11


def test_a_forked_child_does_not_affect_its_parents_stream(put: Put) -> None:
    url = put(FOLDERS)
    code = """
        import os, sys, nbdata
        stream = nbdata.cache_stream(sys.argv[1], max_size="2MB", quiet=True)
        items = iter(stream)
        next(items)
        child = os.fork()
        if child == 0:
            try:
                next(iter(stream))
            except nbdata.BadOption as error:
                sys.exit(0 if "CacheStreamDataset" in str(error) else 2)
            sys.exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert sum(1 for _ in items) == 11
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), url], check=True, timeout=PATIENCE)


@pytest.mark.long
def test_the_command_line_runs_a_command_for_each_item(put: Put) -> None:
    url = put(FOLDERS)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-c",
            "from nbdata.cli import main; raise SystemExit(main())",
            "cache_stream",
            url,
            "--max-size",
            "2MB",
            *words,
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)

    done = run("--run", f"{sys.executable} -c 'import sys; print(sys.argv[1])' {{}}")
    assert done.returncode == 0, done.stderr
    assert [Path(line).name for line in done.stdout.splitlines()] == [f"f{n:02}" for n in range(12)]
    assert "; your code " in done.stderr
    failed = run("--run", "false")
    assert failed.returncode == 1
    assert "false ended with status 1" in failed.stderr
    assert run().returncode == 2


@pytest.mark.in_ci("options0---part", "options2---max-size")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"part": "2/2"}, "--part"),
        ({"epochs": 0}, "--epochs"),
        ({"max_size": 0}, "--max-size"),
        ({"cache_dir": "s3://b/x"}, "--cache-dir"),
        ({"by": "volume"}, "--by"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(nbdata.BadOption, match=told):
        nbdata.CacheStream("s3://bucket/x", **options)


def test_files_without_folders_are_refused_with_what_would_do(put: Put) -> None:
    url = put({"a": b"a", "b": b"b"})
    with pytest.raises(nbdata.BadOption, match="--by file"):
        nbdata.cache_stream(url, max_size="1MB", by="folder", quiet=True)
    plan = nbdata.cache_stream(url, max_size="1MB", by="file", dry_run=True)
    assert plan.actions == {"stream": [2, 2]}


def test_a_flat_folder_is_streamed_by_file_unless_something_else_is_asked_for(
    put: Put, workplace: Path
) -> None:
    url = put({"flat/a": b"a", "flat/b": b"b", "both/c": b"c", "both/d/e": b"e"})
    with nbdata.cache_stream(f"{url}flat/", max_size="2MB", quiet=True) as stream:
        assert [(item.key, content(item)) for item in stream] == [("a", {"": b"a"}), ("b", {"": b"b"})]
    with nbdata.cache_stream(f"{url}both/", max_size="2MB", quiet=True) as folders:
        assert [item.key for item in folders] == ["d"]


def test_a_stream_that_nobody_reads_waits_for_its_loop(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shown(Follower):
        def __init__(self) -> None:
            self.told: list[str] = []

        def update(self, snapshot: Snapshot) -> None:
            self.told.append(f"{snapshot.condition} {snapshot.eta}")

    shown = Shown()
    monkeypatch.setattr(slots, "display", lambda: shown)
    stream = nbdata.cache_stream(put(FOLDERS), max_size="1MB")

    def waits() -> Snapshot | None:
        job = next(job for job in nbdata.transfers() if not job.finished)
        return job if job.condition == WAITS_FOR_LOOP else None

    job = wait_until(waits)
    assert (job.state, job.eta) == ("RUNNING", None)
    assert "waits for your loop" in repr(JobList([job]))
    assert "waits for your loop" in JobList([job])._repr_html_()
    items = iter(stream)
    first = next(items)
    wait_until(lambda: shown.told[-1:] == ["waits for your loop None"])
    assert [item.key for item in [first, *items]] == sorted({name.partition("/")[0] for name in FOLDERS})
