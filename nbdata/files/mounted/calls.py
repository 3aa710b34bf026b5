"""Answers the kernel's requests for a mount; see `nbdata.files.mounted.wire` for what they are called."""

from __future__ import annotations

import errno
import os
import stat
import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from nbdata.errors import AccessDenied, NbdataError, NotFound
from nbdata.files.mounted import wire
from nbdata.files.mounted.folders import ABOUT, Folders, is_same
from nbdata.files.mounted.nodes import Node, Nodes
from nbdata.files.mounted.open_files import MOST, Failures, OpenFiles
from nbdata.files.mounted.serving import Answer
from nbdata.files.read_memory import MEMORY
from nbdata.redaction import printable
from nbdata.sizes import format_duration, format_size
from nbdata.stores.base import ObjectInfo

__all__ = ["Calls"]

_FILE, _FOLDER = stat.S_IFREG | 0o444, stat.S_IFDIR | 0o555
# Numbers of open texts about the mount, and of open folders, begin here.
_TEXTS, _LISTINGS = 1 << 40, 1 << 41
# Files that were just found to be of another version, at most.
_REPLACED = 10_000
# Seconds for which the kernel may believe what it was told of a file, and that there is none, at most.
_BELIEVED, _NONE_BELIEVED = 10.0, 1.0
_READ = struct.Struct("=QQI")  # handle, offset, size
_NO_ENTRY = bytes(128)


class _Listing(NamedTuple):
    """A folder as it was when it was opened: its path, and its names with what they are."""

    path: str
    names: list[tuple[str, ObjectInfo | None]]


class Calls:
    """The answers for one mount; safe to use from many threads.

    Parameters
    ----------
    url : str
        What is mounted, without secrets.
    folders : Folders
    files : OpenFiles
    max_age : float
        Seconds that a listing is remembered.
    say : callable
        Writes a line to the log.
    """

    def __init__(
        self, url: str, folders: Folders, files: OpenFiles, max_age: float, say: Callable[[str], None]
    ) -> None:
        self._url, self._folders, self._files, self._say = url, folders, files, say
        self._believed, self._none_believed = min(max_age, _BELIEVED), min(max_age, _NONE_BELIEVED)
        self._failures = Failures()
        self._began = time.time_ns()
        self._owner = os.getuid(), os.getgid()
        self._nodes = Nodes()
        self._lock = threading.Lock()
        self._next = 0
        self._texts: dict[int, bytes] = {}
        self._listings: dict[int, _Listing] = {}
        # Files that the kernel was told to look up anew, because they are of another version.
        self._replaced = set[str]()
        self._answers: dict[int, Callable[[wire.Request], Answer]] = {
            wire.LOOKUP: self._look_up,
            wire.GETATTR: self._attributes,
            wire.OPEN: self._open,
            wire.READ: self._read,
            wire.RELEASE: self._release,
            wire.OPENDIR: self._open_folder,
            wire.READDIR: self._list,
            wire.READDIRPLUS: self._list,
            wire.RELEASEDIR: self._release_folder,
            wire.STATFS: lambda _: [wire.space()],
            wire.DESTROY: lambda _: [],
        }

    def answer(self, request: wire.Request) -> Answer | None:
        """Return the answer to a request; None if it has none."""
        asked = self._answers.get(request.asked)
        if asked is None:
            if request.asked in (wire.FORGET, wire.BATCH_FORGET):
                self._nodes.forget(wire.forgotten(request))
                return None
            return (
                None if request.asked == wire.INTERRUPT else errno.ENOSYS
            )  # then the kernel never asks it again
        try:
            return asked(request)
        except NotFound:
            return errno.ENOENT
        except NbdataError as error:
            return self._told(request, error)
        except OSError as error:
            return error.errno or errno.EIO

    def _told(self, request: wire.Request, error: NbdataError) -> int:
        """Tell of an error, and return what the system calls it."""
        node = self._nodes.known(request.node)
        path = "a file that the kernel has forgotten" if node is None else node.path
        self._failures.add(path, error)
        self._say(f"{path}: {type(error).__name__}: {error}")
        return errno.EACCES if isinstance(error, AccessDenied) else errno.EIO

    # -- looking ---------------------------------------------------------------------------------

    def _look_up(self, request: wire.Request) -> Answer:
        above = self._nodes.get(request.node).path
        name = os.fsdecode(bytes(request.body).rstrip(b"\0"))
        path = f"{above}/{name}" if above else name
        try:
            info = None if path == ABOUT else self._find(path)
        except NotFound:
            return [wire.no_entry(self._none_believed)]
        number = self._folders.inode(path, info)
        self._nodes.looked_up([(number, path, info)])
        return [wire.entry(self._status(number, path, info), self._believed)]

    def _attributes(self, request: wire.Request) -> Answer:
        node = self._nodes.get(request.node)
        info = node.info
        if node.path != ABOUT and not (info and info.etag):  # one with an ETag is that version, and stays it
            info = self._find(node.path)
            if (info is None) != (node.info is None):
                return errno.ESTALE  # a file in place of a folder, which the kernel looks up anew
        return [wire.attributes(self._status(request.node, node.path, info), self._believed)]

    def _find(self, path: str) -> ObjectInfo | None:
        """Return a file with its size, None for a folder."""
        info = self._folders.find(path)
        return self._folders.sized(path) if info is not None and info.size < 0 else info

    def _status(self, number: int, path: str, info: ObjectInfo | None) -> wire.Attributes:
        mode, size, moment = _FOLDER, 0, self._began
        if path == ABOUT:
            mode, size, moment = _FILE, len(self._about()), time.time_ns()
        elif info is not None:
            mode, size = _FILE, info.size
            if info.modified is not None:
                moment = int(info.modified * 1e9)
        return wire.Attributes(number, mode, size, moment, self._owner)

    # -- folders ---------------------------------------------------------------------------------

    def _open_folder(self, request: wire.Request) -> Answer:
        path = self._nodes.get(request.node).path
        names = list(self._folders.names(path).items())
        with self._lock:
            if len(self._listings) >= MOST:
                return errno.EMFILE
            self._next += 1
            handle = _LISTINGS + self._next
            self._listings[handle] = _Listing(path, names)
        return [wire.opened(handle)]

    def _list(self, request: wire.Request) -> Answer:
        """Answer with as many names from an offset on as there is room for."""
        handle, offset, room = _READ.unpack_from(request.body)
        listing, plus = self._listings[handle], request.asked == wire.READDIRPLUS
        special = [(".", None), ("..", None), *([] if listing.path else [(ABOUT, None)])]
        begin = f"{listing.path}/" if listing.path else ""
        parts = list[bytes]()
        looked_up = list[tuple[int, str, ObjectInfo | None]]()
        for at in range(offset, len(special) + len(listing.names)):
            told = at >= len(special)
            name, info = listing.names[at - len(special)] if told else special[at]
            path = begin + name
            number = self._folders.inode(path, info) if told or name == ABOUT else request.node
            mode = _FOLDER if info is None and name != ABOUT else _FILE
            part = wire.listed(number, os.fsencode(name), mode, at + 1)
            entry = b""
            if plus:
                entry = _NO_ENTRY  # then the kernel asks for it
                if told and (info is None or info.size >= 0):
                    entry = wire.entry(self._status(number, path, info), self._believed)
            room -= len(entry) + len(part)
            if room < 0:
                break
            parts += (entry, part)
            if entry is not _NO_ENTRY and plus:
                looked_up.append((number, path, info))
        self._nodes.looked_up(looked_up)
        return [b"".join(parts)]

    def _release_folder(self, request: wire.Request) -> Answer:
        self._listings.pop(_READ.unpack_from(request.body)[0], None)
        return []

    # -- reading ---------------------------------------------------------------------------------

    def _open(self, request: wire.Request) -> Answer:
        node = self._nodes.get(request.node)
        path = node.path
        if path == ABOUT:
            with self._lock:
                self._next += 1
                handle = _TEXTS + self._next
                self._texts[handle] = self._about()
            return [wire.opened(handle, wire.DIRECT_IO)]  # its length changes
        info = self._folders.find(path)
        if node.info is None:
            return errno.EISDIR
        if info is None or (info.etag and not is_same(info, node.info)):
            return errno.ESTALE  # the kernel looks it up anew, and opens what it finds
        handle, same, follows = self._files.open(path, node.info)
        if not same:
            return self._open_replaced(path, handle)
        self._replaced.discard(path)
        keep = node.sound or follows
        self._note_sound(node, handle)
        return [wire.opened(handle, wire.KEEP_CACHE if keep else 0)]

    def _open_replaced(self, path: str, handle: int) -> Answer:
        """Have the kernel look up a file that is of another version than it knows.

        Each version has a number of its own, because the kernel shares what it holds among all that opened a number. If
        the listing does not come to tell the version that is opened, reads go around what the kernel holds.
        """
        with self._lock:
            if path in self._replaced or len(self._replaced) >= _REPLACED:
                self._replaced.discard(path)
                return [wire.opened(handle, wire.DIRECT_IO)]
            self._replaced.add(path)
        self._files.close(handle)
        return errno.ESTALE

    def _note_sound(self, node: Node, handle: int) -> None:
        """Note that what the kernel holds of a file is right also for the next program that opens it."""
        if node.info is not None and node.info.etag and self._files.is_proven(handle):
            node.sound = True

    def _read(self, request: wire.Request) -> Answer:
        handle, offset, size = _READ.unpack_from(request.body)
        if handle >= _TEXTS:
            return [self._texts.get(handle, b"")[offset : offset + size]]
        node = self._nodes.known(request.node)
        try:
            parts = self._files.read(handle, size, offset)
        except NbdataError:
            if node is not None:
                node.sound = False  # what the kernel holds of it may be wrong
            raise
        if node is not None and not node.sound:
            self._note_sound(node, handle)
        return parts

    def _release(self, request: wire.Request) -> Answer:
        (handle,) = struct.unpack_from("=Q", request.body)
        if self._texts.pop(handle, None) is None:
            self._files.close(handle)
        return []

    # -- what is told ----------------------------------------------------------------------------

    def _about(self) -> bytes:
        failures, odd = self._failures, self._folders.odd
        lines = [
            f"source: {self._url}",
            f"oldest listing: {format_duration(self._folders.oldest)} ago",
            f"listings: {self._folders.listings:,}",
            f"open files: {len(self._files):,}",
            f"memory for reading: {format_size(MEMORY.used)}",
            f"small files fetched ahead: {self._files.ahead.used:,} used, {self._files.ahead.held:,} waiting",
            *self._files.lines(),
            f"errors: {failures.count:,}" + (f"; the latest: {failures.latest}" if failures.latest else ""),
            f"keys that are no names of files, and do not show: {odd.count:,}",
            *(f"  {key!r}" for key in odd.some),
            *self._folders.notes(),
        ]
        return ("\n".join(map(printable, lines)) + "\n").encode(errors="backslashreplace")
