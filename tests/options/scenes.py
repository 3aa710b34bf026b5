"""Small scenes in which options are tried: folders, objects, and a file system in memory that misbehaves on request."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

import nbdata
from tests.waiting import PATIENCE, wait_until

#: Four files of 10 bytes, two of each suffix, in two folders.
FILES = {name: name.encode().ljust(10, b".") for name in ("a/1.jpg", "a/2.txt", "b/3.jpg", "b/4.txt")}
#: Files that each are read by a request of their own, because they are not small.
LARGE = {f"{number}.bin": bytes([number]) * 300_000 for number in range(4)}
# Seconds for which an open file waits for another one if there must be none.
_MOMENT = 0.05


def _is_bad(path: str) -> bool:
    return path.rpartition("/")[2].startswith("bad.")  # a random temporary name may hold these letters too


class Shelf(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Several stores in memory, one for each value of the storage option ``shelf``.

    Files called ``bad.…`` can be neither read nor written. `peak` is the largest number of files that were
    opened at the same time.
    """

    protocol = "shelf"
    cachable = False
    shelves: ClassVar[dict[str, dict[str, Any]]] = {}
    alone: ClassVar[bool] = False
    peak: ClassVar[int] = 0
    _open_now: ClassVar[int] = 0
    _changed: ClassVar[threading.Condition] = threading.Condition()

    def __init__(self, shelf: str = "one", **options: Any) -> None:
        super().__init__(**options)
        self.store, self.pseudo_dirs = self.shelves.setdefault(shelf, {}), [""]

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(super()._strip_protocol(str(path).replace("shelf://", "memory://")))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if _is_bad(path):
            raise PermissionError(13, "Permission denied", path)
        self._meet()
        return super()._open(path, mode, **options)

    def mv(self, path1: str, path2: str, *args: Any, **options: Any) -> None:
        """Give a file its final name."""
        if _is_bad(path2):
            raise PermissionError(13, "Permission denied", path2)
        super().mv(path1, path2, *args, **options)

    def _meet(self) -> None:
        """Wait for another thread that opens a file; only for a moment if there must be none."""
        cls = type(self)
        with cls._changed:
            cls._open_now += 1
            cls.peak = max(cls.peak, cls._open_now)
            cls._changed.notify_all()
            if cls.peak < 2:
                cls._changed.wait_for(lambda: cls.peak > 1, _MOMENT if cls.alone else PATIENCE)
            cls._open_now -= 1

    @classmethod
    def fill(cls, objects: Mapping[str, bytes], shelf: str = "one") -> None:
        """Put objects onto a shelf."""
        with contextlib.ExitStack() as stack:
            for key, data in objects.items():
                system = MemoryFileSystem(skip_instance_cache=True)  # the usual one belongs to everybody
                system.store, system.pseudo_dirs = cls.shelves.setdefault(shelf, {}), [""]
                stack.enter_context(system.open(f"/{key}", "wb")).write(data)


# By its name: such protocols are known to fsspec as its own are.
fsspec.register_implementation("shelf", f"{Shelf.__module__}.{Shelf.__name__}", clobber=True)


@dataclass
class Place:
    """Where a scene is set up: a folder of its own, and a prefix in the bucket of the test."""

    root: Path
    put: Callable[[dict[str, bytes]], str]
    patch: Any
    prefix: str
    web: Callable[[Path], str] = lambda _: ""

    def pages(self, files: Mapping[str, bytes]) -> str:
        """Put files onto a web server that calls all of them web pages; return the URL of their folder."""
        return self.web(self.folder("web", files).parent) + "web/"

    def folder(self, name: str = "data", files: Mapping[str, bytes] = FILES) -> Path:
        """Make a folder of files."""
        for path, data in files.items():
            (self.root / name / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name / path).write_bytes(data)
        return self.root / name

    def url(self, name: str = "data", files: Mapping[str, bytes] = FILES) -> str:
        """Put objects into the store, and return the URL of their folder."""
        prefix = f"{self.prefix}/{name}/"
        return self.put({prefix + path: data for path, data in files.items()}) + prefix

    def shelf(self, one: Mapping[str, bytes], two: Mapping[str, bytes] | None = None) -> str:
        """Put objects onto both shelves, below ``data/``; return the URL of that folder."""
        Shelf.fill({f"data/{path}": data for path, data in one.items()})
        Shelf.fill({f"data/{path}": data for path, data in (two or {}).items()}, "two")
        return "shelf://data/"

    def between(self) -> str:
        """Make the files or objects called ``*.txt`` older than the others; return a moment between them."""
        texts = [*self.root.glob("data/**/*.txt")]
        for path in texts:
            os.utime(path, (0, 0))
        if texts or (self.root / "packed.ffr").exists():
            return "2020-01-01"
        folder = self.url(files={})

        def times() -> dict[str, float]:
            return {
                row.path: row.detail["modified"] for row in nbdata.ls(folder, recursive=True, quiet=True).rows
            }

        first = max(times().values())
        pictures = {name: data for name, data in FILES.items() if name.endswith(".jpg")}

        def later() -> bool:
            self.url(files=pictures)
            return all(times()[name] > first for name in pictures)

        wait_until(later)  # the store's clock moves on
        return datetime.fromtimestamp(first + 0.001, timezone.utc).isoformat()

    def list(self, *paths: str) -> Path:
        """Write a list of paths."""
        file = self.root / "list"
        file.write_text("".join(f"{path}\n" for path in paths))
        return file

    def quota(self, size: int) -> None:
        """Allow only so many bytes below the folder."""
        self.patch.setenv("NBDATA_QUOTA", f"{size}:{self.root}")

    def summed(self, files: Mapping[str, bytes] = FILES) -> Path:
        """Make a folder of files with a manifest of them."""
        lines = [f"{hashlib.md5(data).hexdigest()}  {path}\n" for path, data in files.items()]
        return self.folder(files={**files, "MD5SUMS": "".join(lines).encode()})


def tar(members: Mapping[str, bytes] = FILES) -> bytes:
    """Make a tar archive of these members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


@contextlib.contextmanager
def empty_shelves() -> Iterator[None]:
    """Clear the shelves before and after; opened files do not wait for each other."""
    Shelf.shelves.clear()
    Shelf.alone, Shelf.peak, Shelf._open_now = True, 2, 0  # nobody waits
    try:
        yield
    finally:
        Shelf.shelves.clear()
