"""Starts and ends mounts, and tells which there are."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import time
from types import TracebackType
from typing import Any

from nbdata.client.launch import spawn
from nbdata.disk import disk_error
from nbdata.errors import AccessDenied, BadOption, NbdataError, NotFound, error_from_dict
from nbdata.files.mounted.device import DEVICE
from nbdata.operation import slots
from nbdata.redaction import redacted
from nbdata.rendering import printable
from nbdata.report import Report
from nbdata.sizes import format_duration, format_size
from nbdata.space.mounts import Note, dead_mounts, end_mount, is_mounted, release
from nbdata.verbs.mount import Mount, Unmount

__all__ = ["Mounted", "listed", "mounted", "mounts", "unmounted"]

# Seconds that a mount may take to be there, and that its process may take to end.
_PATIENCE, _ENDING = 90.0, 20.0
# The most processes that are told to hold a mount.
_TOLD = 5
_RIGHT = (
    "In a container, ask for the device /dev/fuse and the capability SYS_ADMIN; without them nbdata.shift() serves "
    "Python, and pull all other programs"
)


# While its socket is open, a mount stays, also if nobody keeps the `Mounted`: it ends with this process.
_lives: dict[str, socket.socket] = {}


def _let_go(name: str) -> None:
    life = _lives.pop(name, None)
    if life is not None:
        life.close()


def _let_go_of_ended() -> None:
    """Close the sockets of mounts that were ended by others."""
    for name, life in list(_lives.items()):
        with contextlib.suppress(OSError):
            if not life.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                _let_go(name)


def _after_fork() -> None:
    """Close the copies in a child: they would keep the mounts of a parent that was killed."""
    for name in list(_lives):
        _let_go(name)


os.register_at_fork(after_in_child=_after_fork)


class Mounted:
    """A folder of a store that is mounted. End it by `unmount`, or by leaving its ``with`` block.

    Attributes
    ----------
    url : str
        What is mounted, without secrets.
    folder : str
        Where, as an absolute path.
    """

    def __init__(self, note: Note) -> None:
        self._note, self._process = note, os.getpid()
        self.url, self.folder = note.url, note.folder

    def unmount(self) -> None:
        """End the mount, and release it if its process was killed; does nothing if it has ended.

        Raises
        ------
        NbdataError
            If files in it are open.
        """
        if self._note.lives or not any(one.lives for one in Note.all() if one.folder == self.folder):
            _unmount(self._note)
        _let_go(self._note.name)

    def __enter__(self) -> Mounted:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process == os.getpid():  # the block of a forked child is not the one that mounted it
            self.unmount()

    def __fspath__(self) -> str:
        return self.folder

    def __repr__(self) -> str:
        return printable(f"<mount of {self.url} at {self.folder}{'' if self._note.lives else ', ended'}>")

    def text(self) -> str:
        """Return a line for people."""
        return printable(f"{self.url} is mounted at {self.folder}; nbdata unmount {self.folder} ends it")

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {"url": self.url, "folder": self.folder}


def mounted(operation: Mount, quiet: bool = False) -> Mounted | Report:
    """Mount a place; without one return the list of mounts. Unless `quiet`, tell how far an archive is read."""
    if operation.source is None:
        return mounts()
    assert operation.target is not None
    folder = _folder_of(operation.target)
    _check_device()
    _prepare(folder)
    _let_go_of_ended()
    name = secrets.token_hex(8)
    note = Note.of(name)
    order = {
        "url": operation.source.rstrip("/"),
        "folder": folder,
        "options": operation.storage_options or {},
        "verify": operation.verify,
        "max_age": operation.max_age,
        "archive": operation.archive,
        "cache": operation.cache,
        "cache_dir": operation.cache_dir,
        "keep": operation.keep,
        "allow_other": operation.allow_other,
        "remedy": _RIGHT,
    }
    ours, theirs = socket.socketpair()
    _lives[name] = ours
    try:
        with theirs:
            spawn("nbdata.files.mounted.process", name, note.log, os.environ, theirs.fileno())
        ours.settimeout(_PATIENCE)
        ours.sendall(json.dumps(order).encode() + b"\n")
        with ours.makefile("rb") as answers:
            line = answers.readline()
            while line and "read" in (told := json.loads(line)):  # a tar, which takes its time
                if not quiet:
                    read, of = format_size(told["read"]), format_size(told["of"])
                    slots.display().tell(f"mount: {read} of {of} read so far")
                line = answers.readline()
        ours.settimeout(None)
    except OSError as error:
        _let_go(name)
        raise NbdataError(f"the mount's process does not answer ({error})", path=folder) from error
    except BaseException:
        _let_go(name)
        raise
    finally:
        if operation.archive and not quiet:
            slots.display().tell("")
    if not line or (answer := json.loads(line)):
        _let_go(name)
        failed = _failed(note, folder) if not line else error_from_dict(answer)
        note.remove()
        raise failed
    if operation.keep:
        _let_go(name)
    return Mounted(Note(name, redacted(str(order["url"])), folder, time.time()))


def _folder_of(target: str) -> str:
    """Return the absolute path of a folder without links; nothing is asked of a mount there, which may not answer."""
    above, name = os.path.split(target.rstrip("/"))
    folder = os.path.join(os.path.realpath(above or "."), name)
    if name not in ("", ".", "..") and is_mounted(folder):
        return folder
    return os.path.realpath(target)


def _failed(note: Note, folder: str) -> NbdataError:
    told = ""
    with contextlib.suppress(OSError), open(note.log, encoding="utf-8", errors="replace") as file:
        told = " ".join(file.read()[-500:].split("\n")[-2:]).strip()
    return NbdataError(
        f"the folder could not be mounted: {told or 'its process ended'}", path=folder, remedy=_RIGHT
    )


def _check_device() -> None:
    """Raise an error that says what is missing."""
    if sys.platform != "linux":
        raise NbdataError("mount is for Linux alone", remedy="Use nbdata.shift(), or pull")
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        what = "is not for this user" if os.path.exists(DEVICE) else "is missing"
        raise AccessDenied(f"mount needs {DEVICE}, which {what}", remedy=_RIGHT)


def _prepare(folder: str) -> None:
    """Make the folder, or find it empty; release what a mount that was killed left there."""
    dead_mounts(folder)
    if is_mounted(folder):
        raise BadOption(
            "mount: something is mounted there already", path=folder, remedy=f"nbdata unmount {folder}"
        )
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise BadOption("mount: this is a file, not a folder", path=folder)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise disk_error(error, folder) from error
    if os.path.ismount(folder):
        raise BadOption("mount: a disk is mounted there", path=folder)
    if os.listdir(folder):
        raise BadOption("mount: the folder is not empty, and what is in it would be hidden", path=folder)


def listed() -> list[Note]:
    """Return the notes of all mounts of this user, oldest first, also of those whose process was killed."""
    return Note.all()


def mounts() -> Report:
    """Return a report of all mounts of this user; forgets those whose process was killed, and releases them."""
    dead_mounts()
    rows = [
        [note.url, note.folder, format_duration(time.time() - note.began)]
        for note in Note.all()
        if note.lives
    ]
    report = Report("mount", headline="no mounts" if not rows else f"mounts: {len(rows):,}")
    if rows:
        report.tables = [{"caption": "", "head": ["source", "folder", "for"], "rows": rows}]
    return report


def unmounted(operation: Unmount) -> Report:
    """End the mount at a folder."""
    folder = _folder_of(operation.target)
    note = next((one for one in reversed(Note.all()) if one.folder == folder), None)
    if note is None and is_mounted(folder):  # its note is elsewhere, or is lost
        if failed := end_mount(folder):
            raise NbdataError(f"it stays: {failed}", path=folder)
        return Report("unmount", folder, headline=f"{folder} is unmounted")
    if note is None:
        raise NotFound(
            "nbdata has mounted nothing there",
            path=folder,
            remedy="nbdata mount, without more, lists the mounts",
        )
    _unmount(note)
    _let_go(note.name)
    return Report("unmount", note.folder, headline=f"{note.url} is unmounted")


def _unmount(note: Note) -> None:
    if not note.lives:
        if is_mounted(note.folder):
            release(note.folder)
        note.remove()
        return
    failed = end_mount(note.folder)
    if failed and is_mounted(note.folder):
        holders = _holders(note.folder)
        raise NbdataError(
            f"it is in use: {'; '.join(holders)}" if holders else f"it stays: {failed}",
            path=note.folder,
            remedy="Close the files, or leave the folder, and say it again",
        )
    if _has_ended(note):
        note.remove()
    elif failed:
        raise NbdataError(
            f"it stays: {failed}",
            path=note.folder,
            remedy="If the folder above was moved, unmount it where it is now",
        )


def _has_ended(note: Note) -> bool:
    """Wait for the process of a mount to end, for a time; return whether it has."""
    end = time.monotonic() + _ENDING
    while note.lives and time.monotonic() < end:
        time.sleep(0.02)
    return not note.lives


def _holders(folder: str) -> list[str]:
    """Return the processes that have something open in a folder, as texts."""
    found = list[str]()
    for process in filter(str.isdigit, os.listdir("/proc")):
        held = _held_by(process, folder)
        if held:
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as file,
            ):
                found.append(printable(f"{file.read().strip()} (process {process}) has {held}"))
        if len(found) == _TOLD:
            break
    return found


def _held_by(process: str, folder: str) -> str:
    links = [f"/proc/{process}/cwd", f"/proc/{process}/root"]
    with contextlib.suppress(OSError):
        links += [f"/proc/{process}/fd/{fd}" for fd in os.listdir(f"/proc/{process}/fd")]
    for link in links:
        with contextlib.suppress(OSError):
            path = os.readlink(link)
            if path == folder or path.startswith(f"{folder}/"):
                return path
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{process}/maps", encoding="utf-8", errors="replace") as maps,
    ):
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if f"/{path}".startswith(f"{folder}/"):
                return f"/{path}"
    return ""
