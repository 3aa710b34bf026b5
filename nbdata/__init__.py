"""Stage, verify, extract and push data between any object store and a small disk.

The same verbs in Python (`pull`, `push`, `copy`, `md5check`, `untar_volumes`, `quota`, `transfers`, `cleanup`),
as IPython magics (``%load_ext nbdata``) and on the command line (``nbdata pull …``).

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
from nbdata.operation import Host, Operation, slots
from nbdata.protocols import Display, Job
from nbdata.report import Plan, Report, Snapshot
from nbdata.verbs.cache_stream import CacheStream, cache_stream
from nbdata.verbs.cleanup import Cleanup, cleanup
from nbdata.verbs.copy import Copy, copy
from nbdata.verbs.md5check import Md5check, md5check
from nbdata.verbs.pull import Pull, pull
from nbdata.verbs.push import Push, push
from nbdata.verbs.quota import Quota, quota
from nbdata.verbs.transfers import Transfers, transfers
from nbdata.verbs.untar_volumes import UntarVolumes, untar_volumes
from nbdata.version import __version__

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from nbdata.client.reading.samples import Samples

__all__ = [
    "AccessDenied",
    "AgentUnavailable",
    "BadArchive",
    "BadOption",
    "CacheStream",
    "Cancelled",
    "ChecksumMismatch",
    "Cleanup",
    "Copy",
    "Job",
    "Md5check",
    "MissingVolume",
    "NbdataError",
    "NotEnoughSpace",
    "NotFound",
    "Plan",
    "Pull",
    "Push",
    "Quota",
    "Report",
    "Snapshot",
    "SourceChanged",
    "StoreUnavailable",
    "TransferFailed",
    "Transfers",
    "UnsafeMember",
    "UntarVolumes",
    "__version__",
    "cache_stream",
    "cleanup",
    "copy",
    "demo",
    "md5check",
    "pull",
    "push",
    "quota",
    "samples",
    "transfers",
    "untar_volumes",
]


def samples(source: str, **options: Any) -> Samples:
    """Samples of a store by number or in a shuffled order, read straight into memory by this process.

    Parameters
    ----------
    source : str
        URL or path of a folder; globs and brace ranges work.
    by : {"sample", "file"} or callable, default "sample"
        What a sample is. ``"sample"``: the files of one folder that share the name up to its first dot (``12.jpg`` and
        ``12.cls``); files without an extension, or whose name begins with a dot, belong to none. ``"file"``: each
        file. A function is given each path, relative to `source`, and returns ``(key, field)``, or None to leave the
        file out.
    include, exclude : str or list of str
        Globs on the paths, as of `pull`.
    verify : {"auto", "none", "md5", "sha256", "crc32c"}, default "auto"
        With what the bytes are compared before they are handed out, as of `pull`.
    refresh : {"auto", "never", "always"}, default "auto"
        When the index is built anew. ``"auto"`` lists the store once more, and does so if keys or ETags differ;
        ``"never"`` takes the index that is there; ``"always"``.
    concurrency : int, optional
        Requests at a time of each process. None: 64, divided among the workers of a loader, but no less than 8.
    ahead_bytes : int or str, optional
        Bytes of samples that each process may fetch ahead. None: 256 MiB, divided in the same way.
    storage_options : dict, optional
        Options of the store by their fsspec names; ``"env:NAME"`` as a value is read from the environment of each
        process.
    fs : fsspec.AbstractFileSystem, optional
        Used in place of one made from the URL.

    Returns
    -------
    Samples
        A sequence of dicts: extension to ``bytes``, ``__key__`` and ``__url__``.

    Raises
    ------
    NotFound
        If nothing is there, or no samples.
    BadOption
        If two samples have one key, or a sample two files of one extension.

    Examples
    --------
    >>> samples = nbdata.samples("s3://bucket/images/")  # doctest: +SKIP
    >>> len(samples), samples[0]["__key__"]  # doctest: +SKIP
    (60000, 'n01/12')
    """
    from nbdata.client.reading.stored import open_samples

    return open_samples(source, **options)


def _host() -> Host:
    from nbdata.client.hosts import default_host

    return default_host()


def _display() -> Display:
    from nbdata.display import TextDisplay

    return TextDisplay()


def _stream(operation: Operation, quiet: bool) -> Any:
    from nbdata.client.stream import make_stream

    return make_stream(operation, quiet)


slots.host = _host
slots.display = _display
slots.stream = _stream


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What ``%load_ext nbdata`` calls: register the magics."""
    from nbdata.notebook import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """What ``%unload_ext nbdata`` calls."""
    from nbdata.notebook import unload

    unload(shell)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Where Jupyter finds the server's part of the JupyterLab panel."""
    return [{"module": "nbdata.server"}]
