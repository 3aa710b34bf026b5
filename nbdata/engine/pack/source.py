"""What is packed: the samples of loose objects or of shards, with the place of each field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from nbdata.engine.job.run import Run
from nbdata.errors import BadOption
from nbdata.formats.sample_index import SampleIndex
from nbdata.reading.fetcher import WIDTH
from nbdata.reading.loose import index_of as loose_index
from nbdata.reading.pieces import Piece
from nbdata.reading.shards.content import Bodies
from nbdata.reading.shards.indexing import index_of, index_path, known_index
from nbdata.reading.shards.listing import Shard, are_shards, fingerprint_of, shards_of
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.sources import folder_part
from nbdata.verbs.pack import Pack
from nbdata.verbs.samples import SampleSource

__all__ = ["Field", "PackSource", "open_source"]

# Bytes of shards that are read ahead while their index is made.
_AHEAD = 64 << 20


class Field(NamedTuple):
    """One field of a sample.

    Attributes
    ----------
    name : str
    store : Store
    piece : Piece
        Where its bytes are.
    crc : int or None
        Their CRC-32, if they were read before: then they are compared with it, else with what the store vouches for.
    """

    name: str
    store: Store
    piece: Piece
    crc: int | None = None

    @property
    def version(self) -> str:
        """What tells its content from another one, as far as the source knows."""
        info = self.piece.info
        if self.crc is not None:
            return f"{self.crc:08x}"
        return f"{info.etag}|{info.version}|{info.modified}"


class PackSource(Protocol):
    """Samples by number; for many threads."""

    def __len__(self) -> int:
        """How many there are."""

    #: All that samples may be in.
    stores: set[Store]
    #: The shards that are read, each with its store; none of loose objects.
    shards: list[tuple[Store, str]]

    @property
    def left_out(self) -> tuple[int, list[str]]:
        """How many files belong to no sample, and the first of them."""

    def key(self, number: int) -> str:
        """The key of a sample."""

    def fields(self, number: int) -> list[Field]:
        """Its fields, in the order in which they are packed."""


class _Loose:
    """The samples of loose objects."""

    def __init__(self, index: SampleIndex, prefix: str, store: Store) -> None:
        self._index, self._prefix, self._store = index, prefix, store
        self.stores = {store}
        self.shards: list[tuple[Store, str]] = []

    def __len__(self) -> int:
        return len(self._index)

    @property
    def left_out(self) -> tuple[int, list[str]]:
        return self._index.about["left_out"], self._index.about["left_out_names"]

    def key(self, number: int) -> str:
        return self._index.key(number)

    def fields(self, number: int) -> list[Field]:
        prefix, store = self._prefix, self._store
        return [
            Field(field, store, Piece(ObjectInfo(prefix + path, size, etag, modified, version)))
            for field, path, size, etag, modified, version in self._index.objects(number)
        ]


class _Shards:
    """The samples of shards."""

    def __init__(self, index: SampleIndex, shards: Sequence[Shard], stores: Sequence[Store]) -> None:
        self._index, self._stores, self.stores = index, stores, set(stores)
        self._infos = [shard.info for shard in shards]
        self.shards = [(store, shard.key) for store, shard in zip(stores, shards, strict=True)]
        self._urls = [shard.url for shard in shards]

    def __len__(self) -> int:
        return len(self._index)

    @property
    def left_out(self) -> tuple[int, list[str]]:
        return self._index.about["left_out"], self._index.about["left_out_names"]

    def key(self, number: int) -> str:
        return self._index.key(number)

    def fields(self, number: int) -> list[Field]:
        found = []
        for name, shard, offset, size, crc in self._index.members(number):
            if offset < 0:
                raise BadOption(
                    f"the field {name!r} of {self.key(number)!r} is stored as a sparse file",
                    path=self._urls[shard],
                    remedy="Unpack this shard with untar_volumes, and pack its files",
                )
            piece = Piece(self._infos[shard], offset, offset + size)
            found.append(Field(name, self._stores[shard], piece, crc))
        return found


def open_source(run: Run) -> PackSource:
    """Find out what is packed; builds the index of the samples where there is none of this version.

    Parameters
    ----------
    run : Run
        As the source's end sees it.

    Raises
    ------
    BadOption
        If shards are compressed, several places are given that are none, or a target would replace its source.
    NotFound
        If there are no samples.
    """
    operation = run.operation
    assert isinstance(operation, Pack)
    told = replace(run, operation=operation.samples())
    assert isinstance(told.operation, SampleSource)
    if are_shards(told.operation.sources):
        if operation.include or operation.exclude:
            raise BadOption("--include and --exclude are for files", remedy="Name the shards that are meant")
        return _shards(told, told.operation)
    if len(told.operation.sources) > 1:
        raise BadOption("several sources can only be shards", remedy="Pack each folder by itself")
    found = loose_index(told)
    return _Loose(found.index, found.prefix, run.open(folder_part(told.operation.place)).store)


def _shards(run: Run, operation: SampleSource) -> _Shards:
    shards = shards_of(run)
    stores = _stores(run, shards)
    fingerprint = fingerprint_of(shards)
    path = index_path(operation, run.context.state_dir)
    index = known_index(path, fingerprint)
    if index is None:
        bodies = Bodies(
            run.control, shards, lambda shard: stores[shard.place],
            verify=operation.verify, width=WIDTH, ahead_bytes=_AHEAD,
        )  # fmt: skip
        try:
            index = index_of(path, shards, bodies, fingerprint=fingerprint, told=lambda _: None)
        finally:
            bodies.close()
    return _Shards(index, shards, [stores[shard.place] for shard in shards])


def _stores(run: Run, shards: Sequence[Shard]) -> dict[str, Store]:
    """The store of each place; one for all places in which a key means the same object."""
    found: dict[str, Store] = {}
    for shard in shards:
        if shard.place not in found:
            store = run.open(shard.place).store
            known = (one for one in set(found.values()) if one.same_objects(store))
            found[shard.place] = next(known, store)
    return found
