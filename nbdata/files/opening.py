"""Opens files anywhere: `nbdata.open`, `nbdata.filesystem`, and nbdata as fsspec's file system for a protocol."""

from __future__ import annotations

import builtins
import os
from typing import Any

from nbdata.errors import BadOption
from nbdata.files.names import STORES, store_url
from nbdata.paths import canonical, is_url

__all__ = ["filesystem", "open_file"]


def open_file(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
    *,
    verify: str = "auto",
    storage_options: dict[str, Any] | None = None,
) -> Any:
    """Open a file in a store or on the disk, as the builtin `open` does.

    Parameters
    ----------
    file : str or path-like or int
        A URL of any store that nbdata knows. Any other path is opened by the builtin `open`, with all arguments.
    mode : str, default "r"
        ``r`` to read, ``w`` to write, ``x`` to write what must not be there, ``a`` to append (what is there is sent
        again); with ``b`` for bytes. A store takes no ``+``.
    buffering : int
        Of no effect on a file in a store, but that 0 needs a binary mode.
    encoding, errors, newline
        For text, as in the builtin. The default encoding is UTF-8 for a file in a store.
    closefd, opener
        Only for a file on the disk.
    verify : str, default "auto"
        How a file in a store that is read or written as a whole is compared with the checksum that the store has:
        ``"auto"``, ``"none"``, ``"md5"``, ``"sha256"`` or ``"crc32c"``.
    storage_options : dict, optional
        Storage options by their fsspec names, as for `nbdata.pull`.

    Returns
    -------
    file
        What is read is of one version from the first byte to the last. What is written appears when the file is closed,
        whole, or not at all if the ``with`` block raises.

    Raises
    ------
    NotFound
        A FileNotFoundError.
    AccessDenied
        A PermissionError.
    StoreUnavailable
        A ConnectionError, after retries.
    SourceChanged
        By reading, if the object is replaced meanwhile.
    ChecksumMismatch
        By reading the last bytes of the whole file, or by closing a written one.

    Examples
    --------
    >>> with nbdata.open("s3://bucket/notes.txt") as file:  # doctest: +SKIP
    ...     for line in file:
    ...         print(line, end="")
    """
    place = None if isinstance(file, int) else os.fspath(file)
    if not isinstance(place, str) or not is_url(place := store_url(canonical(place))):
        return builtins.open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    kinds = mode.replace("t", "").replace("b", "")
    if kinds not in ("r", "w", "x", "a") or set(mode) - set("rwxatb") or {"t", "b"} <= set(mode):
        raise BadOption(
            f"the mode {mode!r} is none of a file in a store",
            expected="r, w, x or a, with b for bytes",
            remedy="To change parts of a file, pull it to the disk" if "+" in mode else "",
        )
    binary = "b" in mode
    if binary and (encoding, errors, newline) != (None, None, None):
        raise ValueError("binary mode takes no encoding, errors or newline argument")
    if not binary and buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    text = {} if binary else {"encoding": encoding or "utf-8", "errors": errors, "newline": newline}
    return filesystem(place, verify=verify, **(storage_options or {})).open(
        place, mode.replace("t", ""), **text
    )


def filesystem(
    url: str,
    *,
    verify: str = "auto",
    cache: int | str | None = None,
    cache_dir: str = ".",
    **storage_options: Any,
) -> Any:
    """Return the file system of a store, for every library that takes one of fsspec.

    Parameters
    ----------
    url : str
        A URL in the store, such as ``s3://bucket``; or a local path. Where it names a server (``https://server``), the
        options are for this server alone.
    verify : str, default "auto"
        See `nbdata.files.FileSystem`.
    cache : int or str, optional
        Read through a cache on the disk of this size, such as ``"5GB"``; see `nbdata.files.FileSystem`.
    cache_dir : str, default "."
        Local folder for the cache.
    **storage_options
        By their fsspec names, as for `nbdata.pull`.

    Returns
    -------
    nbdata.files.FileSystem
        The same one for the same arguments.

    Examples
    --------
    >>> files = nbdata.filesystem("s3://bucket")  # doctest: +SKIP
    >>> table = pandas.read_parquet("bucket/table.parquet", filesystem=files)  # doctest: +SKIP
    """
    from nbdata.files.connections import named_server
    from nbdata.files.filesystem import FileSystem

    place = store_url(canonical(url))
    target = place.partition("://")[0] if is_url(place) else "file"
    given: dict[str, Any] = {**storage_options}
    if (server := named_server(place)) and (storage_options or target in STORES):
        given.setdefault("origin", server)
    if verify != "auto":
        given["verify"] = verify
    if cache is not None:
        given |= {"cache": cache, "cache_dir": canonical(cache_dir)}
    return FileSystem(target_protocol=target, **given)
