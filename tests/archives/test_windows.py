"""The window that an archive asks for is limited: what the programs write by default passes, more is a named error."""

from __future__ import annotations

import io
import lzma
import struct
import subprocess
from typing import Any

import pytest
import zstandard

from nbdata.archives.decoders import CODECS
from nbdata.archives.decompress import open_decompressed
from nbdata.archives.units import LARGEST, Unit, Unsplit, split_zstd
from nbdata.archives.whole import begins_archive
from nbdata.archives.windows import LARGEST_WINDOW, MAX_WINDOW, WindowTooLarge, xz_dictionary, zstd_window
from nbdata.errors import BadArchive
from nbdata.verbs import options
from tests.hostile import bombs

TEXT = b"".join(b"%d\n" % number for number in range(50_000))


def read(blob: bytes, **limits: Any) -> bytes:
    stream, _ = open_decompressed(io.BytesIO(blob), name="x", **limits)
    with stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


def zstd(*options: str) -> bytes:
    # From a pipe, zstd does not know the small size, and declares the whole window.
    return subprocess.run(["zstd", "-qc", *options], input=TEXT, capture_output=True, check=True).stdout


def xz(dictionary: int) -> bytes:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": dictionary}]
    return lzma.compress(TEXT, lzma.FORMAT_XZ, filters=filters)


def test_the_limits_of_the_option_are_those_of_the_decoders() -> None:
    assert (MAX_WINDOW, LARGEST_WINDOW) == options._WINDOWS


@pytest.mark.parametrize(
    "blob",
    [
        zstd("-1"), zstd("--ultra", "-22"), zstd("--long=27"), zstd("--long=27", "--ultra", "-22"),
        lzma.compress(TEXT, preset=9 | lzma.PRESET_EXTREME), xz(MAX_WINDOW),
    ],
    ids=["zstd", "zstd -22", "zstd --long", "zstd --long -22", "xz -9e", "xz of 128 MiB"],
)  # fmt: skip
def test_what_programs_write_by_default_is_read(blob: bytes) -> None:
    assert read(blob) == TEXT


@pytest.mark.parametrize(
    ("blob", "needed", "enough"),
    [
        (zstd("--long=28"), 256, 256),
        (zstd("--long=31"), 2048, 2048),
        (xz(192 << 20), 192, 192),
        (xz(1536 << 20), 1536, 2048),
    ],
    ids=["zstd 28", "zstd 31", "xz 192", "xz 1536"],
)
def test_a_larger_window_is_named_and_read_with_the_option(blob: bytes, needed: int, enough: int) -> None:
    with pytest.raises(BadArchive, match=rf"at most 128 MiB, got {needed:,} MiB") as caught:
        read(blob)
    assert caught.value.path == "x"
    assert "--max-window 2GiB" in caught.value.remedy
    assert read(blob, max_window=enough << 20) == TEXT


def test_the_window_is_found_if_the_header_comes_byte_by_byte() -> None:
    for name, blob, needed in (("zst", zstd("--long=30"), 1 << 30), ("xz", xz(1 << 30), 1 << 30)):
        decoder = CODECS[name].decoder(MAX_WINDOW)
        with pytest.raises(WindowTooLarge) as caught:
            b"".join(decoder.decompress(bytes([byte]), 1 << 20) for byte in blob)
        assert caught.value.needed == needed


def test_a_window_beyond_all_decoders_is_not_said_to_be_an_option() -> None:
    blob = bombs.zstd_frame(41, [b"\1\0\0"])
    for limit in (None, LARGEST_WINDOW):
        with pytest.raises(BadArchive, match="got 2,097,152 MiB") as caught:
            read(blob, max_window=limit)
        assert "--max-window" not in caught.value.remedy


def test_the_first_bytes_of_an_archive_with_a_large_window_still_begin_one() -> None:
    assert begins_archive(bombs.zstd_of_zeros(31, 1 << 20, bombs.tar_with("a", 1)))
    assert begins_archive(bombs.xz_with_dictionary(1 << 30))


@pytest.mark.parametrize(("log", "more"), [(10, 0), (20, 3), (27, 7), (31, 0)])
def test_the_window_of_a_frame_is_what_the_library_says(log: int, more: int) -> None:
    frame = b"\x28\xb5\x2f\xfd" + bytes([0, (log - 10) << 3 | more]) + b"\1\0\0"
    assert zstd_window(frame) == zstandard.get_frame_parameters(frame).window_size


@pytest.mark.parametrize("size", [1, 200, 300, 70_000])
def test_the_window_of_a_frame_in_one_segment_is_its_content(size: int) -> None:
    frame = zstandard.ZstdCompressor().compress(bytes(size))
    assert zstd_window(frame[:18]) == zstandard.get_frame_parameters(frame).window_size
    assert zstd_window(frame[:5]) is None


@pytest.mark.long
def test_the_dictionary_is_found_behind_other_filters() -> None:
    filters = [
        {"id": lzma.FILTER_X86},
        {"id": lzma.FILTER_DELTA, "dist": 4},
        {"id": lzma.FILTER_LZMA2, "dict_size": 3 << 20},
    ]
    assert xz_dictionary(lzma.compress(TEXT, filters=filters)) == 3 << 20
    for end in range(24):
        assert xz_dictionary(lzma.compress(TEXT)[:end]) in (None, 8 << 20)


def test_threads_get_no_units_with_a_large_window() -> None:
    large = bombs.zstd_of_zeros(25, 1000)
    assert split_zstd(bytearray(large + bytes(100)), "") is Unsplit.STREAM
    single = zstandard.ZstdCompressor().compress(bytes(1000))
    assert isinstance(split_zstd(bytearray(single + bytes(100)), ""), Unit)
    decoder = CODECS["zst"].unit
    assert decoder is not None
    with pytest.raises(zstandard.ZstdError, match="too much memory"):
        decoder().decompress(bombs.zstd_of_zeros(27, 1000), 100)
    assert LARGEST < MAX_WINDOW


# -- the blocks of a frame ----------------------------------------------------------------------------


@pytest.mark.in_ci(15)
@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000, 1 << 20])
@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("size", [0, 1, 300, 400_000, 3_000_000])
def test_a_frame_is_decoded_however_its_input_is_cut(size: int, checksum: bool, step: int) -> None:
    if step < 1000 and size > 400_000:
        return
    data = (TEXT * 12)[:size]
    with_size = zstandard.ZstdCompressor(write_checksum=checksum).compress(data)
    packer = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=False).compressobj()
    for frame in (with_size, packer.compress(data) + packer.flush()):
        decoder, at, out = CODECS["zst"].decoder(MAX_WINDOW), 0, []
        blob = frame + b"next"
        while not decoder.eof:
            piece = b""
            if decoder.needs_input:
                piece = blob[at : at + step]
                at += len(piece)
                assert piece
            out.append(decoder.decompress(piece, 1 << 20))
        assert b"".join(out) == data
        assert decoder.unused_data + blob[at:] == b"next"


def test_the_output_of_a_call_is_bounded_whatever_a_frame_expands_to() -> None:
    decoder = CODECS["zst"].decoder(MAX_WINDOW)
    blob, made = bombs.zstd_of_zeros(17, 512 << 20), 0
    while not decoder.eof:
        block = decoder.decompress(blob if not made else b"", 1 << 20)
        assert len(block) <= 2 << 20
        made += len(block)
    assert made == 512 << 20


def test_skippable_frames_are_passed_over_however_they_are_cut() -> None:
    skippable = b"\x51\x2a\x4d\x18" + struct.pack("<I", 300_000) + bytes(300_000)
    assert read(skippable + zstandard.compress(TEXT) + skippable) == TEXT
