"""untar_volumes of a folder with several archives: each goes into its own folder, or --set selects one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.unpack.stream.archive_stream import ArchiveStream
from nbdata.errors import BadArchive, BadOption, Cancelled, MissingVolume, NotFound, TransferFailed
from tests.engine.unpack.test_untar_to_store import stored
from tests.engine.unpack.unpacking import archive, no_leftovers, pack, untar

pytestmark = pytest.mark.usefixtures("inline")


def content(folder: Path, name: str, count: int = 30) -> Path:
    made, source = folder / name, random.Random(name)
    (made / "d").mkdir(parents=True)
    for number in range(count):
        (made / "d" / f"{number}").write_bytes(source.randbytes(number * 400 + 1))
    return made


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two sets of volumes and a single-file archive in one folder."""
    for name, archive_name in (("train", "train.tar.gz"), ("val", "val.tar.zst")):
        pack(content(tmp_path, name), tmp_path / "v", archive_name, volume=40_000)
    archive(tmp_path / "v", ("one", "file", b"1"), name="test.tar")
    return tmp_path / "v"


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def expected(tmp_path: Path, *names: str) -> dict[str, bytes]:
    return {f"{name}/{path}": data for name in names for path, data in tree(tmp_path / name).items()}


def test_each_archive_of_a_folder_goes_into_a_folder_of_its_own(two: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    planned = nbdata.UntarVolumes(two, target).plan()
    assert planned.details["sets"] == ["test.tar", "train.tar.gz", "val.tar.zst"]
    assert "3 archives, each into a folder of its own below the target: test/, train/, val/" in planned.notes
    assert {row.detail["set"] for row in planned.rows} == {*planned.details["sets"]}

    report = untar(two, target)
    assert tree(target) == expected(tmp_path, "train", "val") | {"test/one": b"1"}
    assert report.counts["extracted"] == 61
    sets = {row.path: row.detail["set"] for row in report.rows}
    assert sets["train/d/7"] == "train.tar.gz"
    assert sets["test/one"] == "test.tar"
    assert no_leftovers(target)

    again = untar(two, target)
    assert again.counts == {"unchanged": 61}
    assert again.bytes == 0


@pytest.mark.parametrize("name", ["val", "val.tar.zst"])
def test_a_single_selected_archive_goes_into_the_target_itself(two: Path, tmp_path: Path, name: str) -> None:
    untar(two, tmp_path / "out", set=[name])
    assert tree(tmp_path / "out") == tree(tmp_path / "val")


def test_several_selected_archives_go_into_folders(two: Path, tmp_path: Path) -> None:
    untar(two, tmp_path / "out", set=["val", "test.tar"])
    assert tree(tmp_path / "out") == expected(tmp_path, "val") | {"test/one": b"1"}


def test_each_archive_of_a_prefix_goes_below_a_prefix_of_its_own(
    two: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, put: Callable[[dict[str, bytes]], str]
) -> None:
    put({f"v/{path.name}": path.read_bytes() for path in two.iterdir()})
    report = untar(f"s3://{bucket}/v/", f"s3://{bucket}/out/")
    assert stored(s3, bucket, "out/") == expected(tmp_path, "train", "val") | {"test/one": b"1"}
    assert report.counts["extracted"] == 61
    assert untar(f"s3://{bucket}/v/", f"s3://{bucket}/out/").counts == {"unchanged": 61}


def test_the_command_remembers_that_there_were_several_archives_after_deleting_volumes(
    two: Path, tmp_path: Path
) -> None:
    damaged = sorted(two.glob("val.*"))[-1]
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-20])
    with pytest.raises(TransferFailed) as caught:
        untar(two, tmp_path / "out", delete_volumes=True)
    assert caught.value.report.counts["failed"] == 1
    assert [path for path, _ in caught.value.report.failures] == ["val.tar.zst"]
    assert {path.name.split(".")[0] for path in two.iterdir()} == {
        "val"
    }  # the others were extracted and deleted

    damaged.write_bytes(data)
    untar(two, tmp_path / "out", delete_volumes=True)
    assert tree(tmp_path / "out") == expected(tmp_path, "train", "val") | {"test/one": b"1"}
    assert list(two.iterdir()) == []
    assert set(untar(two, tmp_path / "out", delete_volumes=True).counts) == {"unchanged"}


def test_what_is_no_archive_is_told_and_the_others_are_unpacked(two: Path, tmp_path: Path) -> None:
    (two / "error.tar.gz").write_bytes(b"<html><body>Not found</body></html>")
    operation = nbdata.UntarVolumes(two, tmp_path / "out", on_error="report")
    assert any(note.startswith("error.tar.gz: not an archive") for note in operation.plan().notes)
    report = operation.run(quiet=True)
    assert [(name, reason[:14]) for name, reason in report.failures] == [("error.tar.gz", "not an archive")]
    assert tree(tmp_path / "out") == expected(tmp_path, "train", "val") | {"test/one": b"1"}
    for path in (*two.glob("train*"), *two.glob("val*"), *two.glob("test*")):
        path.unlink()
    (two / "other.tar.gz").write_bytes(b"<html><body>Not found</body></html>")
    with pytest.raises(BadArchive):
        untar(two, tmp_path / "none")


def test_a_hole_in_one_of_them_is_told_and_the_others_are_unpacked(two: Path, tmp_path: Path) -> None:
    sorted(two.glob("train.*"))[1].unlink()
    operation = nbdata.UntarVolumes(two, tmp_path / "out", on_error="report")
    assert any("missing volume train.tar.gz.01" in note for note in operation.plan().notes)
    report = operation.run(quiet=True)
    ((name, reason),) = report.failures
    assert (name, reason[:30]) == ("train.tar.gz", "missing volume train.tar.gz.01")
    assert tree(tmp_path / "out") == expected(tmp_path, "val") | {"test/one": b"1"}
    with pytest.raises(MissingVolume, match=r"train\.tar\.gz\.01"):
        untar(two, tmp_path / "out", set=["train"])


@pytest.mark.parametrize(
    "names",
    [("a.tar", "a.tar.gz"), ("a.tar", "A.tar"), ("a.tar.00", "a.tar.01", "a.tar")],
)
def test_archives_that_would_go_into_one_folder_are_named(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        archive(tmp_path / "v", ("x", "file", b"x"), name=name)
    if "a.tar.01" in names:
        (tmp_path / "v" / "a.tar.01").write_bytes(bytes(512))  # a volume: no archive begins so
    with pytest.raises(BadOption, match="would be unpacked into the same folder"):
        untar(tmp_path / "v", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_one_archive_within_that_of_another_is_named(
    tmp_path: Path, bucket: str, put: Callable[[dict[str, bytes]], str]
) -> None:
    data = archive(tmp_path / "v", ("b/x", "file", b"x")).read_bytes()
    put({"v/a.tar": data, "v/a/b.tar": data})
    with pytest.raises(BadOption, match="same folder"):
        untar(f"s3://{bucket}/v/**", tmp_path / "out")


def test_the_folder_of_an_archive_leads_through_no_link_of_the_target(two: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "train").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadOption, match="a symbolic link has the name of the folder train"):
        untar(two, tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_listing_names_the_members_of_each(two: Path) -> None:
    report = untar(two, list=True)
    assert {"train/d", "train/d/3", "val/d/3", "test/one"} <= {row.path for row in report.rows}
    assert report.tables[0]["rows"][0][0] == "test/one"


def test_patterns_need_a_member_of_one_archive_only(two: Path, tmp_path: Path) -> None:
    untar(two, tmp_path / "out", members=["one", "d/2"])
    assert set(tree(tmp_path / "out")) == {"test/one", "train/d/2", "val/d/2"}
    with pytest.raises(NotFound, match=r"no member of 3 archives matches none"):
        untar(two, tmp_path / "other", members=["one", "none"])


def test_a_name_that_no_archive_has_is_refused_with_those_that_are_there(two: Path, tmp_path: Path) -> None:
    with pytest.raises(
        NotFound, match=r"no archive is called tran .expected test\.tar, train\.tar\.gz, val\.tar\.zst"
    ):
        untar(two, tmp_path / "out", set=["tran"])
    with pytest.raises(NotFound, match="no archive is called tran"):
        untar(two, tmp_path / "out", set=["train", "tran"])
    with pytest.raises(BadOption, match="--set is for a SOURCE"):
        untar(two / "test.tar", tmp_path / "out", set=["test"])


@pytest.mark.in_ci("True")
@pytest.mark.parametrize("store", [False, True])
def test_a_line_that_was_stopped_in_its_second_archive_goes_on_there(
    two: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, store: bool
) -> None:
    target = f"s3://{bucket}/out/" if store else tmp_path / "out"
    opened = ArchiveStream._open

    def stopped(stream: ArchiveStream) -> None:
        opened(stream)
        if stream._volumes.title == "train.tar.gz":
            stream._run.control.cancel()  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ArchiveStream, "_open", stopped)
        with pytest.raises(Cancelled):
            untar(two, target)
    report = untar(two, target)
    assert report.counts["unchanged"] >= 1  # the member of test.tar, which was not read again
    assert report.details["sets"]["test.tar"]["compressed"] == 0
    found = stored(s3, bucket, "out/") if store else tree(tmp_path / "out")
    assert found == expected(tmp_path, "train", "val") | {"test/one": b"1"}
