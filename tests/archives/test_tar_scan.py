"""The fast parser for headers of plain files accepts only valid ones."""

from __future__ import annotations

import io
import tarfile

import pytest

from nbdata.archives.tar_scan import plain_files


def archive() -> bytearray:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as made:
        for name in ("a.jpg", "b.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 5
            made.addfile(info, io.BytesIO(b"12345"))
    return bytearray(out.getvalue())


def test_the_fast_parser_accepts_valid_headers() -> None:
    found, end = plain_files(memoryview(archive()))
    assert found == [("a.jpg", 512, 5), ("b.jpg", 1536, 5)]
    assert end == 2048


@pytest.mark.parametrize("place", [0, 100, 128, 140, 329], ids=["name", "mode", "size", "time", "device"])
def test_a_header_whose_checksum_is_wrong_is_left_to_the_careful_parser(place: int) -> None:
    """A digit or letter was changed into another one, so only the checksum reveals it."""
    data = archive()
    data[1024 + place] ^= 1
    found, end = plain_files(memoryview(data))
    assert found == [("a.jpg", 512, 5)]
    assert end == 1024


def test_a_member_whose_pax_header_says_more_than_name_and_time_is_left_to_the_careful_parser() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, records in (("a.jpg", {"mtime": "1.5"}), ("b.jpg", {"GNU.sparse.name": "c.jpg"})):
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = 5, records
            made.addfile(info, io.BytesIO(b"12345"))
    found, _ = plain_files(memoryview(out.getvalue()))
    assert [name for name, _, _ in found] == ["a.jpg"]


def test_a_member_with_many_pax_records_is_left_to_the_careful_parser() -> None:
    """It counts them, as each takes time."""
    record, found = b"15 atime=12345\n", []
    for count in (64, 65):
        pax = tarfile.TarInfo("pax")
        pax.type, pax.size = tarfile.XHDTYPE, count * len(record)
        data = pax.tobuf() + (record * count).ljust(1024, b"\0") + tarfile.TarInfo("a.jpg").tobuf()
        found.append(len(plain_files(memoryview(data))[0]))
    assert found == [1, 0]
