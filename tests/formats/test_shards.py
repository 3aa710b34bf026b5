"""Samples in tar shards are grouped as in the WebDataset library, and nothing is lost silently."""

from __future__ import annotations

import io
import itertools
import re
import tarfile
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nbdata.archives.forward_reader import ForwardReader
from nbdata.errors import BadArchive
from nbdata.formats.shards import HIDDEN, LeftOut, samples_in, split_member, sums_in

# Name, kind and content of a member.
Member = tuple[str, bytes, bytes]
# The fields that the library adds.
OF_THE_LIBRARY = ("__key__", "__url__", "__local_path__")
FILE, LINK, HARD, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


def shard(members: Iterable[Member], **options: Any) -> bytes:
    """Return a tar archive of members, written with Python's tarfile."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", **options) as archive:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == FILE:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                info.linkname = content.decode()
                archive.addfile(info)
    return out.getvalue()


def read(data: bytes) -> tuple[list[tuple[str, dict[str, bytes]]], LeftOut]:
    """Return the samples of a shard, and the members that belong to none."""
    left_out = LeftOut()
    reader = ForwardReader(io.BytesIO(data), "x.tar", 0)  # type: ignore[arg-type]
    return [(key, fields) for key, fields, _ in samples_in(reader, left_out.add)], left_out


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a.jpg", ("a", "jpg")),
        ("dir/a.seg.JPG", ("dir/a", "seg.jpg")),
        ("./a.jpg", ("./a", "jpg")),
        ("a.b/c.jpg", ("a.b/c", "jpg")),
        ("x 2.0 (Clean).mp3", ("x 2", "0 (clean).mp3")),
        ("a.", ("a", "")),
        ("dir/.foo", ("dir/", "foo")),
        ("d/._a.jpg", ("d/", "_a.jpg")),
        ("noext", None),
        ("a.b/c", None),
        (".foo", None),
        ("._a.jpg", None),
    ],
)
def test_the_key_ends_at_the_first_dot_of_the_base_name(name: str, wanted: tuple[str, str] | None) -> None:
    assert split_member(name) == wanted


def test_hidden_files_of_macos_are_samples_as_in_webdataset_with_a_remark() -> None:
    names = ["img/._1.jpg", "img/1.jpg", "img/._2.jpg", "img/2.jpg", "__MACOSX/img/._1.jpg"]
    samples, left_out = read(shard([(name, FILE, b"1") for name in names]))
    assert [key for key, _ in samples] == ["img/", "img/1", "img/", "img/2", "__MACOSX/img/"]
    assert left_out.count == 3
    assert all(HIDDEN in name for name in left_out.names)


# WebDataset's pattern, which its `base_plus_ext` has.
PATTERN = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")


@settings(max_examples=1000)
@given(st.text(st.sampled_from("a./\n_"), max_size=12))
def test_names_are_split_as_the_pattern_of_webdataset_does(name: str) -> None:
    found = PATTERN.match(name)
    assert split_member(name) == (None if found is None else (found[1], found[2].lower()))


def test_a_name_of_slashes_takes_no_quadratic_time() -> None:
    start = time.process_time()
    for _ in range(1000):
        assert split_member("/" * 4095 + "a") is None
        assert split_member("./" * 2047 + "a") is None
    assert time.process_time() - start < 10


NAMES = st.one_of(
    st.sampled_from(
        ["a.jpg", "a.JPG", "a.cls", "a.b.cls", "b.jpg", "./a.jpg", "d/a.jpg", "d.e/a.jpg", "d.e/a", "a.", ".a", "d/.a",
         "d/._a.jpg", "README", "__index__.json", "__index__", "__meta__/a.jpg", "__a.jpg", "d/__a__.jpg", "a\nb.jpg",
         "\n.jpg", "é.jpg", "x" * 120 + ".jpg", "d" * 90 + "/" + "e" * 90 + ".jpg", "f" * 300 + ".cls"]
    ),
    st.text(st.sampled_from("ab./_-A é"), min_size=1, max_size=12).filter(
        lambda name: not name.endswith("/") and name.strip("/.")
    ),
)  # fmt: skip
MEMBERS = st.lists(
    st.one_of(
        st.tuples(NAMES, st.just(FILE), st.binary(max_size=1500)),
        st.tuples(NAMES, st.sampled_from([LINK, HARD, FOLDER]), st.just(b"a.jpg")),
    ),
    max_size=12,
)


@given(
    members=MEMBERS,
    format_=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
@settings(max_examples=100, deadline=None)
@example(
    members=[("a.jpg", FILE, b"1"), ("a.jpg", FILE, b"2"), ("a.cls", FILE, b"3")], format_=tarfile.PAX_FORMAT
)
@example(
    members=[("a.jpg", FILE, b"1"), ("b.jpg", FILE, b"2"), ("a.cls", FILE, b"3")], format_=tarfile.PAX_FORMAT
)
def test_samples_are_those_that_the_webdataset_library_finds(
    tmp_path_factory: pytest.TempPathFactory, members: list[Member], format_: int
) -> None:
    try:
        data = shard(members, format=format_)
    except ValueError:  # the name is too long for this format
        return
    path = tmp_path_factory.mktemp("shard") / "x.tar"
    path.write_bytes(data)
    assert read(data)[0] == found_by_webdataset(path)


def found_by_webdataset(path: Path) -> list[tuple[str, dict[str, bytes]]]:
    """Return the samples that the library finds; of two fields with one name it keeps the first."""
    import webdataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = webdataset.WebDataset(
            str(path), shardshuffle=False, handler=webdataset.ignore_and_continue, empty_check=False
        )
        samples = list(found)
    return [
        (one["__key__"], {name: value for name, value in one.items() if name not in OF_THE_LIBRARY})
        for one in samples
    ]


def test_what_is_in_no_sample_is_told_with_the_reason() -> None:
    samples, left_out = read(
        shard(
            [
                ("README", FILE, b""), ("a.jpg", FILE, b"1"), ("a.JPG", FILE, b"2"), ("b.jpg", LINK, b"a.jpg"),
                ("c.jpg", FILE, b"3"), ("a.cls", FILE, b"4"), ("d", FOLDER, b""), ("__index__", FILE, b""),
                ("e.__key__", FILE, b"5"),
            ]
        )
    )  # fmt: skip
    assert samples == [("a", {"jpg": b"1"}), ("c", {"jpg": b"3"}), ("a", {"cls": b"4"})]
    assert left_out.count == 5
    assert left_out.names == [
        "README (no extension)",
        "a.JPG (the sample has this field already)",
        "b.jpg (a symlink)",
        "a.cls (its sample came before, and others since: this is one more)",
        "e.__key__ (the sample has this field already)",
    ]


def test_a_shard_that_ends_too_early_is_never_a_shorter_one() -> None:
    data = shard([(f"{n:03}.jpg", FILE, bytes([n]) * 700) for n in range(20)])
    end = len(data.rstrip(b"\0"))
    for length in itertools.chain(range(512, end, 512), (700, end - 1)):
        with pytest.raises(BadArchive, match="ends too early"):
            read(data[:length])


def test_a_damaged_header_in_the_middle_is_no_end() -> None:
    data = bytearray(shard([(f"{n:03}.jpg", FILE, b"x" * 600) for n in range(9)]))
    data[1536 * 4 + 3] ^= 1
    with pytest.raises(BadArchive, match="damaged header"):
        read(bytes(data))


def test_two_archives_in_one_file_are_told() -> None:
    data = shard([("a.jpg", FILE, b"1")])
    with pytest.raises(BadArchive, match="more data after its end"):
        read(data + data)


def test_a_sparse_file_has_its_holes_and_no_one_that_fills_the_memory_is_read(tmp_path: Path) -> None:
    import subprocess

    with open(tmp_path / "a.bin", "wb") as file:
        file.truncate(3 << 20)
        file.seek(1 << 20)
        file.write(b"data")
    with open(tmp_path / "b.bin", "wb") as file:
        file.truncate(2 << 30)
    for name in "ab":
        subprocess.run(["tar", "-cSf", f"{name}.tar", f"{name}.bin"], cwd=tmp_path, check=True)
    assert read((tmp_path / "a.tar").read_bytes())[0] == [("a", {"bin": (tmp_path / "a.bin").read_bytes()})]
    with pytest.raises(BadArchive, match=r"too large to hold in memory by its member b\.bin"):
        read((tmp_path / "b.tar").read_bytes())
    reader = ForwardReader(io.BytesIO((tmp_path / "b.tar").read_bytes()), "x.tar", 0)  # type: ignore[arg-type]
    with pytest.raises(BadArchive, match="too large for a sample"):
        list(sums_in(reader, LeftOut().add))


def test_a_sample_is_as_large_as_its_fields_together_and_a_larger_one_is_named() -> None:
    data = shard([("a.x", FILE, bytes(1000)), ("a.y", FILE, bytes(1000)), ("b.x", FILE, bytes(1500))])

    def most(limit: int) -> list[str]:
        reader = ForwardReader(io.BytesIO(data), "x.tar", 0)  # type: ignore[arg-type]
        return [key for key, _, _ in samples_in(reader, LeftOut().add, max_sample=limit)]

    assert most(2518) == ["a", "b"]
    with pytest.raises(BadArchive, match=r"by its member a\.y of 1,000 bytes: x\.tar") as caught:
        most(2517)
    assert "--max-sample" in caught.value.remedy
    assert caught.value.details["limit"] == 2517


def test_empty_fields_count_for_the_size_of_a_sample() -> None:
    data = shard([(f"a.{number}", FILE, b"") for number in range(1000)])
    reader = ForwardReader(io.BytesIO(data), "x.tar", 0)  # type: ignore[arg-type]
    with pytest.raises(BadArchive, match="too large to hold in memory"):
        list(samples_in(reader, LeftOut().add, max_sample=100_000))


def test_a_very_long_name_belongs_to_no_sample() -> None:
    long = "d/" * 100 + "b" * 5000
    (samples, left_out) = read(
        shard([("a.x", FILE, b"1"), (f"{long}.x", FILE, b"2")], format=tarfile.PAX_FORMAT)
    )
    assert samples == [("a", {"x": b"1"})]
    assert left_out.count == 1
    assert len(left_out.names[0]) < 1000
    assert "a name of 5,202 characters" in left_out.names[0]


def test_sums_are_those_of_the_samples(tmp_path: Path) -> None:
    import subprocess
    import zlib

    with open(tmp_path / "s.bin", "wb") as file:
        file.truncate(3 << 20)
        file.seek(1 << 20)
        file.write(b"data")
    subprocess.run(["tar", "-cSf", "s.tar", "s.bin"], cwd=tmp_path, check=True)
    plain = shard([("a.x", FILE, bytes(10)), ("a.y", FILE, b"\1" * 3_000_000), ("b.z", FILE, b"")])
    for data in (plain, (tmp_path / "s.tar").read_bytes()):
        left_out = LeftOut()
        of_each = list(samples_in(ForwardReader(io.BytesIO(data), "x.tar", 0), left_out.add))  # type: ignore[arg-type]
        sums = list(sums_in(ForwardReader(io.BytesIO(data), "x.tar", 0), left_out.add))  # type: ignore[arg-type]
        assert sums == [
            (key, {name: (len(one), zlib.crc32(one)) for name, one in fields.items()}, places)
            for key, fields, places in of_each
        ]
