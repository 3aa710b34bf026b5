"""The index that is saved beside shards: used by readers without an index, and only if it matches these shards."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.sample_index import IndexWriter
from nbdata.formats.sample_objects import SampleObject, ShardMember
from nbdata.reading import pieces
from tests.client.reading.shards.test_shards import packed
from tests.client.reading.test_saved_index import elsewhere
from tests.conftest import client_of
from tests.faults.proxy import Exchange, FaultProxy
from tests.faults.test_lines import proxy

__all__ = ["elsewhere", "proxy"]

Put = Callable[[dict[str, bytes]], str]
Elsewhere = Callable[[str], None]


def by_number(source: str, **options: Any) -> list[Any]:
    with nbdata.samples(source, **options) as samples:
        return samples.fetch(range(len(samples)))


def place_of(url: str) -> str:
    with nbdata.samples(url) as samples:
        return str(samples.save_index())  # type: ignore[attr-defined]


def test_a_reader_without_an_index_uses_the_one_beside_the_shards_and_reads_no_shard(
    put: Put, s3: EmbeddedServer, bucket: str, elsewhere: Elsewhere, proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    url = put({f"in/x-{n}.tar": packed(n) for n in (0, 2)})
    wanted = by_number(f"{url}in/x-*.tar")
    assert place_of(f"{url}in/x-*.tar").startswith(f"{url}in/_nbdata-index.")
    nbdata.copy(f"{url}in/", f"{url}moved/", quiet=True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    elsewhere("second")
    read: list[str] = []

    def noted(request: Exchange, before: int) -> None:
        if request.download and request.key.endswith(".tar"):
            read.append(request.key)

    for folder in ("in", "moved"):
        proxy.begin(noted)
        with nbdata.samples(f"{url}{folder}/x-*.tar", refresh="never") as samples:
            assert len(samples) == 19
        assert read == []
        found = by_number(f"{url}{folder}/x-*.tar", refresh="never")
        assert [one | {"__url__": ""} for one in found] == [one | {"__url__": ""} for one in wanted]
        read.clear()
    with nbdata.samples(f"{url}in/x-*.tar", refresh="always") as samples:
        assert len(samples) == 19
    assert read


def test_an_index_of_other_shards_or_another_file_is_not_used(
    put: Put, elsewhere: Elsewhere, s3: EmbeddedServer, bucket: str
) -> None:
    url = put({"x-0.tar": packed(0), "x-2.tar": packed(2)})
    place = place_of(f"{url}x-*.tar")
    client, key = client_of(s3), place.removeprefix(url)
    whole = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    with nbdata.samples(f"{url}x-*.tar") as samples:
        about, wanted = samples.index.about, list(samples)  # type: ignore[attr-defined]
    beyond, loose, bare = IndexWriter(), IndexWriter(), IndexWriter()
    for writer in (beyond, bare):
        writer.add_members("a", [ShardMember("cls", 2 if writer is beyond else 0, 512, 1, 0)])
    loose.add("a", [SampleObject("cls", "a.cls", 1, "")])
    own = {name: about[name] for name in ("listing", "elsewhere")}
    spoilt = [b"", b"no index", whole[: len(whole) // 2], b"".join(beyond.pieces(about))]
    spoilt += [b"".join(loose.pieces(about)), b"".join(bare.pieces(own))]
    for number, data in enumerate(spoilt):
        client.put_object(Bucket=bucket, Key=key, Body=data)
        elsewhere(f"after {number}")
        assert by_number(f"{url}x-*.tar", refresh="never") == wanted
    client.put_object(Bucket=bucket, Key=key, Body=whole)
    client.put_object(Bucket=bucket, Key="x-2.tar", Body=packed(4))
    elsewhere("changed")
    found = by_number(f"{url}x-*.tar", refresh="never")
    assert [one["cls"] for one in found][7:] == [f"4 {at}".encode() for at in range(9)]
    client.close()


@pytest.mark.parametrize(
    "members", [[(512, 1 << 40)], [(0, 8000)] * 9], ids=["behind the end", "again and again"]
)
def test_members_that_lie_beyond_their_shard_are_refused(
    tmp_path: Path, elsewhere: Elsewhere, members: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_AGAIN", 50_000)
    (tmp_path / "x-0.tar").write_bytes(packed(0))
    place = place_of(f"{tmp_path}/x-0.tar")
    with nbdata.samples(f"{tmp_path}/x-0.tar") as samples:
        about = samples.index.about  # type: ignore[attr-defined]
    writer = IndexWriter()
    writer.add_members("a", [ShardMember(f"{at}", 0, *member, 0) for at, member in enumerate(members)])
    Path(place).write_bytes(b"".join(writer.pieces(about)))
    elsewhere("second")
    with (
        nbdata.samples(f"{tmp_path}/x-0.tar", refresh="never") as samples,
        pytest.raises(NbdataError, match="names bytes that an object does not have"),
    ):
        samples.fetch([0])


def test_an_index_is_saved_for_shards_on_the_disk_and_for_compressed_ones(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "x-0.tar").write_bytes(packed(0))
    place = Path(place_of(f"{folder}/x-0.tar"))
    assert place.parent == folder
    assert place.is_file()
    elsewhere("second")
    wanted = by_number(f"{folder}/x-0.tar", refresh="never")
    assert len(wanted) == 7
    shutil.copytree(folder, tmp_path / "moved")
    assert len(by_number(f"{tmp_path}/moved/x-0.tar", refresh="never")) == 7
    (folder / "x-0.tar.gz").write_bytes(b"")
    with pytest.raises(BadOption, match="compressed shard"):
        place_of(f"{folder}/x-0.tar.gz")
