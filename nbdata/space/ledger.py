"""The ledger: disk space that running jobs have reserved, shared by all processes of a user.

It is one JSON file in the runtime folder, under one flock. An entry holds the bytes that a job plans to write and those
it has written. Their difference is *outstanding*: the disk still shows these bytes as free, but they are reserved. An
entry is valid while its holder, a process, keeps its flock, so the end of the process ends its reservations.

While a job writes, bytes may briefly count twice (written, but not yet noted). That errs on the safe side.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nbdata.disk import disk_error
from nbdata.errors import ROOM_THEN_AGAIN, NotEnoughSpace, NotFound
from nbdata.lock_files import file_lock
from nbdata.paths import is_inside
from nbdata.runtime import runtime_folder
from nbdata.sizes import format_size
from nbdata.space.elsewhere import disks_instead, named
from nbdata.space.holders import holder_of, lives
from nbdata.space.limits import Domain, disk_of, domains, kept_free, used_below

__all__ = ["Ledger", "Reservation", "Room", "not_enough"]

# How often a job notes its written bytes, and the most age of a folder scan, in seconds.
_NOTE_EVERY = 0.5
_SCAN_AGE = 60.0
# The most age of a scan that may refuse more space to a running job.
_REFUSED_AGE = 2.0
# The room on a disk that does not tell its size (some in user space): it is found out while it is written to.
_UNKNOWN = 1 << 60
# How most jobs take less space.
_LESS = "take less with --max-bytes"


@dataclass(frozen=True)
class Room:
    """The bytes that may still be written at a path, and the deciding domain.

    `free` = limit − used − reserved, in bytes. For a disk, `used` is unknown and 0. `age` is the age of the scan of a
    limited folder, in seconds.
    """

    domain: Domain
    used: int
    reserved: int
    free: int
    inodes_free: int | None
    age: float


class Ledger:
    """Reservations in the runtime folder. Any number of Ledger objects and processes may use it at the same time."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder or runtime_folder()
        # Its entries name the bytes written "landed"; agents of other versions read and write the same file.
        self._file = os.path.join(self._folder, "ledger.json")
        self._lock = os.path.join(self._folder, "ledger.lock")

    # -- reading ------------------------------------------------------------------------------

    def room(self, path: str, limited: Mapping[str, tuple[int, str]], *, fresh: bool = False) -> list[Room]:
        """Return the room at a path in each domain around it, the smallest first."""
        with file_lock(self._lock):
            data = self._load()
            rooms = self._rooms(data, path, limited, fresh=fresh)
            self._save_if_room(data)
        return rooms

    def _rooms(
        self, data: dict[str, Any], path: str, limited: Mapping[str, tuple[int, str]], *, fresh: bool
    ) -> list[Room]:
        rooms = []
        for domain in domains(path, limited):
            entries = [e for e in data["entries"].values() if _inside(e, domain)]
            reserved = sum(max(0, e["planned"] - e["landed"]) for e in entries)
            if domain.device is not None:
                disk, _, _ = disk_of(domain.root)
                inodes = disk.inodes_free
                if inodes is not None:
                    inodes = max(0, inodes - sum(max(0, e["inodes"] - e["made"]) for e in entries))
                free = disk.free - reserved - kept_free(disk) if disk.size else _UNKNOWN
                rooms.append(Room(domain, 0, reserved, max(0, free), inodes, 0.0))
                continue
            scan = data["scans"].get(domain.root)
            if fresh or scan is None or not 0 <= time.time() - scan["at"] < _SCAN_AGE:
                # The scan includes the bytes that running jobs have written, so they must not be added again.
                scan = {"used": used_below(domain.root), "at": time.time(), "landed": 0}
                for entry in entries:
                    entry["scanned"] = True
                data["scans"][domain.root] = scan
            used = scan["used"] + scan["landed"]
            age = time.time() - scan["at"]
            free = max(0, domain.limit - used - reserved)
            rooms.append(Room(domain, used, reserved, free, None, age))
        return sorted(rooms, key=lambda r: r.free)

    # -- reserving ----------------------------------------------------------------------------

    def reserve(
        self,
        path: str,
        needed: int,
        inodes: int,
        limited: Mapping[str, tuple[int, str]],
        *,
        force: bool = False,
        less: str = _LESS,
        at_least: bool = False,
        out_of: str = "",
    ) -> Reservation:
        """Reserve `needed` bytes and `inodes` files at `path`, in each domain around it at once.

        `less` says how the job takes less. `at_least` means that the job may need more. `out_of` names a reservation,
        also of another process, that was made for the same work: it becomes smaller by as much.

        Raises
        ------
        NotEnoughSpace
            If any domain has less room, unless `force`.
        """
        with file_lock(self._lock):
            holder = holder_of(self._folder)  # under the lock, so that `dead_holders` never finds it unlocked
            data = self._load()
            if (whole := data["entries"].get(out_of)) is not None:
                whole["planned"] -= min(needed, max(0, whole["planned"] - whole["landed"]))
                whole["inodes"] -= min(inodes, max(0, whole["inodes"] - whole["made"]))
            rooms = self._rooms(data, path, limited, fresh=False)
            if not force and _too_tight(rooms, needed, inodes) and any(r.age > 0 for r in rooms):
                rooms = self._rooms(
                    data, path, limited, fresh=True
                )  # room may have become free since the scan
            tight = _too_tight(rooms, needed, inodes)
            if tight is not None and not force:
                raise not_enough(path, needed, inodes, tight, less=less, at_least=at_least)
            name = secrets.token_hex(8)
            data["entries"][name] = {
                "holder": holder,
                "target": os.path.realpath(path),
                "device": disk_of(path)[1],
                "planned": needed,
                "landed": 0,
                "inodes": inodes,
                "made": 0,
            }
            self._save(data)
        return Reservation(self, name, path, dict(limited), needed, inodes, less, at_least=at_least)

    @contextlib.contextmanager
    def _locked_if_there(self) -> Iterator[None]:
        """Hold the lock; without it if the whole folder was deleted, as by ``rm -rf /tmp/*``: it reserves nothing."""
        lock = file_lock(self._lock)
        with contextlib.suppress(FileNotFoundError):
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _change(self, name: str, written: int, made: int) -> None:
        with self._locked_if_there():
            data = self._load()
            entry = data["entries"].get(name)
            if entry is not None:
                added = written - entry["landed"]
                entry["landed"], entry["made"] = written, made
                for folder, scan in data["scans"].items():
                    if is_inside(entry["target"], folder):
                        scan["landed"] += added
                self._save_if_room(data)

    def _grow(
        self,
        name: str,
        path: str,
        more: int,
        limited: Mapping[str, tuple[int, str]],
        less: str,
        *,
        fresh: bool,
        at_least: bool,
    ) -> None:
        with file_lock(self._lock):
            data = self._load()
            rooms = self._rooms(data, path, limited, fresh=False)
            if _too_tight(rooms, more, 0) and (fresh or any(r.age > _REFUSED_AGE for r in rooms)):
                rooms = self._rooms(
                    data, path, limited, fresh=True
                )  # room may have become free since the scan
            tight = _too_tight(rooms, more, 0)
            entry = data["entries"].get(name)
            if tight is not None:
                own = 0 if entry is None else max(0, entry["planned"] - entry["landed"])
                raise not_enough(
                    path, more, 0, replace(tight, reserved=max(0, tight.reserved - own)), less=less,
                    at_least=at_least,
                )  # fmt: skip
            if entry is not None:  # otherwise the ledger was deleted meanwhile
                entry["planned"] += more
            self._save(data)

    def freed(self, path: str) -> None:
        """Have limited folders around a path scanned again, because files below it were deleted."""
        with self._locked_if_there():
            data = self._load()
            _forget_scans(data["scans"], {"target": os.path.realpath(path)})
            self._save_if_room(data)

    def _drop(self, name: str) -> None:
        """Release an entry. If no descriptor is free to open the ledger, the next one to read it releases the entry."""
        try:
            self._dropped(name)
        except OSError:
            _given_back.add((self._folder, name))

    def _dropped(self, name: str) -> None:
        with self._locked_if_there():
            data = self._load()
            entry = data["entries"].pop(name, None)
            if entry is not None:
                # Partly written files were never noted, or they are in a scan and were noted as a whole after it.
                if entry["landed"] < entry["planned"] or entry.get("scanned"):
                    _forget_scans(data["scans"], entry)
                _given_back.add((self._folder, name))
                self._save_if_room(data)

    # -- the file -----------------------------------------------------------------------------

    def _load(self) -> dict[str, Any]:
        entries, scans = self._read()
        for name, entry in list(entries.items()):
            if (self._folder, name) in _given_back:
                del entries[name]
                _forget_scans(scans, entry)
            elif not lives(self._folder, entry["holder"]):
                del entries[name]
                _forget_scans(scans, entry)  # it is unknown how much it wrote
        return {"entries": entries, "scans": scans}

    def _read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read the file; nothing if it is not valid. It cannot be torn, because it is replaced as a whole."""
        try:
            with open(self._file, encoding="utf-8") as file:
                data = json.load(file)
            entries, scans = data["entries"], data["scans"]
            for entry in entries.values():
                str(entry["holder"]), str(entry["target"]), int(entry["device"])
                [int(entry[number]) for number in ("planned", "landed", "inodes", "made")]
            for scan in scans.values():
                int(scan["used"]), float(scan["at"]), int(scan["landed"])
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            return {}, {}
        return entries, scans

    def _save(self, data: dict[str, Any]) -> None:
        fresh = f"{self._file}.new"
        try:
            with open(fresh, "w", encoding="utf-8") as file:
                json.dump(data, file)
            os.replace(fresh, self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise disk_error(error, self._file) from error
        # Another thread may have released an entry of `data` after that was read.
        written = {
            one for one in list(_given_back) if one[0] == self._folder and one[1] not in data["entries"]
        }
        _given_back.difference_update(written)

    def _save_if_room(self, data: dict[str, Any]) -> None:
        """Save a change that only frees or counts, unless the ledger's own disk is full, or its folder is gone.

        This process remembers released entries until it can write them.
        """
        with contextlib.suppress(NotEnoughSpace, NotFound):
            self._save(data)


#: Folders and entries that this process has released and perhaps could not remove from the file.
_given_back: set[tuple[str, str]] = set()


class Reservation:
    """Space reserved by one job. A context manager that releases it.

    `grown` is True if it was reserved in steps, so the final amount is unknown. `at_least` is True if the job may need
    more than planned.
    """

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        path: str,
        limited: dict[str, tuple[int, str]],
        planned: int,
        inodes: int,
        less: str = _LESS,
        *,
        at_least: bool = False,
    ) -> None:
        self._ledger, self._name, self._path, self._limited = ledger, name, path, limited
        self._less = less
        self._planned, self._inodes = planned, inodes
        self._written = self._made = self._files = 0
        self.grown, self.at_least = False, at_least
        self._noted = time.monotonic()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Its name in the ledger; see ``out_of`` of `Ledger.reserve`."""
        return self._name

    def note_written(self, size: int, files: int = 0, *, made: int | None = None) -> None:
        """Note written bytes and files. Saved to the ledger at most twice a second.

        `made` is the number of planned inodes now in use; None: one per file.
        """
        with self._lock:
            self._written += size
            self._files += files
            self._made += files if made is None else made
            now = time.monotonic()
            if now - self._noted < _NOTE_EVERY:
                return
        self._note()

    def _note(self) -> None:
        with self._lock:
            self._noted = time.monotonic()
            written, made = self._written, self._made
        self._ledger._change(self._name, written, made)

    def grow(self, more: int, *, fresh: bool = False, at_least: bool = False) -> None:
        """Reserve more, for work of unknown size. Raises NotEnoughSpace if there is no room.

        `fresh` means that all written bytes are noted, so limited folders may be scanned without counting any twice.
        `at_least` means that even this may be too little.
        """
        self._note()  # otherwise bytes written since the last note count twice: on the disk, and as reserved
        self._ledger._grow(
            self._name, self._path, more, self._limited, self._less, fresh=fresh, at_least=at_least
        )
        with self._lock:
            self._planned += more
            self.at_least = self.at_least or at_least
            self.grown = True

    @property
    def outstanding(self) -> tuple[int, int]:
        """Bytes, and files and folders, that are planned but not yet on disk."""
        with self._lock:
            return max(0, self._planned - self._written), max(0, self._inodes - self._made)

    @property
    def has_written(self) -> bool:
        """Whether any file, or part of one, has been written."""
        with self._lock:
            return self._files > 0 or self._written > 0

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._ledger._change(self._name, self._written, self._made)
        except OSError:
            pass  # no descriptor is free: the folder is scanned again once the entry is released
        finally:
            self._ledger._drop(self._name)


def _too_tight(rooms: list[Room], needed: int, inodes: int) -> Room | None:
    for room in rooms:
        if needed > room.free or (room.inodes_free is not None and inodes > room.inodes_free):
            return room
    return None


def not_enough(
    path: str, needed: int, inodes: int, room: Room, *, happened: str = "", less: str = _LESS,
    at_least: bool = False,
) -> NotEnoughSpace:  # fmt: skip
    """Return the error with all numbers, and the disks with enough room.

    `happened` is the cause that ended a running job. `less` says how it takes less. `at_least` means
    that it may need more.
    """
    limited = room.domain.root if room.domain.device is None else ""
    disks = disks_instead(path, needed, inodes, limited=limited)[:4]
    needs = "it still needs" if happened else "it needs"
    if needed > room.free:
        wanted, free = format_size(needed), format_size(room.free)
        if wanted == free:
            wanted, free = f"{needed:,} B", f"{room.free:,} B"
        what = f"{'at least ' if at_least else ''}{wanted}, and {free} may be used"
    else:
        wanted, free = f"{inodes:,} files and folders (inodes)", f"{room.inodes_free:,}"
        what = f"{wanted}, and {free} are free"
    if room.domain.device is None:
        where = f"{room.domain.source} allows {format_size(room.domain.limit)} below {room.domain.root}"
    else:
        where = f"{room.domain.source} that holds {room.domain.root}"
        if needed > room.free and (kept := kept_free(disk_of(room.domain.root)[0])):
            where += f", where {format_size(kept)} stay free"
    reserved = f", {format_size(room.reserved)} are reserved by other jobs" if room.reserved else ""
    ways = [ROOM_THEN_AGAIN] if happened else []
    if fits := ", ".join(named(d, limited=limited) for d in disks):
        ways.append(f"It would fit {'only ' if disks[0].in_memory else ''}on {fits}")
    elif not happened:
        ways.append("No other disk has that much")
    if not happened:
        limit = f"raise the limit on {room.domain.root}, or "
        ways.append(_sentence(f"{'or ' if fits else ''}{limit if room.domain.device is None else ''}{less}"))
    elif room.domain.device is None:
        ways.insert(1, f"Or raise the limit on {room.domain.root}")
    return NotEnoughSpace(
        f"{happened or 'not enough space'}: {needs} {what} ({where}{reserved})",
        path=path,
        remedy=". ".join(ways),
        details={
            "needed": needed,
            "inodes": inodes,
            "free": room.free,
            "limit": room.domain.limit if room.domain.device is None else None,
            "source": room.domain.source,
            "root": room.domain.root,
            "disks": [d.path for d in disks],
            "lines": {
                "what": happened or "not enough space",
                "needed": wanted,
                "free": f"{free} ({where.removeprefix('free ')}{reserved})",
            },
        },
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _forget_scans(scans: dict[str, Any], entry: dict[str, Any]) -> None:
    """Have the limited folders around an entry's target scanned again."""
    for folder in [folder for folder in scans if is_inside(entry["target"], folder)]:
        del scans[folder]


def _inside(entry: dict[str, Any], domain: Domain) -> bool:
    if domain.device is not None:
        return bool(entry["device"] == domain.device)
    return is_inside(entry["target"], domain.root)


# The child of a fork has released nothing.
os.register_at_fork(after_in_child=_given_back.clear)
