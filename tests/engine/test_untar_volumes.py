"""untar_volumes, carried out in this process: archives of the real tar, cut by the real split."""

from __future__ import annotations

import io
import os
import shutil
import socket
import stat
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.volumes import StoredVolume
from nbdata.report import Report

pytestmark = pytest.mark.usefixtures("inline")

LONG_AGO = 1_500_000_000_123_456_789


def untar(source: Any, target: Path | None = None, **options: Any) -> Report:
    return nbdata.untar_volumes(source, target, quiet=True, **options)


@pytest.fixture
def content(tmp_path: Path) -> Path:
    """What is packed: folders, modes, old times, links, an empty file and one of several blocks."""
    root = tmp_path / "content"
    for number in range(60):
        file = root / f"d{number % 5}" / f"f{number:03d}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(500) + b"some text " * (number * 40))
        file.chmod((0o644, 0o755, 0o600)[number % 3])
    (root / "big.bin").write_bytes(os.urandom(2_500_000))
    (root / "zzz.bin").write_bytes(os.urandom(900_000))
    (root / "d0" / "empty").touch()
    (root / "ünï code").mkdir()
    (root / "ünï code" / "x" / "y").mkdir(parents=True)
    (root / "link").symlink_to("d0/f000.bin")
    (root / "d1" / "up").symlink_to("../d2")
    for name in ("hard1", "d3/hard2"):
        os.link(root / "d0" / "f000.bin", root / name)
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(LONG_AGO + number, LONG_AGO + number), follow_symlinks=False)
    return root


def pack(
    content: Path, folder: Path, name: str = "a.tar.gz", volume: int = 300_000, letters: bool = False
) -> Path:
    """An archive of `content` in volumes ``NAME.00 …`` in `folder`."""
    folder.mkdir(exist_ok=True)
    program = {"gz": "gzip", "bz2": "bzip2", "xz": "xz -0", "zst": "zstd -q"}.get(name.rpartition(".")[2])
    filters = f"| {program}" if program and shutil.which(program.split()[0]) else "| cat"
    suffix = "" if letters else "-d"
    tar = f"tar --sort=name --format=posix -cf - -C '{content}' ."
    cut = f"split {suffix} -b {volume} - '{folder}/{name}.'"
    subprocess.run(f"{tar} {filters} | {cut}", shell=True, check=True)
    return folder


def look(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything that can be seen of a tree."""
    names: dict[tuple[int, int], str] = {}
    seen = {}
    for path in sorted(root.rglob("*")):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            what: object = os.readlink(path)
        elif stat.S_ISDIR(found.st_mode):
            what = "folder"
        else:
            first = names.setdefault((found.st_dev, found.st_ino), str(path.relative_to(root)))
            what = (path.read_bytes(), first)
        seen[str(path.relative_to(root))] = (what, stat.S_IMODE(found.st_mode), found.st_mtime_ns)
    return seen


def by_tar(volumes: Path, target: Path, program: str = "gzip") -> dict[str, tuple[object, ...]]:
    target.mkdir()
    filters = "" if program == "cat" else f"| {program} -dc"
    subprocess.run(f"cat {volumes}/* {filters} | tar xf - -C {target}", shell=True, check=True)
    return look(target)


def archive(folder: Path, *members: tuple[str, str, object], name: str = "evil.tar") -> Path:
    """A tar archive with members as (name, kind, content or link)."""
    folder.mkdir(exist_ok=True)
    kinds = {
        "file": tarfile.REGTYPE,
        "folder": tarfile.DIRTYPE,
        "symlink": tarfile.SYMTYPE,
        "hardlink": tarfile.LNKTYPE,
    }
    with tarfile.open(folder / name, "w:gz" if name.endswith("gz") else "w") as tar:
        for path, kind, value in members:
            info = tarfile.TarInfo(path)
            info.type = kinds[kind]
            if isinstance(value, bytes):
                info.size = len(value)
            else:
                info.linkname = str(value or "")
            tar.addfile(info, io.BytesIO(value) if isinstance(value, bytes) else None)
    return folder / name


def inodes(root: Path) -> dict[str, int]:
    return {str(p): p.lstat().st_ino for p in root.rglob("*") if not p.is_dir()}


def no_leftovers(target: Path) -> bool:
    return not list(target.rglob(".nbdata"))


# -- what comes out -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "program"), [("a.tar", "cat"), ("a.tar.gz", "gzip"), ("a.tar.bz2", "bzip2"), ("a.tar.xz", "xz")]
)
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
    import zstandard

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


def upload(s3: EmbeddedServer, bucket: str, folder: Path) -> None:
    client = client_of(s3)
    for path in folder.iterdir():
        client.upload_file(str(path), bucket, f"v/{path.name}")


def client_of(s3: EmbeddedServer) -> Any:
    found = s3.environment()
    return boto3.client(
        "s3",
        endpoint_url=found["AWS_ENDPOINT_URL"],
        aws_access_key_id=found["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=found["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )


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


# -- what is refused ------------------------------------------------------------------------------


def test_a_hole_is_named_before_anything_is_written(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v")
    (volumes / "a.tar.gz.03").unlink()
    with pytest.raises(nbdata.MissingVolume, match=r"a\.tar\.gz\.03"):
        untar(volumes, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_volumes_of_gnu_tar_are_refused_with_the_remedy(content: Path, tmp_path: Path) -> None:
    for name in ("a.tar", "a.tar-2"):
        archive(tmp_path / "v", ("x", "file", b"x"), name=name)
    with pytest.raises(nbdata.BadOption, match="--multi-volume"):
        untar(tmp_path / "v", tmp_path / "out")


def test_a_zip_archive_is_refused_with_the_remedy(tmp_path: Path) -> None:
    shutil.make_archive(
        str(tmp_path / "a"), "zip", tmp_path, "nothing" if (tmp_path / "nothing").mkdir() else None
    )
    with pytest.raises(nbdata.BadOption, match="unzip"):
        untar(tmp_path / "a.zip", tmp_path / "out", dry_run=True)


def test_what_is_no_archive_is_refused_while_planning(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"<html>" * 100)
    with pytest.raises(nbdata.BadArchive, match="web page"):
        untar(tmp_path / "x.bin", tmp_path / "out")
    assert not (tmp_path / "out").exists()


UNSAFE: dict[str, list[tuple[str, str, object]]] = {
    "dots": [("../evil", "file", b"x")],
    "dots inside": [("a/../../evil", "file", b"x")],
    "absolute": [("{outside}/evil", "file", b"x")],
    "link out": [("a", "symlink", "../outside"), ("a/evil", "file", b"x")],
    "absolute link": [("a", "symlink", "{outside}")],
    "through a link": [("d", "folder", None), ("a", "symlink", "d"), ("a/evil", "file", b"x")],
    "hard link out": [("a", "hardlink", "../outside/secret")],
    "own records": [(".nbdata/evil", "file", b"x")],
    "own records in another case": [("d/.NBData/evil", "file", b"x")],
}


@pytest.mark.parametrize("case", UNSAFE)
def test_a_member_that_would_leave_the_target_ends_the_run(case: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    members = [
        (
            name.format(outside=outside),
            kind,
            value.format(outside=outside) if isinstance(value, str) else value,
        )
        for name, kind, value in UNSAFE[case]
    ]
    source = archive(tmp_path / "v", ("good", "file", b"good"), *members, ("after", "file", b"x"))
    with pytest.raises(nbdata.UnsafeMember):
        untar(source, tmp_path / "out")
    assert [p.name for p in outside.iterdir()] == ["secret"]
    assert not (tmp_path / "evil").exists()
    assert not list((tmp_path / "out").rglob("evil"))
    assert (tmp_path / "out" / "good").read_bytes() == b"good"
    assert not (tmp_path / "out" / "after").exists()
    assert no_leftovers(tmp_path / "out")


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("kind", ["file", "folder", "symlink", "hardlink"])
def test_no_path_leads_through_a_link_that_was_in_the_target(tmp_path: Path, inside: bool, kind: str) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / ("out/real" if inside else "elsewhere")
    out.mkdir()
    elsewhere.mkdir()
    (elsewhere / "secret").write_bytes(b"secret")
    (out / "d").symlink_to(elsewhere)
    value = {"file": b"x", "folder": None, "symlink": "y", "hardlink": "good"}[kind]
    source = archive(tmp_path / "v", ("good", "file", b"good"), ("d/x", kind, value))
    with pytest.raises(nbdata.UnsafeMember, match="symbolic link"):
        untar(source, out)
    assert [p.name for p in elsewhere.iterdir()] == ["secret"]


def test_a_link_in_the_target_is_replaced_and_never_followed(tmp_path: Path) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim"
    victim.write_bytes(b"secret")
    out.mkdir()
    (out / "x").symlink_to(victim)
    (out / "l").symlink_to(victim)
    (out / "h").symlink_to(victim)
    source = archive(tmp_path / "v", ("x", "file", b"new"), ("l", "symlink", "x"), ("h", "hardlink", "x"))
    untar(source, out)
    assert victim.read_bytes() == b"secret"
    assert not (out / "x").is_symlink()
    assert os.readlink(out / "l") == "x"
    assert (out / "h").samefile(out / "x")


def test_a_hard_link_is_never_made_to_what_the_archive_did_not_write(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_bytes(b"mine")
    source = archive(tmp_path / "v", ("x", "file", b"its"), ("h", "hardlink", "x"))
    with pytest.raises(nbdata.TransferFailed) as caught:
        untar(source, tmp_path / "out", overwrite="never")
    assert caught.value.report.counts == {"skip": 1, "failed": 1}
    assert (tmp_path / "out" / "x").read_bytes() == b"mine"
    assert not (tmp_path / "out" / "h").exists()


def test_nor_to_what_another_archive_wrote(tmp_path: Path) -> None:
    untar(archive(tmp_path / "v", ("x", "file", b"of the first")), tmp_path / "out")
    source = archive(tmp_path / "v", ("x", "file", b"its"), ("h", "hardlink", "x"))
    with pytest.raises(nbdata.TransferFailed):
        untar(source, tmp_path / "out", overwrite="never")
    assert not (tmp_path / "out" / "h").exists()


def test_nor_through_a_link_that_was_put_in_a_folders_place(tmp_path: Path) -> None:
    source, out = archive(tmp_path / "v", ("d/x", "file", b"x"), ("h", "hardlink", "d/x")), tmp_path / "out"
    untar(source, out)
    (out / "h").write_bytes(b"changed, and so the only name that is written again")
    (out / "d").rename(tmp_path / "elsewhere")
    (out / "d").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(nbdata.UnsafeMember):
        untar(source, out)


def test_a_later_member_of_the_same_name_wins_whatever_its_size_or_kind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    source = archive(
        tmp_path / "v",
        ("small", "file", b"1"), ("small", "file", b"2" * 2_000_000),
        ("large", "file", b"1" * 2_000_000), ("large", "file", b"2"),
        ("link", "file", b"1"), ("link", "symlink", "small"),
        ("file", "symlink", "small"), ("file", "file", b"2"),
        ("hard", "file", b"1"), ("hard", "hardlink", "small"),
    )  # fmt: skip
    for _ in range(2):
        before = inodes(out)
        untar(source, out)
        assert (out / "small").read_bytes() == b"2" * 2_000_000
        assert (out / "large").read_bytes() == b"2"
        assert os.readlink(out / "link") == "small"
        assert not (out / "file").is_symlink()
        assert (out / "file").read_bytes() == b"2"
        assert (out / "hard").samefile(out / "small")
        assert before.items() <= inodes(out).items()
        (out / "large").unlink()


def test_set_user_id_and_foreign_write_bits_do_not_come_out(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "x").write_bytes(b"x")
    (tmp_path / "c" / "x").chmod(0o6777)
    (tmp_path / "c" / "y").write_bytes(b"y")
    (tmp_path / "c" / "y").chmod(0o044)
    before = os.umask(0o027)
    try:
        untar(pack(tmp_path / "c", tmp_path / "v"), tmp_path / "out")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out" / "x").stat().st_mode) == 0o750
    assert stat.S_IMODE((tmp_path / "out" / "y").stat().st_mode) == 0o640


# -- damage ---------------------------------------------------------------------------------------


def whole(target: Path, content: Path) -> int:
    """How many files stand under final names; each must be as it was packed."""
    files = [p for p in target.rglob("*") if p.is_file() and not p.is_symlink()]
    for path in files:
        assert path.read_bytes() == (content / path.relative_to(target)).read_bytes()
    return len(files)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz"])
def test_a_truncated_last_volume_ends_it_and_the_same_line_continues(
    content: Path, tmp_path: Path, name: str
) -> None:
    volumes = pack(content, tmp_path / "v", name, 200_000)
    last = max(volumes.iterdir())
    data = last.read_bytes()
    last.write_bytes(data[: len(data) // 2])
    job = nbdata.UntarVolumes(str(volumes), str(tmp_path / "out")).start()
    with pytest.raises(nbdata.BadArchive):
        job.wait()
    assert job.snapshot().failures == 0
    assert whole(tmp_path / "out", content)
    assert no_leftovers(tmp_path / "out")
    last.write_bytes(data)
    untar(volumes, tmp_path / "out")
    assert look(tmp_path / "out") == look(content)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar.bz2", "a.tar.xz"])
def test_a_flipped_byte_is_found_and_nothing_wrong_stands_there(
    content: Path, tmp_path: Path, name: str
) -> None:
    volumes = pack(content, tmp_path / "v", name, 200_000)
    path = sorted(volumes.iterdir())[-2]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(nbdata.BadArchive) as caught:
        untar(volumes, tmp_path / "out", delete_volumes=True)
    assert caught.value.details["offset"] >= 0
    assert no_leftovers(tmp_path / "out")
    assert len(list(volumes.iterdir())) > 2


def test_a_volume_that_changes_while_it_is_read_ends_the_run(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, proxy: Proxy
) -> None:
    volumes = pack(content, tmp_path / "v")
    upload(s3, bucket, volumes)
    proxy.stall_at = 1_200_000
    job = nbdata.UntarVolumes(f"s3://{bucket}/v/", str(tmp_path / "out")).start()
    wait_for(proxy.stalled.is_set)
    client_of(s3).put_object(Bucket=bucket, Key=f"v/{max(volumes.iterdir()).name}", Body=b"another")
    proxy.go_on()
    with pytest.raises(nbdata.SourceChanged):
        job.wait(30)


# -- again ----------------------------------------------------------------------------------------


def test_a_second_run_writes_nothing_and_does_not_read_the_volumes(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    upload(s3, bucket, pack(content, tmp_path / "v"))
    out = tmp_path / "out"
    untar(f"s3://{bucket}/v/", out)
    before = inodes(out)
    job = nbdata.UntarVolumes(f"s3://{bucket}/v/", str(out)).start()
    assert job.wait().counts == {"unchanged": 67}
    assert job.snapshot().bytes == 0
    assert inodes(out) == before


def test_only_what_was_changed_or_removed_is_written_again(content: Path, tmp_path: Path) -> None:
    volumes, out = pack(content, tmp_path / "v"), tmp_path / "out"
    untar(volumes, out)
    (out / "d1" / "f001.bin").unlink()
    found = (out / "d2" / "f002.bin").stat()
    (out / "d2" / "f002.bin").write_bytes(bytes(found.st_size))
    os.utime(out / "d2" / "f002.bin", ns=(found.st_atime_ns, found.st_mtime_ns))
    report = untar(volumes, out)
    assert report.counts == {"extracted": 2, "unchanged": 65, "folders": 8}
    assert look(out) == look(content)
    (out / "ünï code" / "x" / "y").rmdir()
    untar(volumes, out)
    assert look(out) == look(content)
    assert untar(volumes, out).counts == {"unchanged": 67}
    (out / "ünï code" / "x" / "y").rmdir()
    (out / "ünï code" / "x" / "y").write_bytes(b"a file in a folder's place")
    with pytest.raises(nbdata.TransferFailed):
        untar(volumes, out)


def test_lines_that_put_different_members_in_the_same_place_do_not_trust_each_other(tmp_path: Path) -> None:
    source, out = (
        archive(tmp_path / "v", ("a/x", "file", b"of a"), ("b/x", "file", b"of b")),
        tmp_path / "out",
    )
    for _ in range(2):
        for folder in "ab":
            untar(source, out, members=folder, strip_components=1)
            assert (out / "x").read_text() == f"of {folder}"


def test_other_members_of_the_same_archive_are_no_reason_to_skip_the_rest(
    content: Path, tmp_path: Path
) -> None:
    volumes, out = pack(content, tmp_path / "v"), tmp_path / "out"
    assert untar(volumes, out, members="d1").counts["extracted"] == 12
    assert untar(volumes, out, members="d1").counts == {"unchanged": 13}
    report = untar(volumes, out)
    assert report.counts == {"unchanged": 13, "extracted": 51, "links": 3, "folders": 8}
    assert look(out) == look(content)


def test_overwrite_says_what_happens_to_files_that_exist(content: Path, tmp_path: Path) -> None:
    volumes, out = pack(content, tmp_path / "v"), tmp_path / "out"
    out.mkdir()
    (out / "big.bin").write_bytes(b"mine")
    assert untar(volumes, out, overwrite="never").counts["skip"] == 1
    assert (out / "big.bin").read_bytes() == b"mine"
    assert untar(volumes, out).counts["extracted"] == 1
    before = inodes(out)
    assert untar(volumes, out, overwrite="always").counts == {"extracted": 63, "links": 4, "folders": 8}
    assert all(before[path] != inode for path, inode in inodes(out).items())
    assert look(out) == look(content)


def test_another_archive_under_the_same_names_is_written(content: Path, tmp_path: Path) -> None:
    volumes, out = pack(content, tmp_path / "v"), tmp_path / "out"
    untar(volumes, out)
    (content / "d0" / "f005.bin").write_bytes(b"new")
    (out / "d1" / "f001.bin").write_bytes(b"mine")
    shutil.rmtree(volumes)
    pack(content, tmp_path / "v")
    with pytest.raises(nbdata.TransferFailed) as caught:
        untar(volumes, out)
    assert caught.value.report.counts["conflict"] == 1
    assert (out / "d0" / "f005.bin").read_bytes() == b"new"
    assert (out / "d1" / "f001.bin").read_bytes() == b"mine"
    untar(volumes, out, overwrite="always")
    assert look(out) == look(content)


def test_volumes_before_a_damaged_one_are_not_unpacked_again(tmp_path: Path) -> None:
    content, out = tmp_path / "content", tmp_path / "out"
    content.mkdir()
    for number in range(30):
        (content / f"f{number:02d}").write_bytes(os.urandom(1_200_000))
    volumes = pack(content, tmp_path / "v", "a.tar", 3_900_000)
    last = max(volumes.iterdir())
    data = last.read_bytes()
    last.write_bytes(data[:100_000])
    with pytest.raises(nbdata.BadArchive):
        untar(volumes, out)
    last.write_bytes(data)
    report = untar(volumes, out)
    assert report.counts["unchanged"] > 15
    assert look(out) == look(content)


@pytest.mark.parametrize("size", [300_000, 3_000_000])
def test_what_was_damaged_on_its_way_is_written_again(
    tmp_path: Path, s3: EmbeddedServer, bucket: str, proxy: Proxy, size: int
) -> None:
    mark = os.urandom(16)
    data = b"".join(os.urandom(60_000) + mark for _ in range(size // 60_000))
    content = tmp_path / "content"
    content.mkdir()
    (content / "x").write_bytes(data)
    (content / "y").write_bytes(os.urandom(3_000_000))
    upload(s3, bucket, pack(content, tmp_path / "v", volume=10**9))
    proxy.damage = mark  # random bytes are stored as they are, so that only the CRC at the end can tell
    out = tmp_path / "out"
    with pytest.raises(nbdata.BadArchive):
        untar(f"s3://{bucket}/v/", out)
    assert (out / "x").read_bytes() != data
    proxy.damage = b""
    if size > 1 << 20:
        with pytest.raises(nbdata.TransferFailed, match="same line again"):
            untar(f"s3://{bucket}/v/", out)
    untar(f"s3://{bucket}/v/", out)
    assert look(out) == look(content)


# -- stopping -------------------------------------------------------------------------------------


class Proxy:
    """Passes bytes to a server and back; holds, cuts or damages the answers when it is told to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.stall_at = self.cut_every = -1
        self.damage = b""
        self.passed = self.connections = 0
        self.stalled, self._released = threading.Event(), threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def go_on(self) -> None:
        self.stall_at = -1
        self._released.set()

    def close(self) -> None:
        self.go_on()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                down, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            up = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._pump, args=(down, up, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(up, down, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        count = 0
        with source, sink:
            try:
                while data := source.recv(16384):
                    if answers:
                        count += len(data)
                        self.passed += len(data)
                        if 0 <= self.stall_at < self.passed:
                            self.stalled.set()
                            self._released.wait()
                        if 0 <= self.cut_every < count:
                            sink.shutdown(socket.SHUT_RDWR)
                            return
                    sink.sendall(data.replace(self.damage, self.damage[::-1]) if self.damage else data)
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                return


@pytest.fixture
def proxy(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy between ``s3://`` and SeaweedFS."""
    proxy = Proxy(int(s3.environment()["AWS_ENDPOINT_URL"].rpartition(":")[2].strip("/")))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    yield proxy
    proxy.close()


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_a_cancel_ends_a_read_that_hangs_and_the_same_line_completes(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, proxy: Proxy
) -> None:
    upload(s3, bucket, pack(content, tmp_path / "v"))
    proxy.stall_at = 2_900_000
    line, out = nbdata.UntarVolumes(f"s3://{bucket}/v/", str(tmp_path / "out")), tmp_path / "out"
    job = line.start()
    wait_for(lambda: proxy.stalled.is_set() and job.snapshot().files > 5)
    began = time.monotonic()
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait(20)
    assert time.monotonic() - began < 1
    count = whole(out, content)
    assert count
    assert no_leftovers(out)
    proxy.go_on()
    report = line.run(quiet=True)
    assert look(out) == look(content)
    assert report.counts["unchanged"] >= count - 3
    assert report.counts["extracted"] > 0


def test_a_cancel_in_the_last_padding_does_not_count_as_the_end(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, proxy: Proxy
) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", 1_000_000)
    with max(volumes.iterdir()).open("ab") as last:
        last.write(bytes(3_000_000))
    upload(s3, bucket, volumes)
    proxy.stall_at = sum(p.stat().st_size for p in volumes.iterdir()) - 500_000
    line = nbdata.UntarVolumes(f"s3://{bucket}/v/", str(tmp_path / "out"))
    job = line.start()
    wait_for(lambda: proxy.stalled.is_set() and job.snapshot().files > 60)
    time.sleep(0.2)
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait(20)
    proxy.go_on()
    assert line.run(quiet=True).details["compressed"] > 0


@pytest.mark.parametrize("stuck", ["00", "03"])
def test_a_cancel_does_not_wait_for_a_file_system_that_cannot_be_woken(
    content: Path, tmp_path: Path, stuck: str
) -> None:
    import fsspec
    from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

    released = threading.Event()

    class Stuck(MemoryFileSystem):  # type: ignore[misc]
        protocol = "stuck"
        cachable = False

        def _open(self, *args: Any, **kwargs: Any) -> Any:
            file = super()._open(*args, **kwargs)
            if not isinstance(file, MemoryFile) or not str(args[0]).endswith(stuck):
                return file
            return _StuckFile(released)

    fs = Stuck()
    for path in pack(content, tmp_path / "v").iterdir():
        fsspec.filesystem("memory").pipe_file(f"/stuck/{path.name}", path.read_bytes())
    job = nbdata.UntarVolumes("memory://stuck/", str(tmp_path / "out"), fs=fs).start()
    wait_for(lambda: job.snapshot().bytes >= int(stuck) * 300_000)
    time.sleep(0.2)
    began = time.monotonic()
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait(20)
    assert time.monotonic() - began < 1
    released.set()


class _StuckFile(io.RawIOBase):
    def __init__(self, released: threading.Event) -> None:
        super().__init__()
        self._released = released

    def read(self, size: int = -1) -> bytes:
        self._released.wait()
        raise OSError("stuck")


def test_a_read_that_breaks_off_goes_on_where_it_was(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, proxy: Proxy
) -> None:
    upload(s3, bucket, pack(content, tmp_path / "v", volume=1_000_000))
    proxy.cut_every = 400_000
    report = untar(f"s3://{bucket}/v/", tmp_path / "out")
    assert look(tmp_path / "out") == look(content)
    assert report.retries >= 4
    assert proxy.passed < 2 * report.details["compressed"]


def test_with_report_or_stop_a_failure_is_told_or_ends_it(tmp_path: Path) -> None:
    source = archive(tmp_path / "v", ("a/x", "file", b"x"), ("b", "file", b"b"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_bytes(b"a file where a folder is to be")
    report = untar(source, tmp_path / "out", on_error="report")
    assert report.counts == {"failed": 1, "extracted": 1}
    assert "a file stands where a folder is to be" in report.failures[0][1]
    with pytest.raises(nbdata.AccessDenied):
        untar(source, tmp_path / "out", on_error="stop")
    with pytest.raises(nbdata.TransferFailed):
        untar(source, tmp_path / "out")


# -- space ----------------------------------------------------------------------------------------


@pytest.fixture
def bulky(tmp_path: Path) -> Path:
    """Volumes of an archive that is ten times as large when it is unpacked: 60 files, 24 MB."""
    content = tmp_path / "bulky"
    content.mkdir()
    for number in range(60):
        (content / f"f{number:02d}").write_bytes((os.urandom(40) + bytes(360)) * 1000)
    return pack(content, tmp_path / "bulky-volumes", volume=1_000_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 12 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.parametrize("ignore_space", [False, True])
def test_a_disk_that_fills_ends_it_clearly_with_nothing_half_written(
    bulky: Path, tmp_path: Path, small_disk: Path, ignore_space: bool
) -> None:
    out = small_disk / "out"
    with pytest.raises(nbdata.NotEnoughSpace, match="same line again"):
        untar(bulky, out, ignore_space=ignore_space)
    count = whole(out, tmp_path / "bulky")
    assert 5 < count < 60
    assert no_leftovers(out)
    subprocess.run(["mount", "-o", "remount,size=60m", small_disk], check=True)
    report = untar(bulky, out)
    assert report.counts == {"unchanged": count, "extracted": 60 - count}
    assert whole(out, tmp_path / "bulky") == 60


def test_a_limit_is_kept_while_it_grows_and_the_same_line_continues(
    bulky: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setenv("NBDATA_QUOTA", f"10m:{out}")
    with pytest.raises(nbdata.NotEnoughSpace) as caught:
        untar(bulky, out)
    assert caught.value.details["source"] == "NBDATA_QUOTA"
    used = int(subprocess.run(["du", "-sB1", out], check=True, capture_output=True).stdout.split()[0])
    assert 4 << 20 < used <= 10 << 20
    count = whole(out, tmp_path / "bulky")
    monkeypatch.setenv("NBDATA_QUOTA", f"30m:{out}")
    assert untar(bulky, out).counts == {"unchanged": count, "extracted": 60 - count}


def test_what_is_there_already_is_not_reserved_again(
    content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes, out = pack(content, tmp_path / "v", "a.tar"), tmp_path / "out"
    untar(volumes, out)
    (out / "d1" / "f001.bin").unlink()
    used = int(subprocess.run(["du", "-sB1", out], check=True, capture_output=True).stdout.split()[0])
    monkeypatch.setenv("NBDATA_QUOTA", f"{used + 300_000}:{out}")
    assert untar(volumes, out).counts["extracted"] == 1


def test_an_archive_that_expands_beyond_the_given_size_is_refused(bulky: Path, tmp_path: Path) -> None:
    with pytest.raises(nbdata.BadArchive, match="expands"):
        untar(bulky, tmp_path / "out", max_expansion="5m")
    assert whole(tmp_path / "out", tmp_path / "bulky") < 15


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
