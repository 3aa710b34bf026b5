"""pull, run in this process: what it writes, records and refuses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
import nbdata.engine.pull.perform as pull_module
from nbdata.errors import BadOption, NotFound

pytestmark = pytest.mark.usefixtures("inline")


def same(one: Path, other: Path) -> bool:
    def content(root: Path) -> dict[str, bytes]:
        return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}

    return content(one) == content(other)


def test_contents_of_a_folder_land_in_the_target_and_nothing_else(tree: Path, tmp_path: Path) -> None:
    report = nbdata.pull(str(tree) + "/", str(tmp_path / "out"), quiet=True)
    assert report.counts == {"fetched": 5}
    assert same(tree, tmp_path / "out")
    assert not (tmp_path / "out" / ".nbdata").exists()


def test_a_second_pull_moves_nothing(tree: Path, tmp_path: Path) -> None:
    nbdata.pull(tree, tmp_path / "out", quiet=True)
    before = {p: p.stat().st_ino for p in (tmp_path / "out").rglob("*") if p.is_file()}
    report = nbdata.pull(tree, tmp_path / "out", quiet=True)
    assert report.counts == {"unchanged": 5}
    assert {p: p.stat().st_ino for p in (tmp_path / "out").rglob("*") if p.is_file()} == before


def test_a_file_of_the_same_size_and_old_time_but_other_bytes_is_not_unchanged(
    tree: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    nbdata.pull(tree, out, quiet=True)
    found = (out / "a.txt").stat()
    (out / "a.txt").write_bytes(b"ALPHA\n")
    os.utime(out / "a.txt", ns=(found.st_atime_ns, found.st_mtime_ns))
    assert nbdata.pull(tree, out, quiet=True).counts == {"unchanged": 4, "fetched": 1}
    assert (out / "a.txt").read_bytes() == b"alpha\n"


def test_what_changed_on_both_sides_is_a_conflict_and_stays(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    nbdata.pull(tree, out, quiet=True)
    (tree / "a.txt").write_bytes(b"new at the source\n")
    (out / "a.txt").write_bytes(b"mine\n")
    with pytest.raises(nbdata.TransferFailed) as caught:
        nbdata.pull(tree, out, quiet=True)
    assert caught.value.report.counts == {"unchanged": 4, "conflict": 1}
    assert (out / "a.txt").read_bytes() == b"mine\n"
    assert nbdata.pull(tree, out, overwrite="always", quiet=True).counts == {
        "fetched": 4, "overwritten (edited here)": 1,
    }  # fmt: skip
    assert (out / "a.txt").read_bytes() == b"new at the source\n"


def test_a_dry_run_says_what_would_happen_and_writes_nothing(tree: Path, tmp_path: Path) -> None:
    plan = nbdata.pull(tree, tmp_path / "out", dry_run=True)
    assert plan.actions["fetch"][0] == 5
    assert [row.path for row in plan.rows] == [
        "a.txt",
        "b/c.bin",
        "b/d/empty",
        "b/e.txt",
        "with space & ünï.txt",
    ]
    assert not (tmp_path / "out").exists()


def test_a_link_in_the_target_that_leads_out_of_it_is_refused(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "b").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(nbdata.TransferFailed) as caught:
        nbdata.pull(tree, tmp_path / "out", quiet=True)
    assert caught.value.report.counts == {"failed": 3, "fetched": 2}
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_filters_limits_and_samples_select(tree: Path, tmp_path: Path) -> None:
    def paths(**options: object) -> list[str]:
        return [row.path for row in nbdata.pull(tree, tmp_path / "out", dry_run=True, **options).rows]

    assert paths(include="*.txt") == ["a.txt", "b/e.txt", "with space & ünï.txt"]
    assert paths(include="b/*") == ["b/c.bin", "b/d/empty", "b/e.txt"]
    assert paths(include="b/", exclude="**/*.bin") == ["b/d/empty", "b/e.txt"]
    assert paths(max_files=2) == ["a.txt", "b/c.bin"]
    assert paths(max_bytes=6) == ["a.txt"]
    assert len(paths(sample=3)) == 3
    assert paths(sample=3) == paths(sample=3, seed=0)


@pytest.mark.usefixtures("own_state")
def test_nothing_moves_when_it_does_not_fit(tree: Path, tmp_path: Path) -> None:
    nbdata.quota(tmp_path / "small", limit="50k", quiet=True)
    with pytest.raises(nbdata.NotEnoughSpace) as caught:
        nbdata.pull(tree, tmp_path / "small", quiet=True)
    assert "needs" in str(caught.value)
    assert caught.value.details["limit"] == 50 * 1024
    assert not (tmp_path / "small").exists()


def test_a_file_that_changes_right_after_it_was_compared_is_not_recorded_as_the_source(
    put: Callable[[dict[str, bytes]], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, out = put({"a": b"alpha"}), tmp_path / "out"
    out.mkdir()
    (out / "a").write_bytes(b"alpha")
    real = pull_module.same_bytes

    def then_changed(*args: object) -> bool:
        same = real(*args)
        (out / "a").write_bytes(b"OTHER")
        return same

    with monkeypatch.context() as patched:
        patched.setattr(pull_module, "same_bytes", then_changed)
        assert nbdata.pull(url, out, quiet=True).counts == {"unchanged": 1}
    assert nbdata.pull(url, out, quiet=True).counts == {"overwritten (edited here)": 1}
    assert (out / "a").read_bytes() == b"alpha"


@pytest.mark.in_ci("batched")
@pytest.mark.parametrize("size", [100, 600_000, 2_500_000], ids=["batched", "whole", "in parts"])
@pytest.mark.usefixtures("small_parts")
def test_a_file_that_was_edited_here_is_told_to_be_overwritten(
    put: Callable[[dict[str, bytes]], str], tmp_path: Path, size: int
) -> None:
    content = {name: os.urandom(size) for name in ("edited", "longer", "same", "touched")}
    url, out = put(content), tmp_path / "out"
    nbdata.pull(url, out, quiet=True)
    (out / "edited").write_bytes(bytes(size))
    (out / "longer").write_bytes(bytes(size + 1))
    os.utime(out / "touched")
    report = nbdata.pull(url, out, quiet=True)
    assert report.counts == {"unchanged": 2, "overwritten (edited here)": 2}
    assert "2 overwritten (edited here)" in report.line
    assert {path.name: path.read_bytes() for path in out.iterdir()} == content
    (out / "edited").write_bytes(b"again")
    put({"same": b"new in the store"})
    assert nbdata.pull(url, out, quiet=True).counts == {
        "unchanged": 2, "fetched": 1, "overwritten (edited here)": 1,
    }  # fmt: skip


def test_a_selection_that_leaves_nothing_says_which_options_did(tree: Path, tmp_path: Path) -> None:
    names = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())
    told = f"nothing was selected by --include of {len(names)} objects: {', '.join(names[:3])}, …"
    plan = nbdata.pull(tree, tmp_path / "out", include="*.nosuch", dry_run=True)
    assert (plan.empty, plan.notes) == (True, [told])
    assert "nothing selected" in plan.line
    for verb, target in ((nbdata.pull, tmp_path / "out"), (nbdata.push, "memory://bucket/x/")):
        with pytest.raises(nbdata.NotFound, match=re.escape(told)):
            verb(tree, target, include="*.nosuch", quiet=True)
    assert not (tmp_path / "out").exists()
    notes = nbdata.pull(tree, tmp_path / "out", include="a.txt", quiet=True).notes
    assert not any("selected" in note for note in notes)
    (tmp_path / "empty").mkdir()
    assert nbdata.pull(tmp_path / "empty", tmp_path / "out2", quiet=True).notes == []


def test_a_filter_that_is_no_text_is_refused(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(nbdata.BadOption, match=r"^include: 5"):
        nbdata.pull(tree, tmp_path / "out", include=5, quiet=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", [nbdata.pull, nbdata.push])
def test_nothing_is_moved_over_itself_and_counted_as_staged(
    verb: Callable[..., nbdata.Report], tree: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tree)
    file = tree / "a.txt"
    for source, target in (
        (tree, tree), (tree, f"{tmp_path}/link"), (f"{tmp_path}/link/", tree), (f"file://{tree}", f"{tree}/"),
        (file, tree), (file, file), (f"{tree}/*", tree), (tree / "b", f"{tree}/b/new"),
    ):  # fmt: skip
        with pytest.raises(BadOption, match=r"the same|lies in the source"):
            verb(str(source), str(target), quiet=True)
    with pytest.raises(BadOption, match="would delete the source"):
        verb(str(tree / "b"), str(tree), delete=True, quiet=True)
    assert "deleted" not in nbdata.cleanup(str(tree), all=True, quiet=True).counts
    assert file.read_bytes() == b"alpha\n"
    # A target beside the source, or a part of it pulled into the whole, is allowed.
    assert verb(f"{tree}/*.txt", f"{tree}/b/texts", quiet=True).ok
    assert verb(str(tree / "b" / "d"), str(tree), quiet=True).ok


@pytest.mark.parametrize("name", ["a[1].txt", "b{x,y}.txt", "c[1]/in"])
@pytest.mark.parametrize("verb", [nbdata.pull, nbdata.ls])
def test_the_error_for_a_name_that_is_a_pattern_says_how_to_write_it(
    tmp_path: Path, name: str, verb: Callable[..., Any]
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"x")
    target = [tmp_path / "out"] * (verb is nbdata.pull)
    with pytest.raises(NotFound, match="nothing matches") as caught:
        verb(f"{tmp_path}/{name.removesuffix('/in')}", *target, quiet=True)
    written = str(caught.value).partition("has exactly this name, write ")[2]
    assert len(verb(written, *target, quiet=True).rows) == 1
    with pytest.raises(NotFound, match="stays in a folder"):
        nbdata.pull(f"{tmp_path}/none[1]", tmp_path / "out", quiet=True)


def test_a_source_that_is_not_there_is_told_with_what_is_like_it(tmp_path: Path) -> None:
    for name in ("images/train.tar", "images/other.json", "labels/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    for wrong, right in (
        ("images/trian.tar", "images/train.tar"),
        ("Images/", "images/"),
        ("lables", "labels/"),
    ):
        with pytest.raises(NotFound, match=rf"Did you mean {tmp_path}/{right}\?"):
            nbdata.pull(tmp_path / wrong, tmp_path / "out", quiet=True)
    with pytest.raises(NotFound, match="Check the spelling"):
        nbdata.pull(tmp_path / "nothing-like-it", tmp_path / "out", quiet=True)
