"""AIStore's own SDK judges the server of the tests: what it lists, reads and writes there must be right."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers.aistore.cluster import Cluster
from tests.servers.aistore.kept import checksum_of

if TYPE_CHECKING:
    from aistore.sdk.bucket import Bucket

pytestmark = pytest.mark.needs("aistore sdk")


@pytest.fixture
def bucket(aistore: Cluster) -> Iterator[Bucket]:
    """A new bucket, made by the SDK."""
    from aistore.sdk import Client

    client = Client(aistore.url)
    yield client.bucket(f"sdk-{secrets.token_hex(4)}").create()
    client._request_client.session_manager.session.close()


def test_it_lists_in_pages(bucket: Bucket, aistore: Cluster) -> None:
    names = sorted(f"{folder}/{number:02}.bin" for folder in ("a", "a/b", "c") for number in range(7))
    for name in names:
        bucket.object(name).get_writer().put_content(name.encode())
    found = list(bucket.list_objects_iter(page_size=4, props="name,size,checksum,version"))
    assert [(one.name, one.size, one.version) for one in found] == [(name, len(name), "1") for name in names]
    assert {one.checksum for one in found} == {checksum_of("xxhash2", name.encode()) for name in names}
    assert [one.name for one in bucket.list_all_objects(prefix="a/b/")] == names[7:14]
    assert [one.name for one in bucket.list_all_objects(start_after=names[-2])] == names[-1:]
    assert bucket.name in [one.name for one in bucket.client.request_deserialize(**_buckets())]


def _buckets() -> dict[str, Any]:
    from aistore.sdk.types import BucketModel

    return {
        "method": "get",
        "path": "buckets",
        "res_model": list[BucketModel],
        "json": {"action": "list"},
        "params": {"provider": "ais"},
    }


def test_it_reads_whole_objects_and_ranges(bucket: Bucket) -> None:
    data = secrets.token_bytes(100_000)
    one = bucket.object("folder/a file.bin")
    one.get_writer().put_content(data)
    assert one.get_reader().read_all() == data
    assert one.get_reader(byte_range="bytes=1000-1999").read_all() == data[1000:2000]
    assert one.get_reader(byte_range="bytes=-10").read_all() == data[-10:]
    # It computes itself which node has the object.
    assert one.get_reader(direct=True).read_all() == data
    attributes = one.head("checksum,version,last-modified,etag")
    assert (attributes.size, attributes.obj_version, attributes.present) == (len(data), "1", True)
    assert (attributes.checksum_type, attributes.checksum_value) == (
        "xxhash2",
        checksum_of("xxhash2", data),
    )


def test_it_writes_again_and_deletes(bucket: Bucket) -> None:
    from aistore.sdk.errors import ErrObjNotFound

    one = bucket.object("x")
    one.get_writer().put_content(b"first")
    one.get_writer().put_content(b"second")
    assert one.get_reader().read_all() == b"second"
    assert one.head("version").obj_version == "2"
    one.delete()
    with pytest.raises(ErrObjNotFound):
        one.get_reader().read_all()


def test_it_uploads_in_parts(bucket: Bucket) -> None:
    parts = [secrets.token_bytes(50_000), secrets.token_bytes(7)]
    one = bucket.object("parts")
    upload = one.multipart_upload().create()
    for number, data in enumerate(parts, 1):
        upload.add_part(number).put_content(data)
    upload.complete()
    assert one.get_reader().read_all() == b"".join(parts)
    attributes = one.head("checksum")
    assert attributes.checksum_value == checksum_of("xxhash2", b"".join(parts))
    # Out of order, the whole has a checksum of another type.
    upload = one.multipart_upload().create()
    upload.add_part(2).put_content(parts[1])
    upload.add_part(1).put_content(parts[0])
    upload.complete()
    attributes = one.head("checksum")
    assert (attributes.checksum_type, attributes.checksum_value) == (
        "crc32c",
        checksum_of("crc32c", b"".join(parts)),
    )
    given_up = one.multipart_upload().create()
    given_up.add_part(1).put_content(b"x")
    given_up.abort()
    assert one.get_reader().read_all() == b"".join(parts)


def test_it_finds_an_object_that_moved(bucket: Bucket, aistore: Cluster) -> None:
    one = bucket.object("moved")
    one.get_writer().put_content(b"here")
    before = aistore.node_of(bucket.name, "moved")
    after = next(node for node in aistore.nodes if node is not before)
    aistore.move(bucket.name, "moved", after)
    assert one.get_reader().read_all() == b"here"
    assert [entry.name for entry in bucket.list_all_objects()] == ["moved"]


def test_errors_are_those_that_it_knows(bucket: Bucket, aistore: Cluster) -> None:
    from aistore.sdk import Client
    from aistore.sdk.errors import ErrBckAlreadyExists, ErrBckNotFound

    missing = Client(aistore.url).bucket(f"none-{secrets.token_hex(4)}")
    with pytest.raises(ErrBckNotFound):
        missing.list_all_objects()
    with pytest.raises(ErrBckAlreadyExists):
        bucket.create()
