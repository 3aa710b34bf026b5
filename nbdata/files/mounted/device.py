"""Makes a mount, which gives a descriptor of ``/dev/fuse`` that the kernel's requests come from."""

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import shutil
import socket
import subprocess

from nbdata.errors import NbdataError
from nbdata.space.mountpoints import KIND, Mountpoint, call_libc

__all__ = ["DEVICE", "mount", "read_ahead"]

#: Where the kernel's requests come from.
DEVICE = "/dev/fuse"
# mount(2): no writes, no programs that run as another user, no devices.
_RDONLY, _NOSUID, _NODEV = 1, 2, 4
# KiB that the kernel reads ahead of a program that reads a file forward; its own 128 make many small requests.
_AHEAD = 1024


def mount(source: str, point: Mountpoint, *, allow_other: bool) -> int:
    """Mount a file system, and return the descriptor from which its requests are read.

    Root calls mount(2). For other users, and where that is not allowed, ``fusermount3`` does it, and hands the
    descriptor over.

    Parameters
    ----------
    source : str
        What the table of mounts calls it.
    point : Mountpoint
        Where.
    allow_other : bool
        Whether other users may read it.

    Raises
    ------
    NbdataError
        If it cannot be mounted. The error says why, and has no remedy.
    """
    others = ["allow_other"] * allow_other
    failed = ""
    if os.geteuid() == 0:
        place = _opened(point)
        device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
        options = [f"fd={device}", "rootmode=40000", f"user_id={os.getuid()}", f"group_id={os.getgid()}"]
        error = call_libc(
            "mount",
            source,
            f"/proc/self/fd/{place}",
            KIND,
            ctypes.c_ulong(_RDONLY | _NOSUID | _NODEV),
            ",".join([*options, "default_permissions", *others]),
        )
        os.close(place)
        if not error:
            return device
        failed = os.strerror(error)
        os.close(device)
    program = shutil.which("fusermount3") or shutil.which("fusermount")
    if program is None:
        raise NbdataError(
            f"it could not be mounted ({failed or 'there is no fusermount3 here'})", path=point.path
        )
    return _ask(
        program, source, point.path, ["ro", "nosuid", "nodev", "default_permissions", *others], failed
    )


def _opened(point: Mountpoint) -> int:
    """Return a descriptor of the folder, which stays this folder if somebody puts a link in its place."""
    try:
        return point.opened()
    except NbdataError as error:
        raise NbdataError(f"it could not be mounted ({error.message})", path=point.path) from error


def _ask(program: str, source: str, folder: str, options: list[str], failed: str) -> int:
    """Have fusermount3 mount it; it sends the descriptor over a socket whose number it is told."""
    options = [*options, f"fsname={source}", f"subtype={KIND.partition('.')[2]}"]
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            ran = subprocess.Popen(
                [program, "-o", ",".join(options), "--", folder],
                env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        with ran:
            ours.settimeout(60)
            descriptors = array.array("i")
            with contextlib.suppress(OSError):
                _, told, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(descriptors.itemsize))
                for level, kind, data in told:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                        descriptors.frombytes(data[: descriptors.itemsize])
            _, error = ran.communicate(timeout=60)
    if not descriptors:
        raise NbdataError(
            f"it could not be mounted ({error.strip() or failed or program + ' failed'})", path=folder
        )
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def read_ahead(point: Mountpoint) -> None:
    """Have the kernel read more ahead, in larger requests, if this user may say so (root, outside most containers)."""
    number = point.device
    with (
        contextlib.suppress(OSError),
        open(
            f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}/read_ahead_kb", "w", encoding="ascii"
        ) as file,
    ):
        file.write(str(_AHEAD))
