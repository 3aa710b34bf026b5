"""Folders with something hostile in the place of one of nbdata's own files, and what each verb does with them.

A scene is a verb, an entry of nbdata's own folder, and the kind of thing that has its place. `main` plays scenes in a
process of its own, so that a hang, or memory without end, is seen from outside. It reads lines ``VERB ENTRY KIND``,
and answers each with a line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import sys
import tarfile
import traceback
from collections.abc import Callable
from pathlib import Path

import nbdata
import nbdata.engine.cache.sample_cache
import nbdata.transfer.marks
from nbdata.errors import NbdataError
from nbdata.transfer.part_records import names
from tests.client.converting.data import BYTES, module
from tests.stores.folder_server import folder_server

__all__ = ["ENTRIES", "KINDS", "VERBS", "main"]

_KEPT, _CACHE = "kept-0123456789abcdef", "cache-0123456789abcdef"
_BLOCKS = f"blocks-{1:016x}"
_OBJECT = "0" * 32
_PART, _PARTS = names("big.bin")

#: What nbdata, or an older nbdata, makes below ``.nbdata/``. SAMPLES stands for the kept cache that `samples` opens.
ENTRIES = (
    ".nbdata",
    f".nbdata/{'a' * 12}0",
    f".nbdata/{_PART}",
    f".nbdata/{_PARTS}",
    f".nbdata/{_BLOCKS}",
    f".nbdata/{_BLOCKS}.lock",
    f".nbdata/{_BLOCKS}/{_OBJECT}",
    f".nbdata/{_BLOCKS}/room",
    ".nbdata/converting",
    ".nbdata/converting/.made",
    ".nbdata/converting/lock",
    ".nbdata/converting/train",
    ".nbdata/converting/train.begun",
    ".nbdata/converting/train.old",
    ".nbdata/converting/train/ffrdata/PART_00000.ffr",
    f".nbdata/{_CACHE}",
    f".nbdata/{_CACHE}.lock",
    f".nbdata/{_CACHE}/.made",
    f".nbdata/{_CACHE}/0",
    f".nbdata/{_KEPT}/about",
    ".nbdata/SAMPLES",
    ".nbdata/SAMPLES.lock",
    ".nbdata/SAMPLES/.made",
    ".nbdata/SAMPLES/about",
    ".nbdata/SAMPLES/boot",
    ".nbdata/SAMPLES/sealed",
    f".nbdata/SAMPLES/{_OBJECT}",
    f".nbdata/SAMPLES/{_OBJECT}.part",
    ".nbdata/sets/x",
)
#: The uid of another user, who does not exist.
STRANGER = 54_321
# A time in the year 2100.
_LATER = 4_102_444_800


def _device(at: Path, _outside: Path) -> None:
    os.mknod(at, 0o600 | 0o020000, os.makedev(1, 5))  # that of /dev/zero


def _theirs(at: Path, _outside: Path) -> None:
    at.mkdir()
    at.chmod(0o777)
    (at / "x").write_text("theirs")
    os.chown(at, STRANGER, STRANGER)


def _sparse(at: Path, _outside: Path) -> None:
    with at.open("wb") as file:
        file.truncate(1 << 30)


def _later(at: Path, _outside: Path) -> None:
    at.write_text("{}")
    os.utime(at, (_LATER, _LATER))


#: What has the place of an entry. The functions take its path and the folder that must stay as it is.
KINDS: dict[str, Callable[[Path, Path], object]] = {
    "link-to-folder": lambda at, outside: at.symlink_to(outside),
    "link-to-file": lambda at, outside: at.symlink_to(outside / "thesis.tex"),
    "link-to-nothing": lambda at, outside: at.symlink_to(outside / "none"),
    "link-to-zeros": lambda at, _: at.symlink_to("/dev/zero"),
    "pipe": lambda at, _: os.mkfifo(at),
    "folder": lambda at, _: (at / "inner").mkdir(parents=True),
    "empty-file": lambda at, _: at.touch(),
    "sparse": _sparse,
    "deep": lambda at, _: at.write_text("[" * 1_000_000),
    "number": lambda at, _: at.write_text("5"),
    "later": _later,
    "other-format": lambda at, _: at.write_text('{"version": 99, "identity": [], "parts": 5}\n'),
    "bytes": lambda at, _: at.write_bytes(bytes(range(256)) * 40),
}
if os.geteuid() == 0:
    KINDS |= {"device": _device, "theirs": _theirs}


def _source(folder: Path) -> Path:
    """Make a harmless data set."""
    (folder / "sub").mkdir(parents=True)
    for name in ("a.txt", "sub/b.txt"):
        (folder / name).write_text(name)
    with (folder / "big.bin").open("wb") as file:
        file.truncate(300_000)
    return folder


class _Place:
    """The folders of one scene: `data`, which is hostile, and `outside`, which must stay as it is.

    The harmless folder `source` is for all scenes, and `url` is its address.
    """

    def __init__(self, root: Path, source: Path, url: str) -> None:
        self.root, self.source, self.url = root, source, url
        self.data, self.outside = root / "data", root / "outside"
        for folder in (self.data, self.outside / "inner"):
            folder.mkdir(parents=True)
        for path in ("outside/thesis.tex", "outside/inner/x", "data/own.txt"):
            (root / path).write_text(path)

    def put(self, entry: str, kind: str, samples: str) -> None:
        at = self.data / entry.replace("SAMPLES", samples)
        at.parent.mkdir(parents=True, exist_ok=True)
        KINDS[kind](at, self.outside)

    def archive(self) -> str:
        with tarfile.open(self.root / "x.tar", "w") as tar:
            tar.add(self.source, "x")
        return str(self.root / "x.tar")


def _stream(place: _Place) -> None:
    stream = nbdata.cache_stream(place.url, by="file", max_size="2MB", cache_dir=str(place.data), quiet=True)
    with stream:
        got = sorted(Path(path).read_bytes() for path, _ in stream)
    assert got == sorted(path.read_bytes() for path in place.source.rglob("*") if path.is_file())


def _samples(place: _Place) -> None:
    with nbdata.samples(place.url, cache="2MB", cache_dir=str(place.data)) as samples:
        got = list(samples)
        assert len(got) == 3, got


def _pulled(place: _Place) -> None:
    nbdata.pull(place.url, place.data, quiet=True)
    _same(place.source, place.data)


def _pushed(place: _Place) -> None:
    nbdata.push(f"{place.data}/", f"{place.root / 'out'}/", quiet=True)
    assert not (place.root / "out/.nbdata").exists()


def _unpacked(place: _Place) -> None:
    nbdata.untar_volumes(place.archive(), place.data, quiet=True)
    _same(place.source, place.data / "x")


def _packed(place: _Place) -> None:
    nbdata.pack(f"{place.data}/", str(place.root / "out.tar"), format="tar", quiet=True)
    with tarfile.open(place.root / "out.tar") as tar:
        assert [name for name in tar.getnames() if "own.txt" not in name] == []


def _converted(place: _Place) -> None:
    nbdata.convert(module(place.root, BYTES), place.root / "in", place.data, file_size="4KiB", quiet=True)


def _same(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            assert (target / path.relative_to(source)).read_bytes() == path.read_bytes()


#: The verbs that take a folder of the disk. If one of them raises no error, it has done its work.
VERBS: dict[str, Callable[[_Place], object]] = {
    "pull": _pulled,
    "push": _pushed,
    "push-into": lambda place: nbdata.push(f"{place.source}/", f"{place.data}/", quiet=True),
    "ls": lambda place: list(nbdata.ls(f"{place.data}/", recursive=True, quiet=True).rows),
    "du": lambda place: nbdata.du(f"{place.data}/", quiet=True),
    "md5check": lambda place: nbdata.md5check(place.data, write=True, quiet=True),
    "untar": _unpacked,
    "pack": _packed,
    "cleanup": lambda place: nbdata.cleanup(place.data, quiet=True),
    "cleanup-all": lambda place: nbdata.cleanup(place.data, all=True, quiet=True),
    "quota": lambda place: nbdata.quota(place.data, quiet=True),
    "convert": _converted,
    "stream": _stream,
    "samples": _samples,
}


def _tree(folder: Path) -> dict[str, object]:
    """Return all that a change of a folder would change."""
    return {
        str(path.relative_to(folder)): (
            (found := path.lstat()).st_mode,
            found.st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in [folder, *folder.rglob("*")]
    }


class _Player:
    """Plays scenes below a folder that a server serves at `url`."""

    def __init__(self, root: Path, url: str) -> None:
        self._root, self._source, self._url = root, _source(root / "source"), f"{url}source/"
        self._number = 0
        self._samples = ""  # the name of the kept cache that `samples` opens
        for verb in VERBS:  # so that what all need is there, whatever is played
            said = self.play(verb, ".nbdata/none", "empty-file")
            assert not said["said"], said

    def play(self, verb: str, entry: str, kind: str) -> dict[str, object]:
        # Each has a folder of its own, since a cache lives on for a moment.
        self._number += 1
        root = self._root / str(self._number)
        place = _Place(root, self._source, self._url)
        place.put(entry, kind, self._samples)
        before, why = _tree(place.outside), ""
        try:
            VERBS[verb](place)
        except NbdataError as error:
            why = str(error)
        except Exception:
            why = f"internal error: {traceback.format_exc()}"
        if verb == "samples" and not self._samples:
            (self._samples,) = (path.name for path in place.data.glob(".nbdata/kept-*") if path.is_dir())
        touched = _tree(place.outside) != before
        shutil.rmtree(root, ignore_errors=True)
        return {"scene": f"{verb} {entry} {kind}", "said": why, "touched": touched}


def _memory() -> int:
    """Return the most bytes of memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Play the scenes that standard input names, below the working folder."""
    with folder_server(Path.cwd()) as server:
        # Nobody else works there: no mark from the future need be watched for long, and no cache wait for readers.
        nbdata.transfer.marks._DEAD = nbdata.engine.cache.sample_cache.IDLE = 0.1
        player = _Player(Path.cwd(), server.url)
        before = _memory()
        for line in sys.stdin:
            verb, entry, kind = line.split()
            print(json.dumps({**player.play(verb, entry, kind), "memory": _memory() - before}), flush=True)
