"""A store for experiments: `serve` starts an S3 server with some data in a bucket and later removes it."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from nbdata.demo.dataset import build_dataset
from nbdata.demo.server import EmbeddedServer
from nbdata.disk import write_file
from nbdata.errors import StoreUnavailable

__all__ = ["BUCKET", "PlayStore", "serve"]

BUCKET = "nbdata-demo"
# Variables that would count more than the profile.
_OTHERS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
)
# Bytes of files to pack, and number of volumes.
_SIZE, _VOLUMES = 8_000_000, 4
# Seconds between two checks that the server still runs.
_LOOK = 0.5


class PlayStore:
    """A running S3 server on 127.0.0.1 whose bucket holds an archive's volumes; made by `nbdata.demo.serve`.

    Ends with `stop`, at the end of its ``with`` block, or with the process that made it.

    Attributes
    ----------
    url : str
        URL of the bucket for nbdata: ``s3://nbdata-demo/``.
    server : EmbeddedServer
        The server.
    """

    def __init__(self, server: EmbeddedServer, temporary: bool) -> None:
        self.server, self._temporary = server, temporary
        self.url = f"s3://{BUCKET}/"
        self._write_profile()

    def environment(self) -> dict[str, str]:
        """Return the variables by which nbdata and other tools find the server; for ``os.environ.update``."""
        return {k: v for k, v in self.server.environment().items() if k != "AWS_DEFAULT_REGION"}

    def storage_options(self) -> dict[str, Any]:
        """Return the same settings as ``storage_options`` for the verbs."""
        return self.server.storage_options()

    def profile(self) -> dict[str, str]:
        """Return variables that lead to a profile of this server: they are no secrets, so a notebook may keep them.

        The profile is in two files beside the server, which only the user may read.
        """
        folder = self.server.folder
        return {
            "AWS_CONFIG_FILE": str(folder / "profile-config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "profile-credentials"),
            "AWS_PROFILE": BUCKET,
        }

    def _write_profile(self) -> None:
        environment, files = self.server.environment(), self.profile()
        config = (
            f"[profile {BUCKET}]\nregion = {environment['AWS_REGION']}\nendpoint_url = {self.server.url}\n"
        )
        keys = (
            f"[{BUCKET}]\naws_access_key_id = {self.server.access_key}\n"
            f"aws_secret_access_key = {self.server.secret_key}\n"
        )
        write_file(files["AWS_CONFIG_FILE"], [config.encode()], umask=0o177)
        write_file(files["AWS_SHARED_CREDENTIALS_FILE"], [keys.encode()], umask=0o177)

    @property
    def lines(self) -> str:
        """Lines to paste into a terminal or a notebook."""
        values = [f"{name}={shlex.quote(value)}" for name, value in self.profile().items()]
        lines = [
            "In another terminal:",
            f"  unset {' '.join(_OTHERS)}",
            *(f"  export {value}" for value in values),
            f"  nbdata pull {self.url}compressed/ demo-volumes",
            f"  nbdata md5check demo-volumes --against {self.url}md5/",
            "  nbdata untar_volumes demo-volumes demo-files",
            f"  nbdata push demo-files {self.url}files/",
            "In a notebook:",
            *(f"  %env {name}=" for name in _OTHERS if name in os.environ),
            *(f"  %env {name}={value}" for name, value in self.profile().items()),
            "  %load_ext nbdata",
            f"  %pull {self.url}compressed/ demo-volumes",
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<{self.url} at {self.server.url} ({self.server.kind})>"

    def wait(self) -> None:
        """Wait until the user presses Ctrl-C.

        Raises
        ------
        StoreUnavailable
            If the server ends on its own.
        """
        while self.server.is_alive():
            time.sleep(_LOOK)
        raise StoreUnavailable("the embedded server ended", path=str(self.server.folder / "server.log"))

    def stop(self) -> None:
        """End the server and remove its data; may be called twice."""
        self.server.stop()
        if self._temporary and self.server.owned:
            shutil.rmtree(self.server.folder, ignore_errors=True)

    def __enter__(self) -> PlayStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def serve(
    *, folder: str | os.PathLike[str] | None = None, size: int | None = None, server: str = "auto"
) -> PlayStore:
    """Start a server with some data; see `nbdata.demo.serve`."""
    temporary = folder is None
    where = Path(tempfile.mkdtemp(prefix="nbdata-demo-") if folder is None else folder).resolve()
    try:
        running = EmbeddedServer.start(where, kind=server)
    except BaseException:
        if temporary:
            shutil.rmtree(where, ignore_errors=True)
        raise
    store = PlayStore(running, temporary)
    try:
        if temporary:
            running.remove_at_end()
        data = build_dataset(where / "dataset", size=_SIZE if size is None else size, volumes=_VOLUMES)
        running.create_bucket(BUCKET)
        for kind, files in (("compressed", data.volumes), ("md5", data.sidecars)):
            for file in files:
                running.put(BUCKET, f"{kind}/{file.name}", file)
        if temporary:
            shutil.rmtree(where / "dataset", ignore_errors=True)
    except BaseException:
        store.stop()
        raise
    return store
