"""pack into one archive: what other programs read, the same bytes each time, and what the same line goes on with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nbdata
from tests.engine.pack.archives import MIB, files, joined, members_of
from tests.engine.pack.test_pack import there

__all__ = ["there"]

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]
TARS = ("tar", "tar.gz", "tar.zst")


def below(content: dict[str, bytes], prefix: str = "in/") -> dict[str, bytes]:
    return {name.removeprefix(prefix): data for name, data in content.items()}


@pytest.mark.parametrize("form", TARS)
def test_objects_become_volumes_in_the_store(form: str, put: Put, there: Any) -> None:
    content = files(large=3 * MIB)
    url = put(content)
    report = nbdata.pack(f"{url}in/", f"{url}out/x.{form}", format=form, volume_size="300kB", quiet=True)
    assert report.ok
    found = there("out/")
    assert sorted(found) == [f"x.{form}.{n:03}" for n in range(len(found))]
    assert len(found) > 2
    assert report.counts == {"packed": len(found)}
    assert all(len(data) <= 300_000 for data in found.values())
    if form == "tar":
        assert {len(data) for name, data in found.items() if name != max(found)} == {300_000}
    assert members_of(joined(found), form) == below(content)
