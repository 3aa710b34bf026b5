"""push, pull and md5check of unusual files: sockets, links, unreadable files, files that change meanwhile, and so on.

The tables in ``odd_files.py`` make up the page ``docs/files.md``. These tests check each of its rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.operation import Context
from nbdata.stores.resolve import open_place
from nbdata.stores.sessions import AHEAD
from tests.engine.odd_files import BEFORE, KINDS, WHILE, page
from tests.pages import same_page
from tests.slow import SlowProxy
from tests.waiting import PATIENCE

NBDATA = str(Path(sys.executable).with_name("nbdata"))
Put = Callable[[dict[str, bytes]], str]


def objects(url: str) -> dict[str, bytes]:
    store = open_place(url, Context("/", env=dict(os.environ))).store
    return {info.key: store.read_bytes(info.key) for info in store.list("")}


def without_rights(*words: str) -> tuple[int, dict[str, Any], str]:
    """Run a command as a user who may not read closed files, even if root; return status, report and stderr."""
    limits = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*limits, NBDATA, *words, "--json"], env={**os.environ, "NBDATA_HOST": "inline"}, capture_output=True,
        timeout=PATIENCE,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout or b"{}"), done.stderr.decode()


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    """A folder with one file of each kind."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_bytes(b"outside")
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "file").write_bytes(b"file")
    for kind in KINDS:
        kind.make(root)
    return root


def test_each_kind_of_file_comes_to_what_the_page_says(everything: Path, bucket: str) -> None:
    status, report, _ = without_rights("push", str(everything), f"s3://{bucket}/")
    failures, notes = dict(report["failures"]), "\n".join(report["notes"])
    for kind in KINDS:
        assert (kind.path in failures) == (kind.outcome in ("failed", "unreadable", "unrepresentable")), kind
        assert kind.says in failures.get(kind.path, notes), kind
    (everything / "closed").chmod(0o700)
    sent = {kind.path for kind in KINDS if kind.outcome == "sent"} | {"file"}
    assert objects(f"s3://{bucket}/") == {path: (everything / path).read_bytes() for path in sent}
    assert status == 1
    counts = dict.fromkeys(("failed", "unreadable", "unrepresentable", "left out"), 0)
    for kind in KINDS:
        if kind.outcome in counts and kind.path != "nothing":
            counts[kind.outcome] += 1
    assert report["counts"] == {"sent": len(sent), **counts}


def test_filters_hold_for_what_is_left_out_and_for_what_cannot_be_read(everything: Path, bucket: str) -> None:
    url = f"s3://{bucket}/"
    _, report, _ = without_rights("push", str(everything), url, "--include", "*.txt")
    # The content of these is unknown.
    assert report["counts"] == {"left out": 2, "unreadable": 2}
    status, report, _ = without_rights("push", str(everything), url, "--include", "d/**")
    assert (status, report["counts"]) == (0, {"left out": 1})
    closed = ("closed", "inside", "secret", "proc", "b*ytes")
    words = [word for name in closed for word in ("--exclude", name)]
    status, report, _ = without_rights("push", str(everything), url, *words)
    assert (status, report["counts"]) == (0, {"sent": 5, "left out": 7})
    # The pattern determines the depth.
    status, report, _ = without_rights("push", f"{everything}/*ile", url)
    assert (status, report["counts"]) == (0, {"unchanged": 1})
    status, report, _ = without_rights("push", f"{everything}/pip*", url)
    assert (status, report["counts"]) == (0, {"left out": 1})
    _, report, _ = without_rights("push", f"{everything}/**/no", url)
    assert report["counts"] == {"left out": 2, "unreadable": 2}


class Moments(SlowProxy):
    """A proxy that runs an action when an object is about to be written, before the store gets the request."""

    def __init__(self, upstream: str, moments: dict[str, Callable[[], object]]) -> None:
        super().__init__(upstream, rate=1 << 40)
        self.moments = moments

    def _see(self, data: bytes, answers: bool) -> None:
        if not answers and data.startswith(b"PUT "):
            key = data.split(b" ")[1].partition(b"?")[0].rpartition(b"/")[2].decode()
            self.moments.pop(key, lambda: None)()


@pytest.mark.usefixtures("inline")
def test_files_that_change_meanwhile_come_to_what_the_page_says(
    tmp_path: Path, bucket: str, s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    for kind in BEFORE:
        (root / kind.path).write_bytes(b"0123456789")
    for kind in WHILE:
        (root / kind.path).write_bytes(b"0123456789" * 30_000)
    (root / "0-first").write_bytes(b"first")
    for number in range(2 * AHEAD):  # so many files are read ahead
        (root / f"1-{number}").write_bytes(b"then")
    moments = {kind.path: lambda kind=kind: kind.make(root) for kind in WHILE}
    moments["0-first"] = lambda: [kind.make(root) for kind in BEFORE]
    with Moments(s3.url, moments) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        report = nbdata.push(root, f"s3://{bucket}/", concurrency=1, on_error="report", quiet=True)
        assert proxy.moments == {}
    failures = dict(report.failures)
    for kind in (*BEFORE, *WHILE):
        assert (kind.path in failures) == (kind.outcome == "failed"), kind
        assert kind.says in failures.get(kind.path, ""), kind
    assert report.counts == {"sent": 2 + 2 * AHEAD, "failed": len(failures)}
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    for path in ("piped", "linked"):
        (root / path).unlink()
    nbdata.push(root, f"s3://{bucket}/", quiet=True)
    assert all(objects(f"s3://{bucket}/")[p.name] == p.read_bytes() for p in root.iterdir())


@pytest.mark.usefixtures("inline")
def test_a_link_to_a_folder_is_followed_when_it_is_the_source(
    tree: Path, tmp_path: Path, bucket: str
) -> None:
    (tmp_path / "link").symlink_to(tree)
    assert nbdata.push(tmp_path / "link", f"s3://{bucket}/", quiet=True).counts == {"sent": 5}


@pytest.mark.usefixtures("inline")
def test_what_is_no_file_is_refused_as_source_and_as_target(tmp_path: Path, bucket: str, put: Put) -> None:
    url = put({"x": b""})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "x").write_bytes(b"1")
    with pytest.raises(nbdata.BadOption, match="the source is a named pipe"):
        nbdata.push(tmp_path / "pipe", url)
    with pytest.raises(nbdata.BadOption, match="the source is a device"):
        nbdata.push("/dev/zero", url)
    with pytest.raises(nbdata.TransferFailed, match="the target is a named pipe, which is never replaced"):
        nbdata.push(tmp_path / "x", tmp_path / "pipe", quiet=True)
    for overwrite in ("changed", "always"):
        with pytest.raises(nbdata.TransferFailed, match="a named pipe with this name exists"):
            nbdata.pull(f"{url}x", tmp_path / "pipe", overwrite=overwrite, quiet=True)


@pytest.mark.usefixtures("inline")
def test_a_pull_replaces_links_and_not_what_they_lead_to(tmp_path: Path, put: Put) -> None:
    url = put({"broken": b"1", "loop": b"2", "link": b"3"})
    (tmp_path / "aim").write_bytes(b"aim")
    for name, to in {"broken": "nothing", "loop": "loop", "link": "../aim"}.items():
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).symlink_to(to)
    report = nbdata.pull(url, tmp_path / "in", quiet=True)
    assert report.ok
    assert {p.name: (p.is_symlink(), p.read_bytes()) for p in (tmp_path / "in").iterdir()} == {
        "broken": (False, b"1"), "loop": (False, b"2"), "link": (False, b"3"),
    }  # fmt: skip
    assert (tmp_path / "aim").read_bytes() == b"aim"


@pytest.mark.usefixtures("inline")
def test_a_mirror_spares_what_stands_where_something_was_left_out(tmp_path: Path, bucket: str) -> None:
    url = f"s3://{bucket}/"
    for path in ("root/train/x", "root/model", "root/old", "elsewhere/x"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"1")
    root = tmp_path / "root"
    nbdata.push(root, url, quiet=True)
    for name in ("train/x", "model", "old"):
        (root / name).unlink()
    (root / "train").rmdir()
    (root / "train").symlink_to("../elsewhere")
    (root / "model").symlink_to("/mnt/not/there")
    plan = nbdata.push(root, url, delete=True, dry_run=True)
    assert [row.path for row in plan.rows if row.action == "delete"] == ["old"]
    assert "not deleted: 2 objects at or below what was left out" in plan.text()
    nbdata.push(root, url, delete=True, quiet=True)
    assert sorted(objects(url)) == ["model", "train/x"]


@pytest.mark.usefixtures("inline")
def test_a_pull_from_a_disk_spares_what_stands_where_something_was_left_out(tmp_path: Path) -> None:
    """A folder may have moved to another disk, with a link in its place."""
    root, copy = tmp_path / "root", tmp_path / "copy"
    for path in ("root/train/x", "root/train%2F/x", "root/model", "root/old", "root/kept", "elsewhere/x"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"1")
    line = nbdata.Pull(f"{root}/", f"{copy}/", delete=True, encode_names=True)
    line.run(quiet=True)
    before = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    for name in ("train/x", "train%2F/x", "model", "old"):
        (root / name).unlink()
    for name in ("train", "train%2F"):
        (root / name).rmdir()
        (root / name).symlink_to("../elsewhere")
    (root / "model").symlink_to("/mnt/not/there")
    assert [row.path for row in line.plan().rows if row.action == "delete"] == ["old"]
    report = line.run(quiet=True)
    assert report.counts == {"unchanged": 1, "deleted": 1}
    assert "not deleted: 3 files at or below what was left out" in report.notes
    assert any("2 links to folders" in note for note in report.notes)
    assert {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()} == before - {"old"}
    report = nbdata.pull(f"{root}/", f"{copy}/", delete=True, encode_names=True, exclude="train*", quiet=True)
    assert report.counts == {"unchanged": 1}


@pytest.mark.usefixtures("inline")
def test_links_stay_where_sources_are_deleted_and_hard_links_go(tmp_path: Path, bucket: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "aim").write_bytes(b"aim")
    (root / "link").symlink_to("../aim")
    (root / "one").write_bytes(b"1")
    for n in range(20):
        (root / f"name{n}").hardlink_to(root / "one")
    plan = nbdata.push(root, f"s3://{bucket}/", delete_source=True, dry_run=True)
    assert any("deletes 21 files (21 B)" in note for note in plan.notes)
    report = nbdata.push(root, f"s3://{bucket}/", delete_source=True, quiet=True)
    assert report.counts == {"sent": 22}
    assert report.notes == [
        "deleted on the disk: 21 files (21 B)",
        "1 kept: links; neither the links nor their targets are deleted",
    ]
    assert [p.name for p in root.iterdir()] == ["link"]
    assert (tmp_path / "aim").read_bytes() == b"aim"


@pytest.mark.timeout(120)
def test_a_source_that_cannot_be_deleted_is_a_failure_and_is_counted_once(
    tmp_path: Path, bucket: str
) -> None:
    """This holds for each way of sending files, and for files that the target already has."""
    root, url = tmp_path / "root", f"s3://{bucket}/"
    root.mkdir()
    content = {"small": b"small", "whole": bytes(400_000), "parts": os.urandom(17 << 20)}
    for name, data in content.items():
        (root / name).write_bytes(data)
    root.chmod(0o555)
    try:
        first = without_rights("push", str(root), url, "--delete-source")
        sent = objects(url)
        (root / "small").touch()  # must be compared
        again = without_rights("push", str(root / "small"), url, "--delete-source")
        stopped = without_rights("push", str(root), f"{url}x/", "--delete-source", "--on-error", "stop")
    finally:
        root.chmod(0o755)
    status, report, said = first
    assert (status, report["counts"], report["files"]) == (1, {"not deleted": 3}, 3), said
    reason = "the target has it, but it cannot be deleted here: the disk refuses"
    assert dict(report["failures"]) == dict.fromkeys(content, reason)
    assert f"3 of 3 were not deleted; first {report['failures'][0][0]}: {reason}" in said
    assert sent == content
    assert (again[0], again[1]["counts"], again[1]["files"]) == (1, {"not deleted": 1}, 0), again
    assert stopped[0] == 1, stopped
    assert "the disk refuses" in stopped[2]
    assert sorted(os.listdir(root)) == sorted(content)


@pytest.mark.timeout(120)
def test_a_check_names_what_it_leaves_out_and_ends_where_it_may_not_look(
    everything: Path, bucket: str
) -> None:
    for name in ("secret", "proc"):
        (everything / name).unlink()
    status, _, said = without_rights("md5check", str(everything), "--write")
    assert status == 1
    assert "the disk refuses" in said
    assert "closed" in said
    words = ("--exclude", "closed", "--exclude", "inside")
    status, report, _ = without_rights("md5check", str(everything), "--write", *words)
    notes = "\n".join(report["notes"])
    for kind in KINDS:
        if kind.outcome == "left out" and kind.path != "nothing":
            assert kind.says in notes, kind
    assert "empty folder" not in notes
    (everything / "link").unlink()
    (everything / "link").symlink_to("away")
    status, report, _ = without_rights("md5check", str(everything), *words)
    assert dict(report["failures"]).keys() == {"link"}
    assert report["counts"]["missing"] == 1
    notes = "\n".join(report["notes"])
    assert "2 broken links (its target does not exist): broken, link" in notes


def test_the_page_of_the_files_is_what_the_tables_say() -> None:
    same_page("files.md", page())
