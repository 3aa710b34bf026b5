"""Writes a program's samples into tar shards; `nbdata.write_shards` makes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from nbdata.client.opened import Opened
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.encoding import Encoder, encode
from nbdata.formats.shard_writing import END, member_header, padding
from nbdata.formats.shards import is_meta, split_member
from nbdata.redaction import redacted
from nbdata.sizes import counted, format_size
from nbdata.transfer.retry import listing, retrying
from nbdata.verbs.shard_target import ShardTarget
from nbdata.writing.growing_shard import SENT_AT_A_TIME, GrowingShard, Target
from nbdata.writing.manifest import Manifest, ShardRow
from nbdata.writing.own_uploads import OwnUploads

__all__ = ["ShardWriter", "chunks_of"]


class ShardWriter:
    """Puts samples into shards, one after the other; for one thread of one process.

    `nbdata.write_shards`, which makes it, documents how samples are written.

    Parameters
    ----------
    operation : ShardTarget
    encoders : mapping of str to callable
    replacing : str
        How the user asks to replace existing shards, for error messages.

    Attributes
    ----------
    samples, bytes : int
        Written so far, including headers.
    """

    def __init__(
        self, operation: ShardTarget, encoders: Mapping[str, Encoder], *, replacing: str = "overwrite=True"
    ) -> None:
        self._operation, self._encoders, self._replacing = operation, encoders, replacing
        self._names = operation.names
        self.samples = self.bytes = 0
        self._rows: list[ShardRow] = []
        self._shard: GrowingShard | None = None
        self._key = ""  # the key of the previous sample in the same shard
        self._ended = ""
        self._pid = os.getpid()
        self._opened = Opened(operation)
        context, control = self._opened.context, self._opened.control
        folder = self._opened.open(self._names.folder)
        if folder.store.read_only:
            raise BadOption(
                "the target is read-only", path=folder.place, remedy="Write to a store, or to the disk"
            )
        self._target = Target(
            control, folder, context.state_dir, context.env, operation.verify, operation.shard_size
        )
        self._manifest = Manifest(control, folder.store, folder.key + self._names.manifest)
        self._manifest.refuse_others(self._names.is_one)
        self._before = self._existing()
        self._pool = ThreadPoolExecutor(SENT_AT_A_TIME, "nbdata-shards")
        self._uploads = OwnUploads(
            control, folder, context.state_dir, lambda: Opened(operation).open(self._names.folder).store
        )

    def _existing(self) -> list[str]:
        """Return the names of existing shards."""
        folder = self._target.folder
        found = [
            info.key[len(folder.key) :]
            for info in listing(self._target.control, folder.store, folder.key + self._names.before)
        ]
        shards = [name for name in found if self._names.is_one(name)]
        if shards and not self._operation.overwrite:
            raise BadOption(
                f"{counted(len(shards), 'shards', 'are')} there, such as {shards[0]}",
                path=redacted(self._operation.target),
                remedy=f"Say {self._replacing} to replace them all, or give the new ones another name",
            )
        return shards

    def write(self, sample: Mapping[str, Any]) -> None:
        """Append a sample to the shard, or to a new shard if it does not fit.

        Parameters
        ----------
        sample : mapping of str to object
            ``__key__`` and fields by extension; see `nbdata.write_shards` for their values. Other names that
            start with two underscores are skipped, so that samples from a reader can be written.

        Raises
        ------
        BadOption
            If it would be read back as another sample; then nothing of it is written.
        NbdataError
            If an earlier part could not be sent, or the writer has ended.
        """
        self._refuse_ended()
        key = sample.get("__key__") if isinstance(sample, Mapping) else None
        if not isinstance(key, str) or not key:
            raise BadOption(
                "a sample has no key",
                expected='a dict with a str that is not empty as "__key__"',
            )
        chunks, size = chunks_of(key, sample, self._encoders)
        shard = self._shard
        if shard is not None and shard.samples and self._is_full(shard, size):
            self._finish(shard)
            shard = None
        if shard is not None and shard.samples and key == self._key:
            raise BadOption(
                f"two neighbours have the key {key!r}, and would be read as one sample",
                remedy="Give one of them another key",
            )
        ended, self._ended = self._ended, "was interrupted amid a sample"
        if shard is None:
            shard = self._shard = self._begin()
        for chunk in chunks:
            shard.write(chunk)
        shard.samples += 1
        self._key = key
        self.samples += 1
        self.bytes += size
        self._ended = ended

    def _is_full(self, shard: GrowingShard, more: int) -> bool:
        most = self._operation.shard_samples
        return shard.size + more + len(END) > self._operation.shard_size or (
            most is not None and shard.samples >= most
        )

    def _begin(self) -> GrowingShard:
        number, most = len(self._rows), self._names.most
        if most is not None and number >= most:
            raise BadOption(
                f"{redacted(self._operation.target)} has numbers for {counted(most, 'shards')}, and more are needed",
                remedy="Use a larger range of numbers, or a larger --shard-size",
            )
        return GrowingShard(self._target, self._names.name(number), self._pool, self._uploads)

    def _finish(self, shard: GrowingShard) -> None:
        """Give a shard its final name."""
        self._ended = "has failed"
        if self._before and not self._rows:  # from now on the old index would be wrong
            self._delete([self._names.manifest])
        shard.write(END)
        made = shard.finish()
        self._shard = None
        self._rows.append(ShardRow(shard.name, shard.size, shard.samples, made))
        self._ended = ""

    def close(self) -> None:
        """Finish the last shard, and write the index; does nothing the second time."""
        if self._ended == "is closed":
            return
        try:
            self._refuse_ended()
            if self._shard is not None:
                self._finish(self._shard)
            if self._rows:
                left = set(self._before) - {row.name for row in self._rows}
                self._delete(sorted(left))
                self._manifest.write(self._names.before.rstrip("-_."), self._rows, self._operation.verify)
        except BaseException:
            self._give_up()
            raise
        self._end("is closed")

    @property
    def shards(self) -> list[ShardRow]:
        """The shards that have their final name."""
        return list(self._rows)

    def _delete(self, names: list[str]) -> None:
        keys = [self._target.folder.key + name for name in names]
        if keys:
            retrying(self._target.control, lambda: self._target.store.delete(keys))

    def _give_up(self) -> None:
        """Remove the unfinished shard."""
        if os.getpid() != self._pid:
            return
        shard, self._shard = self._shard, None
        self._opened.control.stop()
        if shard is not None:
            shard.give_up()
        self._end("has failed")

    def _end(self, why: str) -> None:
        self._ended = why
        self._pool.shutdown()
        self._opened.control.stop()

    def _refuse_ended(self) -> None:
        if self._ended:
            raise NbdataError(
                f"the writer of {redacted(self._operation.target)} {self._ended}",
                remedy="Begin anew with nbdata.write_shards",
            )
        if os.getpid() != self._pid:
            raise NbdataError(
                "a writer of shards belongs to the process that made it",
                remedy="Give each process its own, with its own name: x-0-%06d.tar, x-1-%06d.tar",
            )

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif self._ended != "is closed":
            self._give_up()

    def __repr__(self) -> str:
        count = len(self._rows) + (self._shard is not None)
        shards = f"{count:,} {'shard' if count == 1 else 'shards'} of {redacted(self._operation.target)}"
        return (
            f"<{counted(self.samples, 'samples')} in {shards}: "
            f"{format_size(self.bytes)}{', ' + self._ended if self._ended else ''}>"
        )


def chunks_of(
    key: str, sample: Mapping[str, Any], encoders: Mapping[str, Encoder]
) -> tuple[list[bytes | memoryview], int]:
    """Return the members of a sample, and their bytes.

    Raises
    ------
    BadOption
        If it would be read back as another sample.
    """
    chunks: list[bytes | memoryview] = []
    for field, value in sample.items():
        if field.startswith("__"):
            continue
        name = f"{key}.{field}"
        if is_meta(name) or split_member(name) != (key, field):
            raise BadOption(
                f"the file {name!r} would be in no sample, or in another one: see WebDataset's rules for names",
                expected="a key without a dot in its last part, and fields in lower case such as jpg or seg.png",
            )
        data = encode(key, field, value, encoders)
        chunks += [member_header(name, len(data)), data, bytes(padding(len(data)))]
    if not chunks:
        raise BadOption(f"the sample {key!r} has no fields", expected="at least one, such as jpg")
    return chunks, sum(map(len, chunks))
