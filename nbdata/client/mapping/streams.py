"""Standard input as a source of samples, and standard output as their target: a tar each, read and written once."""

from __future__ import annotations

import contextlib
import io
import os
import select
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from nbdata.client.mapping.ordered import Sample
from nbdata.client.mapping.source import ChosenSource
from nbdata.client.shard_writer import chunks_of
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.shard_writing import END
from nbdata.formats.shards import LeftOut
from nbdata.reading.shards.streaming import samples_of_stream
from nbdata.verbs.pack import Pack
from nbdata.writing.manifest import ShardRow

__all__ = ["StandardInput", "StandardOutput"]

# Bytes that are written together, unless a sample has more.
_TOGETHER = 1 << 20
_INPUT, _OUTPUT = "standard input", "standard output"


class StandardInput(ChosenSource):
    """The samples of a tar from standard input, compressed or not."""

    def __init__(self, operation: Pack) -> None:
        super().__init__(operation)
        self._found = LeftOut()
        self._stream = _opened(0, _INPUT, "For example: curl … | nbdata pack - train-%06d.tar")

    def close(self) -> None:
        self._stream.close()

    def _chosen(self) -> Generator[Sample, None, None]:
        with contextlib.closing(
            samples_of_stream(self._stream, _INPUT, self._operation, self._found.add)
        ) as samples:
            yield from self._choice.stream(
                {"__key__": key, "__url__": "-", **fields} for key, fields, _ in samples
            )

    def _left_out(self) -> tuple[int, list[str]]:
        return self._found.count, self._found.names

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        yield "standard input cannot be read again, so this does not resume"


class StandardOutput:
    """Writes samples as one tar to standard output; a context manager.

    The tar has its end only if all samples were written: a program that reads it finds out otherwise.

    Attributes
    ----------
    samples, bytes : int
        Written so far, including headers.
    """

    def __init__(self) -> None:
        self.samples = self.bytes = 0
        self._key, self._held, self._waiting = "", list[bytes | memoryview](), 0
        self._stream = _opened(1, _OUTPUT, "For example: nbdata pack train.tar - | tar t")

    def write(self, sample: Mapping[str, Any]) -> None:
        """Append a sample."""
        key = sample["__key__"]
        chunks, size = chunks_of(key, sample, {})
        if key == self._key and self.samples:
            raise BadOption(
                f"two neighbours have the key {key!r}, and would be read as one sample",
                remedy="Give one of them another key",
            )
        self._key = key
        self._put(chunks, size)
        self.samples += 1

    def _put(self, chunks: list[bytes | memoryview], size: int) -> None:
        self._held += chunks
        self._waiting += size
        self.bytes += size
        if self._waiting >= _TOGETHER:
            self._send()

    def _send(self) -> None:
        """Write what is held; a reader that is gone raises BrokenPipeError."""
        left, self._held, self._waiting = memoryview(b"".join(self._held)), [], 0
        fd = self._stream.fileno()
        while left:
            try:
                left = left[os.write(fd, left) :]
            except BlockingIOError:  # another program made the pipe non-blocking
                select.select([], [fd], [])
            except BrokenPipeError:
                raise
            except OSError as error:
                why = os.strerror(error.errno or 0)
                raise NbdataError(f"{_OUTPUT} cannot be written ({why})") from error

    def close(self) -> None:
        """Write the end of the tar."""
        self._put([END], len(END))
        self._send()

    @property
    def shards(self) -> list[ShardRow]:
        """The stream as the only shard."""
        return [ShardRow("-", self.bytes, self.samples, None)]

    def notes(self) -> list[str]:
        """Return notes for the report."""
        return ["a stream does not resume: run the command again from its beginning"]

    def __enter__(self) -> StandardOutput:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def _opened(fd: int, name: str, remedy: str) -> io.FileIO:
    """Open a descriptor of this process once more; BadOption if it is closed or a terminal."""
    try:
        stream = io.FileIO(os.dup(fd), "wb" if fd else "rb")
    except OSError as error:
        raise BadOption(f"{name} is not open ({os.strerror(error.errno or 0)})", remedy=remedy) from error
    if stream.isatty():
        stream.close()
        raise BadOption(f"{name} is a terminal, and a tar is no text", remedy=remedy)
    return stream
