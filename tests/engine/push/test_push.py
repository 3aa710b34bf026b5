"""push to a real server, run in this process: what arrives, how nbdata verifies it, and what remains."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata import cli
from nbdata.demo.server import EmbeddedServer
from nbdata.operation import Context
from nbdata.stores.resolve import open_place
from nbdata.transfer.uploads import remembered
from tests.engine.changing import after_the_plan
from tests.faults.gate import Gate
from tests.slow import SlowProxy

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]


def store_of(url: str):  # type: ignore[no-untyped-def]
    return open_place(url, Context("/", env=dict(os.environ))).store


def objects(url: str) -> dict[str, bytes]:
    store = store_of(url)
    return {info.key: store.read_bytes(info.key) for info in store.list("")}


def test_a_folder_arrives_whole_and_a_second_push_sends_nothing(tree: Path, bucket: str) -> None:
    url = f"s3://{bucket}/in/"
    assert nbdata.push(tree, url, quiet=True).counts == {"sent": 5}
    assert objects(url) == {
        f"in/{p.relative_to(tree)}": p.read_bytes() for p in tree.rglob("*") if p.is_file()
    }
    assert nbdata.push(tree, url, quiet=True).counts == {"unchanged": 5}


def test_a_single_file_goes_to_the_key_or_into_the_folder(tree: Path, bucket: str) -> None:
    nbdata.push(tree / "a.txt", f"s3://{bucket}/name", quiet=True)
    nbdata.push(tree / "a.txt", f"s3://{bucket}/folder/", quiet=True)
    assert sorted(objects(f"s3://{bucket}/")) == ["folder/a.txt", "name"]


def test_another_local_file_is_not_replaced_as_by_a_glob_that_a_shell_expanded_to_two(tmp_path: Path) -> None:
    one, two = tmp_path / "1.jpg", tmp_path / "2.jpg"
    one.write_bytes(b"one")
    two.write_bytes(b"two")
    with pytest.raises(nbdata.BadOption, match=r"another file on the disk.*--overwrite always"):
        nbdata.push(one, two, quiet=True)
    assert two.read_bytes() == b"two"
    nbdata.push(one, two, overwrite="always", quiet=True)
    one.write_bytes(b"once more")
    nbdata.push(one, two, quiet=True)  # by now it is known
    assert two.read_bytes() == b"once more"


@pytest.mark.parametrize("size", [0, 3, 3 << 20])
def test_a_push_to_a_local_file_continues_after_a_kill_before_its_record(size: int, tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    for file in (one, two):  # the second as the killed run left it
        file.write_bytes(bytes(size))
    assert nbdata.push(one, two, quiet=True).ok
    one.write_bytes(b"changed")
    assert nbdata.push(one, two, quiet=True).counts == {"sent": 1}


def test_a_local_target_of_the_same_size_is_compared_to_its_end(tmp_path: Path) -> None:
    one, two = tmp_path / "v.00", tmp_path / "v.01"
    one.write_bytes(bytes(3 << 20))
    two.write_bytes(bytes((3 << 20) - 1) + b"x")
    with pytest.raises(nbdata.BadOption, match="another file on the disk"):
        nbdata.push(one, two, quiet=True)
    assert two.read_bytes().endswith(b"x")


def test_what_is_there_already_is_compared_not_sent_again(tree: Path, bucket: str, put: Put) -> None:
    url = put({"a.txt": b"alpha\n", "b/e.txt": b"x" * 5000})
    report = nbdata.push(tree, url, quiet=True)
    assert report.counts == {"unchanged": 1, "sent": 4}
    assert objects(url)["b/e.txt"] == b"e" * 5000


def test_what_changed_on_both_sides_is_a_conflict_and_stays(tree: Path, bucket: str, put: Put) -> None:
    url = f"s3://{bucket}/"
    nbdata.push(tree, url, quiet=True)
    put({"a.txt": b"somebody else's\n"})
    (tree / "a.txt").write_bytes(b"mine\n")
    with pytest.raises(nbdata.TransferFailed, match="conflict"):
        nbdata.push(tree, url, quiet=True)
    assert objects(url)["a.txt"] == b"somebody else's\n"


@pytest.mark.usefixtures("own_state")
def test_a_big_file_goes_in_parts_and_its_etag_is_that_of_the_parts(tmp_path: Path, bucket: str) -> None:
    data = os.urandom(40 << 20)
    (tmp_path / "big").write_bytes(data)
    report = nbdata.push(tmp_path / "big", f"s3://{bucket}/big", part_size="5MiB", quiet=True)
    assert report.counts == {"sent": 1}
    assert report.notes == []
    store = store_of(f"s3://{bucket}/")
    parts = [hashlib.md5(data[at : at + (5 << 20)]).digest() for at in range(0, len(data), 5 << 20)]
    assert store.head("big").etag == f'"{hashlib.md5(b"".join(parts)).hexdigest()}-8"'
    assert list(store.pending("")) == []
    assert remembered(os.environ["NBDATA_STATE_DIR"]) == {}
    out = nbdata.pull(f"s3://{bucket}/big", tmp_path / "back", quiet=True)
    assert (tmp_path / "back").read_bytes() == data
    assert out.notes == [], "a multipart ETag is verified as well"


def test_sources_are_deleted_only_after_their_verified_upload(tree: Path, bucket: str) -> None:
    told: dict[str, Any] = {"delete_source": True, "include": "*.txt"}
    plan = nbdata.push(tree, f"s3://{bucket}/", dry_run=True, **told)
    report = nbdata.push(tree, f"s3://{bucket}/", quiet=True, **told)
    assert "deletes 3 files (5.0 kB) on the disk, each after TARGET is known to have it" in plan.text()
    assert report.notes == ["deleted on the disk: 3 files (5.0 kB)"]
    assert sorted(p.name for p in tree.rglob("*") if p.is_file()) == ["c.bin", "empty"]


def test_a_source_that_the_target_has_already_is_compared_and_then_deleted(
    tree: Path, bucket: str, put: Put
) -> None:
    url = f"s3://{bucket}/"
    nbdata.push(tree, url, quiet=True)
    before = objects(url)
    other = b"other bytes of the same size"[: (tree / "a.txt").stat().st_size]
    kept = (tree / "a.txt").read_bytes()
    put({"a.txt": other.ljust(len(kept), b"!")})  # another program's object
    report = nbdata.push(tree, url, delete_source=True, quiet=True, on_error="report")
    assert report.counts == {"unchanged": 4, "conflict": 1}
    assert [p.name for p in tree.rglob("*") if p.is_file()] == ["a.txt"]
    report = nbdata.push(tree, url, delete_source=True, overwrite="always", quiet=True)
    assert report.counts == {"sent": 1}
    assert [p for p in tree.rglob("*") if p.is_file()] == []
    assert objects(url) == before


@pytest.mark.parametrize("change", ["deleted", "changed"])
def test_a_source_is_not_deleted_if_its_object_was_meanwhile(
    change: str, tree: Path, bucket: str, put: Put
) -> None:
    url = f"s3://{bucket}/"
    nbdata.push(tree, url, quiet=True)

    def meanwhile() -> None:
        if change == "deleted":
            store_of(url).delete(["a.txt"])
        else:
            put({"a.txt": b"another's"})

    with after_the_plan(meanwhile):
        report = nbdata.push(tree, url, delete_source=True, on_error="report", quiet=True)
    assert report.counts == {"unchanged": 4, "failed": 1}
    assert change in str(report.failures)
    assert [p.name for p in tree.rglob("*") if p.is_file()] == ["a.txt"]


def test_a_source_whose_object_has_no_checksum_is_not_deleted_and_that_is_said(
    tree: Path, tmp_path: Path
) -> None:
    nbdata.push(tree, tmp_path / "there", quiet=True)
    report = nbdata.push(tree, tmp_path / "there", delete_source=True, quiet=True)
    assert report.notes == [
        "5 kept: the target seems to have them unchanged, but has no checksum to prove it"
    ]
    assert len([p for p in tree.rglob("*") if p.is_file()]) == 5


def test_a_mirror_deletes_what_the_source_has_not_and_refuses_what_it_never_wrote(
    tree: Path, bucket: str, put: Put
) -> None:
    url = f"s3://{bucket}/m/"
    nbdata.push(tree, url, quiet=True)
    (tree / "a.txt").unlink()
    plan = nbdata.push(tree, url, delete=True, dry_run=True)
    assert [row.path for row in plan.rows if row.action == "delete"] == ["a.txt"]
    assert "delete a.txt" in plan.text()
    assert nbdata.push(tree, url, delete=True, quiet=True).counts == {"unchanged": 4, "deleted": 1}
    put({"m/o": b"x"})
    with pytest.raises(nbdata.BadOption, match=f"never wrote: {url}o"):
        nbdata.push(tree, url, delete=True, quiet=True)
    assert "m/o" in objects(url)


@pytest.fixture
def upload_gate(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """SeaweedFS behind a gate that limits how much may be sent to it."""
    with Gate(s3.url, answers=False) as gate:
        monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
        yield gate


def test_a_file_that_changes_while_it_is_sent_is_a_failure(
    tmp_path: Path, bucket: str, upload_gate: Gate
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "f").write_bytes(os.urandom(20 << 20))
    upload_gate.close(after=5 << 20)
    job = nbdata.Push(source, f"s3://{bucket}/").start()
    upload_gate.wait_until_it_holds()
    with (source / "f").open("r+b") as file:
        file.write(b"changed")
    upload_gate.open()
    with pytest.raises(nbdata.TransferFailed, match="changed"):
        job.wait()


def test_a_cancelled_multipart_upload_is_no_object_and_waits_until_cleanup_gives_it_up(
    tmp_path: Path, bucket: str, upload_gate: Gate
) -> None:
    (tmp_path / "big").write_bytes(os.urandom(100 << 20))
    upload_gate.close(after=30 << 20)
    job = nbdata.Push(str(tmp_path / "big"), f"s3://{bucket}/big", part_size="5MiB").start()
    upload_gate.wait_until_it_holds()
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait()
    assert upload_gate.holds, "it did not wait for the store"
    upload_gate.open()
    store = store_of(f"s3://{bucket}/")
    assert list(store.list("")) == []
    assert len(list(store.pending(""))) == 1
    assert nbdata.cleanup(f"s3://{bucket}/", quiet=True).counts == {"aborted": 1}
    assert list(store.pending("")) == []


def test_a_store_that_answers_another_checksum_is_not_believed(
    tree: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the hash is faked instead of the bytes: real bytes go to a real store."""
    from nbdata.verification import sent_checker as sent

    class Wrong:
        def update(self, data: memoryview, /) -> None: ...

        def hexdigest(self) -> str:
            return "0" * 32

    monkeypatch.setattr(sent, "new_digest", lambda algorithm: Wrong())
    with pytest.raises(nbdata.TransferFailed) as caught:
        nbdata.push(tree, f"s3://{bucket}/", quiet=True, delete_source=True)
    assert caught.value.report.counts == {"failed": 5}
    assert len([p for p in tree.rglob("*") if p.is_file()]) == 5, "nothing was deleted"


def test_two_pushes_of_parts_of_a_folder_at_a_time_remember_all_that_they_sent(
    tmp_path: Path, bucket: str, s3: EmbeddedServer
) -> None:
    url, source = f"s3://{bucket}/", tmp_path / "in"
    source.mkdir()
    names = [f"{first}{number:02}" for first in "ab" for number in range(20)]
    for text in ("first", "second"):
        for name in names:
            (source / name).write_bytes(text.encode() * 2000)
        if text == "first":
            assert nbdata.push(source, url, quiet=True).counts == {"sent": len(names)}
    with (
        SlowProxy(s3.url, rate=10_000_000, upload_rate=400_000) as slow,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("AWS_ENDPOINT_URL", slow.url)
        jobs = [nbdata.Push(source, url, include=(f"{first}*",), concurrency=2).start() for first in "ab"]
        assert [job.wait().counts for job in jobs] == [{"sent": 20}] * 2
        assert nbdata.Push(source, url).plan().actions.keys() == {"unchanged"}  # without a record: compare


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("{} ", "the secret key has a blank at its end"),
        ("\t{}", "the secret key has a line break or another blank at its start"),
        ("{}\n", "the secret key has a line break or another blank at its end"),
    ],
)
def test_a_secret_that_was_copied_with_a_blank_is_told_and_not_shown(
    wrong: str, told: str, bucket: str, s3: EmbeddedServer, tree: Path
) -> None:
    options = {**s3.storage_options(), "secret": wrong.format(s3.secret_key)}
    with pytest.raises(nbdata.NbdataError, match=f"the store denies access, and {told}") as refused:
        nbdata.push(tree, f"s3://{bucket}/p/", storage_options=options, quiet=True)
    assert s3.secret_key not in str(refused.value)


def test_a_folder_without_files_is_said_to_have_none(tmp_path: Path, bucket: str) -> None:
    (tmp_path / "empty").mkdir()
    assert nbdata.push(tmp_path / "empty", f"s3://{bucket}/", dry_run=True).notes == ["SOURCE has no files"]
    assert nbdata.push(tmp_path / "empty", f"s3://{bucket}/", quiet=True).notes == ["SOURCE has no files"]


def test_a_failed_push_names_the_long_key_and_what_was_left_out(
    tree: Path, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "lost").symlink_to("nowhere")
    place = f"s3://{bucket}/{'k' * 1019}/"
    assert cli.main(["push", str(tree), place]) == 1
    told = capsys.readouterr().err
    assert "the key is too long for the store" in told
    # Any of the five files may be the first that fails.
    assert re.search(r"\(expected at most 1,024 bytes, got 1,0\d\d bytes\)\. Shorten the name", told)
    assert "left out: 1 broken link (its target does not exist): lost" in told
