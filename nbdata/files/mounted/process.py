"""The program of a mount: it makes the mount, answers the kernel's calls, and ends with it.

Its standard input is a socket. On that it gets the order, as a line of JSON, and answers with one: ``{}`` once the
folder is mounted, or an error. Unless it is to outlive its caller, it unmounts when the socket ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from nbdata.agent.arenas import share_arenas
from nbdata.agent.log import Log, say
from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.files.connections import Place
from nbdata.lock_files import file_lock
from nbdata.paths import canonical
from nbdata.redaction import ScrubbedStream, redacted
from nbdata.space.mountpoints import Mountpoint
from nbdata.space.mounts import Note, is_mounted, mounting

if TYPE_CHECKING:
    from nbdata.files.blocks.cache import BlockCache

__all__ = ["main"]


def main(name: str) -> None:
    """Serve the mount of that name (see `nbdata.space.mounts`) until it is unmounted."""
    sys.stderr = sys.stdout = ScrubbedStream(Log(2))
    share_arenas(large=128 << 10, kept=8 << 20)
    with socket.socket(fileno=os.dup(0)) as caller:
        if not (line := _line(caller)):  # the caller is gone
            Note.of(name).remove()
            os._exit(0)
        order = json.loads(line)
        note = Note(name, redacted(order["url"]), order["folder"], time.time(), os.getpid())
        alive = file_lock(note.alive)
        alive.acquire()
        try:
            _serve(note, order, caller)
        except NbdataError as error:
            _answer(caller, error.to_dict())
        except BaseException as error:
            _answer(caller, NbdataError(f"the mount failed: {error}").to_dict())
            raise
        finally:
            note.remove()  # nobody else does if the caller is gone
            alive.release()
    say(f"mount {os.getpid()} ends")
    os._exit(0)  # threads that wait for a store must not keep the process alive


def _line(caller: socket.socket) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        more = caller.recv(1 << 16)
        if not more:
            return b""
        data += more
    return bytes(data)


def _answer(caller: socket.socket, answer: dict[str, Any]) -> bool:
    """Answer the caller; return False if it is gone."""
    try:
        caller.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        return False
    return True


def _serve(note: Note, order: dict[str, Any], caller: socket.socket) -> None:
    try:
        point = Mountpoint(note.folder)
    except NbdataError as error:
        raise NbdataError(f"it could not be mounted ({error.message})", path=note.folder) from None
    with point:
        _serve_at(point, note, order, caller)


def _serve_at(point: Mountpoint, note: Note, order: dict[str, Any], caller: socket.socket) -> None:
    from nbdata.files.mounted import device
    from nbdata.files.mounted.calls import Calls
    from nbdata.files.mounted.folders import Folders
    from nbdata.files.mounted.open_files import OpenFiles
    from nbdata.files.mounted.serving import Server
    from nbdata.files.opening import filesystem

    url, folder, options = order["url"], note.folder, order["options"]
    place: Place = filesystem(url, verify=order["verify"], **options).place(url)
    if order["archive"]:
        from nbdata.files.mounted.archived import archived

        place = archived(place, url, order["verify"], lambda at, size: _tell_reading(caller, at, size))
    cache = _cache(order, place) if order["cache"] is not None else None
    folders = Folders(place, order["max_age"], cache)
    if not folders.begins() and place.key and not place.store.is_folder(place.prefix):
        remedy = (
            "If it is an archive, mount it with --archive" if url.lower().endswith((".tar", ".zip")) else None
        )
        raise NotFound("no such folder", path=redacted(url), remedy=remedy)
    files = OpenFiles(place, folders, order["verify"], cache)
    calls = Calls(redacted(url), folders, files, order["max_age"], say)

    def tell() -> None:
        device.read_ahead(point)
        say(f"mount {os.getpid()} of {note.url} at {folder}")
        if not _answer(caller, {}):  # whoever asked has given up; nobody else knows of it
            _end()
        elif not order["keep"]:
            threading.Thread(target=_end_with, args=(caller,), daemon=True).start()

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit)
    there = False
    try:
        with mounting():
            if is_mounted(folder):
                raise BadOption("mount: something is mounted there already", path=folder)
            note.write()  # before the mount, which nobody would release if this process was killed between the two
            try:
                opened = device.mount(_shown(url), point, allow_other=bool(order["allow_other"]))
            except NbdataError as error:
                raise NbdataError(error.message, path=folder, remedy=order["remedy"]) from None
            there = True
        Server(opened, calls.answer, tell, say).run()
    except BaseException as error:
        if there:
            point.unmount(lazy=True)
        if not isinstance(error, SystemExit):
            raise
    finally:
        if cache is not None:
            cache.close()


def _cache(order: dict[str, Any], place: Place) -> BlockCache:
    from nbdata.files.blocks.cache import BlockCache
    from nbdata.files.blocks.folder import BlockFolder

    folder = BlockFolder(canonical(order["cache_dir"]), order["cache"], place.opened.context.state_dir)
    return BlockCache(folder, place, order["verify"], say)


def _exit(*_: object) -> None:
    """End the process, also if files are open and the store does not answer: who reads them gets an error then."""
    raise SystemExit


def _tell_reading(caller: socket.socket, at: int, size: int) -> None:
    """Tell the caller how far an archive is read; end if it is gone."""
    if not _answer(caller, {"read": at, "of": size}):
        raise SystemExit


def _shown(url: str) -> str:
    """Return what the system's table of mounts calls the source: commas and blanks have a meaning there."""
    return re.sub(r"[^A-Za-z0-9_.:/@+-]", "_", redacted(url))[:200]


def _end_with(caller: socket.socket) -> None:
    """Unmount once the process that asked for the mount is gone."""
    with contextlib.suppress(OSError):
        while caller.recv(1):
            pass
    _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # it unmounts, also if files are open
