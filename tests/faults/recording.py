"""Runs one command in this process and records, in order, how it changes the disk.

Usage: ``python recording.py LOG ROOT JSON``, where JSON names the verb and its options. Changes below ROOT are written
to ``LOG``, one JSON array per line, and the written bytes to ``LOG.bytes``.

The functions of `os` that change a disk, and `open`, are replaced by functions that do the same and record it, both
under one lock. So the changes really happened in the recorded order. Changes by other means are not noticed here, but
when the log is replayed: the replay must give exactly the tree on the disk.

The log also records moments at which nbdata relies on the disk: after a part was sent to a store (``sent``), before an
object is created there (``making``), and before something is deleted at a source (``deleting``).
"""

from __future__ import annotations

import builtins
import functools
import io
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

# Python puts a script's own folder first on the path, where the modules of this folder would look like packages.
if __name__ == "__main__":
    del sys.path[0]

_REAL: dict[str, Any] = {
    name: getattr(os, name)
    for name in (
        "open", "close", "write", "pwrite", "ftruncate", "fsync", "fdatasync", "rename", "replace", "unlink",
        "remove", "mkdir", "rmdir", "link", "symlink", "utime",
    )
}  # fmt: skip
_OPEN = builtins.open
#: The boot id of this recording. It is not a real one, because the machine fails afterwards.
BOOT = "the boot before"


class Recorder:
    """Records changes below a folder."""

    def __init__(self, log: str, root: str) -> None:
        self._root = os.path.realpath(root)
        self._lock = threading.RLock()
        self._watched: dict[int, str] = {}  # open files below the folder: paths by descriptor
        self._log = _OPEN(log, "w", encoding="ascii")
        self._bytes = _OPEN(log + ".bytes", "wb")

    def finish(self) -> None:
        """Complete and close the log."""
        with self._lock:
            self._log.close()
            self._bytes.close()

    def _note(self, *what: object) -> None:
        self._log.write(json.dumps(what) + "\n")

    def _place(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Return a path with its links resolved, or None if it is outside the folder.

        `dir_fd` is the open folder that the path is relative to.
        """
        if dir_fd is not None:
            path = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), os.fsdecode(path))
        above, name = os.path.split(os.path.abspath(os.fsdecode(path)))
        full = os.path.join(os.path.realpath(above), name)
        return full if full == self._root or full.startswith(self._root + "/") else None

    def install(self) -> None:
        """Replace the functions of `os` and `open` by recording ones."""
        for name in ("write", "pwrite", "ftruncate", "close", "open"):
            setattr(os, name, getattr(self, "_" + name))
        for name in ("fsync", "fdatasync"):
            setattr(os, name, functools.partial(self._sync, _REAL[name]))
        for name in ("rename", "replace", "link"):
            setattr(
                os, name, functools.partial(self._two, "link" if name == "link" else "rename", _REAL[name])
            )
        for name in ("unlink", "remove", "mkdir", "rmdir", "utime"):
            setattr(os, name, functools.partial(self._one, name, _REAL[name]))
        os.symlink = self._symlink  # type: ignore[assignment]
        builtins.open = io.open = self._open_file  # type: ignore[assignment]

    # -- open files -----------------------------------------------------------------------------

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self._lock:
            place = self._place(path, dir_fd)
            fd = _REAL["open"](path, flags, mode, dir_fd=dir_fd)
            if place is not None:
                self._watched[fd] = place
                self._note("open", fd, place, bool(flags & os.O_TRUNC))
            return int(fd)

    def _close(self, fd: int) -> None:
        with self._lock:
            self.forget(fd)
            _REAL["close"](fd)

    def forget(self, fd: int) -> None:
        """Note that a file is about to be closed."""
        with self._lock:
            if fd in self._watched:
                del self._watched[fd]
                self._note("close", fd)

    def written(self, fd: int, data: Any, write: Callable[[], int], at: int | None = None) -> int:
        """Write and record data, at offset `at`, or else after the data written before."""
        with self._lock:
            count = write()
            if fd in self._watched and count:
                if at is None:
                    at = os.lseek(fd, 0, os.SEEK_CUR) - count
                self._note("write", fd, at, count)
                self._bytes.write(memoryview(data)[:count])
            return count

    def _write(self, fd: int, data: Any) -> int:
        return self.written(fd, data, lambda: _REAL["write"](fd, data))

    def _pwrite(self, fd: int, data: Any, offset: int) -> int:
        return self.written(fd, data, lambda: _REAL["pwrite"](fd, data, offset), offset)

    def _ftruncate(self, fd: int, size: int) -> None:
        self.truncated(fd, size, lambda: _REAL["ftruncate"](fd, size))

    def truncated(self, fd: int, size: int, truncate: Callable[[], Any]) -> None:
        """Truncate or extend a file and record it."""
        with self._lock:
            truncate()
            if fd in self._watched:
                self._note("truncate", fd, size)

    def _sync(self, real: Callable[[int], None], fd: int) -> None:
        with self._lock:
            real(fd)
            if fd in self._watched:
                self._note("sync", fd)

    def syncfs(self, real: Callable[[int], int], fd: int) -> int:
        """Call `syncfs` and record it."""
        with self._lock:
            result = real(fd)
            if fd in self._watched and not result:
                self._note("syncfs", self._watched[fd])
            return result

    def _open_file(self, file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
        """Replace `open`; writes are recorded when they leave the buffer."""
        mine = file in self._watched if isinstance(file, int) else self._place(file) is not None
        if not mine or not set(mode) & set("wxa+"):
            return _OPEN(file, mode, buffering, *args, **options)
        assert "+" not in mode, "this is not noted yet"
        assert not args, "what follows the buffer's size is named"
        raw = _NotedFile(self, file, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        buffered = io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, **options)

    # -- names ----------------------------------------------------------------------------------

    def _one(self, name: str, real: Callable[..., None], path: Any, *args: Any, **options: Any) -> None:
        with self._lock:
            place = None if isinstance(path, int) else self._place(path, options.get("dir_fd"))
            real(path, *args, **options)
            if place is None:
                return
            if name == "utime":
                self._note("looks", place, *self._look(place))
            else:
                self._note("unlink" if name == "remove" else name, place)

    def _two(self, name: str, real: Callable[..., None], old: Any, new: Any, **options: Any) -> None:
        with self._lock:
            places = self._place(old, options.get("src_dir_fd")), self._place(new, options.get("dst_dir_fd"))
            before = os.lstat(old, dir_fd=options.get("src_dir_fd"))
            real(old, new, **options)
            if places[1] is not None:
                assert places[0] is not None, "what comes in from outside is not noted yet"
                if name == "rename" and os.path.lexists(places[0]):
                    assert os.path.samestat(before, os.lstat(places[1])), (
                        "two names of one file: nothing happened"
                    )
                    return
                self._note(name, *places)
                self._note("looks", places[1], *self._look(places[1]))

    def _symlink(self, target: Any, path: Any, *args: Any, **options: Any) -> None:
        with self._lock:
            place = self._place(path, options.get("dir_fd"))
            _REAL["symlink"](target, path, *args, **options)
            if place is not None:
                self._note("symlink", place, os.fsdecode(target))

    @staticmethod
    def _look(path: Any) -> tuple[int, int, int]:
        found = os.lstat(path)
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns

    # -- moments --------------------------------------------------------------------------------

    def moment(self, name: str, owner: type, method: str, told: Callable[..., list[str]]) -> None:
        """Record each call of a method as a moment of this name."""
        real = getattr(owner, method)

        def called(*args: Any, **options: Any) -> Any:
            with self._lock:
                self._note("moment", name, told(*args))
            return real(*args, **options)

        setattr(owner, method, called)


class _NotedFile(io.FileIO):
    """A file opened by `open` whose writes are recorded."""

    def __init__(self, recorder: Recorder, file: Any, mode: str) -> None:
        self._recorder = recorder
        super().__init__(file, mode, opener=lambda path, flags: os.open(path, flags, 0o666))

    def write(self, data: Any, /) -> int:
        return self._recorder.written(self.fileno(), data, lambda: super(_NotedFile, self).write(data))

    def truncate(self, size: int | None = None, /) -> int:
        size = self.tell() if size is None else size
        self._recorder.truncated(self.fileno(), size, lambda: super(_NotedFile, self).truncate(size))
        return size

    def close(self) -> None:
        if not self.closed:
            self._recorder.forget(self.fileno())
        super().close()


def main() -> int:
    """Run the command; returns 1 if it fails."""
    log, root, said = sys.argv[1:]
    asked = json.loads(said)
    import nbdata
    from nbdata import disk
    from nbdata.engine.planning.small_uploads import SmallUploads
    from nbdata.stores.local import LocalStore
    from nbdata.stores.s3.store import S3Store, _S3Upload
    from nbdata.transfer import marks, part_records, partials

    recorder = Recorder(log, root)
    for module in (part_records, partials, marks):
        module.boot = lambda: BOOT  # type: ignore[attr-defined]
    assert disk.syncfs is not None
    disk.syncfs = functools.partial(recorder.syncfs, disk.syncfs)
    recorder.moment("sent", _S3Upload, "part", lambda upload, *_: [upload.id])
    recorder.moment("making", _S3Upload, "finish", lambda upload, *_: [upload._key])
    recorder.moment("making", S3Store, "write", lambda _, key, *__: [key])
    # Small objects go many at a time: each is there at the latest when the store has answered.
    recorder.moment("making", SmallUploads, "_answered", lambda _, answer: [answer.request.key])
    for store in (S3Store, LocalStore):
        recorder.moment("deleting", store, "delete", lambda _, keys: [*keys])
    recorder.install()
    try:
        report = getattr(nbdata, asked["verb"])(**asked["options"], quiet=True)
    finally:
        recorder.finish()
    return 0 if report.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
