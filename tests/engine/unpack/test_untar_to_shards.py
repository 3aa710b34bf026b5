"""untar_volumes into tar shards: consecutive members become samples, and nothing is written in between."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.unpack.targets.shards import send_shards
from nbdata.engine.unpack.targets.shards.send_shards import ShardSender
from nbdata.errors import BadArchive, BadOption, Cancelled, NotFound, TransferFailed
from tests.conftest import client_of
from tests.engine.unpack.checkpointing import COMPRESS, packed
from tests.engine.unpack.test_untar_to_store import in_volumes, stored
from tests.engine.unpack.unpacking import untar
from tests.faults.proxy import AFTER, BEFORE, BODY, Fault, FaultProxy
from tests.faults.test_lines import always, once, proxy

__all__ = ["proxy"]

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]
MIB = 1 << 20
SHARD = 200_000


def samples(count: int = 60, seed: int = 7) -> dict[str, bytes]:
    """Create samples of two consecutive files each, some with odd names."""
    source = random.Random(seed)
    made = {}
    for number in range(count):
        key = f"d{number // 20}/{'ü' if number % 9 == 4 else ''}{number:04}"
        made[f"{key}.jpg"] = source.randbytes(source.randrange(1, 40_000))
        made[f"{key}.cls"] = b"%d" % number if number % 5 else b""
    return made


def as_entries(files: dict[str, bytes]) -> list[tuple[str, str, Any]]:
    return [(name, "file", data) for name, data in files.items()]


def shards_in(found: dict[str, bytes]) -> list[str]:
    return sorted(name for name in found if name.endswith(".tar"))


def members(found: dict[str, bytes]) -> list[tuple[str, bytes]]:
    """Return the members of shards in order, read with Python's tarfile."""
    read = []
    for name in shards_in(found):
        with tarfile.open(fileobj=io.BytesIO(found[name])) as tar:
            read += [(one.name, tar.extractfile(one).read()) for one in tar]  # type: ignore[union-attr]
    return read


def assert_index(found: dict[str, bytes], name: str = "x.json") -> None:
    """Check that the index describes each shard."""
    said = json.loads(found[name])["shardlist"]
    assert [one["url"] for one in said] == shards_in(found)
    for one in said:
        data = found[one["url"]]
        assert one["filesize"] == len(data)
        assert one["nsamples"] == len({name.partition(".")[0] for name, _ in members({one["url"]: data})})
        if "md5sum" in one:
            assert one["md5sum"] == hashlib.md5(data).hexdigest()


@pytest.mark.parametrize("name", ["tar", "tar.gz", "tar.zst", "zip"])
@pytest.mark.in_ci("tar.zst")
def test_members_become_the_shards_that_pack_makes_of_them(
    name: str, put: Put, bucket: str, s3: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = samples()
    if name == "zip":
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as zipped:
            for path, data in files.items():
                zipped.writestr(path, data)
        url = put({"v/a.zip": archive.getvalue()})
    else:
        url = put(in_volumes(COMPRESS[name](packed(as_entries(files))[0]), f"a.{name}"))
    monkeypatch.chdir(tmp_path)
    report = untar(f"{url}v/", f"{url}out/x-%06d.tar", shard_size=SHARD)
    assert report.ok
    found = stored(s3, bucket, "out/")
    assert members(found) == list(files.items())
    assert all(len(found[shard]) <= SHARD for shard in shards_in(found))
    assert_index(found)
    assert f"60 samples in {len(shards_in(found))} shards" in report.notes
    assert not list(tmp_path.iterdir())
    again = untar(f"{url}v/", f"{url}out/x-%06d.tar", shard_size=SHARD)
    assert again.counts == {"unchanged": len(shards_in(found))}
    assert again.details["compressed"] == 0

    in_order = dict(sorted(files.items(), key=lambda one: (one[0].partition(".")[0], one[0])))
    put({f"loose/{path}": data for path, data in in_order.items()})
    url = put(in_volumes(packed(as_entries(in_order))[0], "b.tar"))
    untar(f"{url}v/b.tar.000", f"{url}ordered/x-%06d.tar", shard_size=SHARD)
    nbdata.pack(f"{url}loose/", f"{url}packed/x-%06d.tar", shard_size=SHARD, quiet=True)
    mine, theirs = stored(s3, bucket, "ordered/"), stored(s3, bucket, "packed/")
    assert {shard: mine[shard] for shard in shards_in(mine)} == {s: theirs[s] for s in shards_in(theirs)}
    assert json.loads(mine["x.json"]) == json.loads(theirs["x.json"])


def test_shards_on_the_disk(tmp_path: Path) -> None:
    files = samples()
    for name, data in in_volumes(COMPRESS["tar.gz"](packed(as_entries(files))[0]), "a.tar.gz").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    target = tmp_path / "out"
    report = untar(tmp_path / "v", f"{target}/x-{{000..099}}.tar", shard_size=SHARD)
    assert report.ok
    found = {path.name: path.read_bytes() for path in target.iterdir()}
    assert members(found) == list(files.items())
    assert_index(found)
    assert set(found) == {*shards_in(found), "x.json"}
    assert untar(tmp_path / "v", f"{target}/x-{{000..099}}.tar", shard_size=SHARD).counts == {
        "unchanged": len(shards_in(found))
    }


def test_what_can_be_in_no_sample_is_left_out_and_told(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    files = samples(4)
    made = [
        ("empty", "folder", None), ("README", "file", b"no extension"), *as_entries(files),
        ("__meta__/a.json", "file", b"{}"), ("hard.jpg", "hardlink", "d0/0000.jpg"),
        ("soft.jpg", "symlink", "d0/0001.jpg"), ("last.JPG", "file", b"1"), ("last.jpg", "file", b"2"),
        ("last.__key__", "file", b"3"), (".hidden", "file", b"4"), ("b\udce4d.jpg", "file", b"5"),
    ]  # fmt: skip
    url = put({"v/a.tar": packed(made, errors="surrogateescape")[0]})
    report = untar(f"{url}v/", f"{url}out/x-%06d.tar")
    assert members(stored(s3, bucket, "out/")) == [*files.items(), ("last.JPG", b"1")]
    left = {row.path: row.detail["reason"] for row in report.rows if row.action == "left out"}
    assert left == {
        "README": "no key or no extension in its name",
        "__meta__/a.json": "a name that WebDataset reserves",
        "hard.jpg": "a hard link",
        "soft.jpg": "a symbolic link",
        "last.jpg": "its sample has a field of this name already",
        "last.__key__": "a name that WebDataset reserves",
        ".hidden": "a hidden file",
        "b\udce4d.jpg": "its name is not UTF-8",
    }
    notes = "\n".join(report.notes)
    assert "1 member is in no sample (no key or no extension in its name): " in notes
    assert "1 empty folder was left out, since shards have none: empty" in notes
    assert report.ok


def test_volumes_stay_of_which_something_is_in_no_shard(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    url = put({"v/a.tar": packed([*as_entries(samples(3)), ("README", "file", b"x")])[0]})
    report = untar(f"{url}v/", f"{url}out/x-%06d.tar", delete_volumes=True)
    assert "v/a.tar" in stored(s3, bucket, "")
    assert "some volumes were kept" in "\n".join(report.notes)
    url = put({"w/a.tar": packed(as_entries(samples(3)))[0]})
    assert untar(f"{url}w/", f"{url}two/x-%06d.tar", delete_volumes=True).counts == {
        "packed": 1,
        "deleted": 1,
    }
    assert untar(f"{url}w/", f"{url}two/x-%06d.tar", delete_volumes=True).counts == {"unchanged": 1}


def test_samples_that_do_not_stand_together_are_told(put: Put) -> None:
    files = dict(sorted(samples(5).items(), key=lambda one: one[0][-3:]))
    url = put({"v/a.tar": packed(as_entries(files))[0]})
    report = untar(f"{url}v/", f"{url}out/x-%06d.tar")
    assert "5 samples repeat the key of an earlier sample" in "\n".join(report.notes)


def test_an_archive_without_a_sample_is_an_error(put: Put) -> None:
    url = put({"v/a.tar": packed([("README", "file", b"x")])[0]})
    with pytest.raises(NotFound, match="no member of the archive can be in a sample"):
        untar(f"{url}v/", f"{url}out/x-%06d.tar")


def test_a_single_compressed_file_makes_no_shards(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    url = put({"v/a.csv.gz": COMPRESS["tar.gz"](b"1,2\n" * 1000)})
    with pytest.raises(BadArchive, match="a single compressed file and not an archive"):
        untar(f"{url}v/a.csv.gz", f"{url}out/x-%06d.tar")
    assert not stored(s3, bucket, "out/")


def test_a_sample_larger_than_a_shard_or_than_what_is_held(
    put: Put, bucket: str, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_shards, "HELD", 100_000)
    data = random.Random(1).randbytes(400_000)
    files = {
        "a.jpg": data[:1000], "b.jpg": data[:150_000], "c.jpg": data[:90_000], "c.png": data[:90_000],
        "d.jpg": data[:1000], "e.jpg": data, "e.cls": b"1", "f.jpg": data[:1000],
    }  # fmt: skip
    url = put({"v/a.tar": packed(as_entries(files))[0]})
    assert untar(f"{url}v/", f"{url}out/x-%06d.tar", shard_size=300_000).ok
    found = stored(s3, bucket, "out/")
    assert [[name for name, _ in members({one: found[one]})] for one in shards_in(found)] == [
        ["a.jpg"],
        ["b.jpg"],
        ["c.jpg", "c.png", "d.jpg"],
        ["e.jpg", "e.cls"],
        ["f.jpg"],
    ]
    assert members(found) == list(files.items())


def stopped(after: int, source: str, target: str, **options: Any) -> None:
    """Run until `after` members were taken, then end as a cancel does: completed shards get their final names."""
    take, taken = ShardSender._take, iter(range(after))

    def stop(sender: ShardSender, *args: Any) -> None:
        if next(taken, None) is None:
            sender._shards.settle()
            raise Cancelled("cancelled")
        take(sender, *args)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ShardSender, "_take", stop)
        with pytest.raises(nbdata.Cancelled):
            untar(source, target, **options)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", ["tar", "tar.gz", "whole.tar.bz2", "tar.xz", "tar.zst", "one.tar.gz"])
@pytest.mark.in_ci("tar.gz", "tar.zst", 1)
def test_an_interrupted_line_goes_on_between_shards_and_writes_none_twice(
    name: str, put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    files = samples(100)
    link = ("first.jpg", "symlink", "d0/0001.jpg")
    made = [link, *as_entries(files), ("hard.jpg", "hardlink", "d0/0000.jpg")]
    data = packed(made)[0]
    compressed = gzip.compress(data, 1) if name == "one.tar.gz" else COMPRESS[name](data)
    url = put(in_volumes(compressed, f"a.{name}"))
    target = f"{url}out/x-%06d.tar"
    stopped(150, f"{url}v/", target, shard_size=SHARD)
    before = stored(s3, bucket, "out/")
    assert len(shards_in(before)) > 3
    assert "x.json" not in before
    report = untar(f"{url}v/", target, shard_size=SHARD)
    found = stored(s3, bucket, "out/")
    assert members(found) == list(files.items())
    assert_index(found)
    assert report.counts == {
        "unchanged": len(shards_in(before)), "packed": len(shards_in(found)) - len(shards_in(before)), "left out": 2,
    }  # fmt: skip
    assert all(found[shard] == before[shard] for shard in shards_in(before))
    assert (report.details["resumed_at"] > 0) == (name != "one.tar.gz")
    assert "read again" in "\n".join(report.notes)


def test_a_stream_that_a_cancel_ends_makes_no_short_shard(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a stream, a cancel may look like the end of the archive."""
    url = put({"v/a.tar": packed(as_entries(samples()))[0]})
    all_of = ShardSender.take_all

    def take_all(sender: ShardSender) -> int:
        stream = sender._archive.stream

        def members() -> Any:
            for number, member in enumerate(found):
                yield member
                if number == 30:
                    sender._archive.control.cancel()
                    return

        found, stream.members = stream.members, members()
        return all_of(sender)

    monkeypatch.setattr(ShardSender, "take_all", take_all)
    with pytest.raises(nbdata.Cancelled):
        untar(f"{url}v/", f"{tmp_path}/out/x-%06d.tar")
    assert not list((tmp_path / "out").iterdir())


def test_a_shard_that_is_missing_or_was_changed_is_made_again(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    files = samples()
    url = put({"v/a.tar": packed(as_entries(files))[0]})
    target = f"{url}out/x-%06d.tar"
    untar(f"{url}v/", target, shard_size=SHARD)
    right, client = stored(s3, bucket, "out/"), client_of(s3)
    client.delete_object(Bucket=bucket, Key="out/x-000002.tar")
    report = untar(f"{url}v/", target, shard_size=SHARD)
    assert report.counts == {"unchanged": len(right) - 2, "packed": 1}
    client.delete_object(Bucket=bucket, Key="out/x.json")
    assert untar(f"{url}v/", target, shard_size=SHARD).counts == {"unchanged": len(right) - 1}
    assert stored(s3, bucket, "out/") == right
    client.put_object(Bucket=bucket, Key="out/x-000001.tar", Body=b"somebody's")
    with pytest.raises(BadOption, match="1 shard is there that this command has not made"):
        untar(f"{url}v/", target, shard_size=SHARD)
    assert untar(f"{url}v/", target, shard_size=SHARD, overwrite="always").ok
    assert stored(s3, bucket, "out/") == right
    client.close()


def test_other_options_make_other_shards_and_leave_none_of_the_old(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    files = samples()
    url = put({"v/a.tar": packed(as_entries(files))[0]})
    target = f"{url}out/x-%06d.tar"
    untar(f"{url}v/", target, shard_size=SHARD)
    before = stored(s3, bucket, "out/")
    with pytest.raises(BadOption, match="is there, and --overwrite never"):
        untar(f"{url}v/", target, shard_size=2 * SHARD, overwrite="never")
    assert stored(s3, bucket, "out/") == before
    report = untar(f"{url}v/", target, shard_size=2 * SHARD)
    found = stored(s3, bucket, "out/")
    assert members(found) == list(files.items())
    assert_index(found)
    assert report.counts["removed"] == len(shards_in(before)) - len(shards_in(found)) > 0


def test_shards_of_somebody_else_behind_the_last_are_a_conflict(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    url = put({"v/a.tar": packed(as_entries(samples(5)))[0], "out/x-000009.tar": b"theirs"})
    with pytest.raises(TransferFailed) as caught:
        untar(f"{url}v/", f"{url}out/x-%06d.tar", overwrite="always")
    assert caught.value.report.counts == {"packed": 1, "conflict": 1}
    found = stored(s3, bucket, "out/")
    assert found["x-000009.tar"] == b"theirs"
    assert "x.json" not in found


def test_something_else_in_the_place_of_the_index_is_refused(put: Put) -> None:
    url = put({"v/a.tar": packed(as_entries(samples(5)))[0], "out/x.json": b"{}"})
    with pytest.raises(BadOption, match="the name of the index of the shards is taken"):
        untar(f"{url}v/", f"{url}out/x-%06d.tar")


def test_shards_that_came_before_damage_are_made_anew_when_it_is_mended(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    files = samples()
    data = packed(as_entries(files))[0]
    good = gzip.compress(data, 1)
    bad = bytearray(good)
    bad[-8] ^= 1  # the CRC of the whole stream
    url = put(in_volumes(bytes(bad), "a.tar.gz", 3))
    target = f"{url}out/x-%06d.tar"
    with pytest.raises(BadArchive):
        untar(f"{url}v/", target, shard_size=SHARD)
    before = stored(s3, bucket, "out/")
    assert "x.json" not in before
    put(in_volumes(good, "a.tar.gz", 3))
    report = untar(f"{url}v/", target, shard_size=SHARD)
    found = stored(s3, bucket, "out/")
    assert report.counts == {"packed": len(shards_in(found))}
    assert members(found) == list(files.items())


def test_several_archives_each_get_shards_in_a_folder_of_their_own(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    one, other = samples(5), samples(6, seed=9)
    url = put({"v/train.tar": packed(as_entries(one))[0], "v/val.tar": packed(as_entries(other))[0]})
    assert untar(f"{url}v/", f"{url}out/x-%06d.tar").ok
    assert members(stored(s3, bucket, "out/train/")) == list(one.items())
    assert members(stored(s3, bucket, "out/val/")) == list(other.items())
    assert set(untar(f"{url}v/", f"{url}out/x-%06d.tar").counts) == {"unchanged"}


def test_options_that_make_no_sense_are_refused() -> None:
    for options, said in (
        ({"target": "s3://b/out/", "shard_size": "1MB"}, "--shard-size is for a TARGET that is shards"),
        ({"target": "s3://b/x-%06d.tar", "shard_size": "1kB"}, "too little"),
        ({"target": "s3://b/x-%06d.tar", "part_size": "8MiB"}, "--part-size makes no sense with shards"),
        ({"target": "/tmp/x-%06d.tar", "skip_written": True}, "--skip-written makes no sense with shards"),
        ({"target": "s3://b/x-%06d.tar.gz"}, "shards end in .tar"),
        ({"target": "s3://b/v/x-%06d.tar"}, "would lie among the volumes"),
    ):
        with pytest.raises(BadOption, match=said):
            nbdata.UntarVolumes("s3://b/v/", **options)


def test_too_many_shards_for_their_numbers(put: Put) -> None:
    url = put({"v/a.tar": packed(as_entries(samples()))[0]})
    with pytest.raises(BadOption, match="has numbers for 2 shards, and more are needed"):
        untar(f"{url}v/", f"{url}out/x-{{0..1}}.tar", shard_size=SHARD)


def test_the_plan_says_how_shards_are_called(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    url = put({"v/a.tar": packed(as_entries(samples(3)))[0]})
    plan = untar(f"{url}v/", f"{url}out/x-%06d.tar", dry_run=True)
    assert "samples go into shards of at most 268.4 MB: x-000000.tar and so on" in plan.notes
    assert plan.needed == 0
    assert not stored(s3, bucket, "out/")


def test_an_index_of_old_shards_goes_before_the_first_new_one(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    url = put({"v/a.tar": packed(as_entries(samples()))[0]})
    target = f"{url}out/x-%06d.tar"
    untar(f"{url}v/", target, shard_size=SHARD)
    assert "x.json" in stored(s3, bucket, "out/")
    stopped(60, f"{url}v/", target, shard_size=2 * SHARD)
    found = stored(s3, bucket, "out/")
    assert "x.json" not in found
    untar(f"{url}v/", target, shard_size=2 * SHARD)
    assert_index(stored(s3, bucket, "out/"))


def test_a_store_without_parts_gets_whole_shards_that_fit_into_memory(tmp_path: Path) -> None:
    files = samples()
    (tmp_path / "a.tar").write_bytes(packed(as_entries(files))[0])
    with pytest.raises(BadOption, match="takes whole objects only, so that a shard has to be in memory"):
        untar(tmp_path / "a.tar", "memory://to-shards/out/x-%06d.tar")
    assert untar(tmp_path / "a.tar", "memory://to-shards/out/x-%06d.tar", shard_size=SHARD).ok
    memory = fsspec.filesystem("memory")
    found = {path.rpartition("/")[2]: memory.cat(path) for path in memory.find("/to-shards/out")}
    memory.rm("/to-shards", recursive=True)
    assert members(found) == list(files.items())
    assert_index(found)


def test_of_a_zip_only_the_members_of_missing_shards_are_read(
    put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    archive, source = io.BytesIO(), random.Random(2)
    with zipfile.ZipFile(archive, "w") as zipped:
        for number in range(12):
            zipped.writestr(f"{number:02}.bin", source.randbytes(MIB))
    url = put({"v/a.zip": archive.getvalue()})
    target = f"{url}out/x-%06d.tar"
    untar(f"{url}v/", target, shard_size=3 * MIB)
    before, client = stored(s3, bucket, "out/"), client_of(s3)
    client.delete_object(Bucket=bucket, Key="out/x-000003.tar")
    client.close()
    report = untar(f"{url}v/", target, shard_size=3 * MIB)
    assert report.counts == {"unchanged": 5, "packed": 1}
    assert report.details["compressed"] < 8 * MIB  # including readahead
    assert stored(s3, bucket, "out/") == before


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        Fault("reset", BODY, 0.5), Fault("flip", BODY, 0.5), Fault("refuse", BEFORE, status=503),
        Fault("drop", BEFORE), Fault("swallow", AFTER),
    ],
    ids=["reset", "flip", "503", "drop", "answer lost"],
)  # fmt: skip
@pytest.mark.parametrize("action", ["put", "part", "complete"])
def test_a_fault_of_the_line_is_mended(
    action: str, fault: Fault, proxy: FaultProxy, put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    files = samples(20) | {"big.bin": random.Random(3).randbytes(11 * MIB)}
    url = put(in_volumes(COMPRESS["tar.gz"](packed(as_entries(files))[0]), "a.tar.gz"))
    tally = proxy.begin(once(fault, action=action))
    assert untar(f"{url}v/", f"{url}out/x-%06d.tar", shard_size=MIB).ok
    assert tally.faults
    found, client = stored(s3, bucket, "out/"), client_of(s3)
    assert members(found) == list(files.items())
    assert_index(found)
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    client.close()


def test_a_shard_that_arrives_wrong_each_time_is_told_and_the_others_are_made(
    proxy: FaultProxy, put: Put, bucket: str, s3: EmbeddedServer
) -> None:
    files = samples()
    url = put({"v/a.tar": packed(as_entries(files))[0]})
    target = f"{url}out/x-%06d.tar"
    proxy.begin(always(Fault("flip", BODY, 0.5), action="put", key="out/x-000001.tar"))
    with pytest.raises(TransferFailed) as failed:
        untar(f"{url}v/", target, shard_size=SHARD)
    assert [name for name, _ in failed.value.report.failures] == ["x-000001.tar"]
    before = stored(s3, bucket, "out/")
    assert "x-000001.tar" not in before
    assert "x.json" not in before
    proxy.begin(lambda request, before: None)
    assert untar(f"{url}v/", target, shard_size=SHARD).counts == {"unchanged": len(before), "packed": 1}
    found = stored(s3, bucket, "out/")
    assert members(found) == list(files.items())
    assert_index(found)


def test_members_may_be_picked_and_lose_components(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    files = samples()
    url = put({"v/a.tar": packed(as_entries(files))[0]})
    options: dict[str, Any] = {"members": ["**/*.jpg"], "exclude": ["d1/**"], "strip_components": 1}
    assert untar(f"{url}v/", f"{url}out/x-%06d.tar", **options).ok
    assert members(stored(s3, bucket, "out/")) == [
        (name[3:], data)
        for name, data in files.items()
        if name.endswith("jpg") and not name.startswith("d1/")
    ]


def test_shards_on_a_disk_that_is_too_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBDATA_QUOTA", f"400kB:{tmp_path}/out")
    (tmp_path / "out").mkdir()
    (tmp_path / "a.tar").write_bytes(packed(as_entries(samples()))[0])
    plan = untar(tmp_path / "a.tar", f"{tmp_path}/out/x-%06d.tar", shard_size=SHARD, dry_run=True)
    assert not plan.fits
    with pytest.raises(nbdata.NotEnoughSpace):
        untar(tmp_path / "a.tar", f"{tmp_path}/out/x-%06d.tar", shard_size=SHARD)
    assert not list((tmp_path / "out").iterdir())
