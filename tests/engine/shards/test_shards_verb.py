"""shards reports shards that are intact, odd, damaged, compressed or missing."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, NotFound, TransferFailed
from tests.client.test_shard_writer import samples_of, there, written
from tests.faults.proxy import BODY, Fault, FaultProxy
from tests.faults.test_lines import proxy
from tests.formats.test_shards import FILE, LINK, shard

__all__ = ["proxy"]

Put = Callable[[dict[str, bytes]], str]


def one(number: int) -> bytes:
    """Return a shard of ten samples."""
    return shard([(f"{number}/{at}.{name}", FILE, b"x" * at) for at in range(10) for name in ("jpg", "cls")])


def test_counts_fields_and_what_is_in_no_sample(put: Put, inline: None) -> None:
    odd = shard(
        [("a.jpg", FILE, b"1"), ("README", FILE, b""), ("a.JPG", FILE, b"2"), ("b.jpg", LINK, b"a.jpg")]
    )
    url = put({"x-0.tar": one(0), "x-1.tar.gz": gzip.compress(one(1)), "x-2.tar": odd})
    report = nbdata.shards("ls", [f"{url}x-0.tar", f"{url}x-1.tar.gz", f"{url}x-2.tar"], quiet=True)
    assert report.counts == {"ok": 3}
    assert report.details["samples"] == 21
    assert report.details["fields"] == {"cls": [20, 90], "jpg": [21, 91]}
    assert report.details["left_out"] == 3
    assert "21 samples in 3 shards" in report.notes
    assert any("README (no extension)" in note for note in report.notes)
    rows = {row.path.rpartition("/")[2]: row.detail for row in report.rows}
    assert rows["x-1.tar.gz"]["samples"] == 10
    assert len(rows["x-2.tar"]["left out"]) == 3


def test_an_unsorted_tar_is_told_to_be_sorted(put: Put, inline: None) -> None:
    unsorted = shard([(f"{at}.{name}", FILE, b"x") for name in ("jpg", "cls") for at in range(5)])
    report = nbdata.shards("ls", f"{put({'x-0.tar': unsorted})}x-0.tar", quiet=True)
    assert report.details["samples"] == 10
    assert any(
        "5 members are not beside the others of their sample: sort the tar by name" in note
        for note in report.notes
    )


def test_each_damaged_shard_is_named_and_the_others_are_looked_at(proxy: FaultProxy, put: Put) -> None:
    url = put(
        {"x-0.tar": one(0)[:5000], "x-1.tar": one(1), "x-2.tar": one(2), "x-3.tar": b"no tar at all" * 99}
    )
    proxy.begin(
        lambda request, before: (
            Fault("flip", BODY, 0.5) if request.download and request.key == "x-1.tar" else None
        )
    )
    with pytest.raises(TransferFailed) as raised:
        nbdata.shards("verify", f"{url}x-*.tar", quiet=True)
    assert "Replace a damaged shard" in str(raised.value)
    assert "run it again" not in str(raised.value)
    report = raised.value.report
    assert report.counts == {"ok": 1, "failed": 3}
    assert {path.rpartition("/")[2] for path, _ in report.failures} == {"x-0.tar", "x-1.tar", "x-3.tar"}
    assert any("ends too early" in reason for _, reason in report.failures)


def test_an_index_makes_samples_by_number_at_once(put: Put, inline: None) -> None:
    url = put({"x-0.tar": one(0), "x-1.tar": one(1)})
    assert nbdata.shards("index", f"{url}x-{{0..1}}.tar", quiet=True).details["samples"] == 20
    samples = nbdata.samples(f"{url}x-{{0..1}}.tar")
    assert repr(samples.text()).count("20 samples")
    assert samples[11]["__key__"] == "1/1"
    samples.close()


def test_what_is_no_shard_is_told(put: Put, inline: None, tmp_path: Path) -> None:
    url = put({"a.jpg": b"1"})
    with pytest.raises(BadOption, match="names no shards"):
        nbdata.shards("ls", url, quiet=True)
    with pytest.raises(BadOption, match="ls, verify, index"):
        nbdata.shards("check", f"{url}x.tar", quiet=True)
    with pytest.raises(NotFound):
        nbdata.shards("ls", f"{url}none.tar", quiet=True)
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(one(1)))
    with pytest.raises(BadOption, match="compressed"):
        nbdata.shards("index", str(tmp_path / "x.tar.gz"), quiet=True)


@pytest.mark.parametrize("by", ["pack", "write_shards"])
@pytest.mark.in_ci("pack")
def test_a_shard_that_is_not_what_the_index_says_is_named(
    put: Put, s3: EmbeddedServer, bucket: str, inline: None, by: str
) -> None:
    options = {"shard_size": "20MiB", "quiet": True}
    url = put({})
    written(f"{url}a/x-%d.tar", samples_of(50, 1 << 20), shard_size="20MiB")
    if by == "pack":
        nbdata.pack(f"{url}a/x.json", f"{url}b/x-%d.tar", sort=True, part_size="6MiB", **options)
    folder = "b" if by == "pack" else "a"
    index = json.loads(there(s3, bucket)[f"{folder}/x.json"])
    assert [one["part_size"] >> 20 for one in index["shardlist"][:2]] == [6 if by == "pack" else 8] * 2
    assert nbdata.shards("verify", f"{url}{folder}/x.json", quiet=True).ok
    found = there(s3, bucket)
    first, second, last = (found[f"{folder}/x-{number}.tar"] for number in (0, 1, 2))
    put({f"{folder}/x-0.tar": first})  # same bytes, other ETag
    spoilt = bytearray(second)
    spoilt[9_000_000] ^= 1
    put({f"{folder}/x-1.tar": bytes(spoilt), f"{folder}/x-2.tar": last + bytes(512)})
    with pytest.raises(TransferFailed) as raised:
        nbdata.shards("verify", f"{url}{folder}/x.json", quiet=True)
    assert {
        path.rpartition("/")[2]: why.partition(": ")[0] for path, why in raised.value.report.failures
    } == {
        "x-1.tar": "the shard has another ETag than its JSON index says",
        "x-2.tar": "the shard has another size than its JSON index says",
    }
    assert nbdata.shards("ls", f"{url}{folder}/x.json", quiet=True).ok
    assert nbdata.shards("verify", f"{url}{folder}/x.json", verify="none", quiet=True).ok


def test_small_shards_are_compared_with_the_md5_of_the_index(put: Put, inline: None, tmp_path: Path) -> None:
    written(f"{tmp_path}/x-%d.tar", samples_of(20), shard_size=40_000)
    assert nbdata.shards("verify", f"{tmp_path}/x.json", quiet=True).ok
    data = bytearray((tmp_path / "x-1.tar").read_bytes())
    data[3000] ^= 1  # a byte of a field
    (tmp_path / "x-1.tar").write_bytes(data)
    with pytest.raises(TransferFailed, match="another MD5 than its JSON index says"):
        nbdata.shards("verify", f"{tmp_path}/x.json", quiet=True)


@pytest.mark.long
def test_an_index_without_the_size_of_parts_can_only_confirm(
    put: Put, s3: EmbeddedServer, bucket: str, inline: None
) -> None:
    url = put({})
    written(f"{url}x-%d.tar", samples_of(20, 1 << 20), shard_size="20MiB")
    found = there(s3, bucket)
    index = json.loads(found["x.json"])
    for one in index["shardlist"]:
        one.pop("part_size", None)
    put({"x.json": json.dumps(index).encode(), "x-0.tar": found["x-0.tar"]})
    assert not any("ETag" in note for note in nbdata.shards("verify", f"{url}x.json", quiet=True).notes)
    index["shardlist"][0]["etag"] = "0" * 32 + "-3"
    put({"x.json": json.dumps(index).encode()})
    report = nbdata.shards("verify", f"{url}x.json", quiet=True)
    assert any(
        "the ETag of 1 shard is not that in the index" in note and "x-0.tar" in note for note in report.notes
    )
    index["shardlist"][0] |= {"etag": 3, "md5sum": [], "filesize": "x", "part_size": -1}
    put({"x.json": json.dumps(index).encode()})
    assert nbdata.shards("verify", f"{url}x.json", quiet=True).ok
