"""The kinds of files on a disk other than unchanging regular files, and what commands do with them.

`page` writes them into ``docs/files.md``. ``test_odd_files.py`` checks each row.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of file below SOURCE: how to create it, what a command does with it, and what the report says.

    `outcome` is "sent", "left out", "" (not mentioned), or the report's word for a failure.
    """

    what: str
    path: str
    make: Callable[[Path], object]
    outcome: str
    says: str
    why: str


def _named_by_bytes(root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/b\xffytes")).write_bytes(b"1")


def _socket(root: Path) -> None:
    here = os.open(root, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"/proc/self/fd/{here}/socket")  # short, because a socket's path is limited
    os.close(here)


def _sparse(root: Path) -> None:
    with (root / "sparse").open("wb") as file:
        file.truncate(3 << 20)


def _closed_folder(root: Path) -> None:
    (root / "closed").mkdir()
    (root / "closed/in").write_bytes(b"1")
    (root / "closed").chmod(0)


def _closed_file(root: Path) -> None:
    (root / "secret").write_bytes(b"1")
    (root / "secret").chmod(0)


def _records(root: Path) -> None:
    (root / "d/.nbdata").mkdir()
    (root / "d/.nbdata/x").write_bytes(b"1")


_OUTSIDE = "../outside"
_LINKS = "2 links to folders (not followed; name it as SOURCE to take its target): d/up, folder"
KINDS = (
    Kind("a file, also an empty one", "empty", lambda r: (r / "empty").touch(), "sent", "", "it is what is meant"),
    Kind(
        "a link to a file, also to one outside SOURCE", "link",
        lambda r: (r / "link").symlink_to(f"{_OUTSIDE}/file"), "sent", "",
        "the bytes of the file go under the link's name: stores know no links",
    ),
    Kind(
        "hard links", "hard", lambda r: (r / "hard").hardlink_to(r / "file"), "sent", "",
        "each name is an object of its own",
    ),
    Kind(
        "a sparse file", "sparse", _sparse, "sent", "",
        "its holes are zeros, and are sent as such: its whole length counts",
    ),
    Kind(
        "a link to a folder", "folder", lambda r: (r / "folder").symlink_to(_OUTSIDE), "left out",
        _LINKS, "what it leads to may be a whole disk; as SOURCE itself it is followed",
    ),
    Kind(
        "a link to a folder that it is in", "d/up", lambda r: (r / "d/up").symlink_to(".."), "left out",
        _LINKS,
        "no way leads round in circles",
    ),
    Kind(
        "a link that leads nowhere", "broken", lambda r: (r / "broken").symlink_to("away"), "left out",
        "1 broken link (its target does not exist): broken", "editors and browsers leave such links on purpose",
    ),
    Kind(
        "a link to itself", "loop", lambda r: (r / "loop").symlink_to("loop"), "left out",
        "1 loop of links (it leads to itself): loop", "as above",
    ),
    Kind(
        "a named pipe", "pipe", lambda r: os.mkfifo(r / "pipe"), "left out",
        "1 named pipe (not a file; a read would wait for a writer): pipe", "it is never opened",
    ),
    Kind(
        "a socket", "socket", _socket, "left out", "1 socket (not a file; it holds no bytes): socket",
        "it is never opened",
    ),
    Kind(
        "a device, or a link to one", "device", lambda r: (r / "device").symlink_to("/dev/zero"), "left out",
        "1 device (not a file; it may never end): device", "it is never opened",
    ),
    Kind(
        "an empty folder", "nothing", lambda r: (r / "nothing").mkdir(), "left out",
        "1 empty folder (stores keep objects, not folders): nothing", "a pull makes the folders that its files need",
    ),
    Kind(
        "a file that may not be read", "secret", _closed_file, "failed", "the disk refuses",
        "the rest is sent; what is missing in the store is said",
    ),
    Kind(
        "a folder that may not be read", "closed", _closed_folder, "unreadable", "the disk refuses",
        "as above; `--exclude NAME` if it is not meant, as `lost+found`",
    ),
    Kind(
        "a link into such a folder", "inside", lambda r: (r / "inside").symlink_to("closed/in"), "unreadable",
        "the disk refuses", "as above",
    ),
    Kind(
        "a file of `/proc`, of no size and with bytes", "proc", lambda r: (r / "proc").symlink_to("/proc/version"),
        "failed", "the file reports no size but holds bytes", "an empty object would look like a good one",
    ),
    Kind(
        "a name that is no UTF-8", "b\udcffytes", _named_by_bytes, "unrepresentable", "its name is not UTF-8",
        "keys are UTF-8",
    ),
    Kind("`.nbdata`, in any folder", "d/.nbdata/x", _records, "", "", "the records of nbdata are nobody's data"),
)  # fmt: skip
BEFORE = (
    Kind(
        "it is deleted before its turn", "gone", lambda r: (r / "gone").unlink(), "failed", "no such file or folder",
        "it was to be sent, and was not",
    ),
    Kind(
        "its folder is deleted", "d/x", lambda r: [(r / "d/x").unlink(), (r / "d").rmdir()], "failed",
        "no such file or folder", "as above",
    ),
    Kind(
        "it changes before its turn", "edited", lambda r: (r / "edited").write_bytes(b"edited"), "failed",
        "the file changed after it was listed", "nobody knows whether it is whole; the same command sends it later",
    ),
    Kind(
        "a named pipe takes its place", "piped", lambda r: [(r / "piped").unlink(), os.mkfifo(r / "piped")], "failed",
        "the file changed after it was listed", "it does not wait for who writes",
    ),
)  # fmt: skip


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"other")


WHILE = (
    Kind(
        "it changes while it is sent", "while-changes", lambda r: _overwrite(r / "while-changes"), "failed",
        "the file changed while it was sent", "the object would be of both versions; the same command sends it again",
    ),
    Kind(
        "it grows while it is sent", "while-grows", lambda r: _append(r / "while-grows"), "failed",
        "the file changed while it was sent", "as above: send logs when they are closed, or a copy",
    ),
    Kind(
        "it shrinks while it is sent", "while-shrinks", lambda r: os.truncate(r / "while-shrinks", 3), "failed",
        "while it was sent", "as above",
    ),
    Kind(
        "it is deleted or replaced while it is sent", "while-deleted", lambda r: (r / "while-deleted").unlink(),
        "failed", "the file was deleted or replaced while it was sent", "what stands there now is something else",
    ),
    Kind(
        "another name of it comes or goes", "while-linked",
        lambda r: (r / "linked").hardlink_to(r / "while-linked"), "sent", "", "its bytes are the same",
    ),
)  # fmt: skip


HEAD = """# Which files are pushed

What `push` does of all that may lie below SOURCE. Whatever it does not send is named: *left out* is in the report's
counts and notes and is no failure; what *fails* makes the whole a failure, after the rest was sent. `--include` and
`--exclude` hold for all of it.

| below SOURCE | push | why |
|---|---|---|
"""
MEANWHILE = """
A file that is touched while the push runs. Up to 256 KiB are read at once and sent as they were; so *while it is sent*
is of larger ones (and to stores that are no S3, of all):

| when | push | why |
|---|---|---|
"""
REST = """
SOURCE itself may be a link, which is followed; a named pipe, a socket or a device is refused. With `--delete` an object
at or below what was left out is not deleted, and none is where something failed. With `--delete-source` links stay;
a file that is sent and that the disk does not let be deleted is *not deleted*, which is a failure.

**md5check** leaves out the same, and names it but for empty folders; a link that leads nowhere is *missing* if a
checksum of it is known. A folder that may not be read ends it, unless `--exclude` names it: what it
holds would go unchecked.

**pull** puts files in the place of links, and does not write through them. A folder, a named pipe, a socket or a
device where a file is to be is a conflict, also with `--overwrite always`.
"""
_TOLD = {"": "not sent", "failed": "fails", "unreadable": "fails", "unrepresentable": "fails"}


def page() -> str:
    """Return the whole page."""

    def lines(kinds: tuple[Kind, ...]) -> str:
        return "".join(f"| {k.what} | {_TOLD.get(k.outcome, k.outcome)} | {k.why} |\n" for k in kinds)

    return HEAD + lines(KINDS) + MEANWHILE + lines((*BEFORE, *WHILE)) + REST
