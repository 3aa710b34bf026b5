"""pack --sort: by key, by the numbers or the text of a field, also when most of it lies on the disk."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.errors import BadOption, NotEnoughSpace
from nbdata.verbs.parsing import parse
from tests.engine.pack.shards import NUMBER, Shelf, fields_of, shelf, tar_of

__all__ = ["shelf"]

SORTING = "nbdata.engine.pack.sorting"


@pytest.fixture(params=[64 << 20, 2000], ids=["memory", "disk"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """So many bytes of what is sorted stay in memory."""
    monkeypatch.setattr(f"{SORTING}._MEMORY", request.param)
    monkeypatch.setattr(f"{SORTING}._BUFFER", 40)
    return int(request.param)


def order_of(shelf: Shelf, places: list[str] | str, **options: Any) -> list[str]:
    nbdata.pack(places, f"{shelf.root}out/x-%06d.tar", quiet=True, **options)
    return [key for key, _ in shelf.samples("out/")]


def test_samples_are_sorted_by_the_numbers_of_a_field(shelf: Shelf, memory: int) -> None:
    found = order_of(shelf, shelf.shards(), sort="cls", shard_samples=25)
    assert found == [f"{n:04}" for n in sorted(range(NUMBER), key=lambda n: int(fields_of(n)["cls"]))]
    again = nbdata.pack(
        [f"{shelf.root}in-{n}.tar" for n in range(3)],
        f"{shelf.root}out/x-%06d.tar",
        sort="cls",
        shard_samples=25,
        quiet=True,
    )
    assert again.counts == {"unchanged": 3}


def test_samples_are_sorted_by_the_text_of_a_field_and_equal_ones_stay_in_order(
    tmp_path: Path, inline: None, memory: int
) -> None:
    source, shelf = random.Random(1), Shelf.folder(tmp_path)
    numbers = [
        "-7",
        "3",
        "0.25",
        "1e3",
        ".5",
        "12345678901234567890123",
        "12345678901234567890122",
        "3.0",
        "+2\n",
    ]
    texts = [*numbers, "", "nan", "häuser", "B", "a"] * 4
    for name, values in {"numbers": numbers * 5, "texts": texts}.items():
        source.shuffle(values)
        samples = {f"{n:03}": {"txt": value.encode()} for n, value in enumerate(values)}
        shelf.put({f"{name}.tar": tar_of(samples)})
        found = order_of(shelf, f"{shelf.root}{name}.tar", sort="txt", overwrite="always")
        compared: list[Any] = [Fraction(t) if name == "numbers" else t.strip().encode() for t in values]
        assert found == [f"{n:03}" for n in sorted(range(len(values)), key=compared.__getitem__)]


def test_samples_are_sorted_by_key(shelf: Shelf, memory: int) -> None:
    order = random.Random(2).sample(range(NUMBER), NUMBER)
    assert order_of(shelf, shelf.shards(order=order), sort=True) == [f"{n:04}" for n in range(NUMBER)]


def test_what_is_chosen_and_renamed_is_sorted_and_loose_files_and_records_too(shelf: Shelf) -> None:
    shelf.put({f"in/{n}.{field}": data for n in range(9) for field, data in fields_of(n).items()})
    wanted = sorted(map(str, range(9)), key=lambda n: int(fields_of(int(n))["cls"]))
    options: dict[str, Any] = {"sort": "label", "rename": "cls=label", "fields": "jpg,cls"}
    assert order_of(shelf, f"{shelf.root}in/", **options) == wanted
    nbdata.pack(f"{shelf.root}in/", f"{shelf.root}x.ffr", quiet=True, **options)
    assert order_of(shelf, f"{shelf.root}x.ffr", overwrite="always") == wanted


def test_the_disk_limit_holds_for_what_is_sorted(
    tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{SORTING}._MEMORY", 2000)
    shelf = Shelf.folder(tmp_path / "shelf")
    places = shelf.shards()
    state = tmp_path / "state"
    monkeypatch.setenv("NBDATA_STATE_DIR", str(state))
    nbdata.pack(places, f"{shelf.root}first/%d.tar", quiet=True)  # which makes the folder, and the index
    nbdata.quota(str(state), limit="1B")
    with pytest.raises(NotEnoughSpace):
        nbdata.pack(places, f"{shelf.root}out/%d.tar", sort="cls", quiet=True)
    assert shelf.read("out/") == {}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sort": "png"}, "--sort: the sample '0000' has no field 'png' (expected cls, info.json, jpg)"),
        ({"sort": "in/a.tar"}, "--sort: 'in/a.tar' is no field"),
        ({"sort": "long"}, "--sort: the field 'long' of 'x' has 5,000 bytes"),
        ({"sort": "cls", "shuffle": True}, "--shuffle and --sort exclude each other"),
        ({"sort": "cls", "map": dict}, "--map and --sort FIELD exclude each other"),
    ],
)
def test_what_cannot_be_sorted_is_refused(
    tmp_path: Path, inline: None, options: dict[str, Any], told: str
) -> None:
    shelf = Shelf.folder(tmp_path)
    places = shelf.shards()
    if options["sort"] == "long":
        shelf.put({"in-0.tar": tar_of({"x": {"long": bytes(5000)}})})
    with pytest.raises(BadOption) as error:
        order_of(shelf, places, **options)
    assert told in str(error.value)
    assert shelf.read("out/") == {}


@pytest.mark.parametrize(
    ("line", "sort"),
    [
        ("a.tar b-%d.tar --sort", True),
        ("--sort a.tar b-%d.tar", True),
        ("a.tar --sort b-%d.tar", True),
        ("a.tar b-%d.tar --sort cls", "cls"),
        ("--sort=cls a.tar b-%d.tar", "cls"),
        ("--sort cls a.tar b-%d.tar", "cls"),
    ],
)
def test_a_line_sorts_by_key_or_by_a_field(line: str, sort: object) -> None:
    operation, _ = parse(nbdata.Pack, line.split(), prog="pack", extra={})
    assert isinstance(operation, nbdata.Pack)
    assert operation.sort == sort
    assert operation == nbdata.Pack("a.tar", "b-%d.tar", sort=sort)
