"""copy decides for each object: copy, delete, keep or refuse."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.transfer.index import Index
from tests.engine.copy.sides import MIB, Sides, copy
from tests.stores.servers import ok, read_body, read_head, serving

pytestmark = pytest.mark.usefixtures("inline")


@pytest.mark.in_ci("1000-seaweedfs", "34603008-moto")
@pytest.mark.parametrize("other", ["moto", "seaweedfs"])
@pytest.mark.parametrize("size", [1000, 33 * MIB])
def test_an_object_that_changes_after_it_was_listed_is_a_failure_and_the_next_run_takes_it(
    other: str, size: int, side: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds on moto, which copies any version when asked for another one."""
    from nbdata.engine import runner

    source, target = side("moto"), side(other)
    source.put({"f": os.urandom(size)})
    planned = runner._planned

    def changed_after(run: Any) -> nbdata.Plan:
        plan = planned(run)
        source.put({"f": os.urandom(size)})
        return plan

    with monkeypatch.context() as patch:
        patch.setattr(runner, "_planned", changed_after)
        with pytest.raises(nbdata.TransferFailed, match="changed"):
            copy(source, target)
    copy(source, target)
    assert target.get("f") == source.get("f")


def test_what_changed_on_both_sides_is_a_conflict_and_stays(side: Sides) -> None:
    source, target = side("moto"), side("moto")
    source.put({"a": b"one"})
    copy(source, target)
    source.put({"a": b"two"})
    assert copy(source, target).counts == {"copied": 1}, "changed at the source alone"
    target.put({"a": b"theirs"})
    source.put({"a": b"three"})
    with pytest.raises(nbdata.TransferFailed, match="conflict"):
        copy(source, target)
    assert target.get("a") == b"theirs"
    assert copy(source, target, overwrite="never").counts == {"skipped": 1}
    assert copy(source, target, overwrite="always").counts == {"copied": 1}
    assert target.get("a") == b"three"


@pytest.mark.long
def test_an_object_that_was_copied_just_before_a_kill_is_no_conflict(
    side: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ETags cannot show that both are the same: the object was put in one piece, and its copy in parts."""
    source, target = side("moto"), side("seaweedfs")
    source.put({"a": os.urandom(33 * MIB), "b": b"one"})
    assert copy(source, target).counts == {"copied": 2}
    source.put({"a": os.urandom(33 * MIB), "b": b"two"})
    with monkeypatch.context() as killed:
        killed.setattr(Index, "put", lambda self, records: None)
        killed.setattr(Index, "close", lambda self: os.close(self._fd))
        copy(source, target)
    assert copy(source, target).counts == {"copied": 1, "unchanged": 1}
    assert copy(source, target).counts == {"unchanged": 2}
    assert target.get("a") == source.get("a")


def test_a_part_is_taken_and_a_dry_run_writes_nothing(side: Sides) -> None:
    source, target = side("moto"), side("seaweedfs")
    source.put({"a.txt": b"1" * 10, "b.bin": b"2" * 20, "c.txt": b"3" * 30})
    plan = nbdata.copy(
        source.url,
        target.url,
        storage_options=source.options,
        target_options=target.options,
        include="*.txt",
        dry_run=True,
    )
    assert plan.actions == {"copy": [2, 40]}
    assert target.keys() == []
    assert copy(source, target, include="*.txt", max_bytes=15).counts == {"copied": 1}
    assert target.keys() == ["a.txt"]


def test_a_mirror_deletes_what_the_source_has_not_and_refuses_what_it_never_wrote(side: Sides) -> None:
    source, target = side("moto"), side("seaweedfs")
    source.put({"a": b"1", "b": b"2"})
    copy(source, target, "m/")
    source.client.delete_object(Bucket=source.bucket, Key="a")
    assert copy(source, target, "m/", delete=True).counts == {"unchanged": 1, "deleted": 1}
    assert target.keys() == ["m/b"]
    target.put({"m/own": b"x"})
    with pytest.raises(nbdata.BadOption, match="this copy never wrote"):
        copy(source, target, "m/", delete=True)
    assert target.keys() == ["m/b", "m/own"]


def test_a_target_inside_the_source_is_not_copied_into_itself(side: Sides) -> None:
    one = side("moto")
    one.put({"a": b"1"})
    for _ in range(2):
        nbdata.copy(one.url, f"{one.url}backup/", storage_options=one.options, quiet=True)
        assert one.keys() == ["a", "backup/a"]
    with pytest.raises(nbdata.BadOption, match="are the same"):
        nbdata.copy(one.url, one.url, storage_options=one.options, quiet=True)
    with pytest.raises(nbdata.BadOption, match="are the same"):
        nbdata.copy(f"{one.url}a", one.url, storage_options=one.options, quiet=True)


@pytest.mark.parametrize("source", ["d/x/", "d/x/a", "d/x/*"])
def test_a_mirror_is_refused_that_would_delete_its_source(source: str, side: Sides) -> None:
    one = side("moto")
    one.put({"d/x/a": b"1", "d/x/b": b"2", "d/y": b"3"})
    with pytest.raises(nbdata.BadOption, match="would delete the source"):
        nbdata.copy(
            one.url + source, f"{one.url}d/", delete=True, force=True, storage_options=one.options, quiet=True
        )
    assert sorted(one.keys()) == ["d/x/a", "d/x/b", "d/y"]


def test_a_target_that_ends_in_two_slashes_is_not_the_folder_with_one(side: Sides) -> None:
    source, target = side("moto"), side("moto")
    source.put({"a": b"1"})
    target.put({"m/own": b"x"})
    assert copy(source, target, "m//", delete=True, force=True).counts == {"copied": 1}
    assert sorted(target.keys()) == ["m//a", "m/own"]
    assert copy(source, target, "m//", delete=True).counts == {"unchanged": 1}


def test_a_mirror_ignores_folder_markers(side: Sides) -> None:
    source, target = side("moto"), side("moto")
    source.put({"a": b"1"})
    target.put({"m/": b"", "m/sub/": b""})
    assert copy(source, target, "m/", delete=True).counts == {"copied": 1}
    assert sorted(target.keys()) == ["m/", "m/a", "m/sub/"]


def test_for_one_object_the_folder_that_it_goes_to_is_not_listed() -> None:
    asked, stored, empty = [], [], hashlib.md5(b"").hexdigest()

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            read_body(connection, head)
            line = head.split(b"\r\n")[0].decode()
            asked.append(line)
            answer = ok(b"", f'ETag: "{empty}"')
            if line.startswith("HEAD") and "/out/" in line:
                answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            elif "list-type" in line:
                answer = ok(b"<L><IsTruncated>false</IsTruncated></L>")
            elif line.startswith("PUT"):
                stored.append(line.split()[1])
                answer = ok(f"<R><ETag>{empty}</ETag></R>".encode())
            connection.sendall(answer)

    with serving(handle) as port:
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "k", "secret": "s"}
        report = nbdata.copy("s3://bucket/in/a", "s3://bucket/out/", storage_options=options, quiet=True)
    assert report.counts == {"copied": 1}
    assert stored == ["/bucket/out/a"]
    listed = {found[1] for line in asked if (found := re.search("prefix=([^& ]*)", line))}
    assert listed == {"in%2Fa%2F", "out%2Fa"}


def test_a_missing_bucket_is_told_before_one_object_is_copied(side: Sides) -> None:
    source = side("moto")
    source.put({"a": b"1"})
    for target in ("s3://not-there/", "s3://not-there/b"):
        with pytest.raises(nbdata.NotFound, match="no such bucket"):
            nbdata.copy(f"{source.url}a", target, storage_options=source.options, quiet=True)


def test_local_paths_are_refused_with_the_verb_that_takes_them(tmp_path: Path) -> None:
    with pytest.raises(nbdata.BadOption, match="Use push"):
        nbdata.Copy(str(tmp_path), "s3://bucket/x")
    with pytest.raises(nbdata.BadOption, match="Use pull"):
        nbdata.Copy("s3://bucket/x", str(tmp_path))
