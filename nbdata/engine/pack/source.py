"""The source of a pack: samples of loose objects, shards or FFRecord files, with the place of each field."""

from __future__ import annotations

import contextlib
import itertools
import secrets
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple, Protocol

from nbdata.engine.job.run import Run
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.permutation import Permutation
from nbdata.formats.sample_index import SampleIndex
from nbdata.formats.samples import is_hidden_key, split_name
from nbdata.reading.choosing import Choice
from nbdata.reading.fetcher import WIDTH
from nbdata.reading.loose import index_of as loose_index
from nbdata.reading.pieces import Piece
from nbdata.reading.records.files import are_records, files_of, key_of_record, names_wanted, stem_of
from nbdata.reading.records.heads import Heads
from nbdata.reading.records.packed import index_of_packed
from nbdata.reading.records.remote import fetch_heads, heads_path, kept_heads
from nbdata.reading.shards.content import Bodies
from nbdata.reading.shards.damage import Damage
from nbdata.reading.shards.indexing import index_of, index_path, known_index
from nbdata.reading.shards.listing import are_shards, shards_of
from nbdata.reading.shards.packing import samples_of
from nbdata.reading.source_file import SourceFile, fingerprint_of, sliced
from nbdata.sizes import counted
from nbdata.stores.base import ObjectInfo, Store
from nbdata.transfer.sources import folder_part
from nbdata.verbs.pack import Pack
from nbdata.verbs.samples import SampleSource

__all__ = ["Field", "NewKeys", "Order", "PackSource", "open_source"]

#: Maps positions to sample numbers.
Order = Sequence[int] | Permutation
# Bytes of shards to read ahead while their index is made.
_AHEAD = 64 << 20
# The remedy for compressed shards.
_COMPRESSED = (
    "With --map true, in Python with map=dict, they are read as a stream by this process, and packed"
)


class Field(NamedTuple):
    """One field of a sample.

    Attributes
    ----------
    name : str
    store : Store
    piece : Piece
        The place of its bytes.
    crc : int or None
        CRC-32 of its bytes, if they were read before. The bytes are compared with it, else with the stored checksum.
    path : str
        For a separate object or file, its path relative to the source, with the new name if renamed; else empty.
    """

    name: str
    store: Store
    piece: Piece
    crc: int | None = None
    path: str = ""

    @property
    def version(self) -> str:
        """A text that identifies its content; unique each time if the source reports no versions."""
        info = self.piece.info
        if self.crc is not None:
            return f"{self.crc:08x}"
        if self.piece.size and not self.is_told_apart:
            return secrets.token_hex()
        return f"{info.etag}|{info.version}|{info.modified}"

    @property
    def is_told_apart(self) -> bool:
        """True if the source can distinguish versions of the field."""
        info = self.piece.info
        return bool(self.crc is not None or info.etag or info.version or info.modified is not None)


class PackSource(Protocol):
    """Samples by number; safe to use from many threads."""

    def __len__(self) -> int:
        """The number of samples."""

    #: Notes on what the options leave out, for the report.
    notes: list[str]
    #: The samples that damaged shards cost, each with the reason.
    damaged: list[tuple[str, NbdataError]]
    #: All stores that hold samples.
    stores: set[Store]
    #: The shards that are read, each with its store; empty for loose objects.
    shards: list[tuple[Store, str]]
    #: The store and prefix of loose objects; else None.
    folder: tuple[Store, str] | None

    @property
    def left_out(self) -> tuple[int, list[str]]:
        """The number of files that belong to no sample, and the first of them."""

    def key(self, number: int) -> str:
        """The key of a sample."""

    def fields(self, number: int) -> list[Field]:
        """The fields of a sample, in packing order."""

    def sizes(self, number: int) -> dict[str, int]:
        """The bytes of each field of a sample."""


class _Indexed:
    """Samples that have an index."""

    def __init__(self, index: SampleIndex) -> None:
        self._index = index
        self.notes, self.damaged = list[str](), list[tuple[str, NbdataError]]()

    def __len__(self) -> int:
        return len(self._index)

    @property
    def left_out(self) -> tuple[int, list[str]]:
        return self._index.about["left_out"], self._index.about["left_out_names"]

    @property
    def field_names(self) -> set[str]:
        """The names of all fields."""
        return set(self._index.counts)

    def key(self, number: int) -> str:
        return self._index.key(number)


class _Loose(_Indexed):
    """The samples of loose objects."""

    def __init__(self, index: SampleIndex, prefix: str, store: Store) -> None:
        super().__init__(index)
        self._prefix, self._store = prefix, store
        self.stores = {store}
        self.shards: list[tuple[Store, str]] = []
        self.folder: tuple[Store, str] | None = (store, prefix)

    def sizes(self, number: int) -> dict[str, int]:
        return {one.field: one.size for one in self._index.objects(number)}

    def fields(self, number: int) -> list[Field]:
        prefix, store = self._prefix, self._store
        return [
            Field(field, store, Piece(ObjectInfo(prefix + path, size, etag, modified, version)), None, path)
            for field, path, size, etag, modified, version in self._index.objects(number)
        ]


class _Shards(_Indexed):
    """The samples of shards, or of packed folders, whose fields have their own paths."""

    folder: tuple[Store, str] | None = None

    def __init__(
        self,
        index: SampleIndex,
        shards: Sequence[SourceFile],
        stores: Sequence[Store],
        packed: Heads | None = None,
        damage: Damage | None = None,
    ) -> None:
        super().__init__(index)
        #: Numbers of samples that must not be packed.
        self.excluded = damage.excluded if damage is not None else []
        self.damaged = damage.left_out if damage is not None else []
        self._packed = packed
        self._stores, self.stores = stores, set(stores)
        self._infos = [shard.info for shard in shards]
        self.shards = [(store, shard.key) for store, shard in zip(stores, shards, strict=True)]
        self._urls = [shard.url for shard in shards]

    def visible(self) -> array[int]:
        """Return the numbers of the samples without damaged ones, and hidden files of other programs."""
        numbers = array("Q", range(len(self)))
        for damaged in reversed(self.excluded):
            del numbers[damaged.start : damaged.stop]
        return array("Q", (number for number in numbers if not is_hidden_key(self.key(number))))

    def sizes(self, number: int) -> dict[str, int]:
        return {name: size for name, _, _, size, _ in self._index.members(number)}

    def fields(self, number: int) -> list[Field]:
        found = []
        packed = self._packed
        paths = itertools.repeat("") if packed is None else iter(self._index.paths(number))
        for name, shard, offset, size, crc in self._index.members(number):
            if packed is not None:  # the offset is the number of a record
                offset, _ = packed[shard].place(offset)
            if offset < 0:
                raise BadOption(
                    f"the field {name!r} of {self.key(number)!r} is stored as a sparse file",
                    path=self._urls[shard],
                    remedy="Unpack this shard with untar_volumes, and pack its files",
                )
            piece = Piece(self._infos[shard], offset, offset + size)
            found.append(Field(name, self._stores[shard], piece, crc, next(paths)))
        return found


class _Records:
    """The samples of FFRecord files without names: each has a single field named bin."""

    folder: tuple[Store, str] | None = None
    left_out: tuple[int, list[str]] = (0, [])
    field_names: ClassVar[set[str]] = {"bin"}

    def __init__(self, heads: Heads, files: Sequence[SourceFile], stores: Sequence[Store]) -> None:
        self._heads, self._files, self._stores, self.stores = heads, files, stores, set(stores)
        self.notes, self.damaged = list[str](), list[tuple[str, NbdataError]]()
        self.shards = [(store, file.key) for store, file in zip(stores, files, strict=True)]

    def __len__(self) -> int:
        return self._heads.count

    def key(self, number: int) -> str:
        file, own = self._heads.find(number)
        return key_of_record(stem_of(self._files[file]), own)

    def sizes(self, number: int) -> dict[str, int]:
        return {field.name: field.piece.size for field in self.fields(number)}

    def fields(self, number: int) -> list[Field]:
        file, own = self._heads.find(number)
        start, end = self._heads[file].place(own)
        piece = Piece(self._files[file].info, start, end)
        return [Field("bin", self._stores[file], piece, self._heads[file].crcs[own])]


class _Over:
    """A source over another one; has the same stores and files."""

    def __init__(self, source: PackSource) -> None:
        self._source, self.notes, self.damaged = source, source.notes, source.damaged
        self.stores, self.shards, self.folder = source.stores, source.shards, source.folder

    def __len__(self) -> int:
        return len(self._source)

    @property
    def left_out(self) -> tuple[int, list[str]]:
        return self._source.left_out

    def key(self, number: int) -> str:
        return self._source.key(number)


class _ChosenFields(_Over):
    """A source with some of the fields, and new names for them."""

    def __init__(self, source: PackSource, choice: Choice) -> None:
        super().__init__(source)
        self._choice = choice

    def sizes(self, number: int) -> dict[str, int]:
        return {field.name: field.piece.size for field in self.fields(number)}

    def fields(self, number: int) -> list[Field]:
        fields = self._source.fields(number)
        chosen = self._choice.fields(self.key(number), [field.name for field in fields])
        return [_renamed(fields[place], name) for place, name in chosen]


def _renamed(field: Field, name: str) -> Field:
    if name == field.name:
        return field
    return field._replace(name=name, path=f"{split_name(field.path)[0]}.{name}" if field.path else "")


class _Selected(_Over):
    """Some samples of a source, in any order; memory holds 8 bytes for each."""

    def __init__(self, source: PackSource, numbers: Order) -> None:
        super().__init__(source)
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def key(self, number: int) -> str:
        return self._source.key(self._numbers[number])

    def fields(self, number: int) -> list[Field]:
        return self._source.fields(self._numbers[number])

    def sizes(self, number: int) -> dict[str, int]:
        return self._source.sizes(self._numbers[number])


class NewKeys(_Selected):
    """A source in packing order, whose samples have their number there as key.

    Parameters
    ----------
    source : PackSource
    order : Order
        The number of each sample in the source, by its number here.
    keys : str
        The format of keys, such as ``%06d``.
    """

    def __init__(self, source: PackSource, order: Order, keys: str) -> None:
        super().__init__(source, order)
        self._keys = keys

    def key(self, number: int) -> str:
        return self._keys % number

    def fields(self, number: int) -> list[Field]:
        key = self.key(number)
        return [
            field._replace(path=f"{key}.{field.name}") if field.path else field
            for field in super().fields(number)
        ]


def open_source(run: Run) -> PackSource:
    """Open the source, and choose samples and fields.

    Raises
    ------
    BadOption
        See `_whole_source`; also if ``--select`` cannot be parsed, or an option names a field that no sample has.
    NotFound
        If there are no samples, or none is chosen.
    """
    operation = run.operation
    assert isinstance(operation, Pack)
    choice = Choice(operation)
    opened = _whole_source(run)
    source: PackSource = opened
    choice.refuse_unknown(opened.field_names)
    if isinstance(opened, _Shards) and (opened.left_out[0] or opened.excluded):
        visible = opened.visible()
        source = _Selected(opened, visible) if len(visible) < len(opened) else opened
    if opened.damaged:
        source.notes.append(
            f"{counted(len(opened.damaged), 'samples', 'are')} left out: their shards are damaged"
        )
        if not len(source):
            raise opened.damaged[0][1]
    of = source

    def sizes(number: int) -> tuple[str, dict[str, int]]:
        return of.key(number), of.sizes(number)

    numbers = choice.numbers(len(source), sizes, run.control.checkpoint)
    if numbers is not None:
        source = _Selected(source, numbers)
    if choice.changes_fields:
        source = _ChosenFields(source, choice)
    source.notes += choice.notes()
    return source


def _whole_source(run: Run) -> _Loose | _Shards | _Records:
    """Open the whole source; build the index of its samples if there is none for this version.

    Parameters
    ----------
    run : Run
        The run with the source's storage options.

    Raises
    ------
    BadOption
        If shards are compressed, several places are given that are no shards, or a target would replace its source.
    NotFound
        If there are no samples.
    """
    operation = run.operation
    assert isinstance(operation, Pack)
    samples = samples_of(operation)
    run_of_samples = replace(run, operation=samples)
    if are_records(samples.sources):
        return _records(run_of_samples, samples)
    if are_shards(samples.sources):
        return _shards(run_of_samples, samples, operation.on_error)
    loose = loose_index(run_of_samples)
    return _Loose(loose.index, loose.prefix, run.open(folder_part(samples.place)).store)


def _shards(run: Run, operation: SampleSource, on_error: str) -> _Shards:
    shards = shards_of(run)
    stores = _stores(run, shards)
    fingerprint = fingerprint_of(shards)
    path = index_path(operation, run)
    index = known_index(path, fingerprint) if all(shard.is_told_apart for shard in shards) else None
    damage = None
    if index is None:
        with contextlib.ExitStack() as stack:

            def bodies(verify: str) -> Bodies:
                opened = Bodies(
                    run.control,
                    shards,
                    lambda shard: stores[shard.place],
                    verify=verify,
                    width=WIDTH,
                    ahead_bytes=_AHEAD,
                )
                stack.callback(opened.close)
                return opened

            damage = Damage(bodies("none")) if on_error == "report" else None
            index = index_of(
                run.context,
                path,
                shards,
                bodies(operation.verify),
                fingerprint=fingerprint,
                progress=lambda _: None,
                otherwise=_COMPRESSED,
                damage=damage,
            )
    return _Shards(index, shards, [stores[shard.place] for shard in shards], damage=damage)


def _records(run: Run, operation: SampleSource) -> _Shards | _Records:
    files = sliced(operation, files_of(run, operation.sources))
    stores = _stores(run, files)
    of_each = [stores[file.place] for file in files]

    def store_of(file: SourceFile) -> Store:
        return stores[file.place]

    path = heads_path(run.context, files, store_of)
    kept = kept_heads(path, files) if all(file.is_told_apart for file in files) else None
    heads = kept or fetch_heads(run.control, files, store_of, path, run.context)
    heads.check()
    index = index_of_packed(run.control, operation, files, heads, store_of, run.context)
    if index is not None:
        return _Shards(index, files, of_each, heads)
    if operation.filtered:
        raise names_wanted()
    return _Records(heads, files, of_each)


def _stores(run: Run, shards: Sequence[SourceFile]) -> dict[str, Store]:
    """The store of each place; places in which a key means the same object share a store."""
    stores_by_place: dict[str, Store] = {}
    for shard in shards:
        if shard.place not in stores_by_place:
            store = run.open(shard.place).store
            known = (one for one in set(stores_by_place.values()) if one.same_objects(store))
            stores_by_place[shard.place] = next(known, store)
    return stores_by_place
