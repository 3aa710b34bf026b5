"""What lies in a cloned or unzipped demo folder leads no write elsewhere, runs nothing, and gives nothing away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nbdata.demo import programs, serverstate
from nbdata.demo.dataset import build_dataset
from nbdata.demo.run import _sums, main
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import NbdataError, UnsafeMember


@pytest.fixture
def thesis(tmp_path: Path) -> Path:
    """A file of the user, which must stay as it is."""
    (tmp_path / "home").mkdir()
    path = tmp_path / "home/thesis.txt"
    path.write_text("thesis")
    return path


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """The folder of a server, as it is after a run."""
    folder = serverstate.private_folder(tmp_path / "server")
    serverstate.make_credentials(folder, None, None)
    for name in ("data", "tmp"):
        (folder / name).mkdir(mode=0o700)
    for name in ("server.lock", "server.log"):
        (folder / name).touch(mode=0o600)
    serverstate.write(folder / "server.json", {"kind": "moto", "ports": {}})
    return folder


def linked(at: Path, to: Path) -> None:
    """Put a link in the place of a file or a folder."""
    if at.is_dir():
        at.rename(at.with_name(f"{at.name}-before"))
    at.unlink(missing_ok=True)
    at.symlink_to(to)


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path, thesis: Path) -> None:
    (thesis.parent / "tmp").mkdir()
    (thesis.parent / "tmp/notes").write_text("notes")
    linked(tmp_path / "server", thesis.parent)
    with pytest.raises(UnsafeMember, match="a link has the place"):
        EmbeddedServer.start(tmp_path / "server", kind="moto")
    assert sorted(os.listdir(thesis.parent)) == ["thesis.txt", "tmp"]
    assert os.listdir(thesis.parent / "tmp") == ["notes"]


def test_the_default_folder_of_the_demo_is_no_link(
    tmp_path: Path, thesis: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    linked(tmp_path / "demo-data", thesis.parent)
    with pytest.raises(UnsafeMember, match="a link has the place"):
        main(["--server", "moto", "--size", "1MB"])
    assert os.listdir(thesis.parent) == ["thesis.txt"]


def test_links_in_the_places_of_files_are_replaced(used: Path, thesis: Path) -> None:
    (thesis.parent / "tmp").mkdir()
    (thesis.parent / "tmp/notes").write_text("notes")
    for name in ("server.log", "server.json", "server.new", "temporary"):
        linked(used / name, thesis)
    linked(used / "tmp", thesis.parent / "tmp")
    EmbeddedServer.start(used, kind="moto").stop()
    assert thesis.read_text() == "thesis"
    assert os.listdir(thesis.parent / "tmp") == ["notes"]
    assert used.is_dir(), "temporary is a name that only the owner of the server gives"


@pytest.mark.parametrize("name", ["data", "server.lock", "credentials.json"])
def test_links_in_the_places_of_what_is_kept_are_refused(used: Path, thesis: Path, name: str) -> None:
    linked(used / name, thesis.parent if name == "data" else thesis)
    with pytest.raises(NbdataError):
        EmbeddedServer.start(used, kind="moto")
    assert os.listdir(thesis.parent) == ["thesis.txt"]
    assert thesis.read_text() == "thesis"


@pytest.mark.long
@pytest.mark.parametrize("name", ["server.lock", "server.json", "server.log"])
def test_a_pipe_makes_no_start_wait(used: Path, name: str) -> None:
    (used / name).unlink()
    os.mkfifo(used / name)
    if name == "server.lock":
        with pytest.raises(UnsafeMember, match="something else has the place"):
            EmbeddedServer.start(used, kind="moto")
    else:
        EmbeddedServer.start(used, kind="moto").stop()


def forged(used: Path) -> None:
    said = json.loads((used / "credentials.json").read_text())
    (used / "credentials.json").write_text(json.dumps({**said, "secret_key": "known to others"}))


def without_keys(used: Path) -> None:
    (used / "credentials.json").unlink()
    (used / "data/moto.py").write_text("")


@pytest.mark.parametrize("how", [forged, without_keys])
@pytest.mark.parametrize("given", [{}, {"access_key": "a", "secret_key": "s"}])
def test_a_folder_without_a_seal_on_its_keys_is_refused(
    used: Path, how: Callable[[Path], None], given: dict[str, str]
) -> None:
    how(used)
    with pytest.raises(UnsafeMember, match="no seal of yours"):
        EmbeddedServer.start(used, kind="moto", **given)


def test_moto_imports_nothing_from_where_it_runs(tmp_path: Path) -> None:
    for name in ("moto", "logging", "flask"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')")
    command = programs.command("moto", {"s3": 1})
    subprocess.run([*command[:3], "--help"], cwd=tmp_path, capture_output=True)
    assert not (tmp_path / "ran").exists()
    assert command[0] == sys.executable


@pytest.mark.long
@pytest.mark.parametrize("kind", ["seaweedfs", "moto"])
@pytest.mark.in_ci("seaweedfs")
def test_a_server_runs_in_an_empty_folder(tmp_path: Path, kind: str) -> None:
    """SeaweedFS reads ``filer.toml`` and other settings from there."""
    EmbeddedServer.start(tmp_path / "server", kind=kind).stop()
    for place in ("data", "tmp"):
        (tmp_path / "server" / place / "filer.toml").write_text(
            f'[leveldb2]\nenabled = true\ndir = "{tmp_path}/elsewhere"\n[leveldb3]\nenabled = false\n'
        )
    with EmbeddedServer.start(tmp_path / "server", kind=kind):
        assert not (tmp_path / "elsewhere").exists()
        assert not (tmp_path / "server/tmp/filer.toml").exists()


# -- the data set --


@pytest.mark.long
def test_links_beside_a_data_set_lead_nowhere(tmp_path: Path, thesis: Path) -> None:
    build_dataset(tmp_path / "set", size="200kB", volumes=2)
    for name in ("dataset.json", "dataset.json.new", ".building"):
        linked(tmp_path / "set" / name, thesis.parent if name == ".building" else thesis)
    build_dataset(tmp_path / "set", size="300kB", volumes=2)
    assert os.listdir(thesis.parent) == ["thesis.txt"]
    assert thesis.read_text() == "thesis"
    assert not (tmp_path / "set/dataset.json").is_symlink()


@pytest.mark.long
@pytest.mark.parametrize("name", ["", "compressed", "md5", "dataset.lock"])
def test_links_in_the_places_of_a_data_set_are_refused(tmp_path: Path, thesis: Path, name: str) -> None:
    (thesis.parent / "site-00").write_text("mine")
    if name:
        build_dataset(tmp_path / "set", size="200kB", volumes=2)
    linked(tmp_path / "set" / name, thesis if name == "dataset.lock" else thesis.parent)
    with pytest.raises(UnsafeMember, match="has the place"):
        build_dataset(tmp_path / "set", size="300kB", volumes=2)
    assert sorted(os.listdir(thesis.parent)) == ["site-00", "thesis.txt"]


@pytest.mark.in_ci("00000000000000000000000000000000")
@pytest.mark.parametrize("seal", ["", "0" * 32])
def test_a_data_set_without_a_seal_is_made_anew(tmp_path: Path, seal: str) -> None:
    made = build_dataset(tmp_path / "set", size="300kB", volumes=2)
    marker, first = tmp_path / "set/dataset.json", made.volumes[0]
    before = first.read_bytes()
    first.write_bytes(bytes(len(before)))
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "seal": seal}))
    assert build_dataset(tmp_path / "set", size="300kB", volumes=2) == made
    assert first.read_bytes() == before


@pytest.mark.long
def test_a_link_is_no_volume_and_no_object(tmp_path: Path, thesis: Path) -> None:
    made = build_dataset(tmp_path / "set", size="300kB", volumes=2)
    for file in (made.volumes[0], made.sidecars[1]):
        file.rename(tmp_path / "before")
        file.symlink_to(tmp_path / "before")
        again = build_dataset(tmp_path / "set", size="300kB", volumes=2)
        assert not any(path.is_symlink() for path in (*again.volumes, *again.sidecars))
    (tmp_path / "link").symlink_to(thesis)
    with EmbeddedServer.start(tmp_path / "server", kind="moto") as server:
        server.create_bucket("demo")
        with pytest.raises(OSError, match="symbolic link"):
            server.put("demo", "x", tmp_path / "link")


@pytest.mark.long
def test_checksums_are_not_written_through_a_link(tmp_path: Path, thesis: Path) -> None:
    made = build_dataset(tmp_path / "set", size="300kB", volumes=2)
    linked(made.folder / "sums", thesis.parent)
    assert (_sums(made) / "MD5SUMS").is_file()
    assert os.listdir(thesis.parent) == ["thesis.txt"]


def test_a_link_in_the_place_of_the_results_is_refused(
    tmp_path: Path, thesis: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo-data").mkdir()
    linked(tmp_path / "demo-data/work", thesis.parent)
    with pytest.raises(UnsafeMember, match="a link has the place"):
        main(["--server", "moto", "--size", "1MB"])
    assert os.listdir(thesis.parent) == ["thesis.txt"]


# -- what the user has in such a folder --


def test_results_go_only_where_the_demo_may_delete(tmp_path: Path) -> None:
    """The folder of results, again and again: it is emptied if the demo made it, and refused otherwise."""
    work = serverstate.emptied(tmp_path / "work")
    (work / "md5").mkdir()
    (work / "md5/site-00.md5").write_text("of the run before")
    assert serverstate.emptied(tmp_path / "work") == work
    assert os.listdir(work) == [".made-by-demo"]
    (work / "site").write_text("of the run before")
    (work / ".made-by-demo").write_text('{"seal": "of another user"}')
    with pytest.raises(UnsafeMember, match="the demo empties this folder"):
        serverstate.emptied(work)
    assert (work / "site").exists()


def test_a_demo_in_a_folder_of_the_user_deletes_nothing_there(tmp_path: Path) -> None:
    (tmp_path / "project/work/thesis").mkdir(parents=True)
    (tmp_path / "project/work/thesis/chapter.tex").write_text("years")
    with pytest.raises(UnsafeMember, match=r"name another folder with --folder") as refused:
        main(["--folder", str(tmp_path / "project"), "--server", "moto", "--size", "1MB"])
    assert refused.value.path == str(tmp_path / "project/work")
    assert (tmp_path / "project/work/thesis/chapter.tex").read_text() == "years"
    assert os.listdir(tmp_path / "project") == ["work"]


@pytest.mark.parametrize("name", ["tmp", "temporary", "server.log", "data"])
def test_a_server_deletes_nothing_of_the_user(tmp_path: Path, name: str) -> None:
    (tmp_path / "server" / name).mkdir(parents=True)
    (tmp_path / "server" / name / "mine").write_text("mine")
    with pytest.raises(UnsafeMember, match="no seal of yours"):
        serverstate.make_credentials(tmp_path / "server", None, None)  # what each start does first
    assert (tmp_path / "server" / name / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["sums/mine", "compressed/site-2024", ".building/mine", "dataset.json"])
def test_a_data_set_replaces_nothing_of_the_user(tmp_path: Path, name: str) -> None:
    mine = tmp_path / "set" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(UnsafeMember, match="did not make what is in it"):
        build_dataset(tmp_path / "set", size="300kB", volumes=2)
    assert mine.read_text() == "mine"
