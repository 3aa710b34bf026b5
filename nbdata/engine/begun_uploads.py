"""The multipart uploads of one run: remembered before their first part, given up when the run ends before they do."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping

from nbdata.engine.run import Run
from nbdata.errors import NbdataError
from nbdata.stores.base import Store, Upload
from nbdata.stores.resolve import open_place
from nbdata.transfer.uploads import forget, remember

__all__ = ["BegunUploads"]

# Seconds for which a run waits at its end until the store has given up what it is told to; when it is stopped, less.
_ABANDON, _ABANDON_STOPPED = 30.0, 0.5


class BegunUploads:
    """Uploads to one target.

    Attributes
    ----------
    unfinished : dict of str to callable
        By path, what is to be done about an object whose parts were begun, should the run end before it is whole.
    """

    def __init__(self, run: Run, place: str) -> None:
        self._run, self._place = run, place
        self.unfinished: dict[str, Callable[[], None]] = {}
        self._begun: dict[str, str] = {}  # key to id
        self._abandoning: list[threading.Thread] = []

    def begin(self, store: Store, key: str, size: int, headers: Mapping[str, str] | None = None) -> Upload:
        """Begin one, and remember it; what cannot be remembered is given up at once, as nobody would find it."""
        upload = store.upload(key, size, headers=headers)
        try:
            remember(self._run.context.state_dir, self._place, key, upload.id)
        except NbdataError:
            self.abandon(key, upload)
            raise
        self._begun[key] = upload.id
        return upload

    def finished(self, key: str) -> None:
        """It is an object now."""
        forget(self._run.context.state_dir, self._begun.pop(key))

    def abandon(self, key: str, upload: Upload) -> None:
        """Give it up, aside, so that a store that hangs does not hold a stop."""
        thread = threading.Thread(target=self._abandon_now, args=(key, upload), name="abandon", daemon=True)
        thread.start()
        self._abandoning.append(thread)

    def _abandon_now(self, key: str, upload: Upload) -> None:
        with contextlib.suppress(NbdataError):  # it is remembered, and cleanup finds it
            # The job may be stopping, and with it every request of its own store.
            again = open_place(self._place, self._run.context, fs=self._run.bindings.get("fs"))
            again.store.abort(key, upload.id)
            forget(self._run.context.state_dir, upload.id)

    def close(self) -> None:
        """Give up what is unfinished; waits for the store, but not for long."""
        for give_up in list(self.unfinished.values()):
            give_up()
        end = time.monotonic() + (_ABANDON_STOPPED if self._run.control.is_set() else _ABANDON)
        for thread in self._abandoning:
            thread.join(max(0.0, end - time.monotonic()))
