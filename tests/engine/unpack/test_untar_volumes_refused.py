"""untar_volumes refuses files that are no archive, incomplete archives, and malicious archives."""

from __future__ import annotations

import gc
import gzip
import os
import stat
import tracemalloc
import zipfile
from pathlib import Path

import pytest

import nbdata
from nbdata.archives.stream import Readahead
from tests.engine.unpack.unpacking import archive, inodes, no_leftovers, pack, untar, upload
from tests.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("inline")


def test_a_hole_is_named_before_anything_is_written(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v")
    (volumes / "a.tar.gz.03").unlink()
    with pytest.raises(nbdata.MissingVolume, match=r"a\.tar\.gz\.03"):
        untar(volumes, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_beside_one_of_its_stem_is_no_volume(tmp_path: Path) -> None:
    for name in ("7.jpg", "7.cls"):
        (tmp_path / name).write_bytes(b"hello, this is text\n" * 100)
    with pytest.raises(nbdata.BadArchive, match="not an archive"):
        untar(tmp_path / "7.jpg", tmp_path / "out", dry_run=True)


def test_what_is_no_archive_is_refused_while_planning(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"<html>" * 100)
    with pytest.raises(nbdata.BadArchive, match="web page"):
        untar(tmp_path / "x.bin", tmp_path / "out")
    assert not (tmp_path / "out").exists()


UNSAFE: dict[str, list[tuple[str, str, object]]] = {
    "dots": [("../evil", "file", b"x")],
    "dots inside": [("a/../../evil", "file", b"x")],
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


@pytest.mark.parametrize("case", UNSAFE)
def test_a_listing_names_unsafe_members_and_notes_them(case: str, tmp_path: Path) -> None:
    members = [
        (name, kind, "/outside" if value == "{outside}" else value) for name, kind, value in UNSAFE[case]
    ]
    source = archive(tmp_path / "v", ("good", "file", b"good"), *members, ("after", "file", b"x"))
    report = untar(source, list=True)
    assert [row.path for row in report.rows] == ["good", *[name for name, *_ in members], "after"]
    assert any(note.startswith("members that are refused when they are unpacked: ") for note in report.notes)


@pytest.mark.parametrize("name", ["v.tar", "v.zip"])
def test_safe_members_of_an_unsafe_archive_can_be_selected(name: str, tmp_path: Path) -> None:
    names = ["../site/a", "site/b", "c"]
    if name == "v.tar":
        source = archive(tmp_path / "v", *[(name, "file", b"x") for name in names]) / "."
    else:
        with zipfile.ZipFile(source := tmp_path / name, "w") as packed:
            for member in names:
                packed.writestr(member, b"x")
    report = untar(source, list=True)
    assert sorted(row.path for row in report.rows) == sorted(names)
    assert "member '../site/a' has a name with '..'" in report.notes[0]
    with pytest.raises(nbdata.UnsafeMember, match="--members or --exclude selects"):
        untar(source, tmp_path / "out")
    assert untar(source, tmp_path / "members", members=["site/", "c"]).counts == {"extracted": 2}
    assert untar(source, tmp_path / "exclude", exclude=["../**"]).counts == {"extracted": 2}
    with pytest.raises(nbdata.UnsafeMember):
        untar(source, tmp_path / "unsafe", members=["../site/*"])
    assert not (tmp_path / "site").exists()


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
    assert caught.value.report.counts == {"skipped": 1, "failed": 1}
    assert (tmp_path / "out" / "x").read_bytes() == b"mine"
    assert not (tmp_path / "out" / "h").exists()


def test_a_hard_link_is_never_made_to_a_file_of_another_archive(tmp_path: Path) -> None:
    untar(archive(tmp_path / "v", ("x", "file", b"of the first")), tmp_path / "out")
    source = archive(tmp_path / "v", ("x", "file", b"its"), ("h", "hardlink", "x"))
    with pytest.raises(nbdata.TransferFailed):
        untar(source, tmp_path / "out", overwrite="never")
    assert not (tmp_path / "out" / "h").exists()


def test_a_hard_link_is_never_made_through_a_link_in_a_folders_place(tmp_path: Path) -> None:
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


def test_the_error_that_is_kept_holds_none_of_the_buffers(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v")
    max(volumes.iterdir()).unlink()

    def buffers() -> set[int]:
        gc.collect()
        return {id(found) for found in gc.get_objects() if type(found) is Readahead}

    before = buffers()
    job = nbdata.UntarVolumes(str(volumes), str(tmp_path / "out")).start()
    with pytest.raises(nbdata.BadArchive, match="ends too early") as caught:
        job.wait(PATIENCE)
    assert caught.value.__traceback__ is not None
    assert buffers() <= before


def test_blocks_of_a_failed_extraction_wait_for_no_collector(content: Path, tmp_path: Path) -> None:
    volumes = pack(content, tmp_path / "v")
    max(volumes.iterdir()).unlink()

    def fail() -> int:
        with pytest.raises(nbdata.BadArchive, match="ends too early"):
            untar(volumes, tmp_path / "out")
        return tracemalloc.get_traced_memory()[0]

    fail()
    gc.collect()
    gc.disable()
    tracemalloc.start(1)
    try:
        before = fail()
        assert max(fail() for _ in range(3)) - before < Readahead.BLOCK_SIZE
    finally:
        tracemalloc.stop()
        gc.enable()


# -- files that are no archive --------------------------------------------------------------------

_PAGE = b"<!DOCTYPE html>\n<html><head><title>403 Forbidden</title></head><body>no</body></html>"
NO_ARCHIVES = {
    "a page": (_PAGE, 'a web page .HTML. that begins "403 Forbidden"'),
    "JSON": (b'{"message": "expired"}', "JSON, .*expired"),
    "XML": (b"<?xml?><Error><Code>AccessDenied</Code></Error>", "XML, .*AccessDenied"),
    "nothing": (b"", "nothing: it is empty"),
    "zeros": (bytes(300), "only zeros"),
    "random bytes": (bytes(range(255, 0, -1)) * 9, "bytes ff fe"),
    "a compressed page": (
        gzip.compress(_PAGE * 50),
        'holds no tar archive.* a web page .HTML. that begins "403',
    ),
    "a short compressed page": (gzip.compress(_PAGE), "a web page .HTML."),
    "a compressed array": (gzip.compress(b"\x93NUMPY\x01\x00" + bytes(range(256)) * 9), "bytes 93 4e"),
    "nothing, compressed": (gzip.compress(b""), "nothing: it is empty"),
}


@pytest.mark.parametrize("place", ["here", "s3"])
@pytest.mark.parametrize("case", NO_ARCHIVES)
@pytest.mark.in_ci("*-here", 4)
def test_a_file_that_is_no_archive_is_told_by_what_it_looks_like(
    case: str, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    content, says = NO_ARCHIVES[case]
    for name in ("data.tar.gz", "data.tar", "data"):
        (tmp_path / "v").mkdir(exist_ok=True)
        file = tmp_path / "v" / name
        file.write_bytes(content)
        source = str(file)
        if place == "s3":
            bucket = request.getfixturevalue("bucket")
            upload(request.getfixturevalue("s3"), bucket, tmp_path / "v")
            source = f"s3://{bucket}/v/{name}"
        runs: list[tuple[object, dict[str, object]]] = [
            (source, {}),
            (source, {"list": True}),
            ([source], {}),
        ]
        if "compressed" not in case:  # the others reveal it only when read further
            runs.append((source, {"dry_run": True}))
        for what, options in runs:
            with pytest.raises(nbdata.BadArchive, match=says) as caught:
                nbdata.untar_volumes(what, tmp_path / "out", quiet=True, **options)  # type: ignore[arg-type]
            assert name in str(caught.value)
        assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []
        file.unlink()
