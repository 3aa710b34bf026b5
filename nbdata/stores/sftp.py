"""``sftp://`` over fsspec and paramiko, with host keys checked, waits bounded, and safe to use from many threads.

fsspec's own file system accepts any server. It shares one channel between all threads, which loses responses. It waits
for ever for a silent host.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem

from nbdata.errors import AccessDenied, BadOption, NbdataError, StoreUnavailable
from nbdata.redaction import redacted

__all__ = ["sftp_files"]

# Seconds to wait for a server's response, and for its next bytes.
_ANSWER, _SILENT = 15.0, 60.0
_PREFIXES = ("sftp://", "ssh://")

# nbdata's errors report what paramiko logs of a failed connection. Without a handler, the log would be printed.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def sftp_files(place: str, options: Mapping[str, Any], home: str) -> Any:
    """Connect to a server, and return its file system.

    Parameters
    ----------
    options : mapping
        Options of paramiko's ``SSHClient.connect``, with ``host``, and ``host_key_policy``. With *auto_add* (default) a
        server missing in ``~/.ssh/known_hosts`` is accepted; with *reject* it is not. A server whose key differs from
        that file is never accepted.
    home : str
        The user's home folder.

    Raises
    ------
    BadOption
        For an option that paramiko does not know.
    AccessDenied
        If the server refuses the user, or has another key than before.
    StoreUnavailable
        If the server does not respond.
    """
    given: dict[str, Any] = dict.fromkeys(("timeout", "banner_timeout", "auth_timeout"), _ANSWER)
    for name, value in options.items():
        if not name.startswith("url_"):  # fsspec's reading of a "?" in a name
            given[name] = _typed(name, value)
    key = given.get("key_filename")
    if isinstance(key, str) and key.startswith("~/"):
        given["key_filename"] = os.path.join(home, key[2:])
    policy = given.pop("host_key_policy", "auto_add")
    if policy not in ("auto_add", "reject"):
        raise BadOption("host_key_policy: this is none", expected="auto_add or reject")
    if not given.get("host"):
        raise BadOption(f"{redacted(place)} names no host", expected="sftp://user@host/path")
    try:
        return _Files(os.path.join(home, ".ssh/known_hosts"), policy == "reject", **given)
    except TypeError as error:
        raise BadOption(
            "the storage options do not fit sftp://", remedy="They are those of paramiko's SSHClient.connect"
        ) from error
    except Exception as error:
        raise _told(error, redacted(place)) from error


def _typed(name: str, value: Any) -> Any:
    """Convert an option given as text to its type."""
    if not isinstance(value, str):
        return value
    try:
        if name == "port":
            return int(value)
        if name.endswith("timeout"):
            return float(value)
    except ValueError:
        raise BadOption(f"{name}: this is not a number", expected="a number") from None
    flag = name in ("allow_agent", "look_for_keys", "compress")
    return value.lower() in ("1", "true", "yes") if flag else value


def _told(error: Exception, place: str) -> NbdataError:
    """Return nbdata's error for a failed connection."""
    if isinstance(error, NbdataError):
        return error
    if isinstance(error, paramiko.BadHostKeyException):
        return AccessDenied(
            "the server is not the one that it was: its key is another one than ~/.ssh/known_hosts has",
            path=place,
            remedy="Ask its administrator; if the change is intended, ssh-keygen -R HOST removes the old key",
        )
    if isinstance(error, paramiko.AuthenticationException):
        return AccessDenied(
            "the server refuses the user, the password or the key",
            path=place,
            remedy="Name them: sftp://user@host/…, --option password=env:NAME or --option key_filename=FILE",
        )
    if type(error) is paramiko.SSHException and "authentication methods" in str(error):
        return AccessDenied(
            "nbdata has neither a key nor a password for the server",
            path=place,
            remedy="--option password=env:NAME or --option key_filename=FILE, or put a key into ~/.ssh",
        )
    if isinstance(error, socket.gaierror):
        why = "its name cannot be resolved"
    elif isinstance(error, TimeoutError):
        why = "it was silent for too long"
    else:
        why = "no server listens there" if isinstance(error, OSError) else _what_is_there(error)
    return StoreUnavailable(
        f"no answer from the server: {why}", path=place, remedy="Check host, port and network"
    )


def _what_is_there(error: Exception) -> str:
    """Describe a server that responded unexpectedly."""
    message = str(error)
    return "what is there speaks no SSH" if "banner" in message or not message else f"SSH failed ({message})"


class _Unknown(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """The policy for a server whose key is not known yet."""

    def __init__(self, refuse: bool) -> None:
        self._refuse = refuse

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        """Accept the key, or raise AccessDenied."""
        if self._refuse:
            raise AccessDenied(
                "the server's key is unknown",
                path=hostname,
                got=f"{key.get_name()} {key.fingerprint}",
                remedy="ssh-keyscan HOST >> ~/.ssh/known_hosts, once you know that it is the right one",
            )


def _close_all(connections: list[Any]) -> None:
    """Close connections without taking locks, because the garbage collector calls this at any time.

    The collecting thread may hold the lock that closing a client takes. In the child of a fork, no thread may be left
    to release it. A connection's thread ends by itself once its socket is closed.
    """
    for connection in connections:
        transport = connection.get_transport()
        if transport is not None:
            transport.packetizer.close()


class _Files(SFTPFileSystem):  # type: ignore[misc]
    """fsspec's file system, with one channel per thread and open file: only one reader gets a channel's responses."""

    cachable = False  # a connection may be dead

    def __init__(self, known_hosts: str, refuse: bool, **given: Any) -> None:
        self._known_hosts, self._refuse = known_hosts, refuse
        self._lock, self._own = threading.Lock(), threading.local()
        self._connections: list[Any] = []
        self._idle: list[Any] = []
        # Each connection has a thread, which would otherwise run until the process ends.
        weakref.finalize(self, _close_all, self._connections).atexit = False
        super().__init__(**given)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        # fsspec's version treats "?" and "#" in a name as parts of a URL.
        if isinstance(path, str) and path.startswith(_PREFIXES):
            return "/" + path.split("://", 1)[1].partition("/")[2]
        return path

    @staticmethod
    def _decode_stat(attributes: Any, parent_path: str | None = None) -> dict[str, Any]:
        info: dict[str, Any] = SFTPFileSystem._decode_stat(attributes, parent_path)
        if info["type"] == "file" and stat.S_IFMT(attributes.st_mode) not in (0, stat.S_IFREG):
            info["type"] = "other"  # reading a named pipe would block
        return info

    def makedirs(self, path: str, exist_ok: bool = False, mode: int = 0o777) -> None:
        """Create a folder and its parents. Another thread may create the same ones meanwhile."""
        if not exist_ok and self.exists(path):
            raise FileExistsError(path)
        at = "/" if path.startswith("/") else ""
        for name in filter(None, path.split("/")):
            at = f"{at}{name}"
            if not self.exists(at):
                try:
                    self.ftp.mkdir(at, mode)
                except OSError:
                    if not self.isdir(at):
                        raise
            at += "/"

    def _connect(self) -> None:
        self._own.channel = self._channel()

    @property
    def ftp(self) -> Any:
        """The channel of this thread; a new one if it broke."""
        mine = getattr(self._own, "channel", None)
        if not _alive(mine):
            mine = self._own.channel = self._channel()
        return mine

    def _channel(self) -> Any:
        with self._lock:
            while self._idle:
                if _alive(idle := self._idle.pop()):
                    return idle
            for dead in [c for c in self._connections if not c.get_transport().is_active()]:
                self._connections.remove(dead)
                dead.close()
            for connection in self._connections:
                with contextlib.suppress(paramiko.SSHException):  # the server allows no more channels
                    return _bounded(connection)
            self._connections.append(self._dialled())
            return _bounded(self._connections[-1])

    def _dialled(self) -> Any:
        client = paramiko.SSHClient()
        _take_known(client.get_host_keys(), self._known_hosts)
        client.set_missing_host_key_policy(_Unknown(self._refuse))
        try:
            client.connect(self.host, **self.ssh_kwargs)
        except BaseException:
            client.close()
            raise
        return client

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> Any:
        channel = self._channel()
        try:
            return _File(self, channel, channel.open(path, mode, bufsize=block_size or -1))
        except BaseException:
            self.give_back(channel)
            raise

    def give_back(self, channel: Any) -> None:
        """Return an idle channel, for the next file."""
        with self._lock:
            self._idle.append(channel)


class _Client(paramiko.SFTPClient):  # type: ignore[misc]
    """A channel that is closed on a timeout; otherwise a late response would be taken for the next one."""

    def _read_all(self, count: int) -> Any:
        try:
            return super()._read_all(count)
        except TimeoutError:
            self.close()
            raise


def _bounded(connection: Any) -> Any:
    """Open a channel for files. Raises an error in time, also if the server accepts the channel and then is silent."""
    channel = connection.get_transport().open_session(timeout=_ANSWER)
    late = threading.Timer(_ANSWER, channel.close)  # paramiko waits for this response without a limit
    late.daemon = True
    late.start()
    try:
        channel.settimeout(_ANSWER)
        channel.invoke_subsystem("sftp")
        client = _Client(channel)
    except BaseException:
        channel.close()
        raise
    finally:
        late.cancel()
    channel.settimeout(_SILENT)
    return client


def _take_known(keys: Any, path: str) -> None:
    """Read server keys from an OpenSSH file. Skips invalid lines, as ssh does."""
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip() or line.startswith("#"):
                    continue
                with contextlib.suppress(Exception):
                    entry = paramiko.hostkeys.HostKeyEntry.from_line(line.strip())
                    for name in entry.hostnames if entry is not None else ():
                        keys.add(name, entry.key.get_name(), entry.key)
    except OSError:
        return


def _alive(channel: Any) -> bool:
    return channel is not None and not channel.get_channel().closed


class _File:
    """An open file, with a channel of its own until it is closed."""

    def __init__(self, files: _Files, channel: Any, file: Any) -> None:
        self._files, self._channel, self._file = files, channel, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        """Close the file once, and give the channel back."""
        channel, self._channel = self._channel, None
        if channel is None:
            return
        try:
            self._file.close()
        finally:
            self._files.give_back(channel)
