"""untar_volumes by a file that lists the volumes, and what a plan says of volumes that look wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.errors import BadOption
from tests.engine.unpack.test_untar_several import content, tree
from tests.engine.unpack.unpacking import pack, untar

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture
def shuffled(tmp_path: Path) -> list[str]:
    """Volumes whose names say nothing of their order; what is given is the order."""
    pack(content(tmp_path, "made"), tmp_path / "v", "a.tar.gz", volume=30_000)
    names = []
    for number, path in enumerate(sorted((tmp_path / "v").iterdir())):
        names.append(f"{hashlib.md5(b'%d' % number).hexdigest()}.bin")
        path.rename(tmp_path / "v" / names[-1])
    assert names != sorted(names)
    return names


def sums(folder: Path, names: list[str]) -> str:
    return "".join(f"{hashlib.md5((folder / n).read_bytes()).hexdigest()}  {n}\n" for n in names)


def test_a_file_of_checksums_says_which_volumes_come_in_which_order(
    shuffled: list[str], tmp_path: Path
) -> None:
    (tmp_path / "v" / "all.md5").write_text(sums(tmp_path / "v", shuffled))
    untar(tmp_path / "v" / "all.md5", tmp_path / "out")
    assert tree(tmp_path / "out") == tree(tmp_path / "made")
    assert untar(tmp_path / "v" / "all.md5", tmp_path / "out").counts == {"unchanged": 30}


def test_a_list_of_names_in_a_store_does_so_too_and_its_volumes_are_deleted(
    shuffled: list[str], tmp_path: Path, bucket: str, put: Callable[[dict[str, bytes]], str]
) -> None:
    put({f"v/{name}": (tmp_path / "v" / name).read_bytes() for name in shuffled})
    put({"v/order.lst": ("# in order\n" + "\n".join(shuffled)).encode()})
    for _ in range(2):
        report = untar(f"s3://{bucket}/v/order.lst", tmp_path / "out", delete_volumes=True)
        assert tree(tmp_path / "out") == tree(tmp_path / "made")
    assert report.counts == {"unchanged": 30}


def test_a_list_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    for name in ("../x", "/etc/passwd", "a/../../x"):
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
        if note.startswith("smaller than the other volumes: a.tar.gz.02; if not made so")
    ]
