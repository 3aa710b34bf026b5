"""The upload of one object: begun once for all threads, and never again after its end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import cast

import pytest

from nbdata.errors import AccessDenied, Cancelled, ChecksumMismatch, NotFound
from nbdata.stores.base import ObjectInfo, Store, Upload
from nbdata.transfer.free_control import FreeControl
from nbdata.transfer.object_upload import Uploads
from nbdata.transfer.send import SentPart

PARTS = [SentPart("a", "", True), SentPart("b", "", True)]


class _Upload(Upload):
    id = "1"

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def part(self, number: int, source: object, size: int) -> str:
        raise NotImplementedError

    def through(self, store: Store) -> Upload:
        raise NotImplementedError

    def finish(self, parts: list[str]) -> ObjectInfo:
        self._log.append(f"finish {parts}")
        return ObjectInfo("k", 2, '"e"')

    def abort(self) -> None:
        raise NotImplementedError


class _Store:
    """A store without objects."""

    def head(self, key: str) -> ObjectInfo:
        raise NotFound("there is none")


class _Uploads(Uploads):
    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(FreeControl(), cast(Store, _Store()))
        self.log: list[str] = []
        self._error = error

    def begin(self, key: str, size: int, headers: Mapping[str, str] | None = None) -> Upload:
        self.log.append(f"begin {key} {size}")
        if self._error is not None:
            raise self._error
        return _Upload(self.log)

    def forget(self, upload_id: str) -> None:
        self.log.append("forget")

    def abandon(self, key: str, upload: Upload, error: Exception | None) -> bool:
        self.log.append(f"abandon {type(error).__name__}")
        return True


def right(_info: ObjectInfo, _digests: list[str]) -> bool:
    return True


def test_an_object_is_announced_begun_made_and_forgotten_in_this_order() -> None:
    uploads = _Uploads()
    upload = uploads.open("k", 2, right, announce=lambda: uploads.log.append("announce"))
    upload.at_end.callback(uploads.log.append, "release")
    assert uploads.log == []
    threads = [threading.Thread(target=upload.begun) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert upload.finish(PARTS) == (ObjectInfo("k", 2, '"e"'), True)
    assert uploads.log == ["announce", "begin k 2", "finish ['a', 'b']", "release", "forget"]
    uploads.give_up_unfinished()
    assert not upload.give_up()
    assert len(uploads.log) == 5


def test_an_upload_that_cannot_begin_is_tried_once_for_all_threads() -> None:
    uploads = _Uploads(AccessDenied("no"))
    upload = uploads.open("k", None, right)
    for _ in range(2):
        with pytest.raises(AccessDenied):
            upload.begun()
    assert not upload.give_up()
    assert uploads.log == ["begin k -1"]


def test_an_upload_is_given_up_once_and_never_begun_again() -> None:
    uploads = _Uploads()
    upload = uploads.open("k", 2, right)
    upload.begun()
    assert upload.give_up(AccessDenied("no"))
    uploads.give_up_unfinished()
    assert uploads.log == ["begin k 2", "abandon AccessDenied"]
    with pytest.raises(Cancelled):
        upload.begun()
    assert len(uploads.log) == 2


def test_what_is_unfinished_at_the_end_is_given_up() -> None:
    uploads = _Uploads()
    uploads.open("a", 2, right).begun()
    late = uploads.open("b", 2, right)
    uploads.give_up_unfinished()
    assert uploads.log == ["begin a 2", "abandon NoneType"]
    with pytest.raises(Cancelled):
        late.begun()


def test_a_wrong_object_is_forgotten_as_an_upload_and_deleted() -> None:
    uploads = _Uploads()

    def wrong(_info: ObjectInfo, _digests: list[str]) -> bool:
        raise ChecksumMismatch("wrong")

    upload = uploads.open("k", 2, wrong)
    with pytest.raises(ChecksumMismatch) as failed:
        upload.finish(PARTS)
    assert failed.value.remedy == "What the store had is gone"
    assert not upload.give_up(failed.value)
    assert uploads.log == ["begin k 2", "finish ['a', 'b']", "forget"]
