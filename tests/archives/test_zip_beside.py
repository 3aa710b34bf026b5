"""What lies before, between and behind the members of a zip archive: other archives, programs, zeros, lost members."""

from __future__ import annotations

import io
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest

from nbdata.archives import zip_directory
from nbdata.archives.remarks import Remarks
from nbdata.archives.zip import read_zip
from nbdata.errors import BadArchive
from tests.archives.test_zip import Ranges, contents, zipped


@pytest.mark.parametrize("rest", [b"\n", bytes(100) + b"x", b"x" * 200_000, b"PK\5\6" + bytes(30) + b"x"])
def test_other_data_behind_the_end_are_counted(rest: bytes) -> None:
    remarks = Remarks()
    assert contents(zipped({"a": b"1"}) + rest, remarks=remarks) == {"a": b"1"}
    assert remarks.trailing == len(rest)
    assert not remarks.complete


def test_more_data_behind_the_end_than_are_searched_are_refused() -> None:
    with pytest.raises(BadArchive, match="no directory at its end"):
        contents(zipped({"a": b"1"}) + b"x" * (300 << 10))


@pytest.mark.parametrize("count", [1000, 100_000, 3_000_000])
def test_zeros_behind_the_end_are_passed_over_and_those_that_fill_a_volume_are_told(count: int) -> None:
    remarks = Remarks()
    archive = zipped({"a": b"1", "b": bytes(50)}, zipfile.ZIP_STORED)
    assert contents(archive + bytes(count), remarks=remarks) == {"a": b"1", "b": bytes(50)}
    assert (remarks.zeros, remarks.trailing, remarks.complete) == (count, 0, True)
    assert contents(archive, bytes(count), remarks=remarks) == {"a": b"1", "b": bytes(50)}
    assert remarks.complete == (count < 64 << 10)


@pytest.mark.needs("zip")
@pytest.mark.parametrize("before", [b"", b"MZ a program"])
@pytest.mark.parametrize("between", [b"", bytes(1000)])
@pytest.mark.parametrize("comment", [b"", b"said at the end"])
def test_archives_that_follow_one_another_are_all_read(
    before: bytes, between: bytes, comment: bytes, tmp_path: Path
) -> None:
    """Their joined bytes look like one archive with something before it, which holds the last one's members alone."""
    parts = [zipped({f"{letter}{n}": letter.encode() * n for n in range(1, 4)}) for letter in "abc"]
    out = io.BytesIO(parts[0])
    with zipfile.ZipFile(out, "a") as archive:
        archive.comment = comment
    path, remarks = tmp_path / "three.zip", Remarks()
    path.write_bytes(before + out.getvalue() + between + parts[1] + parts[2])
    expected = {f"{letter}{n}": letter.encode() * n for letter in "abc" for n in range(1, 4)}
    assert contents(path.read_bytes(), remarks=remarks) == expected
    assert (remarks.in_succession, remarks.complete) == (3, True)
    assert "3 zip archives follow one another" in " ".join(remarks.notes())
    assert contents(path.read_bytes(), members=["a*"]) == {n: d for n, d in expected.items() if n < "b"}
    subprocess.run(["zip", "-qA", str(path)], check=True)  # makes the last one's offsets right
    assert contents(path.read_bytes()) == expected


def test_the_directories_of_archives_that_follow_one_another_have_one_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory holds them all, and a hundred may follow one another."""
    parts = [zipped({letter: b"x"}) for letter in "abc"]
    directory = 46 + 1  # of one member with such a name
    monkeypatch.setattr(zip_directory, "_MOST", 3 * directory)
    assert contents(b"".join(parts)) == dict.fromkeys("abc", b"x")
    monkeypatch.setattr(zip_directory, "_MOST", 3 * directory - 1)
    with pytest.raises(BadArchive, match="another zip archive comes before this one") as told:
        contents(b"".join(parts))
    assert told.value.got == "the zip archive has a directory of impossible size"


@pytest.mark.parametrize("between", [b"a signature", bytes(70_000)])
def test_an_archive_within_the_program_before_another_one_is_unread(between: bytes) -> None:
    first, remarks = zipped({"a": b"1"}), Remarks()
    assert contents(b"MZ a program" + first + between + zipped({"b": b"2"}), remarks=remarks) == {"b": b"2"}
    assert remarks.unread == len(first) + len(between)


@pytest.mark.parametrize("count", [1000, 100_000])
def test_a_volume_of_zeros_between_two_archives_may_have_been_one(count: int) -> None:
    remarks = Remarks()
    first, last = zipped({"a": b"1"}), zipped({"b": b"2"})
    assert contents(first, bytes(count), last, remarks=remarks) == {"a": b"1", "b": b"2"}
    assert (remarks.zeros, remarks.only_zeros, remarks.complete) == (count, True, False)


def test_a_name_in_two_archives_that_follow_one_another_is_told() -> None:
    remarks = Remarks()
    found = contents(zipped({"a": b"1", "b": b"2"}) + zipped({"a": b"3"}), remarks=remarks)
    assert found == {"a": b"3", "b": b"2"}
    assert (remarks.repeated, remarks.complete) == (1, False)


def test_two_archives_of_the_64_bit_form_and_of_one_layout_are_both_read() -> None:
    def large(name: str) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive, archive.open(name, "w", force_zip64=True) as file:
            file.write(name.encode())
        data, end = out.getvalue(), out.getvalue().rfind(b"PK\5\6")
        start, size = data.find(b"PK\1\2"), end - data.find(b"PK\1\2")
        end64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, size, start)
        return data[:end] + end64 + struct.pack("<4sIQI", b"PK\6\7", 0, end, 1) + data[end:]

    assert contents(large("one") + large("two")) == {"one": b"one", "two": b"two"}


@pytest.mark.parametrize("disks", [100_000, 2**32 - 1])
def test_an_absurd_number_of_volumes_is_refused(disks: int) -> None:
    data = zipped({"a": b"1"})
    end, start = data.rfind(b"PK\5\6"), data.find(b"PK\1\2")
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, end - start, start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, disks)
    with pytest.raises(BadArchive, match="begins in no volume"):
        contents(b"PK\7\x08" + data[:end] + end64 + locator + data[end:])


def test_bytes_between_the_directory_and_the_end_are_counted() -> None:
    data, remarks = zipped({"a": b"1"}), Remarks()
    end = data.rfind(b"PK\5\6")
    assert contents(data[:end] + b"something" + data[end:], remarks=remarks) == {"a": b"1"}
    assert remarks.unread == len(b"something")


def test_what_begins_like_an_archive_before_another_one_and_is_none_is_refused() -> None:
    first, last = zipped({"a": bytes(1000)}), zipped({"b": b"2"})
    with pytest.raises(
        BadArchive, match="another zip archive comes before this one, and is damaged or not whole"
    ):
        contents(first[:-30] + last)
    with pytest.raises(BadArchive, match="100 others before it"):
        contents(last * 101)
    assert contents(last * 100) == {"b": b"2"}


@pytest.mark.parametrize(
    ("before", "unread"), [(b"#!/bin/unzip\n", 0), (b"MZ\0\0", 0), (b"\x7fELF", 0), (b"other", 5)]
)
def test_something_before_and_a_comment_behind_do_not_matter(before: bytes, unread: int) -> None:
    out, remarks = io.BytesIO(), Remarks()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", b"1")
        archive.comment = b"PK\5\6 a comment that looks like an end"
    assert contents(before + out.getvalue(), remarks=remarks) == {"a": b"1"}
    assert remarks.unread == unread


def hidden(size: int) -> bytes:
    """Make an archive of three members whose directory does not list the second one, of `size` bytes."""
    data = zipped({"a": b"1", "b": b"2" * size, "c": b"3"}, zipfile.ZIP_STORED)
    first, second, third = (data.rfind(b"PK\1\2", 0, end) for end in _ends(data))
    end = data.rfind(b"PK\5\6")
    record = bytearray(data[end:])
    record[8:12] = struct.pack("<HH", 2, 2)
    record[12:16] = struct.pack("<I", end - first - (third - second))
    return data[:second] + data[third:end] + bytes(record)


def _ends(data: bytes) -> tuple[int, int, int]:
    third = data.rfind(b"PK\1\2")
    second = data.rfind(b"PK\1\2", 0, third)
    return second, third, len(data)


@pytest.mark.parametrize("size", [5, 100, 50_000])
@pytest.mark.parametrize("read", [True, False])
def test_a_member_that_the_directory_does_not_list_is_counted(size: int, read: bool) -> None:
    """Members that are there already are not read, but what lies between them is looked at all the same."""
    remarks = Remarks()
    for one in read_zip(Ranges(hidden(size)), remarks=remarks):
        if read:
            one.reader.read()
    assert remarks.unread == 31 + size
    assert not remarks.complete
