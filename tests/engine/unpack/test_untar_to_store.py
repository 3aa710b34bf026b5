"""untar_volumes into a store: each file of an archive becomes an object, and nothing is written to the disk."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nbdata
from nbdata.archives.member import Member
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.unpack.targets.store import members_in_memory
from nbdata.engine.unpack.targets.store.members_in_memory import MembersInMemory, part_in_memory
from nbdata.engine.unpack.targets.store.send_members import MemberSender
from nbdata.engine.unpack.targets.unpacking import Checkpoints
from nbdata.errors import BadArchive, BadOption, Cancelled, ChecksumMismatch, TransferFailed, UnsafeMember
from tests.conftest import client_of
from tests.engine.unpack.checkpointing import COMPRESS, packed
from tests.engine.unpack.unpacking import untar
from tests.faults.proxy import AFTER, BEFORE, BODY, Fault, FaultProxy
from tests.faults.scene import objects_of
from tests.faults.test_lines import always, once, proxy
from tests.hostile import bombs

__all__ = ["proxy"]

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]
MIB = 1 << 20


def entries(count: int = 200, seed: int = 5) -> list[tuple[str, str, Any]]:
    """Return files of many sizes in folders, some empty; a large file; links of each kind; an empty folder."""
    source = random.Random(seed)
    made: list[tuple[str, str, Any]] = [("d0", "folder", None), ("empty", "folder", None)]
    for number in range(count):
        size = 0 if number % 17 == 0 else source.randrange(1, 400_000 if number % 29 == 0 else 20_000)
        made.append((f"d{number % 4}/f{number:03} ü", "file", source.randbytes(size)))
    made.append(("large.bin", "file", source.randbytes(19 * MIB + 3)))
    made.append(("d0/hard", "hardlink", "d0/f004 ü"))
    made.append(("hard large", "hardlink", "large.bin"))
    made.append(("d1/soft", "symlink", "../d0/f004 ü"))
    made.append(("softer", "symlink", "d1/soft"))
    made.append(("before", "symlink", "last"))
    made.append(("nowhere", "symlink", "d9/none"))
    made.append(("a folder", "symlink", "d0"))
    made.append(("last", "file", b"the last"))
    return made


def expected_of(made: list[tuple[str, str, Any]]) -> dict[str, bytes]:
    """Return the objects that these entries become."""
    files = {name: data for name, kind, data in made if kind == "file"}
    copies = {
        "d0/hard": "d0/f004 ü",
        "hard large": "large.bin",
        "d1/soft": "d0/f004 ü",
        "softer": "d0/f004 ü",
        "before": "last",
    }
    return files | {name: files[of] for name, of in copies.items() if of in files}


def in_volumes(data: bytes, name: str, count: int = 5) -> dict[str, bytes]:
    size = -(-len(data) // count)
    return {f"v/{name}.{n:03}": data[n * size : (n + 1) * size] for n in range(count)}


def stored(s3: EmbeddedServer, bucket: str, prefix: str) -> dict[str, bytes]:
    client = client_of(s3)
    found = objects_of(client, bucket)
    client.close()
    return {key.removeprefix(prefix): data for key, data in found.items() if key.startswith(prefix)}


@pytest.mark.parametrize("name", ["tar", "tar.gz", "tar.zst"])
@pytest.mark.in_ci("tar.zst")
def test_each_file_becomes_an_object_and_links_copies_of_them(
    name: str, put: Put, bucket: str, s3: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = entries()
    url = put(in_volumes(COMPRESS[name](packed(made)[0]), f"a.{name}"))
    monkeypatch.chdir(tmp_path)
    report = untar(f"{url}v/", f"{url}out/")
    assert stored(s3, bucket, "out/") == expected_of(made)
    assert report.ok
    assert report.counts == {"extracted": 202, "links": 5, "left out": 2}
    notes = "\n".join(report.notes)
    assert "1 empty folder was left out, since stores have none: empty" in notes
    assert "2 symbolic links to no file that was unpacked were left out, since stores have none: " in notes
    assert not list(tmp_path.iterdir())
    again = untar(f"{url}v/", f"{url}out/")
    assert again.counts == {"unchanged": 207}
    assert again.details["compressed"] == 0


@pytest.mark.long
def test_volumes_on_the_disk_are_unpacked_into_a_store(
    bucket: str, s3: EmbeddedServer, tmp_path: Path
) -> None:
    made = entries(40)
    for name, data in in_volumes(COMPRESS["tar.gz"](packed(made)[0]), "a.tar.gz").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    before = sorted(tmp_path.rglob("*"))
    assert untar(tmp_path / "v", f"s3://{bucket}/out/").ok
    assert stored(s3, bucket, "out/") == expected_of(made)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_plan_says_what_is_read_and_needs_no_room(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    url = put(in_volumes(packed(entries(20))[0], "a.tar"))
    plan = untar(f"{url}v/", f"{url}out/", dry_run=True)
    assert plan.bytes == sum(map(len, stored(s3, bucket, "v/").values()))
    assert plan.needed == 0
    assert not stored(s3, bucket, "out/")


def sent(after: int, source: Any, target: str, **options: Any) -> None:
    """Run until `after` members were taken, then end as a cancel does: members that were taken are sent."""
    take, taken = MemberSender._take, iter(range(after))

    def stop(sender: MemberSender, member: Member) -> Any:
        if next(taken, None) is None:
            yield from sender._all_sent()
            raise Cancelled("cancelled")
        yield from take(sender, member)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MemberSender, "_take", stop)
        with pytest.raises(nbdata.Cancelled):
            untar(source, target, **options)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", ["tar", "tar.gz", "whole.tar.bz2", "tar.xz", "tar.zst"])
@pytest.mark.in_ci("tar.gz")
def test_an_interrupted_line_goes_on_behind_a_checkpoint_and_sends_nothing_twice(
    name: str, put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    made = entries()
    made.insert(100, made.pop(-9))  # the large file, before the links to it
    volumes = in_volumes(COMPRESS[name](packed(made)[0]), f"a.{name}")
    whole = sum(map(len, volumes.values()))
    url = put(volumes)
    sent(180, f"{url}v/", f"{url}out/")
    there = stored(s3, bucket, "out/")
    assert 170 < len(there) < len(expected_of(made))
    plan = untar(f"{url}v/", f"{url}out/", dry_run=True)
    assert plan.present > whole / 2
    report = untar(f"{url}v/", f"{url}out/")
    assert report.details["resumed_at"] == plan.present
    assert stored(s3, bucket, "out/") == expected_of(made)
    assert report.counts["unchanged"] == len(there)
    assert report.counts["unchanged"] + report.counts["extracted"] + report.counts["links"] == 207


@pytest.mark.long
def test_without_a_checkpoint_existing_objects_are_compared_during_the_stream(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    made = entries()
    url = put(in_volumes(COMPRESS["tar.gz"](packed(made)[0]), "a.tar.gz"))
    sent(205, f"{url}v/", f"{url}out/")
    report = untar(f"{url}v/", f"{url}out/")
    assert report.details["resumed_at"] == 0
    assert report.counts["unchanged"] == 203
    assert stored(s3, bucket, "out/") == expected_of(made)


def test_without_any_record_the_listed_md5_decides(
    put: Put, bucket: str, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = [(f"f{n}", "file", bytes([n]) * 1000) for n in range(20)]
    url = put(in_volumes(packed(made)[0], "a.tar"))
    assert untar(f"{url}v/", f"{url}out/").counts == {"extracted": 20}
    client_of(s3).put_object(Bucket=bucket, Key="out/f3", Body=b"x" * 1000)
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "another"))
    assert untar(f"{url}v/", f"{url}out/").counts == {"extracted": 1, "unchanged": 19}
    assert stored(s3, bucket, "out/") == expected_of(made)


@pytest.mark.long
def test_objects_changed_at_the_target_are_restored(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    made = entries(10)
    url = put(in_volumes(packed(made)[0], "a.tar"))
    untar(f"{url}v/", f"{url}out/")
    client = client_of(s3)
    client.put_object(Bucket=bucket, Key="out/last", Body=b"THE LAST")
    client.delete_object(Bucket=bucket, Key="out/large.bin")
    client.delete_object(Bucket=bucket, Key="out/softer")
    assert untar(f"{url}v/", f"{url}out/", overwrite="never").counts["skipped"] == 2
    client.delete_object(Bucket=bucket, Key="out/large.bin")
    report = untar(f"{url}v/", f"{url}out/")
    assert stored(s3, bucket, "out/") == expected_of(made)
    assert report.counts["extracted"] == 2
    client.close()


def test_another_archive_does_not_replace_what_was_changed_since(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    first = [("a", "file", b"one"), ("b", "file", b"two")]
    url = put(in_volumes(packed(first)[0], "a.tar", 1))
    untar(f"{url}v/", f"{url}out/")
    put({"v/a.tar.000": packed([("a", "file", b"ONE"), ("b", "file", b"TWO")])[0], "x": b""})
    client = client_of(s3)
    client.put_object(
        Bucket=bucket, Key="v/a.tar.000", Body=packed([("a", "file", b"ONE"), ("b", "file", b"TWO")])[0]
    )
    client.put_object(Bucket=bucket, Key="out/a", Body=b"mine")
    client.close()
    report = untar(f"{url}v/", f"{url}out/", on_error="report")
    assert report.counts == {"conflict": 1, "extracted": 1}
    assert stored(s3, bucket, "out/") == {"a": b"mine", "b": b"TWO"}
    assert untar(f"{url}v/", f"{url}out/", overwrite="always").ok
    assert stored(s3, bucket, "out/") == {"a": b"ONE", "b": b"TWO"}


def test_a_name_that_comes_twice_has_its_later_content(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    made = [("a", "file", b"one"), ("link", "hardlink", "a"), ("a", "file", b"two"), ("soft", "symlink", "a")]
    made += [("soft", "file", b"no link any more"), ("b", "file", b""), ("b", "symlink", "a")]
    url = put(in_volumes(packed(made)[0], "a.tar", 1))
    expected = {"a": b"two", "link": b"one", "soft": b"no link any more", "b": b"two"}
    assert untar(f"{url}v/", f"{url}out/").ok
    assert stored(s3, bucket, "out/") == expected
    client_of(s3).delete_object(Bucket=bucket, Key="out/a")
    assert untar(f"{url}v/", f"{url}out/").ok
    assert stored(s3, bucket, "out/") == expected


@pytest.mark.usefixtures("small_steps")
def test_volumes_are_deleted_when_all_that_they_hold_is_stored(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    made = [entry for entry in entries() if entry[0] not in ("nowhere", "a folder")]
    url = put(in_volumes(packed(made)[0], "a.tar"))
    sent(203, f"{url}v/", f"{url}out/", delete_volumes=True)
    assert len(stored(s3, bucket, "v/")) == 5, "only at the end it is known which links lead to a file"
    report = untar(f"{url}v/", f"{url}out/", delete_volumes=True)
    assert report.counts["deleted"] == 5
    assert not stored(s3, bucket, "v/")
    assert stored(s3, bucket, "out/") == expected_of(made)


@pytest.mark.long
def test_volumes_stay_that_hold_what_was_left_out(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    url = put(in_volumes(COMPRESS["tar.gz"](packed(entries(10))[0]), "a.tar.gz"))
    report = untar(f"{url}v/", f"{url}out/", delete_volumes=True)
    assert len(stored(s3, bucket, "v/")) == 5
    assert "(2 left out): delete them yourself if you do not need the rest" in "\n".join(report.notes)


def test_no_member_replaces_a_volume(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    url = put({"v/a.tar": packed([("a.tar", "file", b"x")])[0]})
    with pytest.raises(UnsafeMember, match="would replace a volume"):
        untar(f"{url}v/a.tar", f"{url}v/")
    assert len(stored(s3, bucket, "v/")) == 1


@pytest.mark.parametrize("name", ["../x", "a/../../x", ".nbdata/x", "a/.NBDATA/x"])
def test_no_key_lies_outside_the_target_or_among_our_records(
    name: str, put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    url = put({"v/a.tar": packed([("good", "file", b"1"), (name, "file", b"2")])[0]})
    with pytest.raises(UnsafeMember):
        untar(f"{url}v/a.tar", f"{url}out/deep/")
    assert set(stored(s3, bucket, "")) <= {"v/a.tar", "out/deep/good"}


def test_a_name_that_is_no_utf8_fails_and_the_rest_is_stored(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    made = [("good", "file", b"1"), (b"b\xe4d".decode("utf-8", "surrogateescape"), "file", b"2")]
    url = put({"v/a.tar": packed(made)[0]})
    with pytest.raises(TransferFailed, match="not UTF-8"):
        untar(f"{url}v/a.tar", f"{url}out/")
    assert stored(s3, bucket, "out/") == {"good": b"1"}


@pytest.mark.long
def test_what_came_before_damage_is_stored_and_written_anew_when_it_is_mended(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    made = entries(60)
    good = COMPRESS["tar.gz"](packed(made)[0])
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 255
    url = put(in_volumes(bytes(bad), "a.tar.gz"))
    with pytest.raises(BadArchive):
        untar(f"{url}v/", f"{url}out/")
    client = client_of(s3)
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    for key, data in in_volumes(good, "a.tar.gz").items():
        client.put_object(Bucket=bucket, Key=key, Body=data)
    assert untar(f"{url}v/", f"{url}out/").ok
    assert stored(s3, bucket, "out/") == expected_of(made)
    client.close()


def test_a_store_without_parts_gets_large_members_in_one_stream(tmp_path: Path) -> None:
    import fsspec

    made = entries(10)
    for name, data in in_volumes(packed(made)[0], "a.tar").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert untar(tmp_path / "v", "memory://to-store/out/").ok
    memory = fsspec.filesystem("memory")
    found = {path.removeprefix("/to-store/out/"): memory.cat(path) for path in memory.find("/to-store/out")}
    memory.rm("/to-store", recursive=True)
    assert found == expected_of(made)


def test_options_that_make_no_sense_there_are_refused() -> None:
    with pytest.raises(BadOption, match="--skip-written is for a TARGET on the disk"):
        nbdata.UntarVolumes("v", "s3://b/out/", skip_written=True)
    with pytest.raises(BadOption, match="--part-size"):
        nbdata.UntarVolumes("v", "s3://b/out/", part_size=1000)


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        Fault("reset", BODY, 0.5), Fault("flip", BODY, 0.5), Fault("refuse", BEFORE, status=503),
        Fault("drop", BEFORE), Fault("swallow", AFTER),
    ],
    ids=["reset", "flip", "503", "drop", "answer lost"],
)  # fmt: skip
@pytest.mark.parametrize("action", ["put", "part", "complete", "get"])
def test_a_fault_of_the_line_is_mended(
    action: str, fault: Fault, proxy: FaultProxy, put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    made = entries(40)
    url = put(in_volumes(COMPRESS["tar.gz"](packed(made)[0]), "a.tar.gz"))
    tally = proxy.begin(once(fault, action=action))
    if (action, fault.kind) == ("get", "flip"):  # the end of a volume reveals wrong bytes
        with pytest.raises((BadArchive, ChecksumMismatch)):
            untar(f"{url}v/", f"{url}out/")
        proxy.begin(lambda request, before: None)
    assert untar(f"{url}v/", f"{url}out/").ok
    assert tally.faults
    assert stored(s3, bucket, "out/") == expected_of(made)
    client = client_of(s3)
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    client.close()


def test_objects_that_arrive_wrong_each_time_are_told_and_not_left(
    proxy: FaultProxy, put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    made = [(f"f{n}", "file", bytes([n]) * 1000) for n in range(4)]
    url = put(in_volumes(packed(made)[0], "a.tar"))
    proxy.begin(always(Fault("flip", BODY, 0.5), action="put"))
    with pytest.raises(TransferFailed):
        untar(f"{url}v/", f"{url}out/")
    assert not stored(s3, bucket, "out/")
    proxy.begin(lambda request, before: None)
    assert untar(f"{url}v/", f"{url}out/").ok
    assert stored(s3, bucket, "out/") == expected_of(made)


def test_members_in_memory_are_bounded(
    put: Put, bucket: str, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members_in_memory, "IN_MEMORY", 100_000)
    held: list[int] = []
    hold = MembersInMemory.hold

    def counted(memory: MembersInMemory, size: int) -> None:
        hold(memory, size)
        held.append(memory._bytes)

    monkeypatch.setattr(MembersInMemory, "hold", counted)
    made = [(f"f{n:03}", "file", bytes([n]) * 10_000) for n in range(100)]
    url = put(in_volumes(packed(made)[0], "a.tar"))
    assert untar(f"{url}v/", f"{url}out/").ok
    assert max(held) <= 100_000
    assert stored(s3, bucket, "out/") == expected_of(made)


def test_a_later_member_waits_for_the_earlier_one_of_its_name(
    put: Put, bucket: str, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    begin, release = MembersInMemory.begin, MembersInMemory.release

    def began(memory: MembersInMemory, name: str) -> None:
        begin(memory, name)
        order.append("begun")

    def released(memory: MembersInMemory, size: int, name: str = "") -> None:
        release(memory, size, name)
        if name:
            order.append("there")

    monkeypatch.setattr(MembersInMemory, "begin", began)
    monkeypatch.setattr(MembersInMemory, "release", released)
    made = [("a", "file", bytes([n]) * 100) for n in range(30)]
    url = put(in_volumes(packed(made)[0], "a.tar", 1))
    untar(f"{url}v/", f"{url}out/")
    assert order == ["begun", "there"] * 30
    assert stored(s3, bucket, "out/") == {"a": bytes([29]) * 100}


@pytest.mark.usefixtures("small_steps")
def test_a_checkpoint_waits_for_all_that_was_taken(
    put: Put, bucket: str, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [(f"f{n:03}", "file", bytes([n]) * 30_000) for n in range(60)]
    url = put(in_volumes(packed(made)[0], "a.tar"))
    make, seen = Checkpoints.make, list[tuple[int, int]]()

    def looked(checkpoints: Checkpoints) -> None:
        there = len(stored(s3, bucket, "out/"))
        make(checkpoints)
        seen.append((there, checkpoints._archive.behind // 30_720))

    monkeypatch.setattr(Checkpoints, "make", looked)
    assert untar(f"{url}v/", f"{url}out/").ok
    assert len(seen) > 3
    assert all(there >= passed for there, passed in seen)


def test_a_copy_for_a_link_that_is_read_wrong_is_read_again(
    proxy: FaultProxy, put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    made = [("a", "file", b"content" * 1000), ("b", "hardlink", "a")]
    url = put(in_volumes(packed(made)[0], "a.tar", 1))
    flip = Fault("flip", BODY, 0.5)
    tally = proxy.begin(once(flip, action="get", key="out/a"))
    assert untar(f"{url}v/", f"{url}out/").ok
    assert tally.faults
    assert stored(s3, bucket, "out/") == {"a": b"content" * 1000, "b": b"content" * 1000}


def test_a_file_that_needs_parts_too_large_for_the_memory_is_refused(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    url = put({"v/a.tar": bombs.tar_with_hole("a.bin", 20 << 40) + bytes(1024)})
    with pytest.raises(TransferFailed, match=r"larger than 10,000 parts of 536\.9 MB"):
        untar(f"{url}v/a.tar", f"{url}out/")
    assert stored(s3, bucket, "out/") == {}


def test_a_part_has_at_most_512_mib_unless_a_larger_one_is_wanted() -> None:
    store: Any = SimpleNamespace(min_part=5 * MIB, max_parts=10_000)
    assert part_in_memory(20 << 40, None, store) == 512 * MIB
    assert part_in_memory(20 << 40, 1024 * MIB, store) == 1024 * MIB


@pytest.mark.long
def test_one_large_part_is_in_memory_at_a_time(put: Put) -> None:
    url = put({"v/a.tar": bombs.tar_with_hole("a.bin", 240 * MIB) + bytes(1024)})
    tracemalloc.start()
    try:
        untar(f"{url}v/a.tar", f"{url}out/", part_size="80MiB")
        assert tracemalloc.get_traced_memory()[1] < 120 * MIB
    finally:
        tracemalloc.stop()
