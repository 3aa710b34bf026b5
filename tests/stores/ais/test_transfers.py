"""Verbs over ``ais://`` and over the S3 door: what they move is right, verified, and resumed when nodes fail."""

from __future__ import annotations

import contextlib
import io
import os
import random
import secrets
import tarfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.errors import ChecksumMismatch, NbdataError, NotFound
from nbdata.stores.ais.answers import entry_of
from tests.servers.aistore.cluster import Cluster, cluster
from tests.stores.ais.conftest import opened
from tests.stores.relay import cutting
from tests.stores.servers import each, ok, serving
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("inline", "no_pauses")

MIB = 1 << 20
#: Makes a new bucket; returns its URL and the storage options for it.
New = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come at once."""
    monkeypatch.setattr("nbdata.transfer.retry._FIRST", 0.01)
    monkeypatch.setattr("nbdata.transfer.retry._LONGEST", 0.02)


def bucket_of(running: Cluster, door: str, **properties: Any) -> tuple[str, dict[str, Any]]:
    """Make a bucket; return its URL over this door, and the storage options for it."""
    name = f"verbs-{secrets.token_hex(4)}"
    # Over S3, other buckets list no ETags.
    running.create_bucket(name, **{"checksum": "md5" if door == "s3" else "xxhash2", **properties})
    if door == "ais":
        return f"ais://{name}", {"endpoint_url": running.url}
    keys = {"key": "any", "secret": "any", "region": "us-east-1", "redirects": "127.0.0.1"}
    return f"s3://{name}", {"endpoint_url": f"{running.url}/s3", **keys}


@pytest.fixture(params=["ais", "s3"])
def new(request: pytest.FixtureRequest, aistore: Cluster) -> New:
    """Makes buckets over each of the two doors."""
    return partial(bucket_of, aistore, request.param)


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_folder_goes_there_and_back(new: New, tree: Path, tmp_path: Path) -> None:
    url, options = new()
    sent = nbdata.push(tree, f"{url}/data/", quiet=True, storage_options=options)
    assert sent.counts == {"sent": 5}
    assert (sent.verified, sent.unverified) == (5, 0)
    assert nbdata.push(tree, f"{url}/data/", quiet=True, storage_options=options).counts == {"unchanged": 5}
    out = tmp_path / "out"
    pulled = nbdata.pull(f"{url}/data/", out, quiet=True, storage_options=options)
    assert pulled.counts == {"fetched": 5}
    assert (pulled.verified, pulled.unverified) == (5, 0)
    assert contents(out) == contents(tree)
    assert nbdata.pull(f"{url}/data/", out, quiet=True, storage_options=options).counts == {"unchanged": 5}
    checked = nbdata.md5check(out, against=f"{url}/data/", quiet=True, storage_options=options)
    assert checked.counts == {"ok": 5}
    (out / "a.txt").write_bytes(b"ALPHA\n")
    with pytest.raises(nbdata.TransferFailed):
        nbdata.md5check(out, against=f"{url}/data/", quiet=True, storage_options=options)
    nbdata.delete(f"{url}/data/b/", yes=True, quiet=True, storage_options=options)
    listed = nbdata.ls(f"{url}/data/", recursive=True, quiet=True, storage_options=options)
    assert [row.path for row in listed.rows] == ["a.txt", "with space & ünï.txt"]


@pytest.mark.parametrize("kind", ["xxhash2", "md5", "none"])
@pytest.mark.in_ci("ais-xxhash2", "s3-md5")
def test_a_large_file_is_sent_in_parts_and_proved(new: New, tmp_path: Path, kind: str) -> None:
    url, options = new(checksum=kind)
    file = tmp_path / "large.bin"
    file.write_bytes(os.urandom(18 * MIB))
    sent = nbdata.push(file, f"{url}/large.bin", quiet=True, part_size="6MiB", storage_options=options)
    proved = kind != "none" or url.startswith("s3")
    assert (sent.verified, sent.unverified) == (int(proved), int(not proved))
    pulled = nbdata.pull(f"{url}/large.bin", tmp_path / "back.bin", quiet=True, storage_options=options)
    assert (pulled.verified, pulled.unverified) == (int(proved), int(not proved))
    assert (tmp_path / "back.bin").read_bytes() == file.read_bytes()


@pytest.mark.in_ci("ais")
def test_samples_and_shards_are_read_from_there(new: New, tmp_path: Path) -> None:
    url, options = new()
    loose = tmp_path / "loose"
    loose.mkdir()
    for number in range(20):
        (loose / f"{number:03}.txt").write_text(f"text {number}")
        (loose / f"{number:03}.cls").write_text(str(number % 3))
    nbdata.push(loose, f"{url}/loose/", quiet=True, storage_options=options)
    with tarfile.open(tmp_path / "shard-000.tar", "w") as shard:
        for file in sorted(loose.iterdir()):
            shard.add(file, file.name)
    nbdata.push(
        tmp_path / "shard-000.tar", f"{url}/shards/shard-000.tar", quiet=True, storage_options=options
    )
    nbdata.pack(
        f"{url}/loose/", f"{url}/packed/p-%03d.tar", shard_samples=8, quiet=True, storage_options=options
    )
    checked = nbdata.shards("verify", f"{url}/packed/p-*.tar", quiet=True, storage_options=options)
    assert [row.detail["verified"] for row in checked.rows] == [True] * 3
    for source in (f"{url}/loose/", f"{url}/shards/shard-000.tar", f"{url}/packed/p-*.tar"):
        samples = nbdata.samples(source, storage_options=options)
        found = {sample["__key__"].rpartition("/")[2]: bytes(sample["txt"]) for sample in samples}
        assert found == {f"{number:03}": f"text {number}".encode() for number in range(20)}


def test_an_archive_is_unpacked_from_there_to_there(new: New, tmp_path: Path) -> None:
    url, options = new()
    archive = tmp_path / "all.tar.gz"
    data = {f"folder/{number}.bin": os.urandom(3000) for number in range(12)}
    with tarfile.open(archive, "w:gz") as out:
        for name, content in data.items():
            file = tmp_path / "one"
            file.write_bytes(content)
            out.add(file, name)
    nbdata.push(archive, f"{url}/all.tar.gz", quiet=True, storage_options=options)
    nbdata.untar_volumes(f"{url}/all.tar.gz", f"{url}/out/", quiet=True, storage_options=options)
    nbdata.pull(f"{url}/out/", tmp_path / "out", quiet=True, storage_options=options)
    assert contents(tmp_path / "out") == data


@pytest.mark.in_ci("ais")
def test_bytes_that_change_on_a_node_are_found(new: New, aistore: Cluster, tmp_path: Path) -> None:
    """Whoever reads the whole of an object or a shard."""
    url, options = new()
    (tmp_path / "in").mkdir()
    for number in range(4):
        (tmp_path / f"in/{number}.txt").write_bytes(os.urandom(3000))
    nbdata.push(tmp_path / "in", f"{url}/loose/", quiet=True, storage_options=options)
    nbdata.pack(f"{url}/loose/", f"{url}/packed/p-%06d.tar", quiet=True, storage_options=options)
    checked = nbdata.shards("verify", f"{url}/packed/p-000000.tar", quiet=True, storage_options=options)
    assert all(row.detail["verified"] for row in checked.rows)
    aistore.damage(url.partition("://")[2])
    quiet = {"quiet": True, "storage_options": options}
    acts = {
        "pull": lambda: nbdata.pull(f"{url}/loose/", tmp_path / "out", **quiet),
        "copy": lambda: nbdata.copy(f"{url}/loose/", f"{url}/copied/", **quiet),
        "samples": lambda: list(nbdata.samples(f"{url}/loose/", storage_options=options)),
        "stream": lambda: list(
            nbdata.samples(f"{url}/packed/p-000000.tar", storage_options=options).stream()
        ),
        "shards": lambda: nbdata.shards("verify", f"{url}/packed/p-000000.tar", **quiet),
        "open": lambda: nbdata.filesystem(url, **options).cat_file(f"{url}/loose/1.txt"),
    }
    for name, act in acts.items():
        with pytest.raises(NbdataError) as caught:
            act()
        assert isinstance(caught.value, (nbdata.TransferFailed, ChecksumMismatch)), name
    assert list((tmp_path / "out").glob("*.txt")) == []
    assert len(nbdata.ls(f"{url}/", recursive=True, **quiet).rows) == 6


def test_objects_are_copied_within_the_cluster(new: New, tree: Path, tmp_path: Path) -> None:
    url, options = new()
    nbdata.push(tree, f"{url}/a/", quiet=True, storage_options=options)
    copied = nbdata.copy(f"{url}/a/", f"{url}/b/", quiet=True, storage_options=options)
    assert (copied.counts, copied.verified) == ({"copied": 5}, 5)
    nbdata.pull(f"{url}/b/", tmp_path / "out", quiet=True, storage_options=options)
    assert contents(tmp_path / "out") == contents(tree)


def test_a_copy_that_arrives_with_other_bytes_is_withdrawn(aistore: Cluster) -> None:
    """A streamed copy has no MD5 to send along, so the checksum of the new object is compared with the source's."""
    url, options = bucket_of(aistore, "ais")
    store = opened(f"{url}/", **options)
    store.write("key", io.BytesIO(bytes(3000)), 3000)
    aistore.node_of(url.partition("://")[2], "copied").faults(flip={"value": True, "times": 1})
    try:
        report = nbdata.copy(
            f"{url}/key", f"{url}/copied", quiet=True, on_error="report", storage_options=options
        )
    finally:
        aistore.faults()
    assert report.counts == {"failed": 1}
    (row,) = report.rows
    assert "was deleted" in str(row.detail)
    assert [info.key for info in store.list("")] == ["key"]


# -- nodes that fail ------------------------------------------------------------------------------


def test_what_a_busy_node_refuses_and_a_broken_one_cuts_off_is_fetched_again(
    new: New, aistore: Cluster, tmp_path: Path
) -> None:
    url, options = new()
    data = {f"{number:02}.bin": os.urandom(30_000) for number in range(12)} | {"big.bin": os.urandom(3 * MIB)}
    for name, content in data.items():
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    nbdata.push(tmp_path / "in", f"{url}/", quiet=True, storage_options=options)
    try:
        for node in aistore.nodes:
            node.faults(
                status={"value": 503, "times": 3},
                break_after={"value": 10_000, "times": 2},
            )
        aistore.gateway.faults(status={"value": 503, "times": 2})
        report = nbdata.pull(f"{url}/", tmp_path / "out", quiet=True, storage_options=options)
    finally:
        for process in (aistore.gateway, *aistore.nodes):
            process.faults()
    assert report.counts == {"fetched": 13}
    assert contents(tmp_path / "out") == data


@pytest.mark.parametrize("door", ["ais", "s3"])
@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.in_ci("True-ais", "False-s3", 1)
def test_a_node_is_killed_in_the_middle_of_an_object(tmp_path: Path, door: str, elsewhere: bool) -> None:
    """If another node has a copy, the bytes come from there; if none has, it is an error, and the rest is kept."""
    with cluster(tmp_path / "cluster", nodes=2) as running:
        _kill_in_the_middle(running, tmp_path, door, elsewhere)


def _kill_in_the_middle(aistore: Cluster, tmp_path: Path, door: str, elsewhere: bool) -> None:
    url, options = bucket_of(aistore, door)
    bucket = url.partition("://")[2]
    data = os.urandom(6 * MIB)
    (tmp_path / "in.bin").write_bytes(data)
    nbdata.push(tmp_path / "in.bin", f"{url}/key", quiet=True, storage_options=options)
    node = aistore.node_of(bucket, "key")
    other = next(one for one in aistore.nodes if one is not node)
    if elsewhere:
        aistore.copy(bucket, "key", other)
    node.faults(pause_after={"value": 2 * MIB, "times": 1})
    node.seen()
    outcome: list[Any] = []

    def pull() -> None:
        try:
            outcome.append(
                nbdata.pull(f"{url}/key", tmp_path / "out.bin", quiet=True, storage_options=options)
            )
        except NbdataError as error:
            outcome.append(error)

    thread = threading.Thread(target=pull)
    thread.start()
    try:
        wait_until(lambda: any(one["method"] == "GET" for one in node.seen()))
        if elsewhere:
            aistore.pin(bucket, "key", other)
        node.kill()
        thread.join()
        if elsewhere:
            assert outcome[0].counts == {"fetched": 1}
        else:
            assert isinstance(outcome[0], NbdataError)
            assert "127.0.0.1" in str(outcome[0])
    finally:
        node.restart()
    report = nbdata.pull(f"{url}/key", tmp_path / "out.bin", quiet=True, storage_options=options)
    assert report.counts == {"unchanged" if elsewhere else "fetched": 1}
    assert (tmp_path / "out.bin").read_bytes() == data


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)]
)
def test_connections_that_end_in_their_middle_change_no_byte(
    new: New, aistore: Cluster, tmp_path: Path, seed: int
) -> None:
    """Between client and gateway, and between client and nodes."""
    url, options = new()
    lines = random.Random(seed)
    cuts = [lines.choice([None, None, 150, 2_000, 40_000, 500_000]) for _ in range(4000)]
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(25):
        (folder / f"{number:02}.bin").write_bytes(os.urandom(20_000))
    (folder / "big.bin").write_bytes(os.urandom(17 * MIB + 5))
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(cutting(aistore.url, lambda number: cuts[number]))
        through = {
            node.url: stack.enter_context(cutting(node.url, lambda number: cuts[number + 1000]))
            for node in aistore.nodes
        }
        aistore.gateway.faults(through=through)
        stack.callback(aistore.gateway.faults)
        door = "/s3" if url.startswith("s3") else ""
        options |= {"endpoint_url": f"{gateway}{door}", "redirects": "127.0.0.1"}
        sent = nbdata.push(folder, f"{url}/d/", quiet=True, part_size="6MiB", storage_options=options)
        assert sent.counts == {"sent": 26}
        pulled = nbdata.pull(f"{url}/d/", tmp_path / "out", quiet=True, storage_options=options)
    assert pulled.counts == {"fetched": 26}
    assert contents(tmp_path / "out") == contents(folder)


@pytest.mark.in_ci("ais")
def test_bytes_that_change_on_the_way_are_never_called_sent(
    new: New, aistore: Cluster, tmp_path: Path
) -> None:
    url, options = new()
    (tmp_path / "in.bin").write_bytes(os.urandom(17 * MIB))
    for node in aistore.nodes:
        node.faults(flip={"value": True, "times": 1})
    try:
        report = nbdata.push(
            tmp_path / "in.bin", f"{url}/key", quiet=True, on_error="report", storage_options=options
        )
    finally:
        aistore.faults()
    if url.startswith("s3"):  # which tells the MD5 of each part, so this one was sent again
        assert (report.counts, report.verified) == ({"sent": 1}, 1)
    else:
        assert report.counts == {"failed": 1}
        (row,) = report.rows
        assert "not what was sent" in str(row.detail)
        assert nbdata.ls(f"{url}/", quiet=True, storage_options=options).counts in ({}, {"listed": 0})
        report = nbdata.push(tmp_path / "in.bin", f"{url}/key", quiet=True, storage_options=options)
        assert (report.counts, report.verified) == ({"sent": 1}, 1)
    nbdata.pull(f"{url}/key", tmp_path / "out.bin", quiet=True, storage_options=options)
    assert (tmp_path / "out.bin").read_bytes() == (tmp_path / "in.bin").read_bytes()


_UP = "x/../../victim/secret"
_LISTED = f"""<?xml version="1.0"?><ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>
<Contents><Key>{_UP}</Key><Size>3</Size><ETag>"900150983cd24fb0d6963f7d28e17f72"</ETag></Contents>
<Contents><Key>x/a</Key><Size>3</Size><ETag>"900150983cd24fb0d6963f7d28e17f72"</ETag></Contents></ListBucketResult>"""


def test_a_key_that_leads_up_is_neither_copied_there_nor_deleted_there(aistore: Cluster) -> None:
    """A server in front of the gateway would clean the path, and another bucket would be written to."""

    def answer(head: str) -> bytes:
        return ok(
            _LISTED.encode() if "list-type" in head else b"abc", 'ETag: "900150983cd24fb0d6963f7d28e17f72"'
        )

    url, options = bucket_of(aistore, "ais")
    with serving(each(answer)) as port:
        foreign = {"endpoint_url": f"http://127.0.0.1:{port}", "anon": True, "region": "us-east-1"}
        report = nbdata.copy(
            "s3://b/x/",
            f"{url}/y/",
            storage_options=foreign,
            target_options=options,
            on_error="report",
            quiet=True,
        )
    assert (report.counts["copied"], report.counts["unrepresentable"]) == (1, 1)
    store = opened(f"{url}/", **options)
    assert [info.key for info in store.list("")] == ["y/a"]
    assert store.unfit(_UP)
    for act in (
        store.head,
        lambda key: store.delete([key]),
        lambda key: store.write(key, io.BytesIO(b"abc"), 3),
    ):
        with contextlib.suppress(
            NotFound
        ):  # no request is made, and `delete` of what is not there is no error
            act(_UP)
    assert (
        entry_of({"name": _UP, "size": "3"}, own=True).key == ""
    )  # so it is named as unreadable, and left alone
