"""pack into tar shards: the same samples as the source, readable by webdataset, with reproducible bytes."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, NotFound, TransferFailed
from tests.conftest import client_of
from tests.faults.proxy import BODY, Fault, FaultProxy
from tests.faults.scene import objects_of
from tests.faults.test_lines import proxy
from tests.formats.test_shards import found_by_webdataset

__all__ = ["proxy"]

Put = Callable[[dict[str, bytes]], str]
MIB = 1 << 20
_FLIP = Fault("flip", BODY, 0.5)


def content(samples: int, seed: int = 1, most: int = 6000) -> dict[str, bytes]:
    """Create samples of two files, some of them empty or with names that need a pax header."""
    source = random.Random(seed)
    found = {}
    for number in range(samples):
        key = f"in/{number % 3}/{'ä' if number % 7 == 1 else ''}{number:04}{'x' * 90 if number % 11 == 2 else ''}"
        found[f"{key}.jpg"] = source.randbytes(source.randrange(most))
        found[f"{key}.cls.txt"] = b"" if number % 5 == 0 else str(number).encode()
    return found


def plain(samples: Any) -> list[dict[str, Any]]:
    """Return the samples without their places."""
    return [{name: value for name, value in one.items() if name != "__url__"} for one in samples]


def members(shard: bytes) -> dict[str, bytes]:
    """Return the members of a shard, read with Python's tarfile."""
    with tarfile.open(fileobj=io.BytesIO(shard)) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]


def as_library(folder: Path) -> list[dict[str, Any]]:
    """Return the samples that the webdataset library finds in a folder's shards."""
    return [
        {"__key__": key, **fields}
        for path in sorted(folder.glob("*.tar"))
        for key, fields in found_by_webdataset(path)
    ]


@pytest.fixture
def there(s3: EmbeddedServer, bucket: str) -> Iterator[Callable[[str], dict[str, bytes]]]:
    """Returns a function that reads all objects of the bucket below a prefix."""
    client = client_of(s3)
    yield lambda prefix: {
        key.removeprefix(prefix): data
        for key, data in objects_of(client, bucket).items()
        if key.startswith(prefix)
    }
    client.close()


def test_objects_become_shards_that_the_library_reads(
    put: Put, there: Any, tmp_path: Path, inline: None
) -> None:
    url = put(content(60))
    report = nbdata.pack(f"{url}in/", f"{url}out/train-%06d.tar", shard_size=60_000, quiet=True)
    assert report.ok
    found = there("out/")
    manifest = json.loads(found.pop("train.json"))
    assert report.counts == {"packed": len(found)}
    assert len(found) > 3
    assert sorted(found) == [f"train-{n:06}.tar" for n in range(len(found))]
    assert all(len(data) <= 60_000 for data in found.values())
    assert sum(one["nsamples"] for one in manifest["shardlist"]) == 60
    assert [(one["url"], one["filesize"]) for one in manifest["shardlist"]] == [
        (name, len(data)) for name, data in sorted(found.items())
    ]
    for name, data in found.items():
        (tmp_path / name).write_bytes(data)
    source = nbdata.samples(f"{url}in/")
    wanted = plain(source)
    source.close()
    assert as_library(tmp_path) == wanted
    for spelling in ("train-*.tar", "train.json"):
        packed = nbdata.samples(f"{url}out/{spelling}")
        assert plain(packed.stream()) == wanted
        packed.close()


def test_the_same_command_packs_only_changed_samples(put: Put, there: Any, inline: None) -> None:
    files = content(40)
    url = put(files)
    line = nbdata.Pack(f"{url}in/", f"{url}out/x-%03d.tar", shard_count=5)
    line.run(quiet=True)
    first = there("out/")
    assert line.run(quiet=True).counts == {"unchanged": 5}
    last = max(files)
    put({last: bytes(len(files[last]))})  # same size as before
    assert line.run(quiet=True).counts == {"unchanged": 4, "packed": 1}
    second = there("out/")
    assert {name for name in first if first[name] != second[name]} == {"x-004.tar", "x.json"}
    put({last: files[last]})
    line.run(quiet=True)
    assert there("out/") == first  # the same bytes


def test_shards_are_cut_anew_shuffled_and_sorted_without_losing_a_sample(
    put: Put, there: Any, inline: None, tmp_path: Path
) -> None:
    url = put(content(50))
    nbdata.pack(f"{url}in/", f"{url}a/x-%d.tar", shard_size=50_000, quiet=True)
    first = there("a/")
    nbdata.pack(f"{url}a/x.json", f"{url}b/", shard_count=7, shuffle=True, seed=3, quiet=True)
    shuffled = nbdata.samples(f"{url}b/shard-*.tar")
    wanted = nbdata.samples(f"{url}in/")
    assert plain(shuffled.stream()) != plain(wanted)
    assert sorted(plain(shuffled.stream()), key=str) == sorted(plain(wanted), key=str)
    for samples in (shuffled, wanted):
        samples.close()
    nbdata.pack(
        f"{url}b/shard-*.tar", str(tmp_path / "c" / "x-%d.tar"), shard_size=50_000, sort=True, quiet=True
    )
    local = {path.name: path.read_bytes() for path in (tmp_path / "c").glob("*.tar")}
    first.pop("x.json")
    assert local == first


def test_neighbours_of_one_key_stay_two_samples(put: Put, there: Any, inline: None) -> None:
    files = {
        f"in/{folder}/{name}": f"{folder} {name}".encode() for folder in "ab" for name in ("1.jpg", "1.cls")
    }
    url = put(files)
    for folder in "ab":
        nbdata.pack(f"{url}in/{folder}/", f"{url}shards/{folder}-%d.tar", quiet=True)
    nbdata.pack(f"{url}shards/*.tar", f"{url}out/", sort=True, quiet=True)
    packed = nbdata.samples(f"{url}out/shard-000000.tar")
    assert plain(packed.stream()) == [
        {"__key__": "1", "cls": b"a 1.cls", "jpg": b"a 1.jpg"},
        {"__key__": "1~2", "cls": b"b 1.cls", "jpg": b"b 1.jpg"},
    ]
    packed.close()
    report = nbdata.pack(f"{url}in/a/", f"{url}files/", by="file", quiet=True)
    assert any("KEY~2" in note for note in report.notes)
    assert sorted(members(there("files/")["shard-000000.tar"])) == ["1.cls", "1~2.jpg"]


@pytest.mark.parametrize("big", [700_000, 5 * MIB])
@pytest.mark.in_ci("700000")
def test_objects_that_lie_across_the_edges_of_parts_are_whole(
    put: Put, there: Any, inline: None, monkeypatch: pytest.MonkeyPatch, big: int
) -> None:
    """Objects of up to a megabyte are fetched twice, larger ones in order. Shards are cut within both kinds."""
    monkeypatch.setattr("nbdata.engine.pack.perform.WINDOW", 5 * MIB)
    monkeypatch.setattr("nbdata.engine.pack.content.WINDOW", 2 * MIB)
    source = random.Random(4)
    files = {f"in/{n:02}.bin": source.randbytes(big + n) for n in range(14 * MIB // big + 3)}
    url = put(files)
    nbdata.pack(f"{url}in/", f"{url}a/", shard_size=100 * MIB, quiet=True)
    nbdata.pack(f"{url}a/*.tar", f"{url}b/", shard_size=12 * MIB, quiet=True)
    for folder in "ab":
        found = {}
        for name, data in sorted(there(f"{folder}/").items()):
            if name.endswith(".tar"):
                found |= {f"in/{member}": body for member, body in members(data).items()}
        assert found == files


@pytest.mark.long
def test_network_faults_on_either_side_are_repaired_or_reported(
    proxy: FaultProxy, put: Put, there: Any
) -> None:
    url = put(content(80, most=40_000))
    nbdata.pack(f"{url}in/", f"{url}good/", shard_size=MIB, concurrency=8, quiet=True)
    good = there("good/")
    kinds = itertools.cycle(["flip", "cut", "drop"])

    def plan(request: Any, before: int) -> Fault | None:
        if before or not (request.download or request.action == "put"):
            return None
        kind = next(kinds)
        return Fault(kind, BODY, 0.5) if kind != "drop" else Fault("drop", "before")

    tally = proxy.begin(plan)
    nbdata.pack(f"{url}in/", f"{url}bad/", shard_size=MIB, concurrency=8, quiet=True)
    assert len(tally.faults) > 80
    assert there("bad/") == good
    tally = proxy.begin(plan)
    nbdata.pack(f"{url}good/*.tar", f"{url}again/", shard_size=MIB, concurrency=8, quiet=True)
    assert tally.faults
    assert there("again/") == good
    # Objects fetched by ranges; each range is wrong at the first attempt.
    proxy.begin()
    nbdata.shards("index", f"{url}again/*.tar", quiet=True)
    tally = proxy.begin(lambda request, before: _FLIP if request.download and not before else None)
    nbdata.pack(f"{url}again/*.tar", f"{url}last/", shard_size=MIB, concurrency=8, quiet=True)
    assert any(fault.kind == "flip" for _, fault in tally.faults)
    assert there("last/") == good


def test_a_large_object_that_arrives_wrong_makes_no_shard(
    proxy: FaultProxy, put: Put, there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbdata.engine.pack.content.WINDOW", MIB)
    url = put({"in/a.bin": random.Random(1).randbytes(3 * MIB)})
    proxy.begin(lambda request, before: Fault("flip", BODY, 0.5) if request.download and not before else None)
    with pytest.raises(TransferFailed, match="md5"):
        nbdata.pack(f"{url}in/", f"{url}out/", quiet=True)
    assert there("out/") == {}
    proxy.begin()
    assert nbdata.pack(f"{url}in/", f"{url}out/", quiet=True).ok


def test_what_cannot_be_packed_is_told_before_anything_is_written(put: Put, there: Any, inline: None) -> None:
    url = put(
        {"in/a.jpg": b"1", "in/b.jpg": b"2", "in/c.jpg": b"3", "meta/__x__/a.jpg": b"4", "noext/file": b"5"}
    )

    def refused(*args: Any, match: str, kind: type[Exception] = BadOption, **options: Any) -> None:
        with pytest.raises(kind, match=match):
            nbdata.pack(*args, quiet=True, **options)

    refused(f"{url}in/", f"{url}out/x.tar", match="no place for the number")
    refused(f"{url}in/", f"{url}out/x-%06d.tar.gz", match="shards end in .tar")
    refused(f"{url}in/", f"{url}out/", shard_size=2000, shard_count=2, match="exclude each other")
    refused(f"{url}in/", f"{url}out/", shuffle=True, sort=True, match="exclude each other")
    refused(f"{url}in/", f"{url}out/x-{{0..1}}.tar", shard_count=3, match="numbers for 2 shards")
    refused(f"{url}meta/", f"{url}out/", match="in no sample")
    refused(f"{url}noext/", f"{url}out/", match="belongs to a sample", kind=NotFound)
    refused([f"{url}in/", f"{url}meta/"], f"{url}out/", match="several sources")
    assert there("out/") == {}
    nbdata.pack(f"{url}in/", f"{url}out/x-%d.tar", shard_count=3, quiet=True)
    refused(f"{url}in/", f"{url}out/x-%d.tar", shard_count=2, match="higher numbers")
    refused(f"{url}out/x-*.tar", f"{url}out/x-%d.tar", match="would replace")
    put({"other.tar": there("out/")["x-0.tar"], "empty.tar": bytes(1024)})
    several = [f"{url}other.tar", f"{url}out/x-1.tar", f"{url}empty.tar"]
    refused(several, f"{url}out/x-%d.tar", match="would replace")
    refused(f"{url}empty.tar", f"{url}out2/", match="no samples", kind=NotFound)
    refused(f"{url}in/", f"{url}out2/", shard_count=4, match="only 3 samples")
    refused(f"{url}out/x-*.tar", f"{url}b/", include=["*.jpg"], match="for files")
    # Shards that were written into their own source do not count as samples of the next run.
    nbdata.pack(f"{url}", f"{url}x-%d.tar", exclude=["meta/**", "out/**"], quiet=True)
    assert nbdata.pack(f"{url}", f"{url}x-%d.tar", exclude=["meta/**", "out/**"], quiet=True).counts == {
        "unchanged": 1
    }


def test_shards_do_not_replace_their_source_where_a_link_leads_to_it(tmp_path: Path, inline: None) -> None:
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"1")
    out = tmp_path / "out"
    nbdata.pack(tmp_path / "in", f"{out}/x-%d.tar", shard_count=3, quiet=True)
    (tmp_path / "same").symlink_to(out)
    before = {path: path.read_bytes() for path in out.iterdir()}
    for source, target in ((out, tmp_path / "same"), (tmp_path / "same", out)):
        with pytest.raises(BadOption, match="would replace"):
            nbdata.pack(
                f"{source}/x-*.tar", f"{target}/x-%d.tar", overwrite="always", shuffle=True, quiet=True
            )
    assert {path: path.read_bytes() for path in out.iterdir()} == before


def test_a_file_that_has_the_name_of_the_index_is_not_lost(put: Put, there: Any, inline: None) -> None:
    """Annotation files often have such names and lie beside shards."""
    url = put({"in/a.jpg": b"1", "out/train.json": b'{"images": []}'})
    with pytest.raises(BadOption, match="the name of the index"):
        nbdata.pack(f"{url}in/", f"{url}out/train-%d.tar", quiet=True)
    assert there("out/") == {"train.json": b'{"images": []}'}
    assert nbdata.pack(f"{url}in/", f"{url}out/other-%d.tar", quiet=True).ok
    assert nbdata.pack(f"{url}in/", f"{url}out/other-%d.tar", overwrite="always", quiet=True).ok


def test_no_index_tells_of_shards_that_were_skipped(put: Put, there: Any, inline: None) -> None:
    url = put({"in/a.jpg": b"1", "out/x-0.tar": b"something else"})
    report = nbdata.pack(f"{url}in/", f"{url}out/x-%d.tar", overwrite="never", quiet=True)
    assert report.counts == {"skipped": 1}
    assert there("out/") == {"x-0.tar": b"something else"}
    assert any("no index was written" in note for note in report.notes)


@pytest.mark.long
def test_a_part_of_a_large_object_that_is_sent_again_is_the_same(
    proxy: FaultProxy, put: Put, there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts are larger than the windows in which other objects are fetched."""
    monkeypatch.setattr("nbdata.engine.pack.content.WINDOW", MIB)
    monkeypatch.setattr("nbdata.engine.pack.perform.WINDOW", MIB)
    big = random.Random(1).randbytes(13 * MIB)
    url = put({"in/a.bin": big})
    nbdata.pack(f"{url}in/", f"{url}shards/", part_size="5MiB", concurrency=8, quiet=True)
    tally = proxy.begin(
        lambda request, before: None if before or request.action != "part" else Fault("flip", BODY, 0.9)
    )
    for source in ("in/", "shards/*.tar"):
        nbdata.pack(
            f"{url}{source}", f"{url}out/{source[:2]}-%d.tar", part_size="5MiB", concurrency=8, quiet=True
        )
        assert members(there("out/")[f"{source[:2]}-0.tar"]) == {"a.bin": big}
    assert len(tally.faults) == 6


def test_only_what_is_selected_is_packed(put: Put, there: Any, tmp_path: Path, inline: None) -> None:
    url = put(content(40))
    for source in (f"{url}in/", f"{tmp_path}/all/shard-000000.tar"):
        nbdata.pack(f"{url}in/", f"{tmp_path}/all/", quiet=True)
        select = "size(jpg) > 2kB and not key = '1/*'"
        report = nbdata.pack(source, f"{tmp_path}/some-%d.tar", select=select, overwrite="always", quiet=True)
        wanted = [
            one for one in plain(nbdata.samples(f"{url}in/").stream())
            if len(one["jpg"]) > 2000 and not one["__key__"].startswith("1/")
        ]  # fmt: skip
        assert 0 < len(wanted) < 40
        assert plain(nbdata.samples(f"{tmp_path}/some-0.tar").stream()) == wanted
        assert report.details["samples"] == len(wanted)
        assert f"{40 - len(wanted)} samples are not selected" in report.notes


def test_fields_are_renamed(put: Put, there: Any, tmp_path: Path, inline: None) -> None:
    url = put(
        {f"in/{n}.{name}": f"{n} {name}".encode() for n in range(5) for name in ("jpeg", "cls", "seg.png")}
    )
    renamed = ("jpeg=jpg", "seg.png=mask.png")
    nbdata.pack(f"{url}in/", f"{tmp_path}/x-%d.tar", rename=renamed, select="jpeg", quiet=True)
    (first, *_) = found = plain(nbdata.samples(f"{tmp_path}/x-0.tar").stream())
    assert first == {"__key__": "0", "jpg": b"0 jpeg", "cls": b"0 cls", "mask.png": b"0 seg.png"}
    assert len(found) == 5
    with pytest.raises(BadOption, match="one name"):
        nbdata.pack(f"{url}in/", f"{tmp_path}/y-%d.tar", rename=("jpeg=cls",), quiet=True)
    for wrong in ("jpg", "=jpg", "jpg=", ("a=b", "a=c")):
        with pytest.raises(BadOption, match="OLD=NEW"):
            nbdata.Pack("in", "out/", rename=wrong)
    with pytest.raises(BadOption, match="in another one"):
        nbdata.pack(f"{url}in/", f"{tmp_path}/y-%d.tar", rename=("jpeg=JPG",), quiet=True)


def test_a_lost_index_is_written_anew_with_the_size_of_the_parts(
    put: Put, s3: EmbeddedServer, bucket: str, inline: None, there: Any
) -> None:
    source = random.Random(2)
    url = put({f"in/{number:02}.bin": source.randbytes(MIB) for number in range(20)})
    line = nbdata.Pack(f"{url}in/", f"{url}out/x-%d.tar", shard_size=14 * MIB, part_size=6 * MIB)
    line.run(quiet=True)
    first = there("out/")
    assert [one.get("part_size") for one in json.loads(first["x.json"])["shardlist"]] == [6 * MIB, None]
    client = client_of(s3)
    client.delete_object(Bucket=bucket, Key="out/x.json")
    client.close()
    assert line.run(quiet=True).counts == {"unchanged": 2}
    assert there("out/") == first


def test_files_on_the_disk_have_the_modes_of_their_user(tmp_path: Path) -> None:
    """This holds for files written by the agent, whose own files nobody else may read."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"a")
    before = os.umask(0o027)
    try:
        nbdata.pack(tmp_path / "in", f"{tmp_path}/out/deep/x-%02d.tar", quiet=True)
        nbdata.push(tmp_path / "in", tmp_path / "pushed", quiet=True)
    finally:
        os.umask(before)
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes["out"] == modes["out/deep"] == 0o750
    assert modes["out/deep/x-00.tar"] == modes["out/deep/x.json"] == 0o640
    assert modes["pushed/a.txt"] == 0o640


def test_mistakes_that_would_spoil_a_data_set_are_refused(put: Put, there: Any, inline: None) -> None:
    url = put({f"in/{n}.{field}": b"1" for n in range(3) for field in ("jpg", "cls")})
    with pytest.raises(BadOption, match=r"no sample has a field 'png' .expected cls, jpg"):
        nbdata.pack(f"{url}in/", f"{url}out/", rename="png=jpg", quiet=True)
    with pytest.raises(BadOption, match="among the files that they are made of"):
        nbdata.pack(f"{url}in/", f"{url}in/", quiet=True)
    nbdata.pack(f"{url}in/", f"{url}out/x-%02d.tar", shard_count=3, quiet=True)
    with pytest.raises(BadOption, match="3 of 4 samples here are tar files"):
        nbdata.samples(f"{url}out/")
    assert len(nbdata.samples(f"{url}out/", by="file")) == 4


@pytest.mark.parametrize("select", [None, "jpg"])
def test_hidden_files_in_foreign_shards_do_not_get_into_new_ones(
    select: str | None, tmp_path: Path, inline: None
) -> None:
    """Tar of macOS packs ``._NAME`` beside NAME, and zip makes ``__MACOSX/``; WebDataset takes both for samples."""
    hidden = ["img/._1.jpg", "img/._2.jpg", "__MACOSX/img/1.jpg", "x/__MACOSX/1.jpg"]
    names = ["img/._1.jpg", "img/1.jpg", "img/1.txt", "img/._2.jpg", "img/2.jpg", *hidden[2:]]
    with tarfile.open(tmp_path / "theirs-0.tar", "w") as shard:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 1
            shard.addfile(info, io.BytesIO(b"1"))
    operation = nbdata.Pack(str(tmp_path / "theirs-0.tar"), str(tmp_path / "new-%06d.tar"), select=select)
    assert "4 files belong to no sample, such as" in " ".join(operation.plan().notes)
    operation.run(quiet=True)
    assert [*members((tmp_path / "new-000000.tar").read_bytes())] == ["img/1.jpg", "img/1.txt", "img/2.jpg"]
