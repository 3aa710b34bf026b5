"""Lines of tarp in docs/packed.md: nbdata's line beside each does the same, on the disk and in a store."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.pack.shards import NUMBER, WHOLE, Shelf, members, shelf, tar_of
from tests.waiting import PATIENCE

__all__ = ["shelf"]

Samples = list[tuple[str, dict[str, bytes]]]
PAGE = Path(__file__).parents[3] / "docs" / "packed.md"
LINES = dict(re.findall(r"^\| `(tarp .+?)` \| `(nbdata .+?)` \|$", PAGE.read_text(), re.MULTILINE))
SHARDS = ("a.tar", "b.tar", "c.tar")
ALL = list(WHOLE.items())
A, B, C = ALL[:20], ALL[20:40], ALL[40:]


def same(wanted: Samples) -> Callable[[Samples], None]:
    """Return a check that these are the samples, in this order and with these bytes."""

    def check(found: Samples) -> None:
        assert found == wanted

    return check


def mixed(wanted: Samples) -> Callable[[Samples], None]:
    """Return a check that these are the samples, each once and in another order."""

    def check(found: Samples) -> None:
        assert found != wanted
        assert sorted(found, key=lambda one: one[0]) == sorted(wanted, key=lambda one: one[0])

    return check


def parts_of(samples: Samples) -> Samples:
    """Return a sample for each four bytes of the field info.json."""
    return [
        (f"{key}-{at // 4:06}", {"part": fields["info.json"][at : at + 4]})
        for key, fields in samples
        for at in range(0, len(fields["info.json"]), 4)
    ]


def only(samples: Samples, *names: str) -> Samples:
    return [(key, {name: fields[name] for name in fields if name in names}) for key, fields in samples]


# By the first words of tarp's line: what it says of the samples.
SAID: dict[str, Callable[[Samples], None]] = {
    "tarp cat -o out.tar a.tar b.tar": same(A + B),
    "tarp cat -o out.tar -l": same(C + A),
    'tarp cat -o out.tar -f "jpg cls"': same(only(A, "jpg", "cls")),
    'tarp cat -o out.tar -f "label:cls"': same([(key, {"label": one["cls"]}) for key, one in A]),
    "tarp cat -o out.tar --slice": same(A[2:20:3]),
    "tarp cat -o out.tar --shardslice": same(A + C),
    "tarp cat -o out.tar -R": same([(f"{n:09}", fields) for n, (_, fields) in enumerate(B)]),
    "tarp cat -o out.tar -s": mixed(A),
    "tarp sort -o out.tar a.tar b.tar": mixed(A + B),
    "tarp sort -o out.tar -s __key__": same(A + C),
    "tarp sort -o out.tar -s cls": same(sorted(A + B, key=lambda one: int(one[1]["cls"]))),
    'tarp split -c 15 -o "out-%06d.tar" a.tar': same(A),
    "tarp split -s": same(A),
    'tarp proc -o out.tar -c "rm': same(only(A, "cls", "info.json")),
    "tarp proc -o out.tar -m": same(parts_of(A)),
    "tarp cat -o - -": same(A),
    'tarp split -c 15 -o "out-%06d.tar" -': same(A),
}


def said(line: str) -> Callable[[Samples], None]:
    """Return the check of a line of tarp: that of the longest beginning."""
    found = [begin for begin in SAID if line.startswith(begin)]
    assert found, f"what does {line} do?"
    return SAID[max(found, key=len)]


def test_each_check_has_its_line() -> None:
    assert len(LINES) == len(SAID) == len({id(said(line)) for line in LINES})
    assert len(ALL) == NUMBER


@pytest.mark.parametrize("line", LINES)
@pytest.mark.in_ci("disk-tarp sort*cls*", "store-tarp split -c*-", 1)
def test_a_line_of_tarp_has_its_counterpart(shelf: Shelf, tmp_path: Path, line: str) -> None:
    shelf.put({name: tar_of(dict(part)) for name, part in zip(SHARDS, (A, B, C), strict=True)})
    (tmp_path / "list").write_text("c.tar\na.tar\n")
    words = shlex.split(LINES[line])
    assert words.pop(0) == "nbdata"
    places = {"./": shelf.root, **{name: shelf.root + name for name in (*SHARDS, "{a,b,c}.tar")}}
    places["out-%06d.tar"] = f"{shelf.root}out/out-%06d.tar"
    done = subprocess.run(
        [sys.executable, "-m", "nbdata", *(places.get(word, word) for word in words)],
        input=tar_of(dict(A)),
        capture_output=True,
        check=False,
        cwd=tmp_path,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr.decode()
    if words[-1] == "-":
        shelf.put({"out/out-000000.tar": done.stdout})
    said(line)(list(shelf.samples("out/")))
    shards = [data for name, data in shelf.read("out/").items() if name.endswith(".tar")]
    if "-c 15" in line:
        assert [len(members(data)) // 3 for data in shards] == [15, 5]
    elif "-s 30000" in line:
        assert len(shards) > 1
        assert all(len(data) <= 30000 for data in shards)
    else:
        assert len(shards) == 1
