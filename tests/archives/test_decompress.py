"""Every format is recognized by its bytes, intact streams are decoded, and every kind of damage is reported."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import struct
import subprocess
import tarfile
import time
import zlib
from collections.abc import Callable
from typing import Any

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nbdata.archives.decompress import ExpansionLimit, detect, open_decompressed
from nbdata.archives.stream import JoinedStream, Readahead
from nbdata.errors import BadArchive, BadOption
from tests.archives.test_stream import Blocking, cut, drain, readahead_threads, volumes_of
from tests.waiting import AT_ONCE

DATA = b"".join(b"%d %x\n" % (n, n * n) for n in range(60_000)) + os.urandom(300_000)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    "lz4": lambda data: bytes(lz4.frame.compress(data, content_checksum=True)),
}
FORMATS = sorted(COMPRESS)


def decompressed(blob: bytes, **options: Any) -> bytes:
    stream, _ = open_decompressed(io.BytesIO(blob), **options)
    return stream.read()


@pytest.mark.in_ci(2)
@pytest.mark.parametrize("name", FORMATS)
def test_a_stream_of_each_format_comes_out_in_large_blocks(name: str) -> None:
    stream, found = open_decompressed(io.BytesIO(COMPRESS[name](DATA)))
    assert found == name
    first = stream.read(1 << 20)
    assert len(first) >= 256 << 10
    assert first + stream.read() == DATA


@pytest.mark.in_ci(2)
@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data(), parts=st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_many_members_and_any_cut_into_volumes_give_the_same_bytes(
    name: str, data: st.DataObject, parts: list[bytes]
) -> None:
    blob = b"".join(COMPRESS[name](part) for part in parts) + bytes(data.draw(st.sampled_from([0, 4, 512])))
    points = data.draw(st.lists(st.integers(0, len(blob)), max_size=30))
    stream, _ = open_decompressed(JoinedStream(volumes_of(cut(blob, points))))
    assert stream.read() == b"".join(parts)


@pytest.mark.parametrize("name", FORMATS)
def test_small_reads_give_the_same_bytes_as_large_ones(name: str) -> None:
    stream, _ = open_decompressed(io.BytesIO(COMPRESS[name](DATA[:50_000])))
    assert b"".join(iter(lambda: stream.read(37), b"")) == DATA[:50_000]


@pytest.mark.parametrize("name", FORMATS)
def test_a_stream_that_ends_too_early_says_where_and_in_which_volume(name: str) -> None:
    blob = COMPRESS[name](DATA)
    whole, last = blob[:100_000], blob[100_000:-1]
    for volumes, end, where in (([whole, last], len(blob) - 1, "v1"), ([whole], 100_000, "v0")):
        stream, _ = open_decompressed(JoinedStream(volumes_of(volumes)), name="a.tar")
        with pytest.raises(BadArchive, match="ends too early") as caught:
            stream.read()
        assert caught.value.details == {"offset": end, "volume": where, "fault": "truncated"}
        assert f"{end:,}" in str(caught.value)


@pytest.mark.in_ci(2)
@pytest.mark.parametrize("name", FORMATS)
def test_a_single_wrong_bit_is_found(name: str) -> None:
    blob = bytearray(COMPRESS[name](DATA))
    blob[len(blob) // 2] ^= 4
    with pytest.raises(BadArchive, match="damaged") as caught:
        decompressed(bytes(blob))
    assert 0 <= caught.value.details["offset"] <= len(blob)


@pytest.mark.parametrize("position", [-8, -4], ids=["crc", "length"])
def test_a_wrong_gzip_trailer_is_found(position: int) -> None:
    blob = bytearray(gzip.compress(DATA))
    blob[position] ^= 1
    with pytest.raises(BadArchive, match="damaged"):
        decompressed(bytes(blob))


@pytest.mark.parametrize("name", ["gz", "bz2"])
def test_something_else_behind_the_end_is_counted_where_their_own_programs_only_warn(name: str) -> None:
    blob = COMPRESS[name](DATA)
    for junk in (b"x", b"garbage" * 1000, COMPRESS[name](b"cut off")[:2]):
        stream, _ = open_decompressed(io.BytesIO(blob + bytes(700) + junk))
        assert stream.read() == DATA
        assert stream.trailing == len(junk)
    with pytest.raises(BadArchive, match="followed by something else") as caught:  # maybe another archive
        decompressed(blob + b"garbage" * 100_000)
    assert caught.value.details["offset"] == len(blob)


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in ("gz", "bz2")])
def test_something_else_behind_the_end_is_refused_with_its_offset(name: str) -> None:
    blob = COMPRESS[name](DATA)
    with pytest.raises(BadArchive, match="followed by something else") as caught:
        decompressed(blob + bytes(700) + b"garbage")
    assert caught.value.details["offset"] == len(blob) + 700


@pytest.mark.parametrize("name", FORMATS)
def test_the_first_bytes_of_a_later_member_may_be_split_anywhere(name: str) -> None:
    content = os.urandom(1000)  # longer than the part of the stream that is read first
    blob = COMPRESS[name](content)
    for point in range(12):
        stream, _ = open_decompressed(JoinedStream(volumes_of(cut(blob * 2, [len(blob) + point]))))
        assert stream.read() == content * 2


def gzip_with_header_fields(data: bytes) -> bytes:
    header = b"\x1f\x8b\x08\x1e" + bytes(6) + b"\x05\0extra" + b"name\0" + b"comment\0"
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    deflate = zlib.compressobj(wbits=-15)
    body = deflate.compress(data) + deflate.flush()
    return header + body + struct.pack("<II", zlib.crc32(data), len(data))


def test_gzip_headers_with_all_fields_may_be_split_anywhere() -> None:
    blob = gzip_with_header_fields(b"content" * 50)
    assert gzip.decompress(blob) == b"content" * 50
    for point in range(len(blob)):
        stream, _ = open_decompressed(JoinedStream(volumes_of(cut(blob * 2, [point, point + len(blob)]))))
        assert stream.read() == b"content" * 100


def test_gzip_flags_that_nobody_has_defined_are_refused() -> None:
    blob = bytearray(gzip.compress(b"x"))
    blob[3] |= 0x40
    with pytest.raises(BadArchive, match="unknown gzip method or flags"):
        decompressed(bytes(blob))


def test_an_endless_gzip_header_is_refused() -> None:
    with pytest.raises(BadArchive, match="endless gzip header"):
        decompressed(b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * (2 << 20))


def test_zstd_frames_with_long_windows_and_skippable_frames_are_read() -> None:
    # When zstd reads from a pipe, it does not know the small size, and declares the whole window.
    run = subprocess.run(["zstd", "-q", "--long=29"], input=DATA, capture_output=True, check=True)
    skippable = b"\x51\x2a\x4d\x18" + struct.pack("<I", 4) + b"note"
    blob = skippable + run.stdout + skippable
    assert decompressed(blob, max_window=512 << 20) == DATA


@pytest.mark.in_ci(2)
@pytest.mark.parametrize("name", FORMATS)
def test_a_bomb_is_stopped_long_before_it_fills_anything(name: str) -> None:
    blob = COMPRESS[name](bytes(64 << 20))
    stream, _ = open_decompressed(io.BytesIO(blob))
    came = bytearray()
    with pytest.raises(BadArchive, match=r"more than 3\.0 MB"):
        drain(ExpansionLimit(stream, 3_000_000), into=came)
    assert 0 < len(came) <= 3_000_000


def test_as_much_as_the_limit_is_allowed() -> None:
    assert ExpansionLimit(io.BytesIO(b"12345"), 5).read() == b"12345"


def empty_tar() -> bytes:
    file = io.BytesIO()
    tarfile.open(fileobj=file, mode="w").close()
    return file.getvalue()


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_tar_is_told_by_its_checksum_and_passes_unchanged(format_: int) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format_) as tar:
        tar.addfile(tarfile.TarInfo("naïve"))
    blob = file.getvalue()
    stream, found = open_decompressed(io.BytesIO(blob), name="no-name")
    assert (found, stream.read()) == ("tar", blob)
    v7 = bytearray(blob[:512])  # the old v7 format has no magic, only the checksum
    v7[257:512] = bytes(255)
    v7[148:156] = b"%06o\0 " % (sum(v7[:148]) + 8 * 32 + sum(v7[156:]))
    assert detect(bytes(v7)) == "tar"
    assert detect(empty_tar()) == "tar"


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"", "it is empty"),
        (b"Rar!\x1a\x07\x00", "RAR"),
        (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
        (b"<?xml version='1.0'?><Error>", "error message of the server"),
        (b"<Error><Code>NoSuchKey</Code><Message>gone</Message>", 'begins "NoSuchKey: gone"'),
        (
            b"\xef\xbb\xbf<!DOCTYPE html><html><title>404\n Not Found</title>",
            'HTML. that begins "404 Not Found"',
        ),
        (b"<html><body><h1>Sign in</h1>", 'begins "Sign in"'),
        (b'{"error": "denied"}', "JSON.*denied"),
        ("Anmeldung nötig".encode() * 40, 'text that begins "Anmeldung nötig'),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
        (b"\x93NUMPY\x01\0v\0\x80\xff", "93 4e 55"),
        (bytes(100), "only zeros"),
        (b"\x1b[31mred " + b"word " * 30, 'begins ".31mred'),
        (b"<Error><Code>InvalidAccessKeyId</Code><Message>The key AKIA", 'begins "InvalidAccessKeyId"'),
    ],
)
def test_what_is_no_archive_is_called_by_its_name(head: bytes, found: str) -> None:
    with pytest.raises(BadArchive, match=found):
        detect(head, "a.tar.gz")


@pytest.mark.parametrize(
    "head",
    [
        b"machine h login bob password S3cr3tPw99",
        b'{"access_token":"ya29.A0ARrdaM-secret", "message": "token ya29.A0ARrdaM-secret"}',
        b"[default]\naws_secret_access_key = S3cr3tPw99",
        b"note S3cr3tPw99S3cr3tPw99S3cr3tPw99",
        b"<html><body>your password is S3cr3tPw99",
        b"<Error><Code>Denied</Code><Message>key S3cr3tPw99S3cr3tPw99S3cr3tPw99</Message>",
    ],
)
def test_what_may_be_a_secret_is_not_quoted(head: bytes) -> None:
    with pytest.raises(BadArchive) as caught:
        detect(head, "x.tar")
    assert not any(secret in str(caught.value) for secret in ("S3cr3t", "ya29", "AKIA"))


def test_a_checksum_of_signed_bytes_is_one() -> None:
    info = tarfile.TarInfo("\xfc\xfc")
    header = bytearray(info.tobuf(tarfile.USTAR_FORMAT, "latin-1"))
    total = sum(byte - 256 * (byte > 127) for byte in header[:148] + b" " * 8 + header[156:])
    header[148:156] = b"%06o\0 " % total
    assert detect(bytes(header)) == "tar"


def test_a_zip_is_known_and_refused_with_the_remedy() -> None:
    assert detect(b"PK\x03\x04") == "zip"
    with pytest.raises(BadOption, match="untar_volumes"):
        open_decompressed(io.BytesIO(b"PK\x03\x04" + bytes(600)))


def test_a_format_can_be_said_and_must_be_known_and_true() -> None:
    assert decompressed(gzip.compress(b"x"), format="tar.gz") == b"x"
    with pytest.raises(BadOption, match="lzip"):
        decompressed(b"", format="lzip")
    with pytest.raises(BadArchive, match="does not begin as such"):
        decompressed(bz2.compress(b"x"), format="gz")


@pytest.mark.in_ci(2)
@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_no_damage_makes_it_raise_anything_but_its_own_error(name: str, data: st.DataObject) -> None:
    blob = bytearray(COMPRESS[name](b"some content " * 20))
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadArchive):
        decompressed(bytes(blob[: data.draw(st.integers(0, len(blob)))]), format=name)


@pytest.mark.parametrize("name", ["tar", *FORMATS])
def test_closing_the_top_of_a_chain_closes_all_of_it_within_a_second(name: str) -> None:
    head = empty_tar() if name == "tar" else COMPRESS[name](os.urandom(1000))[:600]

    class Stalled(Blocking):
        sent = False

        def readinto(self, buffer) -> int:
            if self.sent:
                return super().readinto(buffer)
            self.sent = True
            buffer[: len(head)] = head
            return len(head)

    source = Stalled()
    chain = Readahead(open_decompressed(Readahead(source))[0])
    started = time.monotonic()
    chain.close()
    assert time.monotonic() - started < AT_ONCE
    assert source.closed
    assert not readahead_threads()


@pytest.mark.needs("lz4")
@pytest.mark.parametrize(
    "options", [["-1"], ["-9", "-BD"], ["--content-size", "-B4"], ["--no-frame-crc"]], ids=" ".join
)
def test_what_the_lz4_program_writes_is_read(options: list[str]) -> None:
    run = subprocess.run(["lz4", "-c", "-q", *options], input=DATA, capture_output=True, check=True)
    assert decompressed(run.stdout * 2) == DATA * 2


@pytest.mark.parametrize(
    ("head", "remedy"),
    [
        (b"Rar!\x1a\x07\x00", "unpack it with unrar"),
        (b"7z\xbc\xaf\x27\x1c", "unpack it with 7-Zip"),
        (b"<html><body>Not found</body></html>", "fetch it again"),
        (b"\x89PNG", "Check that this is the first volume"),
    ],
)
def test_the_advice_fits_what_came_in_place_of_an_archive(head: bytes, remedy: str) -> None:
    with pytest.raises(BadArchive, match=remedy):
        detect(head.ljust(512, b" "))
