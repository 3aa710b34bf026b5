"""untar_volumes, run in this process: the extracted files, and when the volumes are deleted."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
import zstandard

import nbdata
from nbdata.archives.whole import begins_archive
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.unpack.volumes.stored_volume import StoredVolume
from tests.conftest import client_of
from tests.engine.unpack.unpacking import archive, by_tar, inodes, look, no_leftovers, pack, untar, upload

pytestmark = pytest.mark.usefixtures("inline")


# -- extracted files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "program"), [("a.tar", "cat"), ("a.tar.gz", "gzip"), ("a.tar.bz2", "bzip2"), ("a.tar.xz", "xz")]
)
@pytest.mark.in_ci("a.tar-cat", "a.tar.gz-gzip")
def test_a_set_of_volumes_gives_what_tar_gives(
    content: Path, tmp_path: Path, name: str, program: str
) -> None:
    volumes = pack(content, tmp_path / "v", name)
    report = untar(volumes, tmp_path / "out")
    assert look(tmp_path / "out") == by_tar(volumes, tmp_path / "expected", program)
    assert report.counts == {"extracted": 63, "links": 4, "folders": 8}
    assert report.bytes == sum(p.stat().st_size for p in content.rglob("*.bin") if not p.is_symlink())
    assert report.details["volumes"] == len(list(volumes.iterdir())) > 1
    assert report.details["compressed"] == sum(p.stat().st_size for p in volumes.iterdir())
    assert no_leftovers(tmp_path / "out")


def test_zstandard_volumes(content: Path, tmp_path: Path) -> None:
    pack(content, tmp_path / "v", "a.tar", 10**9)
    data = zstandard.compress((tmp_path / "v" / "a.tar.00").read_bytes())
    (tmp_path / "v" / "a.tar.00").unlink()
    for number in range(3):
        third = len(data) // 3 + 1
        (tmp_path / "v" / f"a.tar.zst.{number:02d}").write_bytes(data[number * third : (number + 1) * third])
    assert untar(tmp_path / "v", tmp_path / "out").details["format"] == "zst"
    assert look(tmp_path / "out") == look(content)


def test_a_set_is_meant_by_its_first_volume_its_folder_a_glob_or_a_list(
    content: Path, tmp_path: Path
) -> None:
    volumes = pack(content, tmp_path / "v", letters=True)
    (volumes / "a.tar.gz.aa.md5").write_text("no volume")
    archive(volumes / "below", ("x", "file", b"x"))
    names = sorted(str(p) for p in volumes.iterdir() if p.suffix not in (".md5", ""))
    sources = [volumes / "a.tar.gz.aa", str(volumes), f"{volumes}/", f"{volumes}/a.tar*", names]
    for number, source in enumerate(sources):
        untar(source, tmp_path / f"out{number}")
        assert look(tmp_path / f"out{number}") == look(content)


def test_a_list_is_joined_in_its_own_order(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v", volume=1_000_000)
    odd = []
    for number, path in enumerate(sorted(volumes.iterdir(), reverse=True)):
        odd.insert(0, path.rename(volumes / f"part-{number}.x"))
    untar(odd, tmp_path / "out")
    assert look(tmp_path / "out") == look(content)


def test_volumes_in_a_store_are_unpacked_without_a_copy(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    upload(s3, bucket, pack(content, tmp_path / "v"))
    for number, source in enumerate((f"s3://{bucket}/v/", f"s3://{bucket}/v/a.tar.gz.00")):
        untar(source, tmp_path / f"out{number}")
        assert look(tmp_path / f"out{number}") == look(content)


def test_members_and_strip_components_select_and_rename(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v")
    report = untar(volumes, tmp_path / "out", members="d1/*.bin", strip_components=1)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(
        p.name for p in (content / "d1").glob("*.bin")
    )
    assert report.counts == {"extracted": 12}
    with pytest.raises(nbdata.NotFound, match="nosuch"):
        untar(volumes, tmp_path / "out2", members="nosuch/*")


def test_a_list_shows_members_and_writes_nothing(content: Path, tmp_path: Path) -> None:
    report = untar(pack(content, tmp_path / "v"), list=True)
    rows = {row.path: (row.size, row.detail["kind"]) for row in report.rows}
    assert rows["big.bin"] == (2_500_000, "file")
    assert rows["link"] == (0, "symlink")
    assert report.counts == {"members": len(list(content.rglob("*")))}
    assert "big.bin  " in report.text()
    assert "2.5 MB" in report.text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["content", "v"]


def test_a_dry_run_names_the_volumes_in_order_and_writes_nothing(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v")
    plan = untar(volumes, tmp_path / "out", dry_run=True)
    assert [row.path for row in plan.rows] == sorted(p.name for p in volumes.iterdir())
    assert plan.bytes == sum(p.stat().st_size for p in volumes.iterdir())
    assert plan.details["format"] == "gz"
    assert "not known" in plan.notes[0]
    assert not (tmp_path / "out").exists()


def test_the_format_is_told_by_the_first_bytes_when_the_name_does_not(content: Path, tmp_path: Path) -> None:
    pack(content, tmp_path / "v", "vol.gz", 10**9)
    (tmp_path / "v" / "vol.gz.00").rename(tmp_path / "v" / "something")
    plan = untar(tmp_path / "v" / "something", tmp_path / "out", dry_run=True)
    assert plan.details["format"] == "gz"


def test_progress_counts_compressed_bytes_and_landed_files(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v")
    job = nbdata.UntarVolumes(str(volumes), str(tmp_path / "out")).start()
    job.wait()
    snapshot = job.snapshot()
    assert snapshot.bytes == snapshot.bytes_total == sum(p.stat().st_size for p in volumes.iterdir())
    assert snapshot.files == 67
    assert snapshot.files_total is None


# -- deleting volumes -----------------------------------------------------------------------------


def test_volumes_are_deleted_at_the_very_end_and_the_line_may_be_said_again(
    content: Path, tmp_path: Path
) -> None:
    volumes, out = pack(content, tmp_path / "v"), tmp_path / "out"
    (volumes / "README").write_text("stays")
    report = untar(volumes, out, delete_volumes=True)
    assert [p.name for p in volumes.iterdir()] == ["README"]
    assert look(out) == look(content)
    assert report.counts["deleted"] == report.details["volumes"]
    assert untar(volumes, out, delete_volumes=True).counts == {"unchanged": 67}
    (out / "big.bin").unlink()
    with pytest.raises(nbdata.NotFound):
        untar(volumes, out, delete_volumes=True)


def test_a_deletion_that_was_interrupted_is_finished_by_the_same_line(
    content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes, out = pack(content, tmp_path / "v", volume=1_000_000), tmp_path / "out"
    delete, count = StoredVolume.delete, iter(range(9))

    def one_only(volume: StoredVolume) -> bool:
        if next(count):
            raise nbdata.Cancelled("cancelled")
        return delete(volume)

    with monkeypatch.context() as patched:
        patched.setattr(StoredVolume, "delete", one_only)
        with pytest.raises(nbdata.Cancelled):
            untar(volumes, out, delete_volumes=True)
    left = len(list(volumes.iterdir()))
    assert left == 3
    before = inodes(out)
    assert untar(volumes, out, delete_volumes=True).counts == {"unchanged": 67, "deleted": left}
    assert list(volumes.iterdir()) == []
    assert inodes(out) == before


def test_volumes_stay_when_not_everything_was_unpacked(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v")
    count = len(list(volumes.iterdir()))
    (tmp_path / "out" / "big.bin").mkdir(parents=True)
    with pytest.raises(nbdata.TransferFailed):
        untar(volumes, tmp_path / "out", delete_volumes=True)
    (tmp_path / "out2").mkdir()
    (tmp_path / "out2" / "big.bin").write_bytes(b"mine")
    untar(volumes, tmp_path / "out2", delete_volumes=True, overwrite="never")
    with pytest.raises(nbdata.BadOption):
        untar(volumes, tmp_path / "out4", delete_volumes=True, members="d1")
    assert len(list(volumes.iterdir())) == count
    source = archive(tmp_path / "w", ("top", "file", b"top"), ("d/x", "file", b"x"))
    report = untar(source, tmp_path / "out5", delete_volumes=True, strip_components=1)
    assert any("left out: top" in note for note in report.notes)
    assert source.exists()


def test_a_volume_that_was_replaced_meanwhile_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    target = tmp_path / "v"
    source = archive(target, ("a.tar", "file", b"a member with the volume's own name"), name="a.tar")
    report = untar(source, target, delete_volumes=True)
    assert source.read_bytes() == b"a member with the volume's own name"
    assert "was not deleted" in report.notes[0]


def test_volumes_in_a_store_are_deleted_there(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    upload(s3, bucket, pack(content, tmp_path / "v"))
    untar(f"s3://{bucket}/v/", tmp_path / "out", delete_volumes=True)
    assert client_of(s3).list_objects_v2(Bucket=bucket).get("KeyCount") == 0


# -- volume names with *part* ---------------------------------------------------------------------


@pytest.mark.parametrize("place", ["here", "s3"])
@pytest.mark.parametrize(
    "name",
    [
        "x.tar.gz.part{n}of{total}",
        "x.part{n}of{total}.tar.gz",
        "a.part{n:02d}.tar.gz",
        "a-part-{n}-of-{total}.tgz",
    ],
)
@pytest.mark.in_ci("a-part-{n}-of-{total}.tgz-here", "x.part{n}of{total}.tar.gz-here", 1)
def test_parts_that_are_numbered_amid_the_name_are_one_set(
    name: str, place: str, content: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    volumes = pack(content, tmp_path / "v")
    parts = sorted(volumes.iterdir())
    for n, part in enumerate(parts, 1):
        part.rename(volumes / name.format(n=n, total=len(parts)))
    first, folder = str(volumes / name.format(n=1, total=len(parts))), str(volumes)
    if place == "s3":
        bucket = request.getfixturevalue("bucket")
        upload(request.getfixturevalue("s3"), bucket, volumes)
        first, folder = f"s3://{bucket}/v/{Path(first).name}", f"s3://{bucket}/v/"
    for number, source in enumerate((first, folder)):
        assert untar(source, tmp_path / f"out{number}").details["volumes"] == len(parts)
        assert look(tmp_path / f"out{number}") == look(content)


WHOLE = [
    "x.part{n}.tar",
    "x_part{n}.tar.gz",
    "x-part-{n}-of-2.tgz",
    "x.tar.gz-part-a{l}",
    "x.tar.zst.00{n}",
    "x-{n}",
]


@pytest.mark.in_ci("x-part-{n}-of-2.tgz", "x.part{n}.tar", "x.tar.zst.00{n}")
@pytest.mark.parametrize("name", WHOLE)
def test_archives_that_are_whole_are_no_volumes_whatever_they_are_called(name: str, tmp_path: Path) -> None:
    names = [name.format(n=n, l="xab"[n]) for n in (1, 2)]
    for n in (1, 2):
        made = archive(tmp_path / "v", (f"file {n}", "file", b"x" * 3000), name=names[n - 1])
        if ".zst" in name:
            made.write_bytes(zstandard.ZstdCompressor().compress(made.read_bytes()))
        elif "-a{l}" in name:
            made.write_bytes(gzip.compress(made.read_bytes()))
    for n in (1, 2):
        untar(tmp_path / "v" / names[n - 1], tmp_path / f"out{n}")
        assert [p.name for p in (tmp_path / f"out{n}").iterdir()] == [f"file {n}"]
    report = untar(tmp_path / "v", tmp_path / "each", delete_volumes=True)
    assert report.counts == {"extracted": 2, "deleted": 2}
    assert sorted(p.name for p in (tmp_path / "each").rglob("file*")) == ["file 1", "file 2"]


@pytest.mark.parametrize("bad", [1, 2])
def test_archives_called_like_volumes_are_deleted_only_if_all_of_them_are_unpacked(
    bad: int, tmp_path: Path
) -> None:
    """Of one that is left, the folder stays the same."""
    for n in (1, 2):
        archive(tmp_path / "v", (f"file {n}", "file", b"x" * 3000), name=f"x.part{n}.tar.gz")
    damaged = tmp_path / "v" / f"x.part{bad}.tar.gz"
    right = damaged.read_bytes()
    damaged.write_bytes(right[:-5] + b"12345")
    report = untar(tmp_path / "v", tmp_path / "out", delete_volumes=True, on_error="report")
    assert [name for name, _ in report.failures] == [damaged.name]
    assert "the volumes were kept" in " ".join(report.notes)
    assert len(list((tmp_path / "v").iterdir())) == 2
    damaged.write_bytes(right)
    (tmp_path / "v" / f"x.part{3 - bad}.tar.gz").unlink()
    report = untar(tmp_path / "v", tmp_path / "out", delete_volumes=True)
    assert not report.failures
    assert (tmp_path / "out" / f"x.part{bad}" / f"file {bad}").exists()
    assert not list((tmp_path / "v").iterdir())


@pytest.mark.parametrize("name", ["x.tar.gz.003", "x.tar.zst.ab"])
def test_a_later_volume_that_is_alone_is_one(name: str, tmp_path: Path) -> None:
    """The last one of a set that ``pack`` cut may begin and end as an archive does."""
    made = archive(tmp_path / "v", ("a", "file", b"x" * 3000), name=name)
    made.write_bytes(gzip.compress(made.read_bytes()))
    for source in (tmp_path / "v", made):
        with pytest.raises(nbdata.MissingVolume, match="missing volume"):
            untar(source, tmp_path / "out", delete_volumes=True)
    assert made.exists()


@pytest.mark.parametrize("zeros", [0, 32_000])
@pytest.mark.parametrize("form", ["tar", "tar.gz", "tar.zst"])
@pytest.mark.in_ci("tar-0", "tar.zst-32000", 1)
def test_volumes_that_pack_cut_just_before_a_member_are_one_archive(
    form: str, zeros: int, tmp_path: Path
) -> None:
    """A frame has 4 MiB, which are 64 of these members with their headers: each volume begins as an archive does."""
    (tmp_path / "in").mkdir()
    noise = random.Random(5)
    for number in range(200):
        (tmp_path / "in" / f"{number:04}").write_bytes(noise.randbytes(65_024 - zeros) + bytes(zeros))
    size = "4MiB" if form == "tar" or not zeros else "2400KiB"
    nbdata.pack(tmp_path / "in", tmp_path / "v" / f"a.{form}", format=form, volume_size=size, quiet=True)
    volumes = sorted((tmp_path / "v").iterdir())
    assert len(volumes) >= 3
    assert all(begins_archive(volume.read_bytes()[:512]) for volume in volumes[:2])
    untar(tmp_path / "v", tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == 200


def test_a_plain_tar_that_is_cut_where_a_header_begins_is_one_set(tmp_path: Path) -> None:
    whole = archive(
        tmp_path / "v", *((f"{n}", "file", b"x" * 100) for n in range(4)), name="a.tar"
    ).read_bytes()
    (tmp_path / "v" / "a.tar").unlink()
    for n, piece in enumerate((whole[:2048], whole[2048:]), 1):
        (tmp_path / "v" / f"a.part{n}.tar").write_bytes(piece)
    untar(tmp_path / "v", tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_a_later_part_that_is_alone_and_whole_is_an_archive(tmp_path: Path) -> None:
    for name in ("spare.part7.tar", "spare.part7.tar.gz"):
        alone = archive(tmp_path / name[-2:], ("file", "file", b"x"), name=name)
        untar(alone, tmp_path / f"out {name}")
        assert (tmp_path / f"out {name}" / "file").read_bytes() == b"x"
