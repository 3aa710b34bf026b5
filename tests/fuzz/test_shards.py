"""Arbitrary bytes as shards give samples or a clear error, the same with the fast parser and the careful one.

``make fuzz`` tries many more examples than a normal test run.
"""

from __future__ import annotations

import io
import os
import tarfile
import tracemalloc
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbdata.archives import tar_headers
from nbdata.archives.forward_reader import ForwardReader
from nbdata.errors import BadArchive
from nbdata.formats.shards import LeftOut, samples_in
from tests.formats.test_shards import MEMBERS, Member, shard

EXAMPLES = int(os.environ.get("NBDATA_FUZZ", "200"))
FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
BLOCK = 512
# Several times the memory that a header of at most 4 MiB may need.
MOST = 64 << 20


class Blocks(io.RawIOBase):
    """Returns bytes in pieces of `size`, like reads from a store."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__()
        self._left, self._size = memoryview(data), size

    def block(self) -> memoryview:
        piece, self._left = self._left[: self._size], self._left[self._size :]
        return piece


def read(data: bytes, size: int) -> Any:
    """Return the samples with their places and the left-out names, or the error's message."""
    left_out = LeftOut()
    try:
        return list(samples_in(ForwardReader(Blocks(data, size), "x.tar", 0), left_out.add)), left_out
    except BadArchive as error:
        return error.message, left_out


def summed(data: bytearray, at: int) -> None:
    """Set the right checksum in the header at this offset."""
    header = data[at : at + BLOCK]
    if len(header) == BLOCK:
        header[148:156] = b" " * 8
        data[at + 148 : at + 156] = b"%06o\0 " % sum(header)


RECORDS = st.dictionaries(
    st.sampled_from(["comment", "path", "mtime", "size", "GNU.sparse.name", "hdrcharset"]),
    st.sampled_from(["1.5", "3", "b.jpg", "b/c.cls", "BINARY", "ä", "0"]),
    max_size=2,
)


def with_records(members: list[Member], of_all: dict[str, str], of_each: dict[str, str]) -> bytes:
    """Return a shard with pax records for all members, and for each one."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers=of_all) as archive:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.pax_headers = kind, dict(of_each)
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


@st.composite
def shards(draw: st.DrawFn) -> bytes:
    """Shards as programs write them, then damaged: with changed bytes and corrected checksums, or truncated."""
    members: list[Member] = draw(MEMBERS)
    try:
        if draw(st.booleans()):
            data = bytearray(with_records(members, draw(RECORDS), draw(RECORDS)))
        else:
            data = bytearray(shard(members, format=draw(st.sampled_from(FORMATS))))
    except ValueError:  # the name is too long for this format
        data = bytearray(shard([]))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] = draw(st.integers(0, 255))
        if draw(st.booleans()):
            summed(data, at // BLOCK * BLOCK)
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


# Show the bytes of a failing example completely.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
@given(data=shards(), size=st.sampled_from([BLOCK, 1000, 4096, 1 << 20]))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_spoilt_shard_gives_the_same_on_the_fast_way_and_the_slow(data: bytes, size: int) -> None:
    fast = read(data, size)
    with mock.patch.object(tar_headers, "plain_files", return_value=([], 0)):
        assert read(data, size) == fast


@given(data=st.binary(max_size=4 * BLOCK))
@settings(max_examples=EXAMPLES, deadline=None)
def test_bytes_that_are_no_shard_are_told(data: bytes) -> None:
    found, _ = read(data, BLOCK)
    assert isinstance(found, str)


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"S", b"0"])
@pytest.mark.parametrize(
    "size", [b"77777777777", b"\x80" + b"\xff" * 10 + b"\xff", b"\x80\0\0\0\0\0\x7f\xff\xff\xff\xff"]
)
def test_a_size_that_cannot_be_takes_no_memory(kind: bytes, size: bytes) -> None:
    header = bytearray(tarfile.TarInfo("a.jpg").tobuf())
    header[124 : 124 + len(size)] = size
    header[156:157] = kind
    summed(header, 0)
    tracemalloc.start()
    found, _ = read(bytes(header) + bytes(1 << 20), 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, str)
    assert peak < MOST
