"""The uploads of a program that writes shards itself, without a job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from nbdata.errors import NbdataError, NotFound
from nbdata.stores.base import Location, Store, Upload
from nbdata.transfer.control import Control
from nbdata.transfer.object_upload import Uploads
from nbdata.transfer.uploads import claim, forget, leave, remember

__all__ = ["OwnUploads"]


class OwnUploads(Uploads):
    """The uploads to one folder. An upload that a killed process left is aborted when its key is written again.

    Parameters
    ----------
    folder : Location
    reopen : callable
        Opens another store for the same place, which also works after `control` was stopped. It aborts uploads.
    """

    def __init__(
        self, control: Control, folder: Location, state_dir: str, reopen: Callable[[], Store]
    ) -> None:
        super().__init__(control, folder.store)
        self._state_dir, self._reopen = state_dir, reopen
        self._known_as = f"{folder.place}\n{folder.store.server}"

    def begin(self, key: str, size: int, headers: Mapping[str, str] | None = None) -> Upload:
        while (left := claim(self._state_dir, self._known_as, key)) is not None:
            self._abort(key, left)
        upload = self.store.upload(key, size, headers=headers)
        try:
            remember(self._state_dir, self._known_as, key, upload.id)
        except BaseException:
            self._abort(key, upload.id)
            raise
        return upload

    def forget(self, upload_id: str) -> None:
        with contextlib.suppress(NbdataError):  # cleanup finds that it is gone
            forget(self._state_dir, upload_id)

    def abandon(self, key: str, upload: Upload, error: Exception | None) -> bool:
        self._abort(key, upload.id)
        return False

    def _abort(self, key: str, upload_id: str) -> None:
        try:
            with contextlib.suppress(NotFound):
                self._reopen().abort(key, upload_id)
            forget(self._state_dir, upload_id)
        except NbdataError:
            with contextlib.suppress(NbdataError):
                leave(self._state_dir, upload_id)  # cleanup finds it
