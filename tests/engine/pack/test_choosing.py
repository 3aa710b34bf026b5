"""pack of shards: samples, fields and keys are chosen, alike on the disk, in a store, and with --map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.cli import main
from nbdata.errors import BadOption, NotFound
from tests.engine.pack.shards import NUMBER, WHOLE, Shelf, fields_of, members, shelf

__all__ = ["shelf"]


def packed(shelf: Shelf, *places: str, **options: Any) -> tuple[Any, list[tuple[str, dict[str, bytes]]]]:
    """Pack shards into others; return the report, and the samples of those."""
    source = list(places) if len(places) > 1 else places[0]
    report = nbdata.pack(source, f"{shelf.root}out/x-%06d.tar", quiet=True, **options)
    return report, list(shelf.samples("out/"))


CHOSEN: list[tuple[dict[str, Any], list[tuple[str, dict[str, bytes]]], str]] = [
    (
        {"fields": "jpg,cls"},
        [(key, {"cls": one["cls"], "jpg": one["jpg"]}) for key, one in WHOLE.items()],
        f"{NUMBER} fields are left out by --fields",
    ),
    (
        {"fields": ["info.json"], "rename": "info.json=json"},
        [(key, {"json": one["info.json"]}) for key, one in WHOLE.items()],
        f"{2 * NUMBER} fields are left out by --fields",
    ),
    (
        {"slice": "10:30:5", "keys": "new/%03d"},
        [(f"new/{n:03}", fields_of(10 + 5 * n)) for n in range(4)],
        f"{NUMBER - 4} samples are outside --slice",
    ),
    (
        {"select": "size(jpg) >= 500", "slice": ":3"},
        [(f"{n:04}", fields_of(n)) for n in range(31, 34)],
        "31 samples are not selected",
    ),
]


@pytest.mark.parametrize("mapped", [{}, {"map": dict}], ids=["plain", "mapped"])
@pytest.mark.parametrize(("options", "wanted", "note"), CHOSEN, ids=["fields", "renamed", "slice", "select"])
@pytest.mark.in_ci("disk-*-plain", "store-*-mapped", 3)
def test_samples_fields_and_keys_are_chosen_and_what_is_left_out_is_counted(
    shelf: Shelf, options: dict[str, Any], wanted: Any, note: str, mapped: dict[str, Any]
) -> None:
    report, found = packed(shelf, *shelf.shards(), **options, **mapped)
    assert found == wanted
    if not (mapped and "slice" in options):  # a stream does not read what follows its slice
        assert note in report.notes
    else:
        assert "what follows --slice was not read" in report.notes


def test_a_slice_from_the_end_is_for_samples_that_are_numbered(shelf: Shelf) -> None:
    places = shelf.shards()
    _, found = packed(shelf, *places, slice="-2:")
    assert found == [(f"{n:04}", fields_of(n)) for n in (58, 59)]
    with pytest.raises(BadOption, match="a stream has no end to count from"):
        packed(shelf, *places, slice="-2:", map=dict, overwrite="always")


def test_new_keys_follow_the_order_and_reach_loose_files_and_records_too(shelf: Shelf) -> None:
    places = shelf.shards()
    _, found = packed(shelf, *places, keys="%04d", shuffle=True, seed=3)
    assert [key for key, _ in found] == sorted(WHOLE)
    assert [one for _, one in found] != list(WHOLE.values())
    assert sorted(one["jpg"] for _, one in found) == sorted(one["jpg"] for one in WHOLE.values())
    options = {"keys": "a/%d", "fields": "jpg", "slice": "7:9", "quiet": True}
    nbdata.pack(places, f"{shelf.root}files/", format="files", **options)
    wanted = {"a/0.jpg": fields_of(7)["jpg"], "a/1.jpg": fields_of(8)["jpg"]}
    assert shelf.read("files/") == wanted
    nbdata.pack(places, f"{shelf.root}x.ffr", **options)
    nbdata.pack(f"{shelf.root}x.ffr", f"{shelf.root}again/", format="files", quiet=True, slice="1:")
    assert shelf.read("again/") == {"a/1.jpg": wanted["a/1.jpg"]}
    nbdata.pack(f"{shelf.root}files/", f"{shelf.root}loose/%d.tar", keys="%02d", quiet=True)
    assert members(shelf.read("loose/")["0.tar"]) == [
        ("00.jpg", wanted["a/0.jpg"]),
        ("01.jpg", wanted["a/1.jpg"]),
    ]


@pytest.mark.parametrize("mapped", [{}, {"map": dict}], ids=["plain", "mapped"])
def test_a_sample_without_the_fields_is_left_out(shelf: Shelf, mapped: dict[str, Any]) -> None:
    shelf.put({"in/a.jpg": b"a", "in/b.png": b"b", "in/c.jpg": b"c", "in/c.cls": b"1"})
    report, found = packed(shelf, f"{shelf.root}in/", fields="jpg", **mapped)
    assert found == [("a", {"jpg": b"a"}), ("c", {"jpg": b"c"})]
    assert {"1 sample has none of these fields", "1 field is left out by --fields"} <= set(report.notes)


@pytest.mark.in_ci(1)
def test_shards_have_so_many_samples_and_a_rerun_makes_only_missing_ones(shelf: Shelf) -> None:
    places = shelf.shards()
    line = nbdata.Pack(places, f"{shelf.root}out/x-%06d.tar", shard_samples=25)
    assert line.run(quiet=True).counts == {"packed": 3}
    made = shelf.read("out/")
    assert [len(members(data)) // 3 for name, data in made.items() if name.endswith(".tar")] == [25, 25, 10]
    assert line.run(quiet=True).counts == {"unchanged": 3}
    mapped = nbdata.pack(places, f"{shelf.root}mapped/x-%06d.tar", shard_samples=25, map=dict, quiet=True)
    assert mapped.ok
    assert {k: v for k, v in shelf.read("mapped/").items() if k.endswith(".tar")} == {
        k: v for k, v in made.items() if k.endswith(".tar")
    }
    both = nbdata.pack(places, f"{shelf.root}r/%d.ffr", shard_samples=25, quiet=True)
    assert both.counts == {"packed": 3}


@pytest.mark.in_ci(1)
def test_shards_are_named_one_by_one_listed_or_taken_by_their_numbers(
    shelf: Shelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = shelf.shards()
    (tmp_path / "list").write_text("in-2.tar\n./in-0.tar\n")
    (tmp_path / "odd").write_text("../in-2.tar\n")

    def keys(*words: str) -> list[int]:
        assert main(["pack", *words, f"{shelf.root}out/%d.tar", "--overwrite", "always"]) == 0
        return [int(key) for key, _ in shelf.samples("out/")]

    whole = list(range(NUMBER))
    assert keys(third, first) == whole[40:] + whole[:20]
    assert keys(shelf.root, "--files-from", str(tmp_path / "list")) == whole[40:] + whole[:20]
    assert keys(f"{shelf.root}in-*.tar", "--shard-slice", "1:") == whole[20:]
    assert keys(third, second, first, "--shard-slice=-1:", "--map", "true") == whole[:20]
    assert (
        keys(f"{shelf.root}in-{{0..2}}.tar", "--shard-slice", "::2", "--shuffle") != whole[:20] + whole[40:]
    )
    capsys.readouterr()
    assert main(["shards", "ls", third, first]) == 0
    assert "40 samples" in capsys.readouterr().out
    for words, told in {
        (
            shelf.root,
            "--files-from",
            str(tmp_path / "odd"),
        ): "'../in-2.tar' is no path of a file below SOURCE",
        (first, "--files-from", str(tmp_path / "list")): "--files-from needs a folder as SOURCE",
        (first, "--shard-slice", "1:"): "--shard-slice 1: takes none of 1 file",
        (shelf.root, "--shard-slice", "1:"): "--shard-slice is for shards",
        (shelf.root, shelf.root): "several sources can only be shards",
    }.items():
        assert main(["pack", *words, f"{shelf.root}new/%d.tar"]) == 2
        assert told in capsys.readouterr().err
    sliced = nbdata.samples([first, second, third], shard_slice="1:2")
    assert [one["__key__"] for one in sliced.stream()] == [f"{n:04}" for n in whole[20:40]]
    sliced.close()


def test_a_part_of_the_shards_has_an_index_of_its_own(shelf: Shelf) -> None:
    places = shelf.shards()
    nbdata.shards("index", places, quiet=True)
    for shard_slice, first in (("1:2", "0020"), (None, "0000")):
        samples = nbdata.samples(places, shard_slice=shard_slice, refresh="never")
        assert samples[0]["__key__"] == first
        samples.close()


def test_a_tar_of_shards_is_neither_made_nor_read_as_samples(shelf: Shelf) -> None:
    places = shelf.shards()
    with pytest.raises(BadOption, match=r"Use all-%06d\.tar --shard-count 1 for one shard"):
        nbdata.pack(places, f"{shelf.root}all.tar", quiet=True)
    assert nbdata.pack(places, f"{shelf.root}out/all-%06d.tar", shard_count=1, quiet=True).counts == {
        "packed": 1
    }
    assert list(shelf.samples("out/")) == list(WHOLE.items())
    nbdata.pack(shelf.root, f"{shelf.root}all.tar", format="tar", include="in-*.tar", quiet=True)
    for read in (lambda samples: next(samples.stream()), lambda samples: samples[0]):
        samples = nbdata.samples(f"{shelf.root}all.tar")
        with pytest.raises(BadOption, match=r"archives themselves, such as in-0\.tar"):
            read(samples)
        samples.close()
    with pytest.raises(BadOption, match="are archives themselves"):
        nbdata.pack(f"{shelf.root}all.tar", f"{shelf.root}new/", quiet=True)
    shelf.put({"tars/a.tar": b"a", "tars/b.tar": b"b"})
    with pytest.raises(BadOption, match="the shard would be a tar of tars"):
        nbdata.pack(f"{shelf.root}tars/", f"{shelf.root}new/", quiet=True)
    assert shelf.read("new/") == {}
    nbdata.pack(f"{shelf.root}tars/", f"{shelf.root}new/", rename="tar=frames.tar", quiet=True)
    assert [key for key, _ in shelf.samples("new/")] == ["a", "b"]
    shelf.put({"mixed/a.tar": b"a", "mixed/b.jpg": b"b", "mixed/c.tar": b"c"})
    nbdata.pack(f"{shelf.root}mixed/", f"{shelf.root}more/", quiet=True)
    assert [key for key, _ in shelf.samples("more/")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"fields": "png"}, "--fields: no sample has a field 'png'"),
        ({"fields": "jpg,"}, "--fields: 'jpg,'"),
        ({"fields": "jpg", "rename": "cls=label"}, "--rename renames 'cls', which --fields leaves out"),
        ({"slice": "3"}, "--slice: '3' is no slice"),
        ({"slice": "::0"}, "--slice: '::0' is no slice"),
        ({"slice": "3:2"}, "none of 60 samples is selected"),
        ({"keys": "x"}, "--keys: 'x'"),
        ({"keys": "%d-%d"}, "--keys: '%d-%d'"),
        ({"keys": "a.%d"}, "--keys: 'a.%d'"),
        ({"keys": "/%d"}, "--keys: '/%d'"),
        ({"shard_samples": 0}, "--shard-samples: 0"),
        ({"shard_samples": 3, "shard_count": 2}, "--shard-samples and --shard-count exclude each other"),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    tmp_path: Path, inline: None, options: dict[str, Any], told: str
) -> None:
    shelf = Shelf.folder(tmp_path)
    with pytest.raises((BadOption, NotFound)) as error:
        packed(shelf, *shelf.shards(), **options)
    assert told in str(error.value)
    assert shelf.read("out/") == {}
