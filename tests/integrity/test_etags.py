"""What an ETag says about the bytes, and computing ETags of multipart uploads."""

from __future__ import annotations

import hashlib
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbdata.integrity.etags import ETag, MultipartDigest, combine, parse_etag, part_size_candidates

MIB = 1 << 20
MD5 = "9e107d9d372bb6826bd81d3542a419d6"


@pytest.mark.parametrize("text", [MD5, f'"{MD5}"', f' "{MD5.upper()}" '])
def test_32_digits_are_taken_for_an_md5(text):
    assert parse_etag(text) == ETag("md5", MD5, md5=MD5)


def test_the_etag_of_parts_is_not_taken_for_an_md5_of_the_content():
    assert parse_etag(f'"{MD5.upper()}-12"') == ETag("multipart", f"{MD5}-12", md5=None, parts=12)


@pytest.mark.parametrize("text", [f'W/"{MD5}"', f'w/"{MD5}-2"'])
def test_a_weak_etag_says_nothing_about_bytes(text):
    etag = parse_etag(text)
    assert (etag.kind, etag.md5, etag.parts) == ("weak", None, 0)


@pytest.mark.parametrize("text", [None, "", '""', "  "])
def test_no_etag_is_told_from_an_opaque_one(text):
    assert parse_etag(text) == ETag("none")


@pytest.mark.parametrize("text", ['"0x8DB0ABC"', f"{MD5}-0", f"{MD5}-", f"{MD5}0", MD5[1:], f"{MD5}-x", '"'])
def test_everything_else_is_opaque_and_keeps_its_letters(text):
    assert parse_etag(text) == ETag("opaque", text.strip('"') if len(text) > 1 else text)


def test_the_worked_example_that_cloudflare_prints_comes_out():
    parts = ["bce6bf66aeb76c7040fdd5f4eccb78e6", "8165449fc15bbf43d3b674595cbcc406"]
    assert combine(parts) == "f77dc0eecdebcd774a2a22cb393ad2ff-2"


@pytest.mark.parametrize("parts", [[], ["00"], [MD5, "zz" * 16]])
def test_only_md5s_of_parts_combine(parts):
    with pytest.raises(ValueError, match="hexadecimal"):
        combine(parts)


@given(st.binary(max_size=200), st.integers(1, 60), st.randoms())
def test_streaming_in_any_pieces_gives_the_etag_of_the_parts(data, part_size, rng):
    digest = MultipartDigest(part_size)
    rest = memoryview(data)
    while rest:
        cut = rng.randint(1, len(rest))
        digest.update(rest[:cut])
        rest = rest[cut:]
    parts = [data[start : start + part_size] for start in range(0, len(data), part_size)] or [b""]
    assert digest.hexdigest() == combine(hashlib.md5(part).hexdigest() for part in parts)


def test_the_etag_may_be_asked_for_in_between():
    digest = MultipartDigest(4)
    digest.update(b"abcd")
    assert digest.hexdigest().endswith("-1")
    digest.update(b"e")
    assert digest.hexdigest() == combine(hashlib.md5(part).hexdigest() for part in (b"abcd", b"e"))


def test_a_part_size_of_nothing_is_refused():
    with pytest.raises(ValueError, match="makes no parts"):
        MultipartDigest(0)


@given(st.integers(0, 1 << 45), st.integers(-1, 20_000))
def test_every_candidate_gives_exactly_that_many_parts_and_none_comes_twice(size, parts):
    candidates = part_size_candidates(size, parts)
    assert len(set(candidates)) == len(candidates) <= 32
    assert all(max(-(-size // part_size), 1) == parts for part_size in candidates)


@given(st.sampled_from([5, 8, 15, 16, 50, 64, 100, 128]), st.integers(2, 10_000), st.integers(0, 5 * MIB - 1))
def test_the_part_size_of_a_common_client_is_among_the_candidates(mib, parts, rest):
    size = (parts - 1) * mib * MIB + 1 + rest
    assert mib * MIB in part_size_candidates(size, parts)


def test_the_default_of_the_aws_tools_comes_first():
    assert part_size_candidates(100 * MIB, 13)[0] == 8 * MIB


def test_unusual_sizes_are_tried_after_the_common_ones():
    assert part_size_candidates(35 * MIB, 2)[:3] == [20 * MIB, 25 * MIB, 32 * MIB]
    assert 33 * MIB in part_size_candidates(35 * MIB, 2)
    assert 500_001 in part_size_candidates(1_500_001, 3)


def test_one_part_needs_one_candidate_as_all_give_the_same_digest():
    assert part_size_candidates(12 * MIB, 1) == [12 * MIB]
    assert part_size_candidates(0, 1) == [1]


def test_the_number_of_candidates_is_bounded():
    assert len(part_size_candidates((1 << 40) + 1, 2, limit=5)) == 5


def test_a_multipart_object_is_recognised_among_the_candidates():
    data = random.Random(1).randbytes(11 * MIB)
    etag = combine(
        hashlib.md5(data[start : start + 5 * MIB]).hexdigest() for start in range(0, 11 * MIB, 5 * MIB)
    )
    found = []
    for part_size in part_size_candidates(len(data), parse_etag(etag).parts):
        digest = MultipartDigest(part_size)
        digest.update(data)
        found.append(digest.hexdigest())
    assert etag in found


def test_a_composite_checksum_is_made_of_those_of_the_parts_as_the_etag_is():
    # The worked example of Amazon's guide "Checking object integrity": the digest of the parts' digests, and their
    # number.
    parts = [b"a" * 10, b"b" * 10, b"c" * 3]
    for algorithm in ("sha1", "sha256"):
        digest = MultipartDigest(10, algorithm)
        digest.update(b"".join(parts))
        inner = b"".join(hashlib.new(algorithm, part).digest() for part in parts)
        assert digest.hexdigest() == f"{hashlib.new(algorithm, inner).hexdigest()}-3"
    digest = MultipartDigest(10, "crc32")
    digest.update(b"".join(parts))
    inner = b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)
    assert digest.hexdigest() == f"{zlib.crc32(inner):08x}-3"
