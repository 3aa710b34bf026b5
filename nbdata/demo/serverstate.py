"""The files in an embedded server's folder: its lock, its state and its keys.

Nothing that is found there is trusted: the folder may have been cloned, or made by somebody else in a shared one. So
nobody else may be able to change it, no link in it is followed, and the keys have a seal. A folder with anything else
and without sealed keys is refused: things in it may be the user's own. The demo's other folders have a mark instead.

Files in the folder, all private to the user::

    server.lock        flock'ed while a server runs: shows that it is alive
    server.json        url, kind, process id, ports; written when the server answers
    server.log         what the server printed, since its last start
    credentials.json   the two keys and a seal, mode 0600; made once, so that every start uses the same
    certificate.pem    what SeaweedFS's ports beside S3 ask for; made at each start
    data/              the objects (SeaweedFS)
    tmp/               the server's working folder and temporary files; made anew at each start
    temporary          present if the whole folder is removed when the server ends
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
from pathlib import Path
from typing import IO, Any

from nbdata.disk import write_file
from nbdata.errors import AccessDenied, NbdataError, UnsafeMember
from nbdata.guarded_trees import Below
from nbdata.other_users import changeable_by_others
from nbdata.own_files import read_small, taken
from nbdata.runtime import state_folder
from nbdata.seals import Seals

# The most bytes of each JSON file.
_MOST_BYTES = 1 << 16
# Says, with a seal, that the demo made a folder.
_MARK = ".made-by-demo"


def remove(path: str) -> None:
    """Delete a file or folder of the demo's, or what has its place, with all that is in it; links are not followed."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise
        with Below(os.path.dirname(path)) as below:
            below.remove(os.path.basename(path))


def private(path: str, flags: int) -> int:
    """Open a file so that only the user may read it, and follow no link; an `opener` for `open`."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise taken(path) or error from error


def private_folder(folder: str | os.PathLike[str]) -> Path:
    """Return a folder, created if missing; it is refused if others could change it, or if it is a link or unusable."""
    above, name = os.path.split(os.path.abspath(folder))
    where = Path(above, name)
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = where.lstat()
    except OSError as exc:
        raise AccessDenied(f"the demo's folder cannot be made ({exc.strerror})", path=str(where)) from exc
    remedy = "Choose a folder of your own"
    if stat.S_ISLNK(status.st_mode):
        raise UnsafeMember(
            "a link has the place of a folder of the demo",
            path=str(where),
            expected="a folder that nbdata made",
            remedy="Look where it came from, and remove it",
        )
    if status.st_uid != os.geteuid():
        raise AccessDenied("the demo's folder belongs to another user", path=str(where), remedy=remedy)
    if status.st_mode & 0o002:
        raise AccessDenied(
            "every user may write to the demo's folder",
            path=str(where),
            remedy=f"{remedy}, or: chmod o-w {where}",
        )
    if not os.access(where, os.R_OK | os.W_OK | os.X_OK):
        raise AccessDenied(
            "the demo's folder cannot be written to", path=str(where), remedy=f"chmod u+rwx {where}"
        )
    if (open_one := changeable_by_others(str(where))) is not None:
        raise AccessDenied(
            "other users could exchange the demo's folder, or what is in it",
            path=str(where),
            got=f"others may write in {open_one}, or own it",
            remedy=f"{remedy}, in a place where others may not write; nbdata demo --folder names it",
        )
    return where


def claim(where: Path, *, lock: str | None = None) -> None:
    """Mark a private folder as the demo's, which may then delete what is in it.

    Parameters
    ----------
    where : Path
        The folder, which is empty or has the mark.
    lock : str, optional
        A file that may be in it without the mark.

    Raises
    ------
    UnsafeMember
        If it has anything else and no mark with this user's seal: the user may have put it there.
    """
    seals = Seals(state_folder())
    mark = where / _MARK
    try:
        if seals.holds(read(mark).get("seal"), "demo folder"):
            return
    except (OSError, ValueError):
        pass
    if set(os.listdir(where)) - {lock}:
        raise UnsafeMember(
            "the demo empties this folder, and did not make what is in it",
            path=str(where),
            expected="a folder that the demo of your nbdata made, or an empty one",
            remedy="Move it away, or name another folder with --folder",
        )
    write(mark, {"seal": seals.of("demo folder")})


def emptied(folder: Path) -> Path:
    """Return a folder of the demo with nothing in it but its mark; see `claim` for what it refuses."""
    where = private_folder(folder)
    claim(where)
    for name in os.listdir(where):
        if name != _MARK:
            remove(str(where / name))
    return where


def prepare(where: Path) -> None:
    """Make the folders for a start: that of the objects, and an empty one to run in."""
    private_folder(where / "data")
    # SeaweedFS writes additional logs to tmp/, and reads its settings from there, because it runs there.
    for name in ("tmp", "temporary"):
        remove(str(where / name))
    (where / "tmp").mkdir(mode=0o700)


def fresh_file(path: Path) -> IO[bytes]:
    """Open a new file to write, which only the user may read; what has its name is removed."""
    remove(str(path))
    return open(path, "xb", opener=private)


def try_lock(where: Path) -> IO[bytes] | None:
    """Take the folder's lock, which is held while any process has it open; None if another process holds it."""
    lock = open(where / "server.lock", "ab", opener=private)  # noqa: SIM115 - handed to the supervisor
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    except OSError as error:
        lock.close()
        raise NbdataError(
            f"the demo's folder cannot be locked ({error.strerror})",
            path=str(where),
            remedy="Give a folder on another disk with --folder",
        ) from error
    return lock


def is_locked(where: Path) -> bool:
    """True if a server runs in the folder or is about to start."""
    try:
        with open(where / "server.lock", "rb", opener=private) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    return False


def read(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; FileNotFoundError if anything but a small file has its name."""
    data = json.loads(read_small(str(path), _MOST_BYTES))
    if not isinstance(data, dict):
        raise ValueError(f"{path}: not a JSON object")
    return data


def write(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON object atomically, with mode 0600."""
    write_file(str(path), [json.dumps(data, indent=1).encode()], umask=0o177)


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
    return _read_credentials(where)[:2]


def _read_credentials(where: Path) -> tuple[str, str, object]:
    """Read the two keys and their seal."""
    path = where / "credentials.json"
    if path.lstat().st_mode & 0o077:
        raise AccessDenied(
            "others may read the server's keys",
            path=str(path),
            expected="mode 0600",
            remedy="Remove the file, and new keys are made",
        )
    try:
        data = read(path)
        return str(data["access_key"]), str(data["secret_key"]), data.get("seal")
    except (ValueError, KeyError, PermissionError) as exc:
        raise AccessDenied(
            "the server's keys cannot be read",
            path=str(path),
            remedy="Remove the file, and new keys are made",
        ) from exc


def make_credentials(where: Path, access_key: str | None, secret_key: str | None) -> tuple[str, str]:
    """Return and store the given keys, else the folder's keys, else random ones. The caller must hold the lock.

    Raises
    ------
    UnsafeMember
        If the folder has anything but its lock, and no keys with a seal of this user.
    """
    seals = Seals(state_folder())
    found: list[str] = []
    try:
        *found, seal = _read_credentials(where)
        is_ours = seals.holds(seal, "demo", *found)
    except FileNotFoundError:
        is_ours = set(os.listdir(where)) <= {"server.lock"}
    if not is_ours:
        raise UnsafeMember(
            "the server's folder has files, and no seal of yours is on its keys",
            path=str(where),
            expected="a folder that your nbdata made, or an empty one",
            remedy="Look where it came from, and move it away, or name another one",
        )
    if access_key is None or secret_key is None:
        if found:
            return found[0], found[1]
        access_key, secret_key = f"demo{secrets.token_hex(8)}", secrets.token_urlsafe(30)
    seal = seals.of("demo", access_key, secret_key)
    write(where / "credentials.json", {"access_key": access_key, "secret_key": secret_key, "seal": seal})
    return access_key, secret_key


def tail(log: Path, *, lines: int = 8) -> str:
    """Return the last lines of a log, for an error message."""
    with contextlib.suppress(OSError):
        with open(log, "rb", opener=private) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4000))
            text = file.read().decode(errors="replace")
        return "\n" + "\n".join(text.splitlines()[-lines:])
    return "none"
