"""Shards and FFRecord files that the workers of a cluster pack: a part has their samples, with the place of each field.

So a worker needs neither the listing nor the index of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nbdata.engine.job.dealing import PartReport
from nbdata.engine.job.dealt_plan import DealtPlan
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.job.same_machine import here
from nbdata.engine.pack import own_files
from nbdata.engine.pack.source import Field, Order, PackSource
from nbdata.errors import NbdataError
from nbdata.reading.pieces import Piece
from nbdata.report import Plan, Row
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.local import LocalStore
from nbdata.transfer.index import Index
from nbdata.writing.manifest import Digests

__all__ = ["DealtPack", "SentSource"]

# The most samples of a shard that is dealt: the coordinator packs shards of more itself, as their places would take
# too much of its memory.
_MOST = 50_000


class SentSource:
    """The samples of one shard, in its order, and perhaps some before them; see `PackSource`.

    Parameters
    ----------
    sent : dict
        What `DealtPack` sends of a shard.
    stores : list of Store
        The stores of the source, as they were sent.
    """

    def __init__(self, sent: Mapping[str, Any], stores: Sequence[Store]) -> None:
        self._samples, self._stores = sent["samples"], stores
        self._infos = [ObjectInfo(*info) for info in sent["infos"]]
        self.notes, self.damaged = list[str](), list[tuple[str, NbdataError]]()
        self.stores, self.shards = set(stores), list[tuple[Store, str]]()
        self.folder: tuple[Store, str] | None = None
        self.left_out: tuple[int, list[str]] = (0, [])

    def __len__(self) -> int:
        return len(self._samples)

    def key(self, number: int) -> str:
        return str(self._samples[number][0])

    def fields(self, number: int) -> list[Field]:
        return [
            Field(name, self._stores[store], Piece(self._infos[info], start, end), crc, path)
            for name, store, info, start, end, crc, path in self._samples[number][1]
        ]

    def sizes(self, number: int) -> dict[str, int]:
        return {field.name: field.piece.size for field in self.fields(number)}


class DealtPack(DealtPlan):
    """See `DealtPlan`.

    Parameters
    ----------
    moves : tuple of str
    index : Index
    source : PackSource
    order : Order
    target : Store
    digests : dict
        Gets the digests of the new shards, by name.
    numbered : bool
        Whether samples with the key of their neighbour are numbered beyond the end of a shard, as in FFRecord files.

    Attributes
    ----------
    unverified : int
        Objects of which the store has no checksum.
    """

    def __init__(
        self,
        run: Run,
        plan: Plan,
        results: Results,
        moves: tuple[str, ...],
        index: Index,
        source: PackSource,
        order: Order,
        target: Store,
        digests: dict[str, Digests],
        *,
        numbered: bool,
    ) -> None:
        super().__init__(run, plan, results, moves)
        self._numbered = numbered
        self._index, self._source, self._order, self._digests = index, source, order, digests
        self._numbers = {store: number for number, store in enumerate(source.stores)}
        self._beside = any(isinstance(store, LocalStore) for store in (target, *source.stores))
        opened = {location.store: place for (_, place), location in run.opened.items()}
        self._places = [opened[store] for store in self._numbers]
        self.unverified = 0

    def facts(self, rows: list[Row]) -> dict[str, object]:
        return {
            "places": self._places,
            "listed": {place: self.run.listed.get(place) for place in self._places},
            "here": here(self.run) if self._beside else None,
            "shards": {row.path: self._sent(row.detail["first"], row.detail["samples"]) for row in rows},
        }

    def takes(self, row: Row) -> bool:
        """Whether a worker packs this shard."""
        if row.action not in self.moves:
            return False
        first, samples = row.detail["first"], row.detail["samples"]
        return bool(samples <= _MOST and samples + self._before(first, _MOST) <= _MOST)

    def _before(self, first: int, most: int) -> int:
        """The number of samples before a position that have the same key and count for it, as far as `most` and one."""
        source, order, count = self._source, self._order, 0
        if self._numbered and first:
            key = source.key(order[first])
            while count <= most and count < first and source.key(order[first - count - 1]) == key:
                count += 1
        return count

    def _sent(self, first: int, samples: int) -> dict[str, object]:
        infos = dict[tuple[object, ...], int]()
        before = self._before(first, _MOST)
        sent = list[tuple[str, list[tuple[object, ...]]]]()
        for position in range(first - before, first + samples):
            number = self._order[position]
            fields = self._source.fields(number) if position >= first else []
            sent.append((self._source.key(number), [self._field(field, infos) for field in fields]))
        return {"samples": sent, "infos": list(infos), "first": before}

    def _field(self, field: Field, infos: dict[tuple[object, ...], int]) -> tuple[object, ...]:
        info, start, end = field.piece
        known = infos.setdefault(info[:5], len(infos))
        return field.name, self._numbers[field.store], known, start, end, field.crc, field.path

    def rows(self) -> Iterator[Row]:
        return filter(self.takes, self.plan.rows)

    def begin(self, rows: list[Row]) -> list[Row]:
        own_files.making(self._index, [row.path for row in rows])
        return rows

    def record(self, rows: Mapping[str, Row], part: PartReport) -> None:
        self._index.put(part.records)
        for name, digests in part.details.get("digests", {}).items():
            if name in rows:
                self._digests[name] = digests
        self.unverified += part.details.get("unverified", 0)
        if self.run.reservation is not None:
            for row in _packed(part.rows):
                self.run.reservation.note_written(row.size, 1)


def _packed(rows: Iterable[Row]) -> Iterator[Row]:
    return (row for row in rows if row.action == Outcome.PACKED)
