"""Headers of tars and zips, and compressed frames, are read correctly by Python's own libraries."""

from __future__ import annotations

import io
import random
import struct
import tarfile
import zipfile
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nbdata.formats.frames import FRAME, LEAST_FRAME, frame_size, gzip_member, zstd_frame
from nbdata.formats.tar_writing import (
    BLOCK,
    END,
    FILE,
    FOLDER,
    LINK,
    Member,
    padding,
    tar_header,
    tar_header_size,
)
from nbdata.formats.zip_writing import (
    DEFLATED,
    STORED,
    ZipEntry,
    central_header,
    deflated,
    descriptor,
    end_of_zip,
    local_header,
)

NAMES = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0/"), min_size=1, max_size=120
).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@given(PATHS, st.integers(0, 2**50), st.integers(-(2**40), 2**40), st.booleans())
def test_a_header_says_to_python_what_was_meant(name: str, size: int, mtime: int, executable: bool) -> None:
    member = Member(name, size, mtime, FILE, "", executable)
    header = tar_header(member)
    assert len(header) == tar_header_size(member)
    assert len(header) % BLOCK == 0
    with tarfile.open(fileobj=io.BytesIO(header + END)) as tar:
        found = tar.next()
    assert found is not None
    assert (found.name, found.size, found.mtime) == (name, size, mtime)
    assert found.mode == (0o755 if executable else 0o644)
    assert found.isfile()
    assert (found.uid, found.gid, found.uname, found.gname) == (0, 0, "", "")


@given(PATHS, PATHS, st.integers(0, 2**33))
def test_folders_and_links_are_those(name: str, link: str, mtime: int) -> None:
    for member in (Member(name, 0, mtime, LINK, link), Member(name, 0, mtime, FOLDER)):
        header = tar_header(member)
        assert len(header) == tar_header_size(member)
        with tarfile.open(fileobj=io.BytesIO(header + END)) as tar:
            found = tar.next()
        assert found is not None
        assert (found.name.rstrip("/"), found.linkname) == (name.rstrip("/"), member.link)
        assert found.issym() if member.kind == LINK else found.isdir()


def test_names_that_are_no_utf8_are_kept_as_bytes() -> None:
    member = Member("latin-\udce4", 3, 0)
    data = tar_header(member) + b"abc" + bytes(padding(3)) + END
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert tar.getnames() == ["latin-\udce4"]


@given(st.lists(st.binary(max_size=5000), max_size=5))
def test_frames_say_how_long_they_are(pieces: list[bytes]) -> None:
    content = b"".join(pieces)
    member = gzip_member(pieces)
    assert zlib.decompress(member + b"", 31) == content
    # The subfield of mgzip and pgzip: the size of the whole member.
    assert struct.unpack_from("<H2sHI", member, 10) == (8, b"IG", 4, len(member))
    frame = zstd_frame(pieces)
    told = zstandard.get_frame_parameters(frame)
    assert (told.content_size, told.has_checksum) == (len(content), True)
    assert zstandard.ZstdDecompressor().decompress(frame) == content


@pytest.mark.parametrize("volume", [128 << 10, 300_000, 1 << 20, 64 << 20, 5 << 30])
def test_a_frame_fits_into_a_volume_however_little_it_can_be_compressed(volume: int) -> None:
    size = frame_size(volume)
    assert LEAST_FRAME <= size <= FRAME
    incompressible = random.Random(1).randbytes(size)
    for compress in (gzip_member, zstd_frame):
        assert len(compress([incompressible])) <= min(volume, size + size // 500 + 1024)


def _zip(entries: list[tuple[ZipEntry, bytes]], tail: bytes = b"") -> bytes:
    out, listed = b"", b""
    for entry, data in entries:
        placed = entry._replace(offset=len(out))
        out += local_header(placed) + data + (descriptor(placed) if entry.streamed else b"")
        listed += central_header(placed)
    return out + listed + end_of_zip(len(entries), len(out), len(listed)) + tail


@given(PATHS, st.binary(max_size=3000), st.integers(0, 2**31 - 1), st.booleans())
def test_a_member_of_a_zip_is_read_by_python(name: str, data: bytes, mtime: int, streamed: bool) -> None:
    packed = deflated(data)
    entry = ZipEntry(
        Member(name, len(data), mtime), DEFLATED, zlib.crc32(data), len(packed), len(data), 0, streamed
    )
    with zipfile.ZipFile(io.BytesIO(_zip([(entry, packed)]))) as found:
        assert found.testzip() is None
        (one,) = found.infolist()
        assert one.orig_filename == name
        assert found.read(one) == data
        assert one.external_attr >> 16 == 0o100644


def test_a_content_in_pieces_is_one_deflated_content() -> None:
    pieces = [b"abc" * 1000, b"", bytes(5000), b"the end"]
    packed = b"".join(deflated(piece, last=number == 3) for number, piece in enumerate(pieces))
    assert zlib.decompress(packed, -15) == b"".join(pieces)


def test_sizes_over_4_gib_stand_in_the_64_bit_fields() -> None:
    size = 5 << 30
    entry = ZipEntry(Member("a", size, 0), STORED, 1, size, size, 6 << 30, True)
    header, listed, told = local_header(entry), central_header(entry), descriptor(entry)
    assert struct.unpack_from("<HHQQ", header, 31) == (1, 16, 0, 0)  # after the name of one byte
    assert struct.unpack("<4sIQQ", told) == (b"PK\7\10", 1, size, size)
    assert struct.unpack_from("<HHQQQ", listed, 47) == (1, 24, size, size, 6 << 30)
    end = end_of_zip(70_000, 7 << 30, 100)
    assert end.startswith(b"PK\6\6")
    assert struct.unpack_from("<QQQQ", end, 24) == (70_000, 70_000, 100, 7 << 30)
    assert struct.unpack_from("<HHII", end, len(end) - 14) == (0xFFFF, 0xFFFF, 100, 0xFFFFFFFF)
