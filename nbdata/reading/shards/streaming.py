"""Samples of a shard that comes by a stream, such as standard input; it is read once, from its beginning to its end."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Generator

from nbdata.archives.decompress import open_decompressed
from nbdata.archives.forward_reader import ForwardReader
from nbdata.errors import BadArchive, BadOption
from nbdata.formats.shards import Sample, samples_in
from nbdata.verbs.options import HoldingSamples

__all__ = ["samples_of_stream"]


def samples_of_stream(
    stream: io.RawIOBase, name: str, operation: HoldingSamples, left_out: Callable[[str, str], None]
) -> Generator[Sample, None, None]:
    """Yield the samples of a tar that is not compressed, or compressed as its first bytes say.

    Parameters
    ----------
    stream : io.RawIOBase
        Closed at the end.
    name : str
        Its name in errors.
    operation : HoldingSamples
        The limits of what is held in memory.
    left_out : callable
        See `samples_in`.

    Raises
    ------
    BadArchive
        If the stream is no tar, is damaged, or ends too early.
    BadOption
        If it is another kind of archive, or its members are archives.
    """
    opened, found = open_decompressed(stream, name=name, max_window=operation.max_window)
    if found == "zip":
        raise BadOption(f"{name} is a zip archive", expected="a tar", remedy="Unpack it with untar_volumes")
    with contextlib.closing(stream), contextlib.closing(ForwardReader(opened, name, 0)) as reader:
        try:
            yield from samples_in(reader, left_out, max_sample=operation.max_sample)
        except BadArchive as error:
            if "limit" not in error.details:
                error.remedy = "Send it again from the beginning: a stream cannot be read twice"
            raise
