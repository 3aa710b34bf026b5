"""The multipart uploads of one run: remembered before their first part, then left for the next run or aborted."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from functools import cached_property

from nbdata.ending import Daemon
from nbdata.engine.job.run import Run
from nbdata.errors import AccessDenied, Cancelled, NbdataError, NotFound, StoreUnavailable
from nbdata.stores.base import Store, Upload
from nbdata.stores.resolve import open_place
from nbdata.transfer.object_upload import Uploads
from nbdata.transfer.retry import retrying
from nbdata.transfer.uploads import claim, forget, intend, known_as, leave, remember, remembered, unknown_left

__all__ = ["BegunUploads"]

# Seconds that a run waits at its end for the store to abort uploads; fewer if the run was stopped.
_ABANDON, _ABANDON_STOPPED = 30.0, 0.5
# Errors that say nothing against the parts that were sent.
_PASSING = (Cancelled, StoreUnavailable, AccessDenied)
# Seconds between two checks whether the job must end, while an upload starts.
_LOOK = 0.1


class BegunUploads(Uploads):
    """The uploads of one run to one target.

    Parameters
    ----------
    run : Run
    place : str
        The target, as the user wrote it.
    store : Store
        Sends the parts.
    keep : bool
        Whether unfinished uploads stay in the store if the run is stopped or the store is unreachable, so that the same
        command resumes them. Else, or if the store resumes none, they are aborted, and so are uploads of the same key
        that a killed run left.
    """

    def __init__(self, run: Run, place: str, store: Store, *, keep: bool = False) -> None:
        super().__init__(run.control, store)
        self._run, self._place, self._keep = run, place, keep
        self._threads: set[threading.Thread] = set()

    def begin(self, key: str, size: int, headers: Mapping[str, str] | None = None) -> Upload:
        """Start an upload, remember it, and let the run's store send its parts.

        A stop does not wait for the store. It does not break the request off either, because only its answer gives the
        upload's id. An upload that cannot be remembered is aborted, because no later run would find it.
        """
        self._give_up_unknown(key)
        left = self._taken_up(key, size)
        if left is not None:
            return left
        if not (self._keep and self.store.reopens):
            self._give_up_left(key)
        begun: Future[Upload] = Future()
        self._aside(self._begin_now, begun, key, size, headers)
        while not wait([begun], _LOOK).done:
            try:
                self._run.control.checkpoint()
            except NbdataError:
                if begun.cancel():
                    raise
        return begun.result().through(self.store)

    def _begin_now(
        self, begun: Future[Upload], key: str, size: int, headers: Mapping[str, str] | None
    ) -> None:
        state = self._run.context.state_dir
        try:
            intended = intend(state, self._known_as, key)
            try:
                upload = self._separate_store().upload(key, size, headers=headers)
            except NbdataError as error:
                # Without an answer, it is unknown whether the store has started one.
                (leave if isinstance(error, StoreUnavailable) else forget)(state, intended)
                raise
            try:
                remember(state, self._known_as, key, upload.id)
            except NbdataError:
                self._abandon_now(key, upload.id)
                raise
            finally:
                with contextlib.suppress(NbdataError):
                    forget(state, intended)
        except Exception as error:
            if begun.set_running_or_notify_cancel():
                begun.set_exception(error)
            return
        if begun.set_running_or_notify_cancel():
            begun.set_result(upload)
        else:
            self._abandon_now(key, upload.id)

    def _taken_up(self, key: str, size: int) -> Upload | None:
        """Resume an upload of this key that an earlier run left, if there is one."""
        state, store = self._run.context.state_dir, self.store
        while self._keep and store.reopens and (claimed := claim(state, self._known_as, key)) is not None:
            try:
                upload = retrying(self._run.control, lambda known=claimed: store.reopen(key, size, known))  # type: ignore[misc]
            except NotFound as error:
                if error.details.get("code") != "NoSuchUpload":
                    leave(state, claimed)
                    raise
                forget(state, claimed)
            except NbdataError:
                leave(state, claimed)
                raise
            else:
                return upload
        return None

    def _give_up_unknown(self, key: str) -> None:
        """Abort uploads of this key that a run started and was killed before it learned their ids."""
        state = self._run.context.state_dir
        left = unknown_left(state, self._known_as, key)
        if not left:
            return
        known, pending = remembered(state), list[tuple[str, str]]()
        with contextlib.suppress(AccessDenied):  # without the right to list, the bucket's rules must clean up
            pending = retrying(self._run.control, lambda: list(self.store.pending(key)))
        for upload_id in [found for name, found in pending if name == key and found not in known]:
            self._aside(self._abandon_now, key, upload_id)
        for intended in left:
            forget(state, intended)

    def _give_up_left(self, key: str) -> None:
        """Abort uploads of this key that earlier runs left, while the new one continues."""
        left: list[str] = []
        while (claimed := claim(self._run.context.state_dir, self._known_as, key)) is not None:
            left.append(claimed)
        for upload_id in left:
            self._aside(self._abandon_now, key, upload_id)

    @cached_property
    def _known_as(self) -> str:
        """What the uploads to this place are remembered by."""
        return known_as(self._place, self._separate_store())

    def forget(self, upload_id: str) -> None:
        with contextlib.suppress(NbdataError):  # a full disk that prevents the note does no harm
            forget(self._run.context.state_dir, upload_id)

    def abandon(self, key: str, upload: Upload, error: Exception | None) -> bool:
        """Stop an upload after an error or a stop; return True if it is left for the next run.

        A thread aborts it, so that a hanging store does not delay a stop.
        """
        if self._keep and upload.reopens and (error is None or isinstance(error, _PASSING)):
            leave(self._run.context.state_dir, upload.id)
            return True
        self._aside(self._abandon_now, key, upload.id)
        return False

    def _abandon_now(self, key: str, upload_id: str) -> None:
        state = self._run.context.state_dir
        with contextlib.suppress(NbdataError):
            try:
                self._separate_store().abort(key, upload_id)
            except NbdataError:
                leave(state, upload_id)  # cleanup finds it
                raise
            forget(state, upload_id)

    def _separate_store(self) -> Store:
        """Open a store separate from the job's own, whose requests all stop when the job stops."""
        return open_place(self._place, self._run.context, fs=self._run.bindings.get("fs")).store

    def _aside(self, work: Callable[..., None], *args: object) -> None:
        def run() -> None:
            try:
                work(*args)
            finally:
                self._threads.discard(thread)

        thread = Daemon(run, name="upload")
        self._threads.add(thread)
        thread.start()

    def close(self) -> None:
        """Abort or leave unfinished uploads; waits for the store, but not for long."""
        self.give_up_unfinished()
        end = time.monotonic() + (_ABANDON_STOPPED if self._run.control.is_set() else _ABANDON)
        for thread in list(self._threads):
            thread.join(max(0.0, end - time.monotonic()))
