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
    Kind("a file, also an empty one", "empty", lambda r: (r / "empty").touch(), "sent", "", "push sends files"),
    Kind(
        "a link to a file, also to one outside SOURCE", "link",
        lambda r: (r / "link").symlink_to(f"{_OUTSIDE}/file"), "sent", "",
        "the object has the link's name and the file's bytes: stores have no links",
    ),
    Kind(
        "hard links", "hard", lambda r: (r / "hard").hardlink_to(r / "file"), "sent", "",
        "each name becomes an object",
    ),
    Kind(
        "a sparse file", "sparse", _sparse, "sent", "",
        "its holes are sent as zeros, in their whole length",
    ),
    Kind(
        "a link to a folder", "folder", lambda r: (r / "folder").symlink_to(_OUTSIDE), "left out",
        _LINKS, "its target may be a whole disk; a link given as SOURCE is followed",
    ),
    Kind(
        "a link to a folder that it is in", "d/up", lambda r: (r / "d/up").symlink_to(".."), "left out",
        _LINKS,
        "following it would never end",
    ),
    Kind(
        "a link that leads nowhere", "broken", lambda r: (r / "broken").symlink_to("away"), "left out",
        "1 broken link (its target does not exist): broken", "editors and browsers create such links on purpose",
    ),
    Kind(
        "a link to itself", "loop", lambda r: (r / "loop").symlink_to("loop"), "left out",
        "1 loop of links (it leads to itself): loop", "as above",
    ),
    Kind(
        "a named pipe", "pipe", lambda r: os.mkfifo(r / "pipe"), "left out",
        "1 named pipe (not a file; a read would wait for a writer): pipe", "push never opens it",
    ),
    Kind(
        "a socket", "socket", _socket, "left out", "1 socket (not a file; it holds no bytes): socket",
        "push never opens it",
    ),
    Kind(
        "a device, or a link to one", "device", lambda r: (r / "device").symlink_to("/dev/zero"), "left out",
        "1 device (not a file; it may never end): device", "push never opens it",
    ),
    Kind(
        "an empty folder", "nothing", lambda r: (r / "nothing").mkdir(), "left out",
        "1 empty folder (stores keep objects, not folders): nothing", "a pull makes the folders that its files need",
    ),
    Kind(
        "a file that may not be read", "secret", _closed_file, "failed", "the disk refuses",
        "the other files are sent, and the report names this one",
    ),
    Kind(
        "a folder that may not be read", "closed", _closed_folder, "unreadable", "the disk refuses",
        "as above; exclude a folder such as `lost+found` with `--exclude NAME`",
    ),
    Kind(
        "a link into such a folder", "inside", lambda r: (r / "inside").symlink_to("closed/in"), "unreadable",
        "the disk refuses", "as above",
    ),
    Kind(
        "a file of `/proc`, of no size and with bytes", "proc", lambda r: (r / "proc").symlink_to("/proc/version"),
        "failed", "the file reports no size but holds bytes", "an empty object would look complete",
    ),
    Kind(
        "a name that is no UTF-8", "b\udcffytes", _named_by_bytes, "unrepresentable", "its name is not UTF-8",
        "keys are UTF-8",
    ),
    Kind(
        "`.nbdata` and `.nbdata-UID`, in any folder", "d/.nbdata/x", _records, "", "",
        "they hold the records of nbdata, not your data",
    ),
)  # fmt: skip
BEFORE = (
    Kind(
        "it is deleted before its turn", "gone", lambda r: (r / "gone").unlink(), "failed", "no such file or folder",
        "the plan had it, and it was not sent",
    ),
    Kind(
        "its folder is deleted", "d/x", lambda r: [(r / "d/x").unlink(), (r / "d").rmdir()], "failed",
        "no such file or folder", "as above",
    ),
    Kind(
        "it changes before its turn", "edited", lambda r: (r / "edited").write_bytes(b"edited"), "failed",
        "the file changed after it was listed", "it may be half written; run the same command again",
    ),
    Kind(
        "a named pipe takes its place", "piped", lambda r: [(r / "piped").unlink(), os.mkfifo(r / "piped")], "failed",
        "the file changed after it was listed", "reading would wait for a writer",
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
        "the file changed while it was sent", "the object would mix two versions; run the same command again",
    ),
    Kind(
        "it grows while it is sent", "while-grows", lambda r: _append(r / "while-grows"), "failed",
        "the file changed while it was sent", "as above; send a log after it is closed, or send a copy",
    ),
    Kind(
        "it shrinks while it is sent", "while-shrinks", lambda r: os.truncate(r / "while-shrinks", 3), "failed",
        "while it was sent", "as above",
    ),
    Kind(
        "it is deleted or replaced while it is sent", "while-deleted", lambda r: (r / "while-deleted").unlink(),
        "failed", "the file was deleted or replaced while it was sent", "another file, or none, has the name now",
    ),
    Kind(
        "another name of it comes or goes", "while-linked",
        lambda r: (r / "linked").hardlink_to(r / "while-linked"), "sent", "", "the bytes stay the same",
    ),
)  # fmt: skip


HEAD = """# Which files are pushed

For everybody who pushes folders with more than plain files in them: links, pipes, files that change. The tables say
what `push` does with each. Files *left out* are counted and named in the report, and are no failure. A file that
*fails* makes the run a failure, after all other files were sent. `--include` and `--exclude` apply to all of them.

| below SOURCE | push | why |
|---|---|---|
"""
MEANWHILE = """
The second table is about files that change while the push runs. Files of up to 256 KiB are read at once, and sent as
they were read. So the rows *while it is sent* are about larger files (for stores other than S3, about all files).

| when | push | why |
|---|---|---|
"""
REST = """
SOURCE itself may be a link, which is followed. A named pipe, a socket or a device as SOURCE is refused. `--delete`
keeps objects at or below the names of files that were left out; if anything failed, it deletes nothing.
`--delete-source` keeps links. If a file was sent and cannot be deleted, it is reported as *not deleted*, a failure.

**md5check** leaves out the same files and names them, except empty folders. A broken link is *missing* if a checksum of
it is known. A folder that cannot be read ends the check, unless `--exclude` names it, because its files would not be
checked.

**pull** from a disk leaves out the same files, without a word; with `--delete` it keeps files at or below their names,
and says so. It replaces links in TARGET with files, and never writes through a link. If a folder, a named pipe, a
socket or a device has the name of a file to be written, that is a conflict, also with `--overwrite always`.

**Modes.** Stores keep none. A new file or folder of `pull`, and of a `push` to a disk, has the mode that your umask
gives, also if its source lies on a disk and has another: a file of mode 0600 becomes 0644 with umask 022, a folder of
mode 0700 becomes 0755, and a program cannot be executed. A file that replaces another is no more open than that one.
`untar_volumes` gives files the mode of the archive within your umask, and folders that of your umask. There, too, a
file is no more open than the one that it replaces, but who may read it may execute it. To keep private
what was private, set umask 077 first, or use a target in a folder that only you can enter. A folder with a default
access control list gives new files and folders what it says instead of your umask.
"""
_TOLD = {"": "not sent", "failed": "fails", "unreadable": "fails", "unrepresentable": "fails"}


def page() -> str:
    """Return the whole page."""

    def lines(kinds: tuple[Kind, ...]) -> str:
        return "".join(f"| {k.what} | {_TOLD.get(k.outcome, k.outcome)} | {k.why} |\n" for k in kinds)

    return HEAD + lines(KINDS) + MEANWHILE + lines((*BEFORE, *WHILE)) + REST
