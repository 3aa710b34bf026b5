"""The files in an embedded server's folder: its lock, its state and its keys.

Files in the folder, all private to the user::

    server.lock        flock'ed while a server runs: shows that it is alive
    server.json        url, kind, process id, ports; written when the server answers
    server.log         what the server printed, since its last start
    credentials.json   the two keys, mode 0600; made once, so that every start uses the same
    certificate.pem    what SeaweedFS's ports beside S3 ask for; made at each start
    data/              the objects (SeaweedFS)
    tmp/               the server's temporary files
    temporary          present if the whole folder is removed when the server ends
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import IO, Any

from nbdata.errors import AccessDenied


def private(path: str, flags: int) -> int:
    """Open a file so that only the user may read it; an `opener` for `open`."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def private_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder, created if missing; AccessDenied if it belongs to another user or is unusable."""
    where = Path(folder).absolute()
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = where.stat()
    except OSError as exc:
        raise AccessDenied(f"the server's folder cannot be made ({exc.strerror})", path=str(where)) from exc
    remedy = "Choose a folder of your own"
    if status.st_uid != os.geteuid():
        raise AccessDenied("the server's folder belongs to another user", path=str(where), remedy=remedy)
    if status.st_mode & 0o002:
        raise AccessDenied(
            "every user may write to the server's folder",
            path=str(where),
            remedy=f"{remedy}, or: chmod o-w {where}",
        )
    if not os.access(where, os.R_OK | os.W_OK | os.X_OK):
        raise AccessDenied(
            "the server's folder cannot be written to", path=str(where), remedy=f"chmod u+rwx {where}"
        )
    return where


def try_lock(where: Path) -> IO[bytes] | None:
    """Take the folder's lock, which is held while any process has it open; None if another process holds it."""
    lock = open(where / "server.lock", "ab", opener=private)  # noqa: SIM115 - handed to the supervisor
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def is_locked(where: Path) -> bool:
    """True if a server runs in the folder or is about to start."""
    try:
        with open(where / "server.lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    return False


def read(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise ValueError(f"{path}: not a JSON object")
    return data


def write(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON object atomically, with mode 0600."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with open(new, "x", encoding="utf-8", opener=private) as file:
        json.dump(data, file, indent=1)
    os.replace(new, path)


def forget_state(where: Path, kind: str) -> dict[str, int] | None:
    """Remove the state of the last server; returns its ports if it was of this kind."""
    try:
        old = read(where / "server.json")
        (where / "server.json").unlink()
        return {str(name): int(port) for name, port in old["ports"].items()} if old["kind"] == kind else None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def read_credentials(where: Path) -> tuple[str, str]:
    """Read the folder's access key and secret key; FileNotFoundError if there are none yet."""
    path = where / "credentials.json"
    if path.stat().st_mode & 0o077:
        raise AccessDenied(
            "others may read the server's keys",
            path=str(path),
            expected="mode 0600",
            remedy="Remove the file, and new keys are made",
        )
    try:
        data = read(path)
        return str(data["access_key"]), str(data["secret_key"])
    except (ValueError, KeyError, PermissionError) as exc:
        raise AccessDenied(
            "the server's keys cannot be read",
            path=str(path),
            remedy="Remove the file, and new keys are made",
        ) from exc


def make_credentials(where: Path, access_key: str | None, secret_key: str | None) -> tuple[str, str]:
    """Return and store the given keys, else the folder's keys, else random ones. The caller must hold the lock."""
    if access_key is None or secret_key is None:
        with contextlib.suppress(FileNotFoundError):
            return read_credentials(where)
        access_key, secret_key = f"demo{secrets.token_hex(8)}", secrets.token_urlsafe(30)
    write(where / "credentials.json", {"access_key": access_key, "secret_key": secret_key})
    return access_key, secret_key


def tail(log: Path, *, lines: int = 8) -> str:
    """Return the last lines of a log, for an error message."""
    with contextlib.suppress(OSError):
        text = log.read_bytes()[-4000:].decode(errors="replace")
        return "\n" + "\n".join(text.splitlines()[-lines:])
    return "none"
