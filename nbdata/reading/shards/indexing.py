"""The index of shards, with their samples and where each lies; made by reading the shards once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence

from nbdata.archives.decompress import open_decompressed
from nbdata.archives.forward_reader import ForwardReader
from nbdata.errors import BadArchive, BadOption, ChecksumMismatch, NbdataError
from nbdata.formats.sample_index import IndexWriter, SampleIndex
from nbdata.formats.sample_objects import ShardMember
from nbdata.formats.shards import LeftOut, sums_in
from nbdata.operation import Context
from nbdata.paths import last_component
from nbdata.reading.index_files import write_index
from nbdata.reading.shards.content import Bodies, Body
from nbdata.reading.shards.damage import Damage
from nbdata.reading.shards.listing import fingerprint_elsewhere, is_plain
from nbdata.reading.source_file import SourceFile, fingerprint_of
from nbdata.signed_urls import without_signature
from nbdata.sizes import counted
from nbdata.transfer.sources import Opener, servers_at
from nbdata.verbs.samples import SampleSource

__all__ = [
    "STREAM",
    "Indexing",
    "foreign_index",
    "index_of",
    "index_path",
    "known_index",
    "refuse_compressed",
    "saved_name",
]

# Seconds between two progress updates.
_SHOW_EVERY = 0.5
#: The remedy for compressed shards.
STREAM = (
    "Use samples.stream(), with PyTorch a DataLoader over SampleStream; or make plain shards of them with "
    "pack --map true: what is in them is mostly compressed already"
)


def index_path(operation: SampleSource, opener: Opener) -> str:
    """Return the path of a source's index, which tells it from those of the same place on another server."""
    servers = servers_at(opener, operation.sources)
    said = [servers, *map(without_signature, operation.sources), *_slice(operation)]
    name = hashlib.sha256(json.dumps(said).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return os.path.join(opener.context.state_dir, "samples", f"{name}.shards.idx")


def saved_name(operation: SampleSource) -> str:
    """Return the name of a source's index, which tells it from others beside the same shards, wherever they are."""
    names = json.dumps([*(last_component(place) for place in operation.sources), *_slice(operation)])
    return hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _slice(operation: SampleSource) -> list[str]:
    """What tells the index of a part of the shards from that of all: nothing for all."""
    return [f"[{operation.shard_slice}]"] if operation.shard_slice is not None else []


def known_index(path: str, fingerprint: str, elsewhere: str = "") -> SampleIndex | None:
    """Return the index at a path if it is of these shards, or of the same ones `elsewhere`; else None."""
    try:
        index = SampleIndex(path)
    except (NbdataError, OSError):  # it is built again
        return None
    if elsewhere and index.about.get("elsewhere") == elsewhere:
        return index
    return index if index.about.get("listing") == fingerprint else None


def foreign_index(path: str, shards: Sequence[SourceFile]) -> SampleIndex | None:
    """Return the index at a path, which another user may have made, after a further check; else None."""
    index = known_index(path, fingerprint_of(shards), fingerprint_elsewhere(shards))
    return index if index is not None and index.is_of_shards(len(shards)) else None


def index_of(
    context: Context,
    path: str,
    shards: Sequence[SourceFile],
    bodies: Bodies,
    *,
    fingerprint: str,
    progress: Callable[[str], None],
    otherwise: str = STREAM,
    damage: Damage | None = None,
) -> SampleIndex:
    """Read all shards, and write their index.

    Parameters
    ----------
    told : callable
        Receives the progress now and then.
    otherwise : str
        The remedy for compressed shards.
    damage : Damage, optional
        Receives damaged shards. None: the first one is an error.

    Raises
    ------
    BadOption
        If a shard is compressed.
    BadArchive
        If a shard is damaged.
    """
    refuse_compressed(shards, otherwise)
    indexing = Indexing()
    indexing.read(shards, bodies, progress=progress, otherwise=otherwise, damage=damage)
    elsewhere = fingerprint_elsewhere(shards)
    if damage is not None and damage.left_out:
        fingerprint += " damaged"  # nobody else takes this index for whole
        elsewhere = ""
    return indexing.save(context, path, fingerprint, elsewhere)


class Indexing:
    """An index of shards that is being made: this process reads the shards, or others do and send their indexes.

    Attributes
    ----------
    left_out : LeftOut
    unproven : int
        Shards without a checksum in their store.
    """

    def __init__(self) -> None:
        self._writer, self.left_out, self.unproven = IndexWriter(), LeftOut(), 0

    def read(
        self,
        shards: Sequence[SourceFile],
        bodies: Bodies,
        *,
        progress: Callable[[str], None],
        otherwise: str = STREAM,
        damage: Damage | None = None,
        first: int = 0,
    ) -> None:
        """Read shards, the first of which has the number `first`; see `index_of`."""
        writer = self._writer
        for number, shard in enumerate(shards):
            bodies.coming = lambda after=number + 1: range(after, len(shards))  # type: ignore[misc]
            begin = len(writer)

            def told(number: int = number) -> None:
                progress(
                    f"{counted(len(writer), 'samples')} in {number + 1:,} of {len(shards):,} shards so far"
                )

            body = bodies.open(number)
            try:
                with contextlib.closing(body):
                    _add(
                        writer,
                        body,
                        first + number,
                        shard,
                        self.left_out,
                        told,
                        otherwise=otherwise,
                        to_end=damage is not None,
                    )
                self.unproven += not body.proven
            except (BadArchive, ChecksumMismatch) as error:
                if damage is None:
                    raise
                damage.note(error, number, shard, range(begin, len(writer)))

    def take(self, index: SampleIndex) -> None:
        """Add the index of the next shards, which `pieces` of another process has made."""
        self._writer.add_all(index)
        self.left_out.take(LeftOut(index.about["left_out"], index.about["left_out_names"]))
        self.unproven += index.about["unproven"]

    def pieces(self, listing: str = "", elsewhere: str = "") -> list[bytes | memoryview]:
        """Return the bytes of the index, with digests of the listing of its shards if these are all."""
        return self._writer.pieces(
            {
                "listing": listing,
                "elsewhere": elsewhere,
                "left_out": self.left_out.count,
                "left_out_names": self.left_out.names,
                "unproven": self.unproven,
                "built": time.time(),
            }
        )

    def save(self, context: Context, path: str, listing: str, elsewhere: str) -> SampleIndex:
        """Write the index."""
        write_index(context, path, self.pieces(listing, elsewhere))
        return SampleIndex(path)


def _add(
    writer: IndexWriter,
    body: Body,
    number: int,
    shard: SourceFile,
    left_out: LeftOut,
    told: Callable[[], None],
    *,
    otherwise: str,
    to_end: bool,
) -> None:
    """Add the samples of a shard; `to_end` reads its bytes to their end even if it is damaged before."""
    shown = time.monotonic()
    stream, found = open_decompressed(body, name=shard.url)
    if found != "tar":
        raise _compressed(shard.url, otherwise)
    reader = ForwardReader(stream, shard.url, 0)
    with contextlib.closing(reader), contextlib.closing(stream):
        try:
            for key, fields, places in sums_in(reader, _noted(left_out, shard.url)):
                writer.add_members(
                    key,
                    [
                        ShardMember(name, number, place, size, crc)
                        for (name, (size, crc)), place in zip(fields.items(), places, strict=True)
                    ],
                )
                if not len(writer) % 1000 and time.monotonic() - shown > _SHOW_EVERY:
                    shown = time.monotonic()
                    told()
        except BadArchive:
            while to_end and body.block():  # at the end, the store's checksum may contradict
                pass
            raise


def _noted(left_out: LeftOut, url: str) -> Callable[[str, str], None]:
    return lambda name, why: left_out.add(f"{url}: {name}", why)


def refuse_compressed(shards: Iterable[SourceFile], otherwise: str) -> None:
    """Raise BadOption if a shard's name shows that it is compressed; `otherwise` is the remedy."""
    for shard in shards:
        if not is_plain(shard):
            raise _compressed(shard.url, otherwise)


def _compressed(url: str, otherwise: str) -> BadOption:
    """Make the error for a compressed shard that is to be read by number."""
    return BadOption("a compressed shard is read from its beginning only", path=url, remedy=otherwise)
