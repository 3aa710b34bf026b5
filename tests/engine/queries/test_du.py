"""du sums sizes by folder, in a store and on the disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.cli import main
from nbdata.errors import BadOption, NotFound

Put = Callable[[dict[str, bytes]], str]
OBJECTS = {
    "a/1": b"12345", "a/b/2": b"1234567", "a-b/3": b"1", "a/b/c/4": b"12", "loose": b"123", "ü ü/5": b"1", "z//6": b"1",
}  # fmt: skip


def sums(place: str, **options: object) -> dict[str, tuple[int, int]]:
    rows = nbdata.du(place, quiet=True, **options).rows
    return {
        row.path if row.action == "folder" else "total": (row.detail["objects"], row.size) for row in rows
    }


def test_each_folder_and_the_total(put: Put, inline: None) -> None:
    url = put({key: data for key, data in OBJECTS.items() if "//" not in key})
    top = {"a/": (3, 14), "a-b/": (1, 1), "ü ü/": (1, 1), "total": (6, 19)}
    assert sums(url) == top
    assert list(sums(url))[-1] == "total"
    assert sums(url, depth=0) == {"total": (6, 19)}
    deep = sums(url, depth=9)
    assert deep == {**top, "a/b/": (2, 9), "a/b/c/": (1, 2)}
    assert [*deep].index("a/b/c/") < [*deep].index("a/b/") < [*deep].index("a/")
    assert sums(f"{url}a") == {"b/": (2, 9), "total": (3, 14)}
    assert sums(f"{url}a/1") == {"total": (1, 5)}
    assert sums(f"{url}a*") == {"a/": (3, 14), "a-b/": (1, 1), "total": (4, 15)}
    report = nbdata.du(url, quiet=True)
    assert report.line == f"du {url}: 19 B in 6 objects"
    assert "total" in report._repr_html_()


def test_a_folder_of_the_disk(tmp_path: Path, inline: None) -> None:
    for name, data in OBJECTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert sums(str(tmp_path)) == {
        "a/": (3, 14), "a-b/": (1, 1), "z/": (1, 1), "ü ü/": (1, 1), "total": (7, 20),
    }  # fmt: skip


def test_what_is_not_there(put: Put, inline: None) -> None:
    url = put({"a": b""})
    with pytest.raises(NotFound, match="no such object or folder"):
        nbdata.du(f"{url}none", quiet=True)
    with pytest.raises(BadOption, match="no bucket"):
        nbdata.du("s3://", quiet=True)
    with pytest.raises(BadOption, match="--depth"):
        nbdata.du(url, depth=10_000, quiet=True)


def test_the_command_line_prints_bytes_for_programs(put: Put, capsys: pytest.CaptureFixture[str]) -> None:
    url = put({"a/1": b"12345", "b": b"1"})
    assert main(["du", url]) == 0
    assert capsys.readouterr().out.splitlines() == ["5\ta/", "6\ttotal"]
    assert main(["du", url, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        {"path": "a/", "url": f"{url}a/", "kind": "folder", "objects": 1, "size": 5},
        {"path": "", "url": url, "kind": "total", "objects": 2, "size": 6},
    ]
