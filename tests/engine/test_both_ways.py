"""Pull and push between the same folder and place: each knows what the other has moved, so no change is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.engine.pull.plan import identity_of
from nbdata.operation import Context
from nbdata.stores.resolve import open_place
from nbdata.transfer.index import Index, Record
from nbdata.transfer.part_records import validator

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]


def content(url: str, name: str) -> bytes:
    place = open_place(url + name, Context("/", env=dict(os.environ)))
    return place.store.read_bytes(place.key)


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


def test_a_push_after_a_killed_pull_leaves_what_the_pull_was_replacing(put: Put, tmp_path: Path) -> None:
    """After the kill the file may be the old version or the new one."""
    url, folder = put({"d/f": b"first", "d/g": b"same"}) + "d/", tmp_path / "d"
    nbdata.pull(url, folder, quiet=True)
    put({"d/f": b"another's"})
    identity = identity_of(str(folder))
    index = Index(os.environ["NBDATA_STATE_DIR"], url, str(folder), identity)
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
    index = Index(os.environ["NBDATA_STATE_DIR"], str(folder), url, identity)
    index.open(identity)
    index.put({"f": Record("", 6, *Record.of("", 6, (folder / "f").stat())[2:])})
    index.close()
    put({"d/f": b"edited"})
    assert nbdata.push(folder, url, quiet=True).counts == {"unchanged": 1}
