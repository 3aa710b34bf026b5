"""The function write_shards: writes samples of a program into tar shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import slots
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.verbs.options import Connecting, Verifying
from nbdata.verbs.shard_names import DEFAULT_SIZE, ShardNames

__all__ = ["ShardTarget", "write_shards"]


@dataclass(frozen=True)
class ShardTarget(Verifying, Connecting):
    """The target of a shard writer."""

    verb: ClassVar[str] = "write_shards"

    target: str = argument("URL or path of the shards.", metavar="TARGET")
    shard_size: int = option(DEFAULT_SIZE, "Maximum bytes of a shard.", kind="size", metavar="SIZE")
    shard_samples: int | None = option(None, "Maximum samples of a shard.", kind="count", metavar="N")
    overwrite: bool = option(False, "Replace existing shards.", kind="flag")

    def check(self) -> None:
        super().check()
        ShardNames.of(self.target)
        if self.shard_size < 1 << 10:
            raise BadOption(f"--shard-size: {self.shard_size} bytes is too little", expected="at least 1 KiB")
        if self.shard_samples is not None and self.shard_samples < 1:
            raise BadOption(f"--shard-samples: {self.shard_samples}", expected="at least 1")

    @property
    def names(self) -> ShardNames:
        """The names of the shards."""
        return ShardNames.of(self.target)

    def places(self) -> tuple[str, str]:
        return "", self.target

    def local_target(self) -> str | None:
        return None if is_url(self.target) else self.names.folder


def write_shards(
    target: str,
    *,
    shard_size: int | str = DEFAULT_SIZE,
    shard_samples: int | None = None,
    encoders: Mapping[str, Callable[[Any], bytes]] | None = None,
    overwrite: bool = False,
    verify: str = "auto",
    storage_options: dict[str, Any] | None = None,
    fs: Any = None,
) -> Any:
    """Write samples from your program into tar shards, straight to a store.

    A shard is sent while you write it, and gets its name only when it is whole. S3 and Azure get it in parts of 8 MiB,
    of which five are in memory. For the disk and other stores, a shard is in memory until its end. After the last
    shard, an index is written beside the shards, in the JSON format of the wids library. The same samples in the same
    order make the same bytes.

    Parameters
    ----------
    target : str
        URL or path of the shards, with ``%06d`` or ``{000000..000099}`` for their number; or a folder, for
        ``shard-000000.tar`` and so on.
    shard_size : int or str, default 256 MiB
        Maximum size of a shard, such as ``"256MB"``. A single sample that is larger makes a larger shard.
    shard_samples : int, optional
        Maximum number of samples in a shard. None: as many as fit.
    encoders : mapping of str to callable, optional
        Functions that turn a value into bytes, by field or last extension; used before the built-in ones below.
    overwrite : bool, default False
        Whether to replace existing shards. At the end, existing shards with higher numbers are deleted. False: existing
        shards are an error.
    verify : str, default "auto"
        ``"none"``: do not compare the checksum in the store's response with the sent bytes.
    storage_options : dict, optional
        Storage options by their fsspec names, as for `pull`.
    fs : object, optional
        An fsspec file system object, used instead of one made from the URL.

    Returns
    -------
    ShardWriter
        Has ``write(sample)`` and ``close()``. Use it with ``with``: if the block raises, the whole shards stay, but
        there is no index and nothing of the last shard. A sample is a dict with ``__key__`` and fields by extension.
        Bytes are written unchanged. Other values are encoded by extension: PIL images and arrays of uint8 (jpg,
        png …), ``int`` (cls, id …), ``str`` (txt …), json, npy, npz, msgpack. Nothing is pickled.

    Raises
    ------
    BadOption
        If the target has no place for a number, or shards with these names exist. ``write`` raises it if a sample would
        be read back as a different one, or if a value cannot be encoded.
    NotEnoughSpace
        From ``write`` or ``close``, if a shard does not fit on the disk.

    Examples
    --------
    >>> with nbdata.write_shards("s3://bucket/x-%06d.tar", shard_size="256MB") as shards:  # doctest: +SKIP
    ...     for number, image in enumerate(images):
    ...         shards.write({"__key__": f"{number:06}", "jpg": image, "json": {"number": number}})
    """
    operation = ShardTarget(
        target=target,
        shard_size=shard_size,  # type: ignore[arg-type]
        shard_samples=shard_samples,
        overwrite=overwrite,
        verify=verify,
        storage_options=storage_options,
        fs=fs,
    )
    return slots.shard_writer(operation, dict(encoders or {}))
