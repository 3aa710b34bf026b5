"""Remember unfinished multipart uploads, so that later runs resume them and cleanup can abort them.

They are in an append-only file in the state folder, ``uploads.log``. Its lines are `nbdata.sealed_lines`, each with an
array. ``[1, place, key, id, at, host, process]`` begins or resumes an upload. ``[2, id]`` leaves it for the next run.
``[0, id]`` ends it, finished or aborted. A key may have several uploads, if a process was killed. Only a hash of the
place is kept. Torn lines are skipped. A large file is rewritten with only the unfinished uploads.

The store chooses the id of an upload. A process killed before the response leaves an upload whose id is unknown. So the
intent is noted first, under an own id that begins with ``?``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import time
from typing import NamedTuple

from nbdata.disk import disk_error, make_folders, sync_folder
from nbdata.lock_files import file_lock
from nbdata.optional_calls import fdatasync, fsync
from nbdata.own_files import taken, through_no_link
from nbdata.runtime import runtime_folder
from nbdata.sealed_lines import append, format_line, parse_line
from nbdata.space.holders import is_alive, this_process
from nbdata.stores.base import Store

__all__ = [
    "Begun",
    "begun_at",
    "claim",
    "forget",
    "intend",
    "known_as",
    "leave",
    "remember",
    "remembered",
    "unknown_left",
]

# A file of more bytes than this is rewritten.
_LARGE = 1 << 20
# The first character of own ids.
_INTENDED = "?"
# The processes of another machine cannot be seen. Their uploads count as dead after this many seconds.
_ELSEWHERE = 24 * 3600.0


class Begun(NamedTuple):
    """An upload that is not noted as finished. `place` is a hash."""

    place: str
    key: str
    id: str
    at: float
    host: str
    process: str

    def in_use(self) -> str:
        """Explain why the upload may still be running; '' if it is not."""
        if not self.process:  # its sender has left it
            return ""
        if self.host != os.uname().nodename:
            young = time.time() - self.at < _ELSEWHERE
            return f"begun less than a day ago on {self.host}" if young else ""
        return "its process still runs" if is_alive(self.process) else ""


def known_as(place: str, store: Store) -> str:
    """Return the place that an upload is remembered by.

    With it go its server (another one may have a bucket of that name), and how its objects are to be stored.
    """
    return "\n".join(filter(None, [place, store.server, store.stored_as]))


def begun_at(state_dir: str, place: str) -> list[Begun]:
    """Return the uploads of one place whose ids are known, for stores that list none."""
    wanted = _hash(place)
    return [
        begun
        for begun in remembered(state_dir).values()
        if begun.place == wanted and not begun.id.startswith(_INTENDED)
    ]


def remember(state_dir: str, place: str, key: str, upload_id: str) -> None:
    """Note an upload durably before its first part is sent: only this note tells whose it is."""
    entry = [1, _hash(place), key, upload_id, time.time(), os.uname().nodename, this_process()]
    _append(state_dir, entry, synced=True)


def intend(state_dir: str, place: str, key: str) -> str:
    """Note that an upload is about to begin. Returns an id to `forget` once the real id is known or the start fails."""
    own = _INTENDED + secrets.token_hex(8)
    _append(state_dir, [1, _hash(place), key, own, time.time(), os.uname().nodename, this_process()])
    return own


def unknown_left(state_dir: str, place: str, key: str) -> list[str]:
    """Return the `intend` ids of dead runs: the store may have an upload of this key with an unknown id."""
    return [
        begun.id
        for begun in remembered(state_dir).values()
        if begun.id.startswith(_INTENDED)
        and (begun.place, begun.key) == (_hash(place), key)
        and not begun.in_use()
    ]


def leave(state_dir: str, upload_id: str) -> None:
    """Note that no process works on an upload for now."""
    _append(state_dir, [2, upload_id])


def claim(state_dir: str, place: str, key: str) -> str | None:
    """Take over the newest upload of a key that no process works on, and return its id; None if there is none."""
    with file_lock(os.path.join(runtime_folder(), "uploads.claim")):
        for begun in sorted(remembered(state_dir).values(), key=lambda b: -b.at):
            known = not begun.id.startswith(_INTENDED)
            if known and (begun.place, begun.key) == (_hash(place), key) and not begun.in_use():
                remember(state_dir, place, key, begun.id)
                return begun.id
    return None


def forget(state_dir: str, upload_id: str) -> None:
    """Note that an upload is finished or aborted."""
    _append(state_dir, [0, upload_id])


def remembered(state_dir: str) -> dict[str, Begun]:
    """The unfinished uploads, by id."""
    found: dict[str, Begun] = {}
    try:
        with open(_path(state_dir), "rb", opener=through_no_link) as lines:
            if not stat.S_ISREG(os.fstat(lines.fileno()).st_mode):  # reading a device may never end
                return found
            for line in lines:
                begun, *values = parse_line(line) or [None]
                if begun and len(values) == 6:
                    found[values[2]] = Begun(*values)
                elif begun == 2 and len(values) == 1 and values[0] in found:
                    found[values[0]] = found[values[0]]._replace(process="")
                elif begun == 0 and len(values) == 1:
                    found.pop(values[0], None)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise taken(_path(state_dir)) or disk_error(error, _path(state_dir)) from error
    return found


def _path(state_dir: str) -> str:
    return os.path.join(state_dir, "uploads.log")


def _hash(place: str) -> str:
    return hashlib.sha256(place.rstrip("/").encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _append(state_dir: str, entry: list[object], *, synced: bool = False) -> None:
    try:
        _append_locked(state_dir, entry, synced)
    except OSError as error:
        raise taken(_path(state_dir)) or disk_error(error, _path(state_dir)) from error


def _append_locked(state_dir: str, entry: list[object], synced: bool) -> None:
    make_folders(state_dir, 0o700)
    path = _path(state_dir)
    with file_lock(os.path.join(runtime_folder(), "uploads.lock")):
        fd = through_no_link(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            size = append(fd, format_line(entry))
            if synced:
                fdatasync(fd)
                # The file may have been made for an entry that was not synced, so its name may not be durable yet.
                with contextlib.suppress(OSError):  # some disks cannot sync folders
                    sync_folder(state_dir)
        finally:
            os.close(fd)
        if size > _LARGE:
            with open(path + ".new", "wb", opener=through_no_link) as file:
                file.writelines(format_line([1, *begun]) for begun in remembered(state_dir).values())
                file.flush()
                fsync(file.fileno())
            os.replace(path + ".new", path)
            with contextlib.suppress(OSError):
                sync_folder(state_dir)
