"""What every store must do with writes, deletions and multipart uploads."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from nbdata.errors import BadOption, NbdataError, NotFound, SourceChanged, StoreUnavailable
from tests.conformance.conftest import Place

MIB = 1 << 20


class Breaking:
    """A source that returns some bytes and then fails."""

    def __init__(self, size: int, error: Exception) -> None:
        self._left, self._error = size, error

    def readinto(self, buffer: memoryview, /) -> int:
        count = min(len(buffer), self._left)
        if not count:
            raise self._error
        buffer[:count] = b"x" * count
        self._left -= count
        return count


def test_what_was_written_is_there(place: Place) -> None:
    data = os.urandom(100_000)
    info = place.put("deep/down/x", data)
    assert (info.key, info.size) == (place.prefix + "deep/down/x", len(data))
    assert place.get("deep/down/x") == data
    head = place.store.head(place.prefix + "deep/down/x")
    assert not info.etag or info.etag.strip('"') == head.etag.strip('"')


def test_writing_again_replaces(place: Place) -> None:
    place.put("x", b"one, and longer")
    place.put("x", b"two")
    assert place.get("x") == b"two"
    place.put("x", b"")
    assert place.get("x") == b""
    assert place.keys() == ["x"]


@pytest.mark.parametrize("before", [b"", b"before"])
@pytest.mark.in_ci("!sftp-", 6)
def test_a_source_that_fails_leaves_all_as_it_was(place: Place, before: bytes) -> None:
    if before:
        place.put("x", before)
    for error in (SourceChanged("the file became shorter"), OSError(5, "Input/output error")):
        for given in (0, 10, 2 * MIB):
            with pytest.raises((SourceChanged, NbdataError, OSError)) as caught:
                place.store.write(place.prefix + "x", Breaking(given, error), 3 * MIB)
            if isinstance(error, SourceChanged):
                assert caught.value is error
            assert place.keys() == (["x"] if before else [])
    if before:
        assert place.get("x") == before


@pytest.mark.parametrize("given", [0, 5, 2 * MIB])
@pytest.mark.parametrize("more", [-1, 1, 2 * MIB])
@pytest.mark.in_ci("*-1-5", "*-5", "*-2097152-0", 13)
def test_a_source_of_another_size_is_refused_and_leaves_nothing(place: Place, given: int, more: int) -> None:
    if given + more < 0:
        with pytest.raises(SourceChanged):
            place.store.write(place.prefix + "x", io.BytesIO(b""), 1)
    else:
        with pytest.raises(SourceChanged):
            place.store.write(place.prefix + "x", io.BytesIO(b"x" * given), given + more)
        if more < given:
            with pytest.raises(SourceChanged):
                place.store.write(place.prefix + "x", io.BytesIO(b"x" * given), given - 1)
    assert place.keys() == []
    place.put("x", b"fine")  # the store still works
    assert place.get("x") == b"fine"


def test_an_object_is_visible_only_when_it_is_whole(place: Place) -> None:
    seen: list[list[str]] = []

    class Looking:
        def __init__(self) -> None:
            self.left = 3 * MIB

        def readinto(self, buffer: memoryview, /) -> int:
            seen.append(place.keys())
            count = min(len(buffer), self.left)
            self.left -= count
            return count

    try:
        place.store.write(place.prefix + "x", Looking(), 3 * MIB)
    except (
        StoreUnavailable
    ) as error:  # a kept connection that the server had closed just then; a job tries again
        if not error.details.get("retry"):
            raise
        place.store.write(place.prefix + "x", Looking(), 3 * MIB)
    assert seen
    assert not any(seen)
    assert place.keys() == ["x"]


@pytest.mark.in_ci("local", "seaweedfs", "gs")
def test_objects_can_be_written_from_many_threads(place: Place) -> None:
    data = {f"folder/{n}": os.urandom(20_000) for n in range(30)}

    def put(name: str) -> None:
        try:
            place.put(name, data[name])
        except StoreUnavailable:
            if place.kind != "gs":  # its emulator sometimes closes a connection
                raise
            place.put(name, data[name])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, data))
    assert {name: place.get(name) for name in data} == data


def test_deleting_takes_only_what_was_named(place: Place) -> None:
    for name in ("a", "ab", "a-b", "folder/a", "folder/b"):
        place.put(name, b"x")
    place.delete(["a", "folder/a"])
    assert place.keys() == ["a-b", "ab", "folder/b"]
    place.delete(["ab"])
    assert place.keys() == ["a-b", "folder/b"]


def test_deleting_what_is_not_there_is_no_error(place: Place) -> None:
    place.put("x", b"x")
    place.delete(["missing"])
    place.delete(["missing", "no/such/folder", "x", "x/y"])
    place.delete([])
    assert place.keys() == []


@pytest.mark.parametrize("name", ["a\rb", "a\nb", "a\tb", "a\x01b", "a\ufffeb"])
def test_control_characters_name_the_right_object(seaweedfs_place: Place, name: str) -> None:
    place = seaweedfs_place  # moto answers 404 to every key with a line break
    place.put("a\nb", b"")
    if name != "a\nb":
        place.put(name, b"")
    place.put("b", b"")
    assert place.keys() == sorted({"a\nb", name, "b"})
    place.delete([name, "b"])
    assert place.keys() == ([] if name == "a\nb" else ["a\nb"])


# -- multipart uploads ----------------------------------------------------------------------------


def test_a_store_without_multipart_uploads_says_so(place: Place) -> None:
    if place.store.multipart:
        place.store.upload(place.prefix + "x", 1).abort()
        return
    with pytest.raises(BadOption, match="multipart"):
        place.store.upload(place.prefix + "x", 1)
    assert list(place.store.pending(place.prefix)) == []


def test_parts_may_come_in_any_order_and_from_threads(parts_place: Place) -> None:
    place = parts_place
    parts = [os.urandom(5 * MIB), os.urandom(5 * MIB), b"the last one"]
    size = sum(map(len, parts))
    upload = place.store.upload(place.prefix + "big", size)
    with ThreadPoolExecutor(3) as pool:
        sent = {
            n: pool.submit(upload.part, n, io.BytesIO(parts[n - 1]), len(parts[n - 1])) for n in (3, 1, 2)
        }
        answers = {n: future.result() for n, future in sent.items()}
    assert place.keys() == []
    info = upload.finish([answers[n] for n in (1, 2, 3)])
    assert info.size == size
    head = place.store.head(place.prefix + "big")
    assert head.size == size
    assert head.etag.strip('"') == info.etag.strip('"')
    assert place.kind in ("az", "ais") or head.etag.strip('"').endswith("-3")
    assert place.get("big", piece=MIB) == b"".join(parts)
    assert place.get("big", 5 * MIB - 10, 5 * MIB + 10) == parts[0][-10:] + parts[1][:10]
    assert list(place.store.pending(place.prefix)) == []


def test_finishing_twice_gives_the_same_object(parts_place: Place) -> None:
    """The engine repeats the request if the response was lost."""
    upload = parts_place.store.upload(parts_place.prefix + "x", 4)
    parts = [upload.part(1, io.BytesIO(b"1234"), 4)]
    first = upload.finish(parts)
    again = upload.finish(parts)
    assert parts_place.kind == "az" or again.etag.strip('"') == first.etag.strip('"')
    assert parts_place.get("x") == b"1234"


def test_an_upload_whose_parts_are_gone_cannot_be_finished(s3_place: Place) -> None:
    upload = s3_place.store.upload(s3_place.prefix + "x", 4)
    parts = [upload.part(1, io.BytesIO(b"1234"), 4)]
    upload.abort()
    with pytest.raises(
        StoreUnavailable if s3_place.kind == "moto" else NotFound
    ) as caught:  # moto fails with 500
        upload.finish(parts)
    if s3_place.kind == "seaweedfs":
        assert "upload" in str(caught.value)
    assert s3_place.keys() == []


def test_a_part_of_another_size_is_refused(parts_place: Place) -> None:
    upload = parts_place.store.upload(parts_place.prefix + "x", 10)
    with pytest.raises(SourceChanged):
        upload.part(1, io.BytesIO(b"12345"), 10)
    upload.abort()


def test_an_aborted_upload_leaves_nothing(s3_place: Place) -> None:
    upload = s3_place.store.upload(s3_place.prefix + "x", 10)
    upload.part(1, io.BytesIO(b"1234567890"), 10)
    upload.abort()
    upload.abort()  # a second abort is no error
    assert s3_place.keys() == []
    assert list(s3_place.store.pending(s3_place.prefix)) == []


@pytest.mark.parametrize("name", ["plain", "with space", "ünï", "a+b", "100%", "a&b", "<a>"])
def test_unfinished_uploads_are_listed_and_can_be_aborted(s3_place: Place, name: str) -> None:
    place = s3_place
    key = f"{place.prefix}folder/{name}"
    upload = place.store.upload(key, 10)
    upload.part(1, io.BytesIO(b"1234567890"), 10)
    other = place.store.upload(f"{place.prefix}elsewhere", 10)
    assert list(place.store.pending(place.prefix + "folder/")) == [(key, upload.id)]
    assert len(list(place.store.pending(place.prefix))) == 2
    place.store.abort(key, upload.id)
    assert list(place.store.pending(place.prefix)) == [(other._key, other.id)]  # type: ignore[attr-defined]
    other.abort()


def test_objects_that_were_uploaded_in_parts_tell_their_part_size_or_nothing(parts_place: Place) -> None:
    upload = parts_place.store.upload(parts_place.prefix + "x", 5 * MIB + 1)
    parts = [upload.part(1, io.BytesIO(bytes(5 * MIB)), 5 * MIB), upload.part(2, io.BytesIO(b"x"), 1)]
    upload.finish(parts)
    assert parts_place.store.part_size(parts_place.store.head(parts_place.prefix + "x")) in (5 * MIB, None)
    parts_place.put("plain", b"x")
    assert parts_place.store.part_size(parts_place.store.head(parts_place.prefix + "plain")) is None
