"""Small disks and limited folders of every kind that this machine offers, and a process that fills them.

Mounting needs root, or a user name space (`unshare --user --map-root-user --mount`), where only a tmpfs may be mounted.
`why_not` gives the reason why a kind is unavailable, so no kind is left out silently.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbdata
from nbdata.space.limits import used_below

__all__ = ["KINDS", "LIMITED", "UNSEEN", "Order", "SmallDisk", "small_disk", "why_not"]

MIB = 1 << 20
#: Kinds, named after the limit: a disk, its number of files (inodes), a kernel quota, nbdata's own limit.
KINDS = ("tmpfs", "tmpfs, inodes", "ext4", "btrfs, qgroup", "%quota", "NBDATA_QUOTA")
#: Kinds with a limit that only nbdata enforces; other programs may exceed it.
LIMITED = ("%quota", "NBDATA_QUOTA")
#: Kinds whose limit no program can query; it notices the limit only when it reaches it.
UNSEEN = ("btrfs, qgroup",)
# Size of a disk if something else is the limit.
_AMPLE = 256 * MIB
# Largest length of a program's output in messages.
_LAST = 200


@dataclass(frozen=True)
class Order:
    """Describes a disk to create: its kind and its room in bytes and files.

    The block size is set where the kind allows it.
    """

    kind: str
    room: int
    files: int
    block: int = 4096


class SmallDisk:
    """A folder with limited room.

    Attributes
    ----------
    folder : Path
        The folder in which commands write, each into its own subfolder.
    limit : int or None
        Bytes allowed below the folder, if only nbdata enforces the limit.
    others : int
        Bytes that another process has written there.
    """

    def __init__(self, folder: Path, order: Order) -> None:
        self.folder, self.order = folder, order
        self.limit = order.room if order.kind in LIMITED else None
        self.others = 0
        self._made: list[Path] = []

    def free(self) -> tuple[int, int]:
        """Return how many bytes and files may still be written, as the system reports it."""
        found = os.statvfs(self.folder)
        free = found.f_bavail * found.f_frsize
        if self.limit is not None:
            free = min(free, max(0, self.limit - used_below(str(self.folder))))
        return free, found.f_favail if found.f_files else 1 << 40

    def fill(self, leave: int) -> None:
        """Fill the disk with files of another process until only `leave` bytes or files are free."""
        if self.order.kind == "tmpfs, inodes":
            crowd = self.folder / "crowd"
            self._made.append(crowd)
            with contextlib.suppress(OSError):
                crowd.mkdir()
                for number in range(max(0, self.free()[1] - leave)):
                    (crowd / f"{number}").touch()
            return
        free = self.order.room - used_below(str(self.folder)) if self._is_unseen else self.free()[0]
        size = max(0, free - leave)
        path = self.folder / f"somebody-elses-{len(self._made)}"
        self._made.append(path)
        with contextlib.suppress(OSError), open(path, "wb") as file:  # perhaps no room even for the name
            while size > 0:
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                    break
                except OSError:  # the file system reserves this room, or something was written meanwhile
                    size -= 256 << 10
            self.others += os.fstat(file.fileno()).st_blocks * 512

    def make_room(self) -> None:
        """Make room for everything that commands still have to write."""
        for path in self._made:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        self._made, self.others = [], 0
        kind = self.order.kind
        if kind.startswith("tmpfs"):
            _run("mount", "-o", f"remount,size={_AMPLE},nr_inodes=100000", str(self.folder))
        elif kind == "btrfs, qgroup":
            _run("btrfs", "qgroup", "limit", "none", str(self.folder), tries=5)
        elif self.limit is not None:
            self.limit += _AMPLE
            self.apply()

    def apply(self) -> None:
        """Tell nbdata the limit."""
        if self.order.kind == "%quota":
            nbdata.quota(self.folder, limit=f"{self.limit}B", quiet=True)
        elif self.order.kind == "NBDATA_QUOTA":
            os.environ["NBDATA_QUOTA"] = f"{self.limit}:{self.folder}"

    @property
    def _is_unseen(self) -> bool:
        return self.order.kind in UNSEEN


@contextlib.contextmanager
def small_disk(work: Path, order: Order) -> Iterator[SmallDisk]:
    """Create the requested disk; it is always unmounted and removed at the end."""
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="disk-", dir=work)))
        folder = place / "disk"
        folder.mkdir(mode=0o700)
        disk = SmallDisk(folder, order)
        if order.kind == "tmpfs":
            stack.enter_context(_mounted(folder, "-t", "tmpfs", "-o", f"size={order.room},mode=700", "tmpfs"))
        elif order.kind == "tmpfs, inodes":
            inodes = order.files + 2  # the folder itself uses one
            options = f"size={_AMPLE},nr_inodes={inodes},mode=700"
            stack.enter_context(_mounted(folder, "-t", "tmpfs", "-o", options, "tmpfs"))
        elif order.kind == "ext4":
            image = _image(place)
            _run("mkfs.ext4", "-q", "-F", "-m", "0", "-b", f"{order.block}", str(image))
            stack.enter_context(_mounted(folder, "-o", "loop", str(image)))
            disk.fill(order.room)
        elif order.kind == "btrfs, qgroup":
            image = _image(place)
            _run("mkfs.btrfs", "-q", str(image))
            stack.enter_context(_mounted(folder, "-o", "loop", str(image)))
            disk.folder = folder / "limited"
            _run("btrfs", "quota", "enable", str(folder))
            _run("btrfs", "subvolume", "create", str(disk.folder))
            _run("btrfs", "qgroup", "limit", f"{order.room}", str(disk.folder))
        elif order.kind == "%quota":
            stack.callback(nbdata.quota, folder, limit="none", quiet=True)
        else:
            stack.callback(os.environ.pop, "NBDATA_QUOTA", None)
        disk.apply()
        yield disk


@functools.cache
def why_not(kind: str) -> str:
    """Return the reason why a kind is unavailable here; '' if it is available."""
    with tempfile.TemporaryDirectory(prefix="nbdata-disk-") as work:
        try:
            with small_disk(Path(work), Order(kind, 8 * MIB, 100)):
                return ""
        except FileNotFoundError as error:
            return f"there is no {error.filename}"
        except subprocess.CalledProcessError as error:
            return f"{error.cmd[0]} says: {' '.join(error.stderr.split())[:_LAST]}"


def _image(place: Path) -> Path:
    path = place / "image"
    with open(path, "wb") as file:
        file.truncate(_AMPLE)
    return path


@contextlib.contextmanager
def _mounted(folder: Path, *how: str) -> Iterator[None]:
    _run("mount", *how, str(folder))
    try:
        yield
    finally:
        try:
            _run("umount", str(folder))
        except subprocess.CalledProcessError:  # a process still uses the mount
            _run("umount", "--lazy", str(folder))


def _run(*command: str, tries: int = 1) -> None:
    while True:
        tries -= 1
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError:
            if not tries:
                raise
            os.sync()  # data on its way to the disk may be counted twice until it is written
        else:
            return
