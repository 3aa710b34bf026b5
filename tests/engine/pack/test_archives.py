"""pack into one archive: other programs can read it, its bytes are reproducible, and the same command resumes."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.job.task import Task
from nbdata.engine.pack import archiving
from nbdata.engine.pack.frames import Frame, TarFrames
from nbdata.engine.pack.tar_archiving import TarArchiving
from nbdata.errors import BadOption, NotEnoughSpace, NotFound, SourceChanged, TransferFailed, UnsafeMember
from nbdata.stores.fsspec_store import FsspecStore
from nbdata.stores.local import LocalStore
from nbdata.writing.growing_file import GrowingFile
from nbdata.writing.growing_shard import PART, GrowingShard
from tests.conftest import client_of
from tests.engine.pack.archives import MIB, files, joined, members_of, run, tree_of, write_tree
from tests.engine.pack.test_pack import there
from tests.faults.proxy import BODY, Fault, FaultProxy
from tests.faults.test_lines import proxy

__all__ = ["proxy", "there"]

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]
TARS = ("tar", "tar.gz", "tar.zst")
FORMS = (*TARS, "zip")
FLIP = Fault("flip", BODY, 0.5)


@pytest.fixture
def delete(s3: EmbeddedServer, bucket: str) -> Iterator[Callable[..., None]]:
    """Returns a function that deletes objects."""
    client = client_of(s3)

    def delete_all(*keys: str) -> None:
        for key in keys:
            client.delete_object(Bucket=bucket, Key=key)

    yield delete_all
    client.close()


def below(content: dict[str, bytes], prefix: str = "in/") -> dict[str, bytes]:
    return {name.removeprefix(prefix): data for name, data in content.items()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.in_ci("tar.zst", "zip")
def test_objects_become_volumes_in_the_store(form: str, put: Put, there: Any) -> None:
    content = files(large=3 * MIB)
    url = put(content)
    report = nbdata.pack(f"{url}in/", f"{url}out/x.{form}", format=form, volume_size="300kB", quiet=True)
    assert report.ok
    found = there("out/")
    assert sorted(found) == [f"x.{form}.{n + (form == 'zip'):03}" for n in range(len(found))]
    assert len(found) > 2
    assert report.counts == {"packed": len(content), "volumes": len(found)}
    assert all(len(data) <= 300_000 for data in found.values())
    if form in ("tar", "zip"):
        assert {len(data) for name, data in found.items() if name != max(found)} == {300_000}
    assert members_of(joined(found), form) == below(content)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.in_ci("tar.zst", "zip")
def test_one_archive_without_volumes(form: str, put: Put, there: Any) -> None:
    content = files(large=2 * MIB)
    url = put(content)
    report = nbdata.pack(f"{url}in/", f"{url}out/x.{form}", format=form, quiet=True)
    assert report.counts == {"packed": len(content)}
    assert members_of(there("out/")[f"x.{form}"], form) == below(content)
    again = nbdata.pack(f"{url}in/", f"{url}out/x.{form}", format=form, quiet=True)
    assert again.counts == {"unchanged": len(content)}


def test_the_format_is_guessed_from_the_name_where_that_is_plain() -> None:
    assert nbdata.Pack("s3://b/in/", "s3://b/x.tgz").archive == "tar.gz"
    assert nbdata.Pack("s3://b/in/", "s3://b/x.tar.zst").archive == "tar.zst"
    assert nbdata.Pack("s3://b/in/", "s3://b/x.zip").archive == "zip"
    assert nbdata.Pack("s3://b/in/", "s3://b/x-%06d.tar").archive is None
    assert nbdata.Pack("s3://b/in/", "s3://b/x/").archive is None
    with pytest.raises(BadOption, match=r"no place for the number of a shard.*--format tar"):
        nbdata.Pack("s3://b/in/", "s3://b/x.tar")


def test_the_same_command_packs_only_missing_or_wrong_volumes(put: Put, there: Any, delete: Any) -> None:
    content = files(large=3 * MIB)
    url = put(content)
    for form in TARS:
        line = nbdata.Pack(f"{url}in/", f"{url}{form}/x.{form}", format=form, volume_size=200_000, md5=True)
        count = line.run(quiet=True).counts["volumes"]
        first = there(f"{form}/")
        assert len(first) == 2 * count
        assert line.run(quiet=True).counts == {"unchanged": len(content), "volumes": count}
        delete(f"{form}/x.{form}.002", f"{form}/x.{form}.004.md5")
        put({f"{form}/x.{form}.003": b"something else"})
        report = line.run(quiet=True)
        assert report.counts["volumes"] == count
        assert report.counts["unchanged"] + report.counts["packed"] == len(content)
        assert 1 < report.counts["packed"] < len(content) // 2
        assert f"{count - 2} of {count} volumes were there already" in report.notes
        assert there(f"{form}/") == first


@pytest.mark.parametrize("form", TARS)
@pytest.mark.in_ci("tar.gz")
def test_what_changed_at_the_source_is_made_anew_and_volumes_too_many_are_removed(
    form: str, put: Put, there: Any, delete: Any
) -> None:
    content = files(large=3 * MIB)
    url = put(content)
    line = nbdata.Pack(f"{url}in/", f"{url}out/x.{form}", format=form, volume_size=200_000, md5=True)
    line.run(quiet=True)
    first = there("out/")
    changed = "in/d3/0003.bin"  # the last folder
    content[changed] = bytes(len(content[changed]))
    put({changed: content[changed]})
    report = line.run(quiet=True)
    assert 0 < report.counts["unchanged"] < len(content)
    assert members_of(joined(there("out/")), form) == below(content)
    delete("in/d2/large.bin")
    del content["in/d2/large.bin"]
    report = line.run(quiet=True)
    assert report.counts["unchanged"] > 0
    assert report.counts["removed"] > 0
    left = there("out/")
    assert members_of(joined(left), form) == below(content)
    assert len(left) < len(first)
    assert all(name.removesuffix(".md5") in left for name in left)


def test_other_peoples_volumes_are_not_mixed_with_the_archive(put: Put, there: Any) -> None:
    content = files(40)
    url = put({**content, "out/x.tar.900": b"theirs"})
    with pytest.raises(BadOption, match="volumes with higher numbers are there: 1, such as"):
        nbdata.pack(f"{url}in/", f"{url}out/x.tar", format="tar", volume_size="128KiB", quiet=True)
    put({"out/y.tar.zst.003": b"theirs"})
    compressible = {f"zero/{n:02}": bytes(100_000) for n in range(20)}
    put(compressible)
    line = nbdata.Pack(f"{url}zero/", f"{url}out/y.tar.zst", volume_size="128KiB")
    with pytest.raises(BadOption, match="is there, and this command has not made it"):
        line.run(quiet=True)
    with pytest.raises(TransferFailed, match="which this command has not made") as failed:
        replace(line, overwrite="always").run(quiet=True)
    assert failed.value.report.counts == {"packed": 20, "volumes": 1, "conflict": 1}
    assert there("out/")["y.tar.zst.003"] == b"theirs"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.in_ci("tar.gz", "zip")
def test_the_same_members_make_the_same_bytes(form: str, put: Put, there: Any, tmp_path: Path) -> None:
    content = files(60, large=2 * MIB)
    url = put(content)
    write_tree(tmp_path, content)
    options = {"format": form, "volume_size": "300kB", "sort": True, "mtime": "2024-01-31", "quiet": True}
    nbdata.pack(f"{url}in/", f"{url}out/x.{form}", **options)
    nbdata.pack(tmp_path / "in", f"{url}disk/x.{form}", **options)
    assert there("out/") == there("disk/")


@pytest.mark.long
def test_the_disk_as_source_and_target(put: Put, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "made"
    write_tree(tmp_path, files(80, large=3 * MIB))
    (source / "empty" / "deeper").mkdir(parents=True)
    (source / "d1" / "program").write_bytes(b"#!/bin/sh\n")
    (source / "d1" / "program").chmod(0o755)
    (source / "link").symlink_to("d1/program")
    (source / "nowhere").symlink_to("n" * 120 + "/ü")
    (source / "to folder").symlink_to("d1")
    os.utime(source / "d1" / "program", (1_000_000_000, 1_000_000_000.75))
    os.utime(source / "d0" / "0000.bin", (-5, -5))
    for form in FORMS:
        report = nbdata.pack(
            source, target / f"x.{form}", format=form, volume_size="256KiB", md5=True, quiet=True
        )
        assert report.ok
        volumes = sorted(target.glob(f"x.{form}.[0-9]*[0-9]"))
        volumes = [path for path in volumes if path.suffix != ".md5"]
        assert len(volumes) == report.counts["volumes"] > 2
        assert len(sorted(target.iterdir())) == 2 * len(volumes)
        run("md5sum", "-c", *(f"{path.name}.md5" for path in volumes), cwd=target)
        out = tmp_path / f"out-{form}"
        nbdata.untar_volumes(f"{volumes[0]}", out, quiet=True)
        assert tree_of(out) == tree_of(source)
        assert nbdata.md5check(target, quiet=True).ok
        for path in target.iterdir():
            path.unlink()


def test_what_a_broken_pack_left_on_the_disk_is_used_or_removed(put: Put, tmp_path: Path) -> None:
    url = put(files(80, large=3 * MIB))
    line = nbdata.Pack(f"{url}in/", tmp_path / "x.tar.gz", volume_size="256KiB")
    whole = line.run(quiet=True).counts["volumes"]
    right = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in sorted(right)[2:]:
        (tmp_path / name).unlink()
    stale = GrowingFile(LocalStore(), f"{tmp_path}/"[1:], "x.tar.gz.001", lambda _: None)
    stale.write(b"left by a killed process")
    assert len(list(tmp_path.iterdir())) == 3
    report = line.run(quiet=True)
    assert report.counts["volumes"] == whole
    assert f"2 of {whole} volumes were there already" in report.notes
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == right


@pytest.mark.parametrize("size", [30_000, 3 * MIB])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.in_ci("*-30000", 2)
def test_wrong_bytes_of_an_object_never_get_into_an_archive(
    form: str, size: int, put: Put, there: Any, proxy: FaultProxy
) -> None:
    content = {**files(20), "in/d1/x.bin": bytes(range(256)) * (size // 256)}
    url = put(content)
    proxy.begin(lambda request, before: FLIP if request.download and "x.bin" in request.key else None)
    options = {"format": form, "volume_size": "256KiB", "quiet": True}
    with pytest.raises(TransferFailed, match=r"x\.bin"):
        nbdata.pack(f"{url}in/", f"{url}out/x.{form}", **options)
    before = there("out/")
    proxy.begin()
    assert nbdata.pack(f"{url}in/", f"{url}out/x.{form}", **options).ok
    found = there("out/")
    assert members_of(joined(found), form) == below(content)
    assert before.items() <= found.items(), "what had its name was right"


def test_a_changed_source_is_an_error(put: Put, there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    content = files(30, large=2 * MIB)
    url = put(content)
    made = TarFrames.make

    def make(self: TarFrames, start: int, end: int) -> Frame:
        put({"in/d2/large.bin": b"shorter"})
        return made(self, start, end)

    monkeypatch.setattr(TarFrames, "make", make)
    with pytest.raises(TransferFailed, match="changed"):
        nbdata.pack(f"{url}in/", f"{url}out/x.tar", format="tar", quiet=True)
    assert there("out/") == {}


def test_the_volumes_themselves_are_no_members(put: Put, there: Any) -> None:
    content = files(40)
    url = put(content)
    line = nbdata.Pack(f"{url}in/", f"{url}in/x.tar.gz", volume_size="128KiB", md5=True)
    for _ in range(2):
        report = line.run(quiet=True)
        found = {name: data for name, data in there("in/").items() if name.startswith("x.")}
        assert members_of(joined(found), "tar.gz") == below(content)
    assert "packed" not in report.counts


def test_the_archive_is_no_member_where_a_link_leads_to_its_folder(tmp_path: Path) -> None:
    write_tree(tmp_path, {"real/in/a": b"a", "real/in/out/b": b"b"})
    (tmp_path / "link").symlink_to("real")
    for source, target in (("link", "real"), ("real", "link")):
        for action in ("packed", "unchanged"):
            report = nbdata.pack(tmp_path / source / "in", tmp_path / target / "in/out/x.tar.gz", quiet=True)
            assert report.counts == {action: 2}
        assert members_of((tmp_path / "real/in/out/x.tar.gz").read_bytes(), "tar.gz") == {
            "a": b"a",
            "out/b": b"b",
        }
        (tmp_path / "real/in/out/x.tar.gz").unlink()


def test_links_that_lead_out_of_the_folder_are_told(tmp_path: Path) -> None:
    write_tree(tmp_path, {"in/a": b"a", "in/d/b": b"b"})
    for name, to in {
        "abs": "/usr/bin/python3",
        "up": "../x",
        "d/far": "../../x",
        "d/in": "../a",
        "loop": "loop",
    }.items():
        (tmp_path / "in" / name).symlink_to(to)
    (note,) = nbdata.pack(tmp_path / "in", tmp_path / "x.tar.gz", quiet=True).notes
    assert note.startswith("3 symbolic links lead out of the folder")
    assert note.endswith("abs -> /usr/bin/python3, d/far -> ../../x, up -> ../x")
    with pytest.raises(UnsafeMember):
        nbdata.untar_volumes(tmp_path / "x.tar.gz", tmp_path / "out", quiet=True)
    report = nbdata.pack(tmp_path / "in", tmp_path / "x.tar.gz", exclude=["abs", "up", "d/far"], quiet=True)
    assert not report.notes
    assert nbdata.untar_volumes(tmp_path / "x.tar.gz", tmp_path / "out", quiet=True).counts == {
        "extracted": 2,
        "links": 2,
    }


@pytest.mark.parametrize("form", ["tar", "zip"])
def test_a_source_without_versions_is_packed_anew_each_time(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, info = fsspec.filesystem("memory"), FsspecStore._info
    monkeypatch.setattr(FsspecStore, "_info", lambda *args: info(*args)._replace(modified=None))
    for content in (b"one", b"two"):
        store.pipe(f"/untold-{form}/a", content)
        nbdata.pack(f"memory://untold-{form}/", tmp_path / f"x.{form}", format=form, quiet=True)
        assert members_of((tmp_path / f"x.{form}").read_bytes(), form) == {"a": content}


def test_filters_choose_members(put: Put, there: Any) -> None:
    content = files(40)
    url = put(content)
    nbdata.pack(f"{url}in/", f"{url}out/x.tar.gz", include="d1", exclude="*xxx*", quiet=True)
    wanted = {
        name: data for name, data in below(content).items() if name.startswith("d1/") and "xxx" not in name
    }
    assert members_of(there("out/")["x.tar.gz"], "tar.gz") == wanted
    with pytest.raises(NotFound, match="nothing to pack"):
        nbdata.pack(f"{url}in/", f"{url}out/y.tar.gz", include="*.none", quiet=True)


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"before")
    file = GrowingFile(LocalStore(umask=0o022), f"{tmp_path}/"[1:], "x.tar", lambda _: None)
    file.write(b"half")
    assert (tmp_path / "x.tar").read_bytes() == b"before"
    file.end()
    assert (tmp_path / "x.tar").read_bytes() == b"before"
    file.finish()
    assert (tmp_path / "x.tar").read_bytes() == b"half"
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar"]
    other = GrowingFile(LocalStore(umask=0o022), f"{tmp_path}/"[1:], "x.tar", lambda _: None)
    other.write(b"given up")
    other.give_up()
    assert (tmp_path / "x.tar").read_bytes() == b"half"
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar"]


def test_processes_that_make_the_same_file_do_not_name_the_half_of_another(tmp_path: Path) -> None:
    late, other = (
        GrowingFile(LocalStore(umask=0o022), f"{tmp_path}/"[1:], "x.ffr", lambda _: None, apart=True)
        for _ in range(2)
    )
    late.write(b"whole")
    other.write(b"wh")
    late.finish()
    assert (tmp_path / "x.ffr").read_bytes() == b"whole"
    other.write(b"ole")
    other.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["x.ffr"]


def test_no_checksum_of_an_earlier_volume_is_left(put: Put, there: Any) -> None:
    url = put(files(30))
    nbdata.pack(f"{url}in/", f"{url}out/x.tar.gz", md5=True, quiet=True)
    assert sorted(there("out/")) == ["x.tar.gz", "x.tar.gz.md5"]
    put({"in/d0/more.bin": b"more"})
    nbdata.pack(f"{url}in/", f"{url}out/x.tar.gz", quiet=True)
    assert sorted(there("out/")) == ["x.tar.gz"]


def test_packing_from_store_to_store_writes_nothing_to_the_disk(
    put: Put, there: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = files(200, large=4 * MIB)
    url = put(content)
    written = []
    monkeypatch.setattr("nbdata.disk.write_file", lambda *_args, **_options: written.append(1))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    nbdata.pack(f"{url}in/", f"{url}out/x.zip", volume_size="256KiB", md5=True, quiet=True)
    assert list(tmp_path.iterdir()) == written == []
    assert members_of(joined(there("out/")), "zip") == below(content)


def test_the_plan_says_what_will_be_made(put: Put, tmp_path: Path) -> None:
    url = put(files(50, large=2 * MIB))
    planned = nbdata.pack(f"{url}in/", tmp_path / "x.tar", format="tar", volume_size="256KiB", dry_run=True)
    count, size = planned.actions["pack"]
    assert f"51 members in {count} volumes" in planned.notes
    assert size <= planned.needed
    assert list(tmp_path.iterdir()) == []
    nbdata.pack(f"{url}in/", tmp_path / "x.tar", format="tar", volume_size="256KiB", quiet=True)
    assert len(list(tmp_path.iterdir())) == count
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == size
    assert nbdata.pack(
        f"{url}in/", tmp_path / "x.tar", format="tar", volume_size="256KiB", dry_run=True
    ).actions.keys() == {"unchanged"}


def test_too_little_room_on_the_disk_is_told_before(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put(files(50, large=2 * MIB))
    monkeypatch.setenv("NBDATA_QUOTA", f"1MB:{tmp_path}")
    for form in FORMS:  # with compression this is noticed only while packing
        with pytest.raises(NotEnoughSpace):
            nbdata.pack(f"{url}in/", tmp_path / f"x.{form}", format=form, quiet=True)
        assert list(tmp_path.iterdir()) == []


def test_names_that_could_not_be_unpacked_are_refused(put: Put) -> None:
    url = put({"in/a.txt": b"1", "in/.nbdata/x": b"2"})
    with pytest.raises(BadOption, match="could not be unpacked again"):
        nbdata.pack(f"{url}in/", f"{url}out/x.tar.gz", quiet=True)
    assert nbdata.pack(f"{url}in/", f"{url}out/x.tar.gz", exclude=".nbdata", quiet=True).ok


def test_an_existing_archive_stays_if_overwrite_is_never(put: Put, there: Any) -> None:
    url = put({**files(20), "out/x.tar.gz": b"theirs"})
    with pytest.raises(BadOption, match="--overwrite never"):
        nbdata.pack(f"{url}in/", f"{url}out/x.tar.gz", overwrite="never", quiet=True)
    assert there("out/") == {"x.tar.gz": b"theirs"}


def test_the_report_has_the_md5_of_each_volume(put: Put, there: Any) -> None:
    url = put(files(10))
    report = nbdata.pack(f"{url}in/", f"{url}out/x.tar.zst", md5=True, quiet=True)
    (row,) = report.rows
    assert row.detail["md5"] == there("out/")["x.tar.zst.md5"].split()[0].decode()
    assert report.details["members"] == 10


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.in_ci("tar.gz")
def test_a_store_without_parts_takes_small_volumes(form: str, put: Put) -> None:
    content = files(60, large=2 * MIB)
    url, store = put(content), fsspec.filesystem("memory")
    options = {"format": form, "volume_size": "300kB", "quiet": True}
    nbdata.pack(f"{url}in/", f"memory://packed-{form}/x.{form}", **options)
    found = {path: store.cat(path) for path in store.find(f"/packed-{form}")}
    assert len(found) > 2
    assert members_of(joined(found), form) == below(content)
    put({"in/e.bin": bytes(65 * MIB)})
    with pytest.raises(BadOption, match="whole objects only"):
        nbdata.pack(f"{url}in/", f"memory://packed-{form}/y.{form}", format=form, quiet=True)


@pytest.mark.parametrize("form", FORMS)
def test_a_store_without_parts_takes_no_volumes_that_would_all_have_to_wait_in_memory(
    form: str, tmp_path: Path
) -> None:
    tmp_path.joinpath("large").touch()
    os.truncate(tmp_path / "large", 150 * MIB)
    options = {"format": form, "volume_size": "32MiB", "dry_run": True}
    with pytest.raises(BadOption, match="have to be in memory until"):
        nbdata.pack(tmp_path, f"memory://waiting/y.{form}", **options)
    if form != "zip":
        assert nbdata.pack(tmp_path, f"memory://waiting/y.{form}", verify="none", **options).files
    os.truncate(tmp_path / "large", 100 * MIB)
    assert nbdata.pack(tmp_path, f"memory://waiting/y.{form}", **options).files


def test_a_volume_that_waits_for_the_proof_of_a_large_member_holds_no_memory(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, end = list[int](), GrowingShard.end

    def look(volume: GrowingShard) -> None:
        end(volume)
        held.append(len(volume._buffer))

    monkeypatch.setattr(GrowingShard, "end", look)
    write_tree(tmp_path, {"large": bytes(3 * PART)})
    # The volume size is a multiple of the part size, as most sizes that users choose.
    nbdata.pack(tmp_path, f"{put({})}out/x.tar", format="tar", volume_size=PART, quiet=True)
    assert held == [0, 0, 0]


def test_one_file_is_an_archive_too(put: Put, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o755)
    nbdata.pack(program, tmp_path / "x.tar.gz", quiet=True)
    nbdata.untar_volumes(str(tmp_path / "x.tar.gz"), tmp_path / "out", quiet=True)
    assert tree_of(tmp_path / "out")["program"][0] == "program"
    url = put({"a.bin": b"one"})
    nbdata.pack(f"{url}a.bin", tmp_path / "y.zip", quiet=True)
    assert members_of((tmp_path / "y.zip").read_bytes(), "zip") == {"a.bin": b"one"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.in_ci("tar", "zip")
def test_progress_ends_with_the_whole(form: str, put: Put, delete: Any) -> None:
    url = put(files(80, large=3 * MIB))
    line = nbdata.Pack(f"{url}in/", f"{url}out/x.{form}", format=form, volume_size=200_000)
    for _ in range(2):
        job = line.start()
        job.wait()
        told = job.snapshot()
        assert told.files == told.files_total
        assert told.bytes == told.bytes_total
        delete(f"out/x.{form}.002")


def test_an_upload_that_a_killed_run_had_no_time_to_note_is_given_up(
    put: Put, bucket: str, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, client = put(files(40)), client_of(s3)
    line = nbdata.Pack(f"{url}in/", f"{url}out/x.tar", format="tar", volume_size="128KiB")
    with monkeypatch.context() as patched:  # simulates a kill

        def killed(self: TarArchiving, at: int, number: int) -> tuple[int, int]:
            for key in ("out/x.tar.001", "out/x.tar.gz", "out/y.tar.001"):
                client.create_multipart_upload(Bucket=bucket, Key=key)
            raise SourceChanged("killed")

        patched.setattr(TarArchiving, "_make", killed)
        with pytest.raises(TransferFailed):
            line.run(quiet=True)
    assert line.run(quiet=True).ok
    left = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert {one["Key"] for one in left} == {"out/x.tar.gz", "out/y.tar.001"}, "those of others stay"
    client.close()


def test_other_peoples_files_are_replaced_only_with_overwrite(put: Put, there: Any) -> None:
    content = files(30)
    url = put(
        {**content, "out/x.tar.gz": b"theirs", "vols/x.tar.001": b"theirs", "sums/x.zip.md5": b"theirs"}
    )
    before = there("")
    for target, options in (
        ("out/x.tar.gz", {}),
        ("vols/x.tar", {"format": "tar", "volume_size": "128KiB"}),
        ("sums/x.zip", {"md5": True}),
    ):
        line = nbdata.Pack(f"{url}in/", f"{url}{target}", **options)
        with pytest.raises(BadOption, match="is there, and this command has not made it"):
            line.plan()
        with pytest.raises(BadOption, match="is there, and this command has not made it"):
            line.run(quiet=True)
        assert there("") == before
        assert replace(line, overwrite="always").run(quiet=True).ok
        assert line.run(quiet=True).counts["unchanged"] == len(content)
        put({"in/d0/more.bin": target.encode()})  # the changed source replaces its volumes
        content["in/d0/more.bin"] = target.encode()
        assert line.run(quiet=True).ok
        before = there("")


def test_an_earlier_archive_in_the_other_form_is_reported_and_replaced(put: Put, there: Any) -> None:
    content = files(60)
    url = put(content)
    whole = nbdata.Pack(f"{url}in/", f"{url}out/x.tar.gz", md5=True)
    cut = replace(whole, volume_size="128KiB")
    whole.run(quiet=True)
    assert sorted(there("out/")) == ["x.tar.gz", "x.tar.gz.md5"]
    said = "x.tar.gz … x.tar.gz.md5, which this command has made before, goes when the new one is whole"
    assert said in cut.plan().notes
    with pytest.raises(BadOption, match="is there, and --overwrite never"):
        replace(cut, overwrite="never").run(quiet=True)
    report = cut.run(quiet=True)
    assert said in report.notes
    assert report.counts["removed"] == 1
    found = there("out/")
    assert min(found) == "x.tar.gz.000"
    assert members_of(joined(found), "tar.gz") == below(content)
    report = whole.run(quiet=True)
    assert report.counts["removed"] == len(found) // 2
    assert sorted(there("out/")) == ["x.tar.gz", "x.tar.gz.md5"]


def test_another_users_archive_in_the_other_form_is_refused(put: Put, there: Any) -> None:
    url = put({**files(30), "out/x.tar.gz": b"theirs"})
    line = nbdata.Pack(f"{url}in/", f"{url}out/x.tar.gz", volume_size="128KiB")
    for overwrite in ("changed", "always"):
        with pytest.raises(BadOption, match="is there, and this command has not made it"):
            replace(line, overwrite=overwrite).run(quiet=True)
    assert there("out/") == {"x.tar.gz": b"theirs"}


def test_a_volume_committed_just_before_a_kill_belongs_to_the_command(
    put: Put, there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = files(60)
    url = put(content)
    line = nbdata.Pack(f"{url}in/", f"{url}out/x.tar", format="tar", volume_size="128KiB")
    with monkeypatch.context() as patched:
        patched.setattr(archiving, "record_of", _killed)
        with pytest.raises(nbdata.NbdataError):
            line.run(quiet=True)
    assert there("out/")
    assert line.run(quiet=True).ok
    assert members_of(joined(there("out/")), "tar") == below(content)


def _killed(*_: object) -> None:
    raise nbdata.NbdataError("killed")


def test_the_plan_of_a_compressed_archive_says_how_many_volumes_it_has_at_most(put: Put, there: Any) -> None:
    url = put({f"in/{n:02}": bytes(100_000) for n in range(20)})
    line = nbdata.Pack(f"{url}in/", f"{url}out/x.tar.gz", volume_size="500kB")
    said = next(note for note in line.plan().notes if "volume" in note)
    found = re.fullmatch(
        r"20 members in 5 volumes if nothing gets smaller; how many shows when it is compressed \((\d+) at most\)",
        said,
    )
    assert found is not None
    line.run(quiet=True)
    assert len(there("out/")) == 1 <= int(found[1])
    assert "20 members in 1 volume" in line.plan().notes
    whole = nbdata.Pack(f"{url}in/", f"{url}out/y.tar.gz")
    assert "20 members in 1 volume" in whole.plan().notes


@pytest.mark.parametrize("end", [".tar.xz", ".tar.bz2", ".tar.lz4"])
def test_an_archive_that_is_only_read_is_refused_with_what_is_written(end: str) -> None:
    said = (
        rf"{end} archives are read, not written: /b/x{end} .expected tar, tar.gz, tar.zst or zip.*x\.tar\.zst"
    )
    for options in ({}, {"format": "tar"}):
        with pytest.raises(BadOption, match=said):
            nbdata.Pack("/a", f"/b/x{end}", **options)
    with pytest.raises(BadOption, match="7z archives are not written"):
        nbdata.Pack("/a", "/b/x.7z")


@pytest.mark.parametrize("form", ["tar", "tar.gz", "zip"])
def test_the_rate_limit_counts_the_only_frame_of_a_small_archive(
    form: str, tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_bytes(os.urandom(500_000))
    owed = dict[int, int]()  # bytes by thread that counted them and has not waited for them yet
    advance = Task.advance

    def counted(task: Task, **counts: int) -> None:
        me = threading.get_ident()
        owed[me] = owed.get(me, 0) + max(0, counts.get("bytes", 0))
        advance(task, **counts)

    monkeypatch.setattr(Task, "advance", counted)
    monkeypatch.setattr(Task, "_hold", lambda task: owed.pop(threading.get_ident(), None))
    nbdata.pack(tmp_path / "in", tmp_path / f"a.{form}", format=form, max_rate="100kB", quiet=True)
    assert not any(owed.values())


@pytest.mark.usefixtures("inline")
def test_what_a_kill_left_of_a_checksum_file_is_removed_by_the_next_run(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "a").write_bytes(b"a")
    target.mkdir()
    GrowingFile(LocalStore(), f"{target}/"[1:], "x.tar.md5", lambda _: None).end()
    assert len(list(target.iterdir())) == 1, "as after a kill before it has its name"
    nbdata.pack(source, target / "x.tar", format="tar", quiet=True)
    assert [path.name for path in target.iterdir()] == ["x.tar"]
