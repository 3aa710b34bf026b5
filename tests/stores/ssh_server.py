"""An SSH server on loopback that serves a folder over SFTP, in a thread of the test."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import asyncssh

USER, PASSWORD = "user", "w0rd-of-sftp/+="


class SshServer:
    """A server of `folder` with one user and a password or key; a context manager.

    Parameters
    ----------
    channels : int
        Number of channels that one connection may open. Like sshd's MaxSessions, but closed channels count too.
    """

    def __init__(self, folder: Path, *, channels: int = 1000, user_key: Any = None) -> None:
        self.folder, self._channels, self._user_key = folder, channels, user_key
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.connections: list[Any] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> SshServer:
        self._thread.start()
        self.port = self._do(self._listen())
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        """URL of the folder, for that user."""
        return f"sftp://{USER}@127.0.0.1:{self.port}/"

    def known_hosts(self, home: Path, key: Any = None) -> None:
        """Write into a home folder's known hosts that this server has `key`, by default its real key."""
        (home / ".ssh").mkdir(parents=True, exist_ok=True)
        public = (key or self.key).export_public_key().decode()
        (home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}")

    def drop(self) -> None:
        """Close all connections abruptly."""
        self._do(self._drop())

    def _do(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _listen(self) -> int:
        self._listener = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[self.key],
            server_factory=lambda: _Server(self),
            authorized_client_keys=self._authorized(),
        )
        return int(self._listener.get_port())

    def _authorized(self) -> Any:
        if self._user_key is None:
            return None
        return asyncssh.import_authorized_keys(self._user_key.export_public_key().decode())

    async def _drop(self) -> None:
        for connection in self.connections:
            connection.abort()
        self.connections.clear()

    async def _close(self) -> None:
        self._listener.close()
        await self._drop()
        await self._listener.wait_closed()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


class _Server(asyncssh.SSHServer):  # type: ignore[misc]
    """One connection of the server."""

    def __init__(self, server: SshServer) -> None:
        self._server, self._left = server, server._channels

    def connection_made(self, conn: Any) -> None:
        self._server.connections.append(conn)

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, PASSWORD)

    def session_requested(self) -> Any:
        self._left -= 1
        return asyncssh.SSHServerProcess(None, self._files, 3, False) if self._left >= 0 else False

    def _files(self, channel: Any) -> Any:
        return asyncssh.SFTPServer(channel, chroot=str(self._server.folder).encode())
