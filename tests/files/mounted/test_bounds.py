"""What a store lists and says of a folder takes a bounded part of the memory of a mount."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nbdata.errors import NbdataError
from nbdata.files.mounted import ahead, folders
from nbdata.files.mounted.ahead import Ahead
from nbdata.files.mounted.folders import Folders
from nbdata.stores.base import ObjectInfo

_HEADERS = {f"x-amz-meta-{number}": "m" * 900 for number in range(60)}


class _Store:
    """Has each file that it is asked for, with many headers."""

    def head(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, 1, '"e"', headers=_HEADERS)

    def list_folder(self, prefix: str) -> Iterator[ObjectInfo]:
        for number in range(20_000) if prefix in ("", "odd/") else ():
            yield ObjectInfo(prefix + ("x" * 300 if prefix else "") + f"{number:09}", 1, '"e"')


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Folders:
    """Folders of which two are too large for the memory that they may take."""
    monkeypatch.setattr(folders, "_LARGEST", 2_000_000)
    store: Any = _Store()
    monkeypatch.setattr(
        folders, "listing_of_folder", lambda control, store, prefix: store.list_folder(prefix)
    )
    monkeypatch.setattr(folders, "retrying", lambda control, do: do())
    return Folders(SimpleNamespace(prefix="", control=None, store=store), 60)  # type: ignore[arg-type]


def test_a_listing_without_end_is_an_error_and_its_files_are_found(found: Folders) -> None:
    for _ in range(2):
        with pytest.raises(NbdataError, match="more names than a mount can show") as raised:
            found.names("")
        assert "nbdata ls" in str(raised.value)
    assert found.listings == 1
    assert found._size < 1_000_000
    assert len(found._inodes[""]) <= 1000
    assert found.find("000000007") == ObjectInfo("000000007", 1, '"e"')
    assert found.find("900000000") is not None


def test_keys_without_end_that_do_not_show_are_an_error(found: Folders) -> None:
    with pytest.raises(NbdataError, match="more names than a mount can show"):
        found.names("odd")


def test_names_that_are_asked_for_take_a_bounded_part_of_the_memory(found: Folders) -> None:
    found.find("000000000")
    for number in range(10_000):
        info = found.find(f"z{number}")
        assert info is not None
        assert not info.headers
    (folder,) = found._known.values()
    assert folder.size <= 2_000_000
    assert folder.size == found._size
    assert len(folder.asked) < 5000
    found.note("z9999", ObjectInfo("z9999", 2, '"f"', headers=_HEADERS))
    assert found.find("z9999") == ObjectInfo("z9999", 2, '"f"')


def test_a_folder_of_a_million_files_with_the_longest_keys_is_shown() -> None:
    info = ObjectInfo("k" * 1024, 1, f'"{"e" * 32}"', 1.5)
    assert 1_000_000 * folders._size_of("k" * 255, info) < folders._LARGEST


def test_names_of_folders_that_were_read_are_not_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_NAMES", 100)
    place: Any = None
    watching = Ahead(place, "none", lambda place, pieces, verify: [b""] * len(pieces))
    for number in range(10):
        names: dict[str, ObjectInfo | None] = {f"{at}": ObjectInfo(f"{at}", 1) for at in range(40)}
        watching.take(f"{number}/0", ObjectInfo("0", 1), names)
    assert list(watching._orders) == ["8", "9"]
    watching.close()
