"""What `nbdata.write_shards` is told: where shards go, and how large they are."""

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
    """Where a writer of shards puts them."""

    verb: ClassVar[str] = "write_shards"

    target: str = argument("URL or path of the shards.", metavar="TARGET")
    shard_size: int = option(DEFAULT_SIZE, "Bytes of a shard at most.", kind="size", metavar="SIZE")
    shard_samples: int | None = option(None, "Samples of a shard at most.", kind="count", metavar="N")
    overwrite: bool = option(False, "Replace the shards that are there.", kind="flag")

    def check(self) -> None:
        super().check()
        ShardNames.of(self.target)
        if self.shard_size < 1 << 10:
            raise BadOption(f"--shard-size: {self.shard_size} bytes is too little", expected="at least 1 KiB")
        if self.shard_samples is not None and self.shard_samples < 1:
            raise BadOption(f"--shard-samples: {self.shard_samples}", expected="at least 1")

    @property
    def names(self) -> ShardNames:
        """How the shards are called."""
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
    """Write samples that a program makes into tar shards, straight to a store.

    A shard is sent while it is written, and has its name only when it is whole. To S3 and Azure it goes in parts of
    8 MiB, of which five are in memory; on the disk and in other stores it is made at its end, and is in memory until
    then. When all are written an index of them is put beside them (JSON, as the wids library has it). The same samples
    in the same order make the same bytes.

    Parameters
    ----------
    target : str
        URL or path of the shards, with ``%06d`` or ``{000000..000099}`` where their number stands; or a folder, for
        ``shard-000000.tar`` and so on.
    shard_size : int or str, default 256 MiB
        Bytes of a shard at most, as ``"256MB"``; one that holds a single larger sample has more.
    shard_samples : int, optional
        Samples of a shard at most. None: as many as fit.
    encoders : mapping of str to callable, optional
        By field or last extension, what makes bytes of a value; instead of those below.
    overwrite : bool, default False
        Whether shards of these names are replaced; those with higher numbers than are written are deleted at the end.
        Without, that there are some is an error.
    verify : str, default "auto"
        ``"none"``: do not compare what the store answers with what was sent.
    storage_options : dict, optional
        Storage options by their fsspec names, as for `pull`.
    fs : object, optional
        An fsspec file system object to use instead of one made from the URL.

    Returns
    -------
    ShardWriter
        With ``write(sample)`` and ``close()``, best used by ``with``: what raises in there leaves the shards that are
        whole, without an index, and nothing of the last one. A sample is a dict with ``__key__`` and fields by
        extension. Bytes are written as they are; other values by extension: PIL images and arrays of uint8 (jpg,
        png …), ``int`` (cls, id …), ``str`` (txt …), json, npy, npz, msgpack. Nothing is pickled.

    Raises
    ------
    BadOption
        If the target has no place for a number, or such shards are there; from ``write`` if a sample would be read
        from the shard as another one, or a value cannot be encoded.
    NotEnoughSpace
        From ``write`` or ``close``, if the shard does not fit on the disk.

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
