"""The same URL at two servers: what is known of one is not taken for the other's.

Both say the same names, sizes and ETags, and nothing else of their bytes.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.ffrecord.test_files import made
from tests.stores.twins import Twin, twin

SCHEMES = ("s3", "gs", "az")
MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("inline", "state")


def tar_of(**files: bytes) -> bytes:
    """Return a tar with these files, of a size that does not depend on what is in them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name.replace("_", "."))
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def twins() -> Iterator[tuple[Twin, Twin]]:
    """Two servers with the same objects of other bytes."""
    with (
        twin({"d/f.txt": b"A" * 1000, "x.tar": tar_of(a_txt=b"A" * 9)}) as one,
        twin({"d/f.txt": b"B" * 1000, "x.tar": tar_of(a_txt=b"B" * 9)}) as other,
    ):
        yield one, other


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_was_pulled_from_one_server_is_not_unchanged_at_another(
    twins: tuple[Twin, Twin], scheme: str, tmp_path: Path
) -> None:
    for server, data in zip(twins, (b"A", b"B"), strict=True):
        options = server.options(scheme)
        report = nbdata.pull(f"{scheme}://b/d/", tmp_path / "t", storage_options=options, quiet=True)
        assert report.counts.get("unchanged", 0) == 0
        assert (tmp_path / "t/f.txt").read_bytes() == data * 1000


def test_another_spelling_of_the_same_server_is_the_same(twins: tuple[Twin, Twin], tmp_path: Path) -> None:
    one, options = twins[0], twins[0].options("s3")
    spelled = options | {"endpoint_url": one.url.replace("http", "HTTP") + "/", "region": "eu-west-1"}
    first, second = (
        nbdata.pull("s3://b/d/", tmp_path / "t", storage_options=given, quiet=True)
        for given in (options, spelled)
    )
    assert (first.counts, second.counts) == ({"fetched": 1}, {"unchanged": 1})
    assert len(one.read) == 1


@pytest.mark.parametrize("till", [24 * MIB, None])
def test_parts_of_one_server_do_not_go_on_at_another(tmp_path: Path, till: int | None) -> None:
    """Nor does the server itself begin anew: what is there of it counts."""
    size = 40 * MIB
    with twin({"f": b"A" * size}, till=16 * MIB) as broken, twin({"f": b"B" * size}, till=till) as other:
        for server in (broken, other):
            report = nbdata.pull(
                "s3://b/", tmp_path / "t", storage_options=server.options("s3"), on_error="report", quiet=True
            )
        assert report.present == 0
        assert sorted(start for _, start in other.read)[0] == 0
        if till is None:
            assert (tmp_path / "t/f").read_bytes().count(b"B") == size
            return
        del other.read[:]
        nbdata.pull(
            "s3://b/", tmp_path / "t", storage_options=other.options("s3"), on_error="report", quiet=True
        )
        assert other.read == []


@pytest.mark.in_ci("s3")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_cache_of_samples_holds_the_objects_of_one_server(
    twins: tuple[Twin, Twin], scheme: str, tmp_path: Path
) -> None:
    found = []
    for server in (*twins, twins[0]):
        samples = nbdata.samples(
            f"{scheme}://b/d/", cache="100MB", cache_dir=str(tmp_path), storage_options=server.options(scheme)
        )
        found.append(bytes(samples[0]["txt"])[:1])
        samples.close()
    assert found == [b"A", b"B", b"A"]
    assert [len(server.read) for server in twins] == [1, 1]


def test_an_index_of_loose_objects_is_of_one_server() -> None:
    with twin({"d/one.txt": b"1"}) as one, twin({"d/two.txt": b"2"}) as two:
        keys = [
            list(nbdata.samples("s3://b/d/", storage_options=server.options("s3"), refresh=refresh).keys)
            for server, refresh in ((one, "always"), (two, "always"), (one, "never"), (two, "never"))
        ]
    assert keys == [["one"], ["two"], ["one"], ["two"]]


def test_an_index_of_shards_is_of_one_server() -> None:
    one, two = tar_of(one_txt=b"1"), tar_of(two_txt=b"2")
    with twin({"x.tar": one}) as first, twin({"x.tar": two}) as second:
        for server, key in ((first, "one"), (second, "two"), (first, "one")):
            samples = nbdata.samples("s3://b/x.tar", storage_options=server.options("s3"))
            assert list(samples.keys) == [key]
            assert bytes(samples[0]["txt"]) in (b"1", b"2")


def test_headers_of_records_are_of_one_server() -> None:
    one, two = made([b"1" * 30, b"22"]), made([b"33", b"4" * 30])
    assert len(one) == len(two)
    with twin({"x.ffr": one}) as first, twin({"x.ffr": two}) as second:
        found = [
            bytes(nbdata.samples("s3://b/x.ffr", storage_options=server.options("s3"))[0]["bin"])
            for server in (first, second, first)
        ]
    assert found == [b"1" * 30, b"33", b"1" * 30]


def test_what_was_unpacked_of_one_server_is_not_complete_at_another(
    twins: tuple[Twin, Twin], tmp_path: Path
) -> None:
    for server, data in zip(twins, (b"A", b"B"), strict=True):
        nbdata.untar_volumes("s3://b/x.tar", tmp_path / "t", storage_options=server.options("s3"), quiet=True)
        assert (tmp_path / "t/a.txt").read_bytes() == data * 9


def test_what_was_copied_or_packed_of_one_server_is_done_anew_for_another(
    twins: tuple[Twin, Twin], s3: EmbeddedServer, bucket: str
) -> None:
    client = client_of(s3)
    there = {name: value for name, value in s3.storage_options().items() if name != "bucket"}
    for server, data in zip(twins, (b"A", b"B"), strict=True):
        ends = {"storage_options": server.options("s3"), "target_options": there}
        nbdata.copy("s3://b/d/", f"s3://{bucket}/c/", quiet=True, **ends)
        nbdata.pack("s3://b/d/", f"s3://{bucket}/p/x-%d.tar", quiet=True, **ends)
        assert client.get_object(Bucket=bucket, Key="c/f.txt")["Body"].read() == data * 1000
        assert data * 1000 in client.get_object(Bucket=bucket, Key="p/x-0.tar")["Body"].read()
    client.close()
