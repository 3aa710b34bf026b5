"""Stage, verify, extract and push data between any object store and a small disk.

The verbs are the same in Python (`pull`, `push`, `copy`, `md5check`, `untar_volumes`, `ls`, `quota`, `transfers`,
`cleanup`), as IPython magics (``%load_ext nbdata``) and on the command line (``nbdata pull …``).

Examples
--------
>>> import nbdata
>>> report = nbdata.pull("s3://bucket/data/", "data", include="*.mp4", max_bytes="4GB")  # doctest: +SKIP
>>> plan = nbdata.Pull("s3://bucket/data/", "data").plan()  # doctest: +SKIP
>>> job = nbdata.Pull("s3://bucket/data/", "data").start()  # doctest: +SKIP
"""

from __future__ import annotations

from nbdata import demo, early

if early.is_command():
    early.take_interrupts()  # before the imports below, which take a while

import sys
from typing import TYPE_CHECKING, Any

from nbdata.errors import (
    AccessDenied,
    AgentUnavailable,
    BadArchive,
    BadOption,
    Cancelled,
    ChecksumMismatch,
    MissingVolume,
    NbdataError,
    NotEnoughSpace,
    NotFound,
    SourceChanged,
    StoreUnavailable,
    TransferFailed,
    UnsafeMember,
)
from nbdata.files.opening import filesystem
from nbdata.files.opening import open_file as open  # noqa: A004  the same, for files in stores too
from nbdata.files.shifted import shift
from nbdata.formats.decoding import decode
from nbdata.operation import Host, InProcess, Operation, slots
from nbdata.protocols import Display, Job
from nbdata.report import Plan, Report, Snapshot
from nbdata.verbs.cache_stream import CacheStream, cache_stream
from nbdata.verbs.cleanup import Cleanup, cleanup
from nbdata.verbs.convert import Convert, convert
from nbdata.verbs.copy import Copy, copy
from nbdata.verbs.delete import Delete, delete
from nbdata.verbs.listing import Du, Ls, du, ls
from nbdata.verbs.md5check import Md5check, md5check
from nbdata.verbs.mount import Mount, Unmount, mount, unmount
from nbdata.verbs.pack import Pack, pack
from nbdata.verbs.pull import Pull, pull
from nbdata.verbs.push import Push, push
from nbdata.verbs.quota import Quota, quota
from nbdata.verbs.samples import SampleSource, samples
from nbdata.verbs.serve_samples import ServeSamples, serve_samples
from nbdata.verbs.shard_target import write_shards
from nbdata.verbs.shards import Shards, shards
from nbdata.verbs.transfers import Transfers, transfers
from nbdata.verbs.untar_volumes import UntarVolumes, untar_volumes
from nbdata.version import __version__

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = [
    "AccessDenied",
    "AgentUnavailable",
    "BadArchive",
    "BadOption",
    "CacheStream",
    "Cancelled",
    "ChecksumMismatch",
    "Cleanup",
    "Convert",
    "Copy",
    "Delete",
    "Du",
    "Job",
    "Ls",
    "Md5check",
    "MissingVolume",
    "Mount",
    "NbdataError",
    "NotEnoughSpace",
    "NotFound",
    "Pack",
    "Plan",
    "Pull",
    "Push",
    "Quota",
    "Report",
    "SampleSource",
    "ServeSamples",
    "Shards",
    "Snapshot",
    "SourceChanged",
    "StoreUnavailable",
    "TransferFailed",
    "Transfers",
    "Unmount",
    "UnsafeMember",
    "UntarVolumes",
    "__version__",
    "cache_stream",
    "cleanup",
    "convert",
    "copy",
    "decode",
    "delete",
    "demo",
    "du",
    "filesystem",
    "ls",
    "md5check",
    "mount",
    "open",
    "pack",
    "pull",
    "push",
    "quota",
    "samples",
    "serve_samples",
    "shards",
    "shift",
    "transfers",
    "unmount",
    "untar_volumes",
    "write_shards",
]


def _host() -> Host:
    from nbdata.client.hosts import default_host

    return default_host()


def _display() -> Display:
    from nbdata.display import TextDisplay

    return TextDisplay(tables=not hasattr(sys, "ps1"))  # at Python's prompt


def _stream(operation: Operation, quiet: bool) -> Any:
    from nbdata.client.stream import make_stream

    return make_stream(operation, quiet)


slots.host = _host
slots.display = _display


def _samples(operation: Operation, quiet: bool) -> Any:
    from nbdata.client.reading.making import make_samples

    return make_samples(operation, quiet)


def _shard_writer(operation: Operation, encoders: dict[str, Any]) -> Any:
    from nbdata.client.shard_writer import ShardWriter

    return ShardWriter(operation, encoders)  # type: ignore[arg-type]


def _mapped_pack(operation: Operation) -> InProcess:
    from nbdata.client.mapping.pack import MappedPack

    return MappedPack(operation)  # type: ignore[arg-type]


def _mount(operation: Operation, quiet: bool) -> Any:
    from nbdata.files.mounted.mounts import mounted, unmounted

    return mounted(operation, quiet) if isinstance(operation, Mount) else unmounted(operation)  # type: ignore[arg-type]


def _service(operation: Operation, quiet: bool) -> Any:
    try:
        from nbdata.loaders.service.command import served
    except ImportError as error:
        raise BadOption(
            f"a loader service needs {error.name}, which is not installed", remedy="pip install pyzmq torch"
        ) from None
    return served(operation, quiet)  # type: ignore[arg-type]


def _conversion(operation: Operation) -> InProcess:
    from nbdata.client.converting.conversion import Conversion

    return Conversion(operation)  # type: ignore[arg-type]


slots.stream = _stream
slots.samples = _samples
slots.shard_writer = _shard_writer
slots.mapped_pack = _mapped_pack
slots.conversion = _conversion
slots.mount = _mount
slots.service = _service


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics; IPython calls this for ``%load_ext nbdata``."""
    from nbdata.notebook import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics; IPython calls this for ``%unload_ext nbdata``."""
    from nbdata.notebook import unload

    unload(shell)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """List the server extension of the JupyterLab panel; Jupyter calls this."""
    return [{"module": "nbdata.server"}]
