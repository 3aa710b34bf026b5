"""The mounts of this user: notes of them in the runtime folder, whether their processes live, and what a dead one left.

A mount whose process was killed stays in the system's table, and all that look into it get an error.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass

from nbdata.errors import NbdataError
from nbdata.lock_files import file_lock, held
from nbdata.paths import is_inside
from nbdata.runtime import runtime_folder
from nbdata.space.limits import mounted_disks
from nbdata.space.mountpoints import KIND, Mountpoint

__all__ = ["Note", "dead_mounts", "end_mount", "is_mounted", "mounting", "release"]

# The most bytes of a note.
_LONGEST = 64 << 10


@dataclass(frozen=True)
class Note:
    """A mount.

    Attributes
    ----------
    name : str
        Of 16 hexadecimal digits.
    url : str
        What is mounted, without secrets.
    folder : str
        The absolute path of the folder.
    began : float
        When, in seconds since 1970.
    process : int
        The number of its process, for people. Whether it lives is told by a lock.
    """

    name: str
    url: str = ""
    folder: str = ""
    began: float = 0.0
    process: int = 0

    @classmethod
    def of(cls, name: str) -> Note:
        """Return the note of that name, with nothing but its paths."""
        return cls(name)

    @property
    def path(self) -> str:
        """The path of the note."""
        return f"{_folder()}/{self.name}.json"

    @property
    def alive(self) -> str:
        """The path of the file on which the process holds a flock."""
        return f"{_folder()}/{self.name}.alive"

    @property
    def log(self) -> str:
        """The path of the log."""
        return f"{_folder()}/{self.name}.log"

    @property
    def lives(self) -> bool:
        """Whether the process lives."""
        return held(self.alive)

    def write(self) -> None:
        """Write the note, whole or not at all."""
        data = {"url": self.url, "folder": self.folder, "began": self.began, "process": self.process}
        with open(f"{self.path}.new", "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(data, file)
        os.replace(f"{self.path}.new", self.path)

    def remove(self) -> None:
        """Remove the note and what belongs to it."""
        for path in (self.path, self.alive, self.log, f"{self.path}.new"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    @classmethod
    def all(cls) -> list[Note]:
        """Return all notes, oldest first. One that is none is left out."""
        found = list[Note]()
        for name in os.listdir(_folder()):
            stem, dot, kind = name.partition(".")
            if dot and kind == "json" and len(stem) == 16:
                with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                    found.append(cls._read(stem))
        return sorted(found, key=lambda one: one.began)

    @classmethod
    def _read(cls, name: str) -> Note:
        with open(cls(name).path, encoding="utf-8", errors="surrogateescape") as file:
            data = json.loads(file.read(_LONGEST))
        folder = str(data["folder"])
        if not os.path.isabs(folder):
            raise ValueError(folder)
        return cls(name, str(data["url"]), folder, float(data["began"]), int(data["process"]))


def _folder() -> str:
    """Return the folder of the notes, in the private runtime folder; made if missing."""
    folder = f"{runtime_folder()}/mounts"
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    return folder


def mounting() -> file_lock:
    """Return the lock that a process holds while it makes a mount, so that no two are made at one folder."""
    return file_lock(f"{_folder()}/mounting")


def is_mounted(folder: str) -> bool:
    """Whether a mount of nbdata is at a folder, whether its process lives or not. Nothing is asked of the mount."""
    return (folder, KIND) in mounted_disks()


def end_mount(folder: str, *, lazy: bool = False) -> str:
    """End the mount at a folder, `lazy` also if it is in use; return what failed, an empty text if nothing."""
    try:
        with Mountpoint(folder) as point:
            return point.unmount(lazy=lazy)
    except NbdataError as error:
        return error.message


def release(folder: str) -> None:
    """Unmount what no process serves any more.

    Raises
    ------
    NbdataError
        If the system refuses.
    """
    if failed := end_mount(folder, lazy=True):
        raise NbdataError(f"a mount whose process was killed is still there: {failed}", path=folder)


def dead_mounts(root: str = "/", *, remove: bool = True) -> int:
    """Release the mounts at or below a folder whose process was killed, and forget them; return how many were there.

    Parameters
    ----------
    root : str
        An absolute path without links.
    remove : bool
        False: only count them.

    Raises
    ------
    NbdataError
        If the system refuses to unmount one.
    """
    notes = Note.all()
    alive = {one.folder for one in notes if one.lives}
    dead = 0
    for note in notes:
        if note.lives or not is_inside(note.folder, root):
            continue
        there = note.folder not in alive and is_mounted(note.folder)
        dead += there
        if remove:
            if there and is_mounted(note.folder):
                release(note.folder)
            note.remove()
    return dead
