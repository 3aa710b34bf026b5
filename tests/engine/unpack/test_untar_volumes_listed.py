"""untar_volumes with a file that lists the volumes, and a plan's warnings about suspicious volumes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.engine.unpack.volumes import missing
from nbdata.engine.unpack.volumes.checksum_files import LARGEST
from nbdata.errors import BadOption, MissingVolume
from tests.engine.unpack.test_untar_several import content, tree
from tests.engine.unpack.unpacking import pack, untar

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture
def shuffled(tmp_path: Path) -> list[str]:
    """Volumes whose names do not show their order; the order of the list counts."""
    pack(content(tmp_path, "made"), tmp_path / "v", "a.tar.gz", volume=30_000)
    names = []
    for number, path in enumerate(sorted((tmp_path / "v").iterdir())):
        names.append(f"{hashlib.md5(b'%d' % number).hexdigest()}.bin")
        path.rename(tmp_path / "v" / names[-1])
    assert names != sorted(names)
    return names


def sums(folder: Path, names: list[str], digest: Callable[[bytes], Any] = hashlib.md5) -> str:
    return "".join(f"{digest((folder / n).read_bytes()).hexdigest()}  {n}\n" for n in names)


def test_a_file_of_checksums_says_which_volumes_come_in_which_order(
    shuffled: list[str], tmp_path: Path
) -> None:
    (tmp_path / "v" / "all.md5").write_text(sums(tmp_path / "v", shuffled))
    untar(tmp_path / "v" / "all.md5", tmp_path / "out")
    assert tree(tmp_path / "out") == tree(tmp_path / "made")
    assert untar(tmp_path / "v" / "all.md5", tmp_path / "out").counts == {"unchanged": 30}


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_checksums_in_another_order_are_of_volumes_that_are_joined_by_their_numbers(
    name: str, tmp_path: Path
) -> None:
    # The volumes cut one large file: a plain tar would not reveal that they were joined in the wrong order.
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "large").write_bytes(random.Random(1).randbytes(300_000))
    pack(tmp_path / "made", tmp_path / "v", name, volume=40_000)
    names = sorted(path.name for path in (tmp_path / "v").iterdir())
    (tmp_path / "v" / "README.txt").write_text("how to join them")
    listed = [names[0], names[3], names[2], "README.txt", names[1], *names[4:]]
    (tmp_path / "v" / "SHA256SUMS").write_text(sums(tmp_path / "v", listed, hashlib.sha256))
    assert untar(tmp_path / "v" / "SHA256SUMS", tmp_path / "out").ok
    assert tree(tmp_path / "out") == tree(tmp_path / "made")
    del listed[1]
    (tmp_path / "v" / "SHA256SUMS").write_text(sums(tmp_path / "v", listed, hashlib.sha256))
    with pytest.raises(MissingVolume, match=names[3]):
        untar(tmp_path / "v" / "SHA256SUMS", tmp_path / "out")


def test_checksums_of_an_archive_in_one_piece_and_of_what_lies_beside_it(tmp_path: Path) -> None:
    pack(content(tmp_path, "made"), tmp_path / "v", "a.tar.gz", volume=LARGEST)
    (tmp_path / "v" / "a.tar.gz.00").rename(tmp_path / "v" / "a.tar.gz")
    (tmp_path / "v" / "README.txt").write_text("what this is")
    names = ["README.txt", "a.tar.gz"]
    (tmp_path / "v" / "SHA256SUMS").write_text(sums(tmp_path / "v", names, hashlib.sha256))
    untar(tmp_path / "v" / "SHA256SUMS", tmp_path / "out")
    assert tree(tmp_path / "out") == tree(tmp_path / "made")


def test_a_list_of_names_in_a_store_does_so_too_and_its_volumes_are_deleted(
    shuffled: list[str], tmp_path: Path, bucket: str, put: Callable[[dict[str, bytes]], str]
) -> None:
    put({f"v/{name}": (tmp_path / "v" / name).read_bytes() for name in shuffled})
    put({"v/order.lst": ("# in order\n" + "\n".join(shuffled)).encode()})
    for _ in range(2):
        report = untar(f"s3://{bucket}/v/order.lst", tmp_path / "out", delete_volumes=True)
        assert tree(tmp_path / "out") == tree(tmp_path / "made")
    assert report.counts == {"unchanged": 30}


@pytest.mark.parametrize("start", ["D:\\sets\\v\\", "/home/someone/v/"])
def test_a_list_of_another_machine_names_what_lies_beside_it(
    shuffled: list[str], start: str, tmp_path: Path
) -> None:
    text = sums(tmp_path / "v", shuffled, hashlib.sha256).replace("  ", f"  {start}")
    (tmp_path / "v" / "SHA256SUMS").write_text(text)
    report = untar(tmp_path / "v" / "SHA256SUMS", tmp_path / "out")
    assert report.details["compared"] == len(shuffled)
    (tmp_path / "v" / "order.lst").write_text("".join(f"{start}{name}\r\n" for name in shuffled))
    untar(tmp_path / "v" / "order.lst", tmp_path / "again")
    assert tree(tmp_path / "again") == tree(tmp_path / "out") == tree(tmp_path / "made")


def test_a_list_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    for name in ("../x", "/etc/passwd", "a/../../x", "%2e%2e/x", "%252E%252e/x", "..%2fx", "..\\x"):
        (tmp_path / "x.lst").write_text(f"a\n{name}\n")
        with pytest.raises(BadOption, match=r"x\.lst lists"):
            untar(tmp_path / "x.lst", tmp_path / "out")


def test_checksums_that_are_not_understood_are_named_by_their_line(tmp_path: Path) -> None:
    (tmp_path / "x.md5").write_text(f"{'0' * 32}  a.00\nwhat is this\n{'0' * 32}  a.01\n")
    with pytest.raises(BadOption, match=r"x\.md5, line 2"):
        untar(tmp_path / "x.md5", tmp_path / "out")


def test_a_volume_in_the_middle_that_is_smaller_than_its_equals_is_named_by_the_plan(tmp_path: Path) -> None:
    pack(content(tmp_path, "made"), tmp_path / "v", "a.tar.gz", volume=30_000)
    volumes = sorted((tmp_path / "v").iterdir())
    assert not [
        note
        for note in nbdata.UntarVolumes(tmp_path / "v", tmp_path / "out").plan().notes
        if "smaller" in note
    ]
    volumes[2].write_bytes(volumes[2].read_bytes()[:-100])
    notes = nbdata.UntarVolumes(tmp_path / "v", tmp_path / "out").plan().notes
    assert [
        note
        for note in notes
        if note.startswith("smaller than the other volumes: a.tar.gz.02; unless it was made that way")
    ]


def test_a_volume_that_is_listed_twice_is_refused(shuffled: list[str], tmp_path: Path) -> None:
    (tmp_path / "v" / "a.lst").write_text("\n".join([*shuffled, shuffled[0]]))
    for source in (tmp_path / "v" / "a.lst", [tmp_path / "v" / name for name in [*shuffled, shuffled[0]]]):
        with pytest.raises(BadOption, match="in the list of volumes twice"):
            untar(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("source", ["v", "v/a.tar.gz.00", "v/a.tar.gz.*", "v/MD5SUMS"])
def test_a_last_volume_that_only_the_checksums_name_is_missed_before_the_start(
    source: str, tmp_path: Path
) -> None:
    pack(content(tmp_path, "made"), tmp_path / "v", "a.tar.gz", volume=30_000)
    names = sorted(path.name for path in (tmp_path / "v").iterdir())
    (tmp_path / "v" / "MD5SUMS").write_text(sums(tmp_path / "v", names))
    (tmp_path / "v" / names[-1]).unlink()
    line = nbdata.UntarVolumes(str(tmp_path / source), str(tmp_path / "out"))
    with pytest.raises(MissingVolume, match=f"missing volume {names[-1]}: .*list.* Fetch") as caught:
        line.plan()
    assert caught.value.details["missing"] == [names[-1]]
    assert not (tmp_path / "out").exists()


def test_the_checksum_of_a_volume_that_is_missing_names_it(tmp_path: Path) -> None:
    pack(content(tmp_path, "made"), tmp_path / "v", "a.tar.gz", volume=30_000)
    names = sorted(path.name for path in (tmp_path / "v").iterdir())
    for name in names[-2:]:
        (tmp_path / "v" / f"{name}.md5").write_text(sums(tmp_path / "v", [name]))
        (tmp_path / "v" / name).unlink()
    with pytest.raises(MissingVolume, match=f"missing volumes {names[-2]}, {names[-1]}: .*md5 lists them"):
        nbdata.UntarVolumes(str(tmp_path / "v"), str(tmp_path / "out")).plan()


def test_checksums_of_other_files_do_not_matter(tmp_path: Path) -> None:
    pack(content(tmp_path, "made"), tmp_path / "v", "a.tar.gz", volume=30_000)
    (tmp_path / "v" / "MD5SUMS").write_text(
        f"{'0' * 32}  b.tar.gz.00\n{'0' * 32}  README\nno line of checksums\n"
    )
    assert untar(tmp_path / "v", tmp_path / "out").ok


def test_only_so_many_names_in_lists_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(content(tmp_path, "made"), tmp_path / "v", "a.tar.gz", volume=30_000)
    last = sorted(path.name for path in (tmp_path / "v").iterdir())[-1]
    (tmp_path / "v" / last).unlink()
    (tmp_path / "v" / "MD5SUMS").write_text(f"{'0' * 32}  other\n{'0' * 32}  {last}\n")
    line = nbdata.UntarVolumes(str(tmp_path / "v"), str(tmp_path / "out"))
    with pytest.raises(MissingVolume, match=f"missing volume {last}: MD5SUMS lists it"):
        line.plan()
    monkeypatch.setattr(missing, "_LOOKED_AT", 1)
    assert line.plan().actions
