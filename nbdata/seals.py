"""Seals: proofs that this user's nbdata made a record, for records that lie in folders of data.

A folder of data may come from anybody, with a ``.nbdata/`` in it. A record there counts at once only if it has a seal:
a keyed BLAKE2b digest (RFC 7693) of what it says. The key is the file ``key`` in the state folder, or ``key-UID`` if
another user has made the former. It is made at first use, and only its owner can read it. A record without a valid seal
is not wrong, but unproven: it was made by somebody else, by an older nbdata, or with a key that is gone.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import json
import os
import secrets
import stat

from nbdata.disk import make_folders
from nbdata.errors import AccessDenied, NbdataError
from nbdata.optional_calls import fsync, hard_link

__all__ = ["Seals"]

_FILE = "key"
_BYTES = 32

_encode = json.JSONEncoder(sort_keys=True).encode


class Seals:
    """Makes and checks seals with the key of a state folder.

    If the folder can hold no key, the seals count only until this process ends.
    """

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir

    def of(self, *facts: object) -> str:
        """Return the seal of these values, which JSON can hold."""
        text = _encode(facts).encode()
        return hashlib.blake2b(text, digest_size=16, key=_key(self._state_dir)).hexdigest()

    def holds(self, seal: object, *facts: object) -> bool:
        """True if a found value is the seal of these values."""
        return isinstance(seal, str) and seal.isascii() and hmac.compare_digest(seal, self.of(*facts))


@functools.lru_cache(64)
def _key(state_dir: str) -> bytes:
    path = os.path.join(state_dir, _FILE)
    with contextlib.suppress(OSError):
        if os.lstat(path).st_uid != os.geteuid():  # root over the home folder of a user, or the reverse
            path = f"{path}-{os.geteuid()}"
    return _read(path) or _made(state_dir, path)


def _read(path: str) -> bytes | None:
    """Return the key in a file; None if it is not there, or others could have written or read it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        key = os.read(fd, _BYTES + 1) if _is_private(fd) else b""
    except OSError:
        return None
    finally:
        os.close(fd)
    return key if len(key) == _BYTES else None


def _is_private(fd: int) -> bool:
    status = os.fstat(fd)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _made(state_dir: str, path: str) -> bytes:
    """Make a key; processes that do so at once all return the first one.

    Raises
    ------
    AccessDenied
        If something else has its name. It is not replaced: it may be a file of the user.
    """
    key, fresh = secrets.token_bytes(_BYTES), f"{path}.{secrets.token_hex(8)}"
    try:
        make_folders(state_dir, 0o700)
        if _written(fresh, key):
            _give_name(fresh, path, state_dir)
    except OSError as error:  # a full disk, or a folder that cannot be written
        if isinstance(error, NbdataError):
            raise
    finally:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
    return _read(path) or key


def _give_name(fresh: str, path: str, state_dir: str) -> None:
    """Give a new key its name, unless a key has it: a hard link replaces nothing.

    No lock is needed for that. Others who may read the folder could hold a lock on it for ever.
    """
    fd = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileExistsError):
            linked = hard_link(fresh, path, src_dir_fd=None, dst_dir_fd=None, on=fd)
            if not linked and not os.path.lexists(path):
                os.rename(fresh, path)
        fsync(fd)
    finally:
        os.close(fd)
    if _read(path) is None:
        raise AccessDenied(
            "this is no key of nbdata that only you can read",
            path=path,
            remedy="Delete it, or move it away if it is yours. Seals in folders of data then count no more",
        )


def _written(path: str, key: bytes) -> bool:
    """Write a key to a new file; False on a disk that gives all files one owner or mode, and can hold none."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, key)
        fsync(fd)
        return _is_private(fd)
    finally:
        os.close(fd)
