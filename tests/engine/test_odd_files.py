"""What push, pull and md5check do of all that a disk may hold besides plain files that stay as they are.

The tables here are the page ``docs/files.md``: what a row says is tried, then written (see `tests.pages`).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.operation import Context
from nbdata.stores.resolve import open_place
from tests.pages import same_page
from tests.slow import SlowProxy

NBDATA = str(Path(sys.executable).with_name("nbdata"))
Put = Callable[[dict[str, bytes]], str]


class Kind(NamedTuple):
    """A kind of thing below SOURCE: how it comes to be, what becomes of it, and what the report says.

    `outcome` is "sent", "left out", "" (not spoken of), or a word of the report for a failure.
    """

    what: str
    path: str
    make: Callable[[Path], object]
    outcome: str
    says: str
    why: str


def _named_by_bytes(root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/b\xffytes")).write_bytes(b"1")


def _socket(root: Path) -> None:
    here = os.open(root, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"/proc/self/fd/{here}/socket")  # a socket's path is short
    os.close(here)


def _sparse(root: Path) -> None:
    with (root / "sparse").open("wb") as file:
        file.truncate(3 << 20)


def _closed_folder(root: Path) -> None:
    (root / "closed").mkdir()
    (root / "closed/in").write_bytes(b"1")
    (root / "closed").chmod(0)


def _closed_file(root: Path) -> None:
    (root / "secret").write_bytes(b"1")
    (root / "secret").chmod(0)


def _records(root: Path) -> None:
    (root / "d/.nbdata").mkdir()
    (root / "d/.nbdata/x").write_bytes(b"1")


_OUTSIDE = "../outside"
_LINKS = "2 links to folders (not followed; name it as SOURCE to take what it leads to): d/up, folder"
KINDS = (
    Kind("a file, also an empty one", "empty", lambda r: (r / "empty").touch(), "sent", "", "it is what is meant"),
    Kind(
        "a link to a file, also to one outside SOURCE", "link",
        lambda r: (r / "link").symlink_to(f"{_OUTSIDE}/file"), "sent", "",
        "the bytes of the file go under the link's name: stores know no links",
    ),
    Kind(
        "hard links", "hard", lambda r: (r / "hard").hardlink_to(r / "file"), "sent", "",
        "each name is an object of its own",
    ),
    Kind(
        "a sparse file", "sparse", _sparse, "sent", "",
        "its holes are zeros, and are sent as such: its whole length counts",
    ),
    Kind(
        "a link to a folder", "folder", lambda r: (r / "folder").symlink_to(_OUTSIDE), "left out",
        _LINKS, "what it leads to may be a whole disk; as SOURCE itself it is followed",
    ),
    Kind(
        "a link to a folder that it is in", "d/up", lambda r: (r / "d/up").symlink_to(".."), "left out",
        _LINKS,
        "no way leads round in circles",
    ),
    Kind(
        "a link that leads nowhere", "broken", lambda r: (r / "broken").symlink_to("away"), "left out",
        "1 broken link (nothing is where it leads): broken", "editors and browsers leave such links on purpose",
    ),
    Kind(
        "a link to itself", "loop", lambda r: (r / "loop").symlink_to("loop"), "left out",
        "1 loop of links (it leads to itself): loop", "as above",
    ),
    Kind(
        "a named pipe", "pipe", lambda r: os.mkfifo(r / "pipe"), "left out",
        "1 named pipe (no file; to read it would wait for who writes): pipe", "it is never opened",
    ),
    Kind(
        "a socket", "socket", _socket, "left out", "1 socket (no file; it holds no bytes): socket",
        "it is never opened",
    ),
    Kind(
        "a device, or a link to one", "device", lambda r: (r / "device").symlink_to("/dev/zero"), "left out",
        "1 device (no file; it may never end): device", "it is never opened",
    ),
    Kind(
        "an empty folder", "nothing", lambda r: (r / "nothing").mkdir(), "left out",
        "1 empty folder (stores keep objects, not folders): nothing", "a pull makes the folders that its files need",
    ),
    Kind(
        "a file that may not be read", "secret", _closed_file, "failed", "the disk refuses",
        "the rest is sent; what is missing in the store is said",
    ),
    Kind(
        "a folder that may not be read", "closed", _closed_folder, "unreadable", "the disk refuses",
        "as above; `--exclude NAME` if it is not meant, as `lost+found`",
    ),
    Kind(
        "a link into such a folder", "inside", lambda r: (r / "inside").symlink_to("closed/in"), "unreadable",
        "the disk refuses", "as above",
    ),
    Kind(
        "a file of `/proc`, of no size and with bytes", "proc", lambda r: (r / "proc").symlink_to("/proc/version"),
        "failed", "the file has no size and yet holds bytes", "an empty object would look like a good one",
    ),
    Kind(
        "a name that is no UTF-8", "b\udcffytes", _named_by_bytes, "unrepresentable", "its name is not UTF-8",
        "keys are UTF-8",
    ),
    Kind("`.nbdata`, in any folder", "d/.nbdata/x", _records, "", "", "the records of nbdata are nobody's data"),
)  # fmt: skip
MOMENTS = (
    Kind(
        "it is deleted before its turn", "gone", lambda r: (r / "gone").unlink(), "failed", "no such file or folder",
        "it was to be sent, and was not",
    ),
    Kind(
        "its folder is deleted", "d/x", lambda r: [(r / "d/x").unlink(), (r / "d").rmdir()], "failed",
        "no such file or folder", "as above",
    ),
    Kind(
        "it changes before its turn", "edited", lambda r: (r / "edited").write_bytes(b"edited"), "failed",
        "the file changed after it was listed", "nobody knows whether it is whole; the same line sends it later",
    ),
    Kind(
        "a named pipe takes its place", "piped", lambda r: [(r / "piped").unlink(), os.mkfifo(r / "piped")], "failed",
        "the file changed after it was listed", "it does not wait for who writes",
    ),
)  # fmt: skip


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other")


_WHILE = (
    Kind(
        "it changes while it is sent", "while-changes", lambda r: _overwrite(r / "while-changes"), "failed",
        "the file changed while it was sent", "the object may be of both versions; the same line sends it again",
    ),
    Kind(
        "it grows while it is sent", "while-grows", lambda r: _append(r / "while-grows"), "failed",
        "the file changed while it was sent", "as above: send logs when they are closed, or a copy",
    ),
    Kind(
        "it shrinks while it is sent", "while-shrinks", lambda r: os.truncate(r / "while-shrinks", 3), "failed",
        "while it was sent", "as above",
    ),
    Kind(
        "it is deleted or replaced while it is sent", "while-deleted", lambda r: (r / "while-deleted").unlink(),
        "failed", "the file was deleted or replaced while it was sent", "what stands there now is something else",
    ),
    Kind(
        "another name of it comes or goes", "while-linked",
        lambda r: (r / "linked").hardlink_to(r / "while-linked"), "sent", "", "its bytes are the same",
    ),
)  # fmt: skip


def objects(url: str) -> dict[str, bytes]:
    store = open_place(url, Context("/", env=dict(os.environ))).store
    return {info.key: store.read_bytes(info.key) for info in store.list("")}


def without_rights(*words: str) -> tuple[int, dict[str, Any], str]:
    """Status, report and stderr of a command of a user to whom closed files are closed: also if that is root."""
    limits = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*limits, NBDATA, *words, "--json"], env={**os.environ, "NBDATA_HOST": "inline"}, capture_output=True,
        timeout=90,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout or b"{}"), done.stderr.decode()


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    """A folder with one of each kind."""
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
    # Of these nobody knows what they hold.
    assert report["counts"] == {"left out": 2, "unreadable": 2}
    status, report, _ = without_rights("push", str(everything), url, "--include", "d/**")
    assert (status, report["counts"]) == (0, {"left out": 1})
    closed = ("closed", "inside", "secret", "proc", "b*ytes")
    words = [word for name in closed for word in ("--exclude", name)]
    status, report, _ = without_rights("push", str(everything), url, *words)
    assert (status, report["counts"]) == (0, {"sent": 5, "left out": 7})
    # The pattern says of which depth.
    status, report, _ = without_rights("push", f"{everything}/*ile", url)
    assert (status, report["counts"]) == (0, {"unchanged": 1})
    status, report, _ = without_rights("push", f"{everything}/pip*", url)
    assert (status, report["counts"]) == (0, {"left out": 1})
    _, report, _ = without_rights("push", f"{everything}/**/no", url)
    assert report["counts"] == {"left out": 2, "unreadable": 2}


class Moments(SlowProxy):
    """A proxy to a store that does something when an object is being written, before the store hears of it."""

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
    for kind in (*MOMENTS, *_WHILE):
        (root / kind.path).write_bytes(b"0123456789")
    (root / "0-first").write_bytes(b"first")
    moments = {kind.path: lambda kind=kind: kind.make(root) for kind in _WHILE}
    moments["0-first"] = lambda: [kind.make(root) for kind in MOMENTS]
    with Moments(s3.url, moments) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        report = nbdata.push(root, f"s3://{bucket}/", concurrency=1, on_error="report", quiet=True)
        assert proxy.moments == {}
    failures = dict(report.failures)
    for kind in (*MOMENTS, *_WHILE):
        assert (kind.path in failures) == (kind.outcome == "failed"), kind
        assert kind.says in failures.get(kind.path, ""), kind
    assert report.counts == {"sent": 2, "failed": len(failures)}
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
        with pytest.raises(nbdata.TransferFailed, match="a named pipe stands where the file is to be"):
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
    assert "2 objects at or below what was left out are not deleted" in plan.text()
    nbdata.push(root, url, delete=True, quiet=True)
    assert sorted(objects(url)) == ["model", "train/x"]


@pytest.mark.usefixtures("inline")
def test_links_stay_where_sources_are_deleted_and_hard_links_go(tmp_path: Path, bucket: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "aim").write_bytes(b"aim")
    (root / "link").symlink_to("../aim")
    (root / "one").write_bytes(b"1")
    for n in range(20):
        (root / f"name{n}").hardlink_to(root / "one")
    report = nbdata.push(root, f"s3://{bucket}/", delete_source=True, quiet=True)
    assert report.counts == {"sent": 22}
    assert report.notes == ["1 kept: are links; neither they nor what they lead to is deleted"]
    assert [p.name for p in root.iterdir()] == ["link"]
    assert (tmp_path / "aim").read_bytes() == b"aim"


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
    assert "2 broken links (nothing is where it leads): broken, link" in notes


HEAD = """# Which files are pushed

What `push` does of all that may lie below SOURCE. Whatever it does not send is named: *left out* is in the report's
counts and notes and is no failure; what *fails* makes the whole a failure, after the rest was sent. `--include` and
`--exclude` hold for all of it.

| below SOURCE | push | why |
|---|---|---|
"""
MEANWHILE = """
A file that is touched while the push runs:

| when | push | why |
|---|---|---|
"""
REST = """
SOURCE itself may be a link, which is followed; a named pipe, a socket or a device is refused. With `--delete` an object
at or below what was left out is not deleted, and none is where something failed. With `--delete-source` links stay.

**md5check** leaves out the same, and names it but for empty folders; a link that leads nowhere is *missing* if a
checksum of it is known. A folder that may not be read ends it, unless `--exclude` names it: what it
holds would go unchecked.

**pull** puts files in the place of links, and does not write through them. A folder, a named pipe, a socket or a
device where a file is to be is a conflict, also with `--overwrite always`.
"""
_TOLD = {"": "not sent", "failed": "fails", "unreadable": "fails", "unrepresentable": "fails"}


def test_the_page_of_the_files_is_what_the_tables_say() -> None:
    def lines(kinds: tuple[Kind, ...]) -> str:
        return "".join(f"| {k.what} | {_TOLD.get(k.outcome, k.outcome)} | {k.why} |\n" for k in kinds)

    same_page("files.md", HEAD + lines(KINDS) + MEANWHILE + lines((*MOMENTS, *_WHILE)) + REST)
