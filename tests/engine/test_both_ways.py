"""Pull and push between the same folder and place: each knows what the other has moved, so no change is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import nbdata
from nbdata.engine.pull.plan import identity_of
from nbdata.operation import Context
from nbdata.stores.resolve import open_place
from nbdata.transfer.index import Index, Record
from nbdata.transfer.part_records import validator
from tests.engine.changing import after_the_plan

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]


def content(url: str, name: str) -> bytes:
    place = open_place(url + name, Context("/", env=dict(os.environ)))
    return place.store.read_bytes(place.key)


def server(url: str) -> str:
    return open_place(url, Context("/", env=dict(os.environ))).store.server


def delete(url: str, name: str) -> None:
    place = open_place(url + name, Context("/", env=dict(os.environ)))
    place.store.delete([place.key])


def test_a_push_does_not_replace_what_another_has_pushed_since_the_pull(put: Put, tmp_path: Path) -> None:
    url = put({"d/f": b"first", "d/g": b"same"}) + "d/"
    alice, bob = tmp_path / "alice", tmp_path / "bob"
    for folder in (alice, bob):
        nbdata.pull(url, folder, quiet=True)
    (alice / "f").write_bytes(b"alice's text")
    (bob / "f").write_bytes(b"bob's")
    assert nbdata.push(alice, url, quiet=True).counts == {"sent": 1, "unchanged": 1}
    with pytest.raises(nbdata.TransferFailed, match="changed on both sides since it was pulled") as caught:
        nbdata.push(bob, url, quiet=True)
    assert caught.value.report.counts == {"unchanged": 1, "conflict": 1}
    assert content(url, "f") == b"alice's text"
    assert nbdata.push(bob, url, overwrite="always", quiet=True).counts == {"sent": 2}
    assert content(url, "f") == b"bob's"


def test_a_push_does_not_bring_an_old_version_back(put: Put, tmp_path: Path) -> None:
    url = put({"d/f": b"first"}) + "d/"
    nbdata.pull(url, tmp_path / "d", quiet=True)
    put({"d/f": b"newer than that"})
    with pytest.raises(nbdata.TransferFailed, match="changed in the store since it was pulled"):
        nbdata.push(tmp_path / "d", url, quiet=True)
    assert content(url, "f") == b"newer than that"


def test_what_was_pulled_edited_and_pushed_is_unchanged_in_both_directions(put: Put, tmp_path: Path) -> None:
    url = put({"d/f": b"first"}) + "d/"
    folder = tmp_path / "d"
    assert nbdata.pull(url, folder, quiet=True).counts == {"fetched": 1}
    assert nbdata.push(folder, url, quiet=True).counts == {"unchanged": 1}
    for text in (b"second", b"the third"):
        (folder / "f").write_bytes(text)
        assert nbdata.push(folder, url, quiet=True).counts == {"sent": 1}
        assert nbdata.pull(url, folder, quiet=True).counts == {"unchanged": 1}
        assert content(url, "f") == text


def test_a_push_may_replace_the_version_that_was_pulled_last(put: Put, tmp_path: Path) -> None:
    """The push before knows an older version; the pull in between has taken up the change."""
    url, folder = put({"d/f": b"first"}) + "d/", tmp_path / "d"
    nbdata.pull(url, folder, quiet=True)
    (folder / "f").write_bytes(b"second")
    nbdata.push(folder, url, quiet=True)
    put({"d/f": b"another's third"})
    assert nbdata.pull(url, folder, quiet=True).counts == {"fetched": 1}
    (folder / "f").write_bytes(b"fourth")
    assert nbdata.push(folder, url, quiet=True).counts == {"sent": 1}
    assert content(url, "f") == b"fourth"


def test_a_pull_does_not_replace_what_was_edited_since_the_push(put: Put, tmp_path: Path) -> None:
    url, folder = put({}) + "d/", tmp_path / "d"
    folder.mkdir()
    (folder / "f").write_bytes(b"pushed")
    nbdata.push(folder, url, quiet=True)
    put({"d/f": b"another's"})
    (folder / "f").write_bytes(b"edited here")
    with pytest.raises(nbdata.TransferFailed, match="changed on both sides since it was pushed"):
        nbdata.pull(url, folder, quiet=True)
    assert (folder / "f").read_bytes() == b"edited here"


@pytest.mark.long
def test_a_push_after_a_killed_pull_leaves_what_the_pull_was_replacing(put: Put, tmp_path: Path) -> None:
    """After the kill the file may be the old version or the new one."""
    url, folder = put({"d/f": b"first", "d/g": b"same"}) + "d/", tmp_path / "d"
    nbdata.pull(url, folder, quiet=True)
    put({"d/f": b"another's"})
    identity = identity_of(str(folder))
    index = Index(os.environ["NBDATA_STATE_DIR"], url, str(folder), identity, server(url))
    assert identity is not None
    index.open(identity)
    place = open_place(url + "f", Context("/", env=dict(os.environ)))
    (new,) = place.store.list(place.key)
    index.announce({"f": validator(new)})
    os.close(index._fd)  # as after a kill: the record that follows is missing
    report = nbdata.push(folder, url, on_error="report", quiet=True)
    assert report.counts == {"unchanged": 1, "conflict": 1}
    assert "a pull of it was interrupted" in str([row.detail for row in report.rows])
    assert nbdata.pull(url, folder, quiet=True).ok
    assert (folder / "f").read_bytes() == b"another's"
    assert nbdata.push(folder, url, quiet=True).counts == {"unchanged": 2}


def test_a_push_that_was_killed_after_its_last_byte_goes_on(put: Put, tmp_path: Path) -> None:
    """The object is the new version, but the record still says what was pulled."""
    url, folder = put({"d/f": b"first"}) + "d/", tmp_path / "d"
    nbdata.pull(url, folder, quiet=True)
    (folder / "f").write_bytes(b"edited")
    identity = identity_of(str(folder))
    assert identity is not None
    index = Index(os.environ["NBDATA_STATE_DIR"], str(folder), url, identity, server(url))
    index.open(identity)
    index.put({"f": Record("", 6, *Record.of("", 6, (folder / "f").stat())[2:])})
    index.close()
    put({"d/f": b"edited"})
    assert nbdata.push(folder, url, quiet=True).counts == {"unchanged": 1}


def test_the_same_bytes_on_both_sides_are_no_conflict(put: Put, tmp_path: Path) -> None:
    """Another spelling, or another program, has moved the change; no record of the folder knows of it."""
    url, folder = put({"d/f": b"first", "d/g": b"first"}) + "d/", tmp_path / "d"
    nbdata.pull(url, folder, quiet=True)
    (folder / "f").write_bytes(b"second")
    nbdata.push(folder / "f", url, quiet=True)
    assert nbdata.push(folder, url, quiet=True).counts == {"unchanged": 2}
    (folder / "g").write_bytes(b"third")
    put({"d/g": b"third"})
    assert nbdata.pull(url, folder, quiet=True).counts == {"unchanged": 2}


def test_a_push_that_a_kill_left_without_records_goes_on(put: Put, tmp_path: Path) -> None:
    """The objects are those of the killed push; the pull before knows an older version."""
    names = [f"{number:02}" for number in range(20)]
    url, folder = put({f"d/{name}": b"first" for name in names}) + "d/", tmp_path / "d"
    nbdata.pull(url, folder, quiet=True)
    for name in names:
        (folder / name).write_bytes(b"second " + name.encode())
    put({f"d/{name}": b"second " + name.encode() for name in names[:11]})
    assert nbdata.push(folder, url, quiet=True).counts == {"unchanged": 11, "sent": 9}


def test_an_object_that_a_push_is_replacing_is_announced(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a store has no checksum to compare, only the record tells that an object is the push's own."""
    url, folder = put({"d/f": b"first"}) + "d/", tmp_path / "d"
    nbdata.pull(url, folder, quiet=True)
    (folder / "f").write_bytes(b"edited")
    with monkeypatch.context() as killed:
        killed.setattr(Index, "put", lambda self, records: None)
        killed.setattr(Index, "close", lambda self: os.close(self._fd))
        nbdata.push(folder, url, quiet=True)
    identity = identity_of(str(folder))
    record = Index(os.environ["NBDATA_STATE_DIR"], str(folder), url, identity, server(url)).get("f")
    assert record is not None
    assert (record.tag, record.local_same((folder / "f").stat())) == ("", True)


def test_a_push_does_not_bring_back_what_it_pushed_before_another(put: Put, tmp_path: Path) -> None:
    url, alice, bob = put({"x": b""}) + "d/", tmp_path / "alice", tmp_path / "bob"
    alice.mkdir()
    (alice / "f").write_bytes(b"alice's")
    nbdata.push(alice, url, quiet=True)
    nbdata.pull(url, bob, quiet=True)
    (bob / "f").write_bytes(b"bob's week")
    nbdata.push(bob, url, quiet=True)
    with pytest.raises(
        nbdata.TransferFailed, match="changed in the store since it was pushed; pull it first"
    ):
        nbdata.push(alice, url, quiet=True)
    assert content(url, "f") == b"bob's week"
    assert nbdata.pull(url, alice, quiet=True).counts == {"fetched": 1}
    assert nbdata.push(alice, url, quiet=True).counts == {"unchanged": 1}


def test_a_mirror_deletes_nothing_that_was_changed_since(put: Put, tmp_path: Path) -> None:
    url, folder = put({"d/f": b"first", "d/g": b"first", "d/h": b"first"}) + "d/", tmp_path / "d"
    nbdata.pull(url, folder, quiet=True)
    (folder / "f").unlink()
    assert nbdata.push(folder, url, delete=True, quiet=True).counts == {"unchanged": 2, "deleted": 1}
    put({"d/g": b"another's"})
    (folder / "g").unlink()
    with pytest.raises(nbdata.BadOption, match="an object that was changed in the store since"):
        nbdata.push(folder, url, delete=True, quiet=True)
    assert content(url, "g") == b"another's"
    (folder / "f").write_bytes(b"made here")
    (folder / "h").write_bytes(b"edited here")
    nbdata.push(folder, url, include="f", quiet=True)
    nbdata.pull(url, folder, include="f", quiet=True)
    place = open_place(url, Context("/", env=dict(os.environ)))
    place.store.delete([place.key + "h"])
    with pytest.raises(nbdata.BadOption, match="a file that was edited here since it was pulled"):
        nbdata.pull(url, folder, delete=True, quiet=True)
    assert (folder / "h").read_bytes() == b"edited here"


def test_a_mirror_refuses_files_that_were_there_before_and_only_compared(put: Put, tmp_path: Path) -> None:
    """Who deletes in the store does not decide about files that the user made."""
    url, folder = put({"d/f": b"made here", "d/g": b"made there"}) + "d/", tmp_path / "d"
    folder.mkdir()
    (folder / "f").write_bytes(b"made here")
    assert nbdata.pull(url, folder, quiet=True).counts == {"unchanged": 1, "fetched": 1}
    delete(url, "f")
    for text in (b"made here", b"years of edits"):
        (folder / "f").write_bytes(text)
        with pytest.raises(nbdata.BadOption, match=f"this pull never wrote: {folder}/f"):
            nbdata.pull(url, folder, delete=True, quiet=True)
        assert (folder / "f").read_bytes() == text
    report = nbdata.pull(url, folder, delete=True, force=True, quiet=True)
    assert report.counts == {"unchanged": 1, "deleted": 1}


@pytest.mark.parametrize("verb", ["push", "copy"])
def test_a_mirror_in_a_store_refuses_objects_that_were_there_before_and_only_compared(
    verb: str, put: Put, tmp_path: Path
) -> None:
    objects = {f"{place}/{name}": b"1" for place in ("in", "out") for name in ("f", "g")}
    url, folder = put(objects), tmp_path / "in"
    nbdata.pull(f"{url}in/", folder, quiet=True)
    source = str(folder) if verb == "push" else f"{url}in/"
    line = {"push": nbdata.Push, "copy": nbdata.Copy}[verb](source, f"{url}out/")
    assert line.run(quiet=True).counts == {"unchanged": 2}
    delete(f"{url}in/", "f")
    (folder / "f").unlink()
    with pytest.raises(nbdata.BadOption, match=f"this {verb} never wrote: {url}out/f"):
        replace(line, delete=True).run(quiet=True)
    assert content(f"{url}out/", "f") == b"1"
    counts = replace(line, delete=True, force=True).run(quiet=True).counts
    assert counts == {"unchanged": 1, "deleted": 1}


def test_a_push_deletes_an_object_of_its_own_that_it_compared_since(put: Put, tmp_path: Path) -> None:
    url, folder = put({"x": b""}) + "d/", tmp_path / "d"
    folder.mkdir()
    for text in (b"1", b"2"):
        for name in ("f", "g"):
            (folder / name).write_bytes(text)
        with pytest.MonkeyPatch.context() as killed:
            if text == b"2":
                killed.setattr(Index, "put", lambda self, records: None)
                killed.setattr(Index, "close", lambda self: os.close(self._fd))
            nbdata.push(folder, url, quiet=True)
    assert nbdata.push(folder, url, quiet=True).counts == {"unchanged": 2}
    (folder / "f").unlink()
    assert nbdata.push(folder, url, delete=True, quiet=True).counts == {"unchanged": 1, "deleted": 1}


def test_a_push_does_not_delete_what_a_pull_only_found_to_be_the_same(put: Put, tmp_path: Path) -> None:
    url, folder = put({"d/f": b"1", "d/g": b"1"}) + "d/", tmp_path / "d"
    folder.mkdir()
    (folder / "f").write_bytes(b"1")
    nbdata.pull(url, folder, quiet=True)
    for name in ("f", "g"):
        (folder / name).unlink()
    with pytest.raises(nbdata.BadOption, match=f"this push never wrote: {url}f"):
        nbdata.push(folder, url, delete=True, quiet=True)
    nbdata.push(folder, url, delete=True, exclude="f", quiet=True)
    assert content(url, "f") == b"1"


def test_a_mirror_of_a_store_leaves_a_file_that_was_edited_after_its_plan(put: Put, tmp_path: Path) -> None:
    url, folder = put({"d/f": b"first", "d/g": b"first", "d/h": b"first"}) + "d/", tmp_path / "d"
    nbdata.pull(url, folder, quiet=True)
    delete(url, "f")
    delete(url, "g")
    with after_the_plan(lambda: (folder / "f").write_bytes(b"edited")):
        report = nbdata.pull(url, folder, delete=True, on_error="report", quiet=True)
    assert report.counts == {"unchanged": 1, "not deleted": 1, "deleted": 1}
    assert (folder / "f").read_bytes() == b"edited"
    with after_the_plan(lambda: (folder / "f").write_bytes(b"edited again")):
        assert nbdata.pull(url, folder, delete=True, force=True, quiet=True).counts["deleted"] == 1


@pytest.mark.parametrize("verb", ["push", "copy"])
def test_a_mirror_to_a_store_leaves_an_object_that_was_changed_after_its_plan(
    verb: str, put: Put, tmp_path: Path
) -> None:
    url, source = put({"in/f": b"first", "in/g": b"first", "in/h": b"first"}), str(tmp_path / "in")
    nbdata.pull(f"{url}in/", source, quiet=True)
    source = source if verb == "push" else f"{url}in/"
    line = {"push": nbdata.Push, "copy": nbdata.Copy}[verb](source, f"{url}out/", on_error="report")
    line.run(quiet=True)
    for name in ("f", "g"):
        (tmp_path / "in" / name).unlink()
        delete(f"{url}in/", name)
    line = replace(line, delete=True)
    with after_the_plan(lambda: put({"out/f": b"another's"})):
        assert line.run(quiet=True).counts == {"unchanged": 1, "not deleted": 1, "deleted": 1}
    assert content(f"{url}out/", "f") == b"another's"
    with after_the_plan(lambda: put({"out/f": b"another's again"})):
        assert replace(line, force=True).run(quiet=True).counts == {"unchanged": 1, "deleted": 1}


def test_a_mirror_leaves_an_object_of_which_a_killed_push_has_only_an_announcement(
    put: Put, tmp_path: Path
) -> None:
    """It may be what another program has written since."""
    url, folder = put({"d/x": b""}) + "d/", tmp_path / "d"
    folder.mkdir()
    for name in ("f", "x"):
        (folder / name).write_bytes(b"first")
    nbdata.push(folder, url, quiet=True)
    (folder / "f").write_bytes(b"second")
    with pytest.MonkeyPatch.context() as killed:
        killed.setattr(Index, "put", lambda self, records: None)
        killed.setattr(Index, "close", lambda self: os.close(self._fd))
        nbdata.push(folder, url, quiet=True)
    (folder / "f").unlink()
    put({"d/f": b"another's"})
    with pytest.raises(nbdata.BadOption, match="an object that was changed in the store since"):
        nbdata.push(folder, url, delete=True, quiet=True)
    assert content(url, "f") == b"another's"


@pytest.mark.in_ci("small")
@pytest.mark.parametrize("size", [1_000, 1_000_000, 33 << 20], ids=["small", "whole", "in parts"])
def test_a_pull_does_not_replace_a_file_that_was_edited_after_its_plan(
    size: int, put: Put, tmp_path: Path
) -> None:
    url, folder = put({"d/f": b"first", "d/g": b"first"}) + "d/", tmp_path / "d"
    nbdata.pull(url, folder, quiet=True)
    put({"d/f": bytes(size), "d/g": bytes(size)})
    with after_the_plan(lambda: (folder / "f").write_bytes(b"edited")):
        report = nbdata.pull(url, folder, on_error="report", quiet=True)
    assert report.counts == {"conflict": 1, "fetched": 1}
    assert "edited here while the pull ran" in str([row.detail for row in report.rows])
    assert (folder / "f").read_bytes() == b"edited"
    assert (folder / "g").read_bytes() == bytes(size)
    with pytest.raises(nbdata.TransferFailed, match="changed on both sides"):
        nbdata.pull(url, folder, quiet=True)
    with after_the_plan(lambda: (folder / "f").write_bytes(b"edited again")):
        nbdata.pull(url, folder, overwrite="always", quiet=True)
    assert (folder / "f").read_bytes() == bytes(size)
    assert not (folder / ".nbdata").exists()


@pytest.mark.parametrize("size", [1_000, 1_000_000, 33 << 20], ids=["small", "whole", "in parts"])
@pytest.mark.in_ci("in parts")
def test_a_push_does_not_replace_an_object_that_was_changed_after_its_plan(
    size: int, put: Put, tmp_path: Path
) -> None:
    url, folder = put({"d/f": b"first", "d/g": b"first"}) + "d/", tmp_path / "d"
    nbdata.pull(url, folder, quiet=True)
    for name in ("f", "g"):
        (folder / name).write_bytes(bytes(size))
    with after_the_plan(lambda: put({"d/f": b"another's"})):
        report = nbdata.push(folder, url, on_error="report", quiet=True)
    assert report.counts == {"failed": 1, "sent": 1}
    assert "changed in the store while the push ran" in str(report.failures)
    assert content(url, "f") == b"another's"
    with after_the_plan(lambda: put({"d/f": b"another's again"})):
        nbdata.push(folder, url, overwrite="always", quiet=True)
    assert content(url, "f") == content(url, "g") == bytes(size)
