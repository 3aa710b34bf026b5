"""``ais://``: what it makes of AIStore's answers, and of clusters that change meanwhile."""

from __future__ import annotations

import io
import os
import secrets
from pathlib import Path
from typing import Any

import pytest

from nbdata.errors import ChecksumMismatch, NotFound, SourceChanged, StoreUnavailable
from nbdata.stores.ais.cluster_map import servers_in
from nbdata.stores.ais.store import AisStore
from nbdata.stores.base import ObjectInfo
from tests.servers.aistore.cluster import Cluster, cluster
from tests.servers.aistore.kept import checksum_of
from tests.stores.ais.conftest import Made, opened
from tests.stores.http.test_hops import got, read_together


def put(store: AisStore, key: str, data: bytes, md5: str = "") -> ObjectInfo:
    """Write an object."""
    return store.write(key, io.BytesIO(data), len(data), md5=md5)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("xxhash2", "xxh64"), ("xxhash", "xxh64"), ("md5", "md5"), ("crc32c", "crc32c"), ("sha256", "sha256")],
)
def test_the_checksum_of_a_bucket_is_known_everywhere(made: Made, kind: str, name: str) -> None:
    store, data = made(checksum=kind), secrets.token_bytes(100)
    expected = {name: checksum_of(kind, data)}
    assert put(store, "key", data).checksums == expected
    (listed,) = store.list("")
    body = store.read("key")
    body.close()
    assert listed.checksums == store.head("key").checksums == body.info.checksums == expected
    assert listed.etag == store.head("key").etag == body.info.etag
    (answer,) = read_together(store, [listed]).values()
    assert answer.told is not None
    assert answer.told.checksums == expected


def test_a_bucket_without_checksums_and_versions_is_told_by_size_alone(made: Made) -> None:
    store = made(checksum="none", versioning=False)
    put(store, "key", b"first")
    (listed,) = store.list("")
    assert (listed.etag, listed.checksums) == ("", {})
    assert got(store, "key", match=listed) == b"first"
    put(store, "key", b"another")
    with pytest.raises(SourceChanged):
        got(store, "key", match=listed)


@pytest.mark.parametrize("of_ranges", [False, True])
@pytest.mark.parametrize("versioning", [False, True])
def test_a_range_is_of_the_version_that_was_listed(made: Made, of_ranges: bool, versioning: bool) -> None:
    """The checksum that comes with a range is that of the range in some buckets."""
    store = made(of_ranges=of_ranges, versioning=versioning)
    put(store, "key", b"0123456789")
    (listed,) = store.list("")
    body = store.read("key", 2, 5, match=listed)
    body.close()
    assert (body.info.size, body.info.etag) == (10, listed.etag)
    put(store, "key", b"abcdefghij")
    with pytest.raises(SourceChanged):
        store.read("key", 2, 5, match=listed).close()
    store.delete(["key"])
    put(store, "key", b"ABCDEFGHIJ")  # versions begin with 1 again
    with pytest.raises(SourceChanged):
        store.read("key", 2, 5, match=listed).close()


def test_a_node_refuses_bytes_that_are_not_those_of_the_md5(made: Made) -> None:
    store = made()
    right = put(store, "key", b"right", checksum_of("md5", b"right"))
    assert right.checksums["md5"] == checksum_of("md5", b"right")
    with pytest.raises(ChecksumMismatch):
        put(store, "key", b"wrong", checksum_of("md5", b"right"))
    assert got(store, "key") == b"right"
    # A bucket without checksums compares nothing, so nothing is proved.
    assert "md5" not in put(made(checksum="none"), "key", b"right", checksum_of("md5", b"right")).checksums


def test_pages_are_put_together(made: Made, aistore: Cluster) -> None:
    store = made()
    names = [f"{folder}{number:02}" for folder in ("", "a/", "b/") for number in range(9)]
    for name in names:
        put(store, name, b"" if name.endswith("0") else name.encode())
    aistore.gateway.faults(page=4)
    assert [(one.key, one.size) for one in store.list("")] == [
        (name, 0 if name.endswith("0") else len(name)) for name in sorted(names)
    ]
    assert [one.key for one in store.list("", after="a/03")] == sorted(names)[13:]
    assert [one.key for one in store.list_folder("")] == [*names[:9], "a/", "b/"]
    assert [one.key for one in store.list_folder("b/")] == names[18:]
    first = store.folder_page("")
    assert [one.key for one in first.entries] == names[:4]
    assert [one.key for one in store.folder_page("", first.token).entries] == names[4:8]


def _md5(data: bytes) -> str:
    return checksum_of("md5", data)


def test_objects_of_a_backend_have_its_etag(made: Made) -> None:
    store = made(provider="aws")
    assert store.name.startswith("ais://@aws/b-")
    told = put(store, "key", b"bytes")
    (listed,) = store.list("")
    assert listed.etag == told.etag == store.head("key").etag == f'"backend-{_md5(b"bytes")}"'
    assert got(store, "key", match=listed) == b"bytes"
    body = store.read("key", 1, 3, match=listed)
    body.close()
    assert body.info.size == 5
    put(store, "key", b"other")
    with pytest.raises(SourceChanged):
        store.read("key", 1, 3, match=listed)
    assert [one.key for one in store.list("", after="a")] == ["key"]


# -- uploads in parts -----------------------------------------------------------------------------


def parted(store: AisStore, *order: int) -> tuple[Any, list[bytes]]:
    """Upload three parts in an order; return the upload and the parts."""
    parts = [os.urandom(1000) for _ in range(3)]
    upload = store.upload("key", 3000)
    for number in order or (1, 2, 3):
        upload.part(number, io.BytesIO(parts[number - 1]), 1000)
    return upload, parts


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (1, 1, 2, 3)])
def test_an_upload_is_compared_with_the_checksum_of_the_whole(made: Made, order: tuple[int, ...]) -> None:
    store = made()
    upload, parts = parted(store, *order)
    info = upload.finish(["", "", ""])
    assert upload.proved is True
    assert got(store, "key") == b"".join(parts)
    assert info.checksums.keys() == ({"xxh64"} if order == (1, 2, 3) else {"crc32c"})


def test_an_upload_that_was_put_together_from_other_bytes_is_disproved(made: Made) -> None:
    store = made()
    upload, _ = parted(store, 3, 2, 1)
    target = store._object("key", {"partNumber": "2", "uploadId": upload.id})
    store._send("PUT", target, "key", body=bytes(1000)).read()  # behind its back
    upload.finish(["", "", ""])
    assert upload.proved is False


@pytest.mark.parametrize("before", [b"", b"old"])
def test_an_upload_whose_last_answer_is_lost_is_looked_for(
    made: Made, aistore: Cluster, before: bytes
) -> None:
    store = made()
    if before:
        put(store, "key", before)
    upload, parts = parted(store)
    aistore.faults(lose_answer=True)
    info = upload.finish(["", "", ""])
    assert (info.size, upload.proved) == (3000, True)
    assert got(store, "key") == b"".join(parts)


def test_an_upload_that_is_gone_is_not_taken_for_done(made: Made) -> None:
    store = made()
    put(store, "key", bytes(3000))
    upload, _ = parted(store)
    upload.abort()
    upload.abort()  # a second time is no error
    with pytest.raises(NotFound):
        upload.finish(["", "", ""])


# -- a cluster that changes -----------------------------------------------------------------------


def test_an_object_that_moves_is_found(made: Made, aistore: Cluster) -> None:
    store = made()
    put(store, "key", b"here")
    (listed,) = store.list("")
    bucket = store.name.rpartition("/")[2]
    for node in aistore.nodes:
        if node is not aistore.node_of(bucket, "key"):
            aistore.move(bucket, "key", node)
            assert got(store, "key", match=listed) == b"here"
            assert read_together(store, [listed])["key"].request.of == [b"here"]


def test_objects_of_a_node_that_is_drained_are_found(tmp_path: Path) -> None:
    with cluster(tmp_path, nodes=2) as running:
        running.create_bucket("drained")
        store = opened("ais://drained/", endpoint_url=running.url)
        data = {f"key-{number}": os.urandom(1000) for number in range(12)}
        for key, value in data.items():
            put(store, key, value)
        listed = list(store.list(""))
        node = running.node_of("drained", "key-0")
        running.drain(node, "drained")
        node.seen()
        assert {info.key: got(store, info.key, match=info) for info in listed} == data
        together = read_together(store, listed)
        assert {key: answer.request.of[0] for key, answer in together.items()} == data
        assert put(store, "key-0", b"new").size == 3
        assert node.seen() == []


def test_a_busy_node_is_worth_another_try(made: Made, aistore: Cluster) -> None:
    store = made()
    put(store, "key", b"here")
    (listed,) = store.list("")
    aistore.node_of(store.name.rpartition("/")[2], "key").faults(status=503)
    with pytest.raises(StoreUnavailable) as caught:
        got(store, "key")
    assert caught.value.details["retry"] is True
    (answer,) = read_together(store, [listed]).values()
    assert answer.error is not None
    assert answer.error.details["retry"] is True


@pytest.mark.parametrize(
    "data", [b"", b"<html>", b"[]", b'{"entries": 5}', b'{"uuid": "x"}', b'{"entries": null']
)
def test_what_is_no_listing_is_no_empty_one(made: Made, data: bytes) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        made()._page(data, "")


def test_a_map_names_servers_whatever_else_is_in_it() -> None:
    net = b'{"direct_url": "http://10.0.0.1:51081"}'
    node = b'{"public_net": %b, "intra_data_net": {"direct_url": 5}, "id_digest": 18446744073709551615}' % net
    data = b'{"tmap": {"t1": %b, "t2": 7}, "pmap": {"p": {"pub_extra": [%b, 3]}}, "version": "12"}'
    extra = b'{"direct_url": "https://node2"}'
    assert servers_in(data % (node, extra)) == {("http", "10.0.0.1", 51081), ("https", "node2", 443)}
    for odd in (
        b"[]",
        b"{}",
        b'{"tmap": [1]}',
        b'{"tmap": {"t": {"public_net": {"direct_url": "http://[x"}}}}',
    ):
        assert servers_in(odd) == frozenset()
    with pytest.raises(StoreUnavailable):
        servers_in(b"<html>")
