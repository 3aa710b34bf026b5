"""The upload of one object in parts: begun once, remembered, and ended as an object or given up."""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence

from nbdata.errors import Cancelled, ChecksumMismatch, NbdataError
from nbdata.stores.base import ObjectInfo, Store, Upload
from nbdata.transfer.control import Control
from nbdata.transfer.retry import retrying
from nbdata.transfer.send import SentPart, withdrawn

__all__ = ["Check", "ObjectUpload", "Uploads"]

#: Verifies a finished object from its metadata and the parts' digests; raises ChecksumMismatch if it is wrong.
Check = Callable[[ObjectInfo, list[str]], bool]


class Uploads(abc.ABC):
    """The uploads to one store. How they are begun, remembered and aborted depends on who sends."""

    def __init__(self, control: Control, store: Store) -> None:
        self.control, self.store = control, store
        self._unfinished: dict[ObjectUpload, None] = {}

    def open(
        self,
        key: str,
        size: int | None,
        check: Check,
        *,
        headers: Mapping[str, str] | None = None,
        announce: Callable[[], object] = lambda: None,
    ) -> ObjectUpload:
        """Return the upload of an object; nothing is sent yet.

        Parameters
        ----------
        size : int or None
            Bytes of the object; None if they are known only at its end.
        check : callable
        headers : mapping of str to str, optional
            To store with the object.
        announce : callable
            Notes that the object is about to be replaced; called before the upload begins.
        """

        def begin() -> Upload:
            announce()
            return self.begin(key, -1 if size is None else size, headers)

        upload = ObjectUpload(self, key, begin, check)
        self._unfinished[upload] = None
        return upload

    @abc.abstractmethod
    def begin(self, key: str, size: int, headers: Mapping[str, str] | None = None) -> Upload:
        """Begin an upload, and remember it before its first part is sent; `size` is -1 if it is not known yet."""

    @abc.abstractmethod
    def forget(self, upload_id: str) -> None:
        """Note that an upload has become an object; does not raise."""

    @abc.abstractmethod
    def abandon(self, key: str, upload: Upload, error: Exception | None) -> bool:
        """Abort an upload after an error, or None for a stop; or leave it for the next run, and return True."""

    def over(self, upload: ObjectUpload) -> None:
        """Note that an upload has ended."""
        self._unfinished.pop(upload, None)

    def give_up_unfinished(self) -> None:
        """Give up what was opened and has not ended."""
        for upload in list(self._unfinished):
            upload.give_up()


class ObjectUpload:
    """One object that is sent in parts; made by `Uploads.open`. Many threads may send parts.

    Attributes
    ----------
    at_end : ExitStack
        What to release when the upload ends in any way.
    """

    def __init__(self, uploads: Uploads, key: str, begin: Callable[[], Upload], check: Check) -> None:
        self._uploads, self._key, self._begin, self._check = uploads, key, begin, check
        self._lock = threading.Lock()
        self._upload: Upload | None = None
        self._error: Exception | None = None
        self.at_end = contextlib.ExitStack()

    def begun(self) -> Upload:
        """Return the store's upload. The first caller begins it; if that fails, all callers get its error."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._upload is None:
                try:
                    self._upload = retrying(self._uploads.control, self._begin)
                except Exception as error:
                    self._error = error
                    raise
            return self._upload

    def finish(self, parts: Sequence[SentPart]) -> tuple[ObjectInfo, bool]:
        """Make the object of its parts. Returns the store's metadata, and whether the object is verified.

        Deletes an object that was assembled wrongly. After an error, `give_up` must be called.
        """
        upload, control = self.begun(), self._uploads.control
        info = retrying(control, lambda: upload.finish([part.answer for part in parts]))
        self._upload = None  # it is an object now
        self._end()
        self._uploads.forget(upload.id)
        try:
            if upload.proved is False:
                raise ChecksumMismatch("what the store has is not what was sent", path=self._key)
            verified = self._check(info, [part.digest for part in parts])
        except ChecksumMismatch as error:
            error.remedy = withdrawn(control, self._uploads.store, self._key, info)
            raise
        return info, verified and (upload.proved or all(part.verified for part in parts))

    def give_up(self, error: Exception | None = None) -> bool:
        """End the upload without an object, after an error or a stop; does nothing if it has ended.

        Returns whether the next run can resume it. Works while the job is being stopped.
        """
        upload, self._upload = self._upload, None
        self._end()
        if upload is not None:
            with contextlib.suppress(NbdataError):  # the upload is remembered, so cleanup finds it
                return self._uploads.abandon(self._key, upload, error)
        return False

    def _end(self) -> None:
        self._error = self._error or Cancelled("this upload has ended")  # so that no thread begins it again
        self._uploads.over(self)
        self.at_end.close()
