"""Shards that the workers of a cluster read: each row of a part is a shard, under its number."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping

from nbdata.disk import disk_error
from nbdata.engine.job.dealing import PartReport
from nbdata.engine.job.dealt_plan import DealtPlan
from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.shards.found import Found
from nbdata.errors import NbdataError
from nbdata.formats.sample_index import SampleIndex
from nbdata.reading.shards.indexing import Indexing
from nbdata.reading.source_file import Promised, SourceFile
from nbdata.report import Plan, Row

__all__ = ["DealtShards", "shards_in"]


def shards_in(run: Run, rows: Iterable[Row]) -> list[SourceFile]:
    """Return the shards of a part, and let the run open their places."""
    shards = []
    for row in rows:
        *values, promised = row.detail["shard"]
        shards.append(SourceFile._make([*values, promised and Promised(*promised)]))
        if row.detail["named"] is not None:
            run.listed[shards[-1].place] = row.detail["named"]
    return shards


class DealtShards(DealtPlan):
    """See `DealtPlan`.

    Parameters
    ----------
    shards : list of SourceFile
    found : Found
        Gets what the workers find.
    indexing : Indexing or None
        Gets the indexes that they make, in the order of the shards. One that comes early waits in the job's folder.
    """

    def __init__(
        self,
        run: Run,
        plan: Plan,
        results: Results,
        shards: list[SourceFile],
        found: Found,
        indexing: Indexing | None,
    ) -> None:
        super().__init__(run, plan, results, ("read",))
        self._shards, self._found, self._indexing = shards, found, indexing
        self._next = 0  # the shard whose index comes next
        self._early: dict[int, int] = {}  # how many shards the waiting indexes have, by their first one

    def rows(self) -> Iterator[Row]:
        for number, shard in enumerate(self._shards):
            detail = {"shard": shard, "named": self.run.listed.get(shard.place)}
            yield Row(str(number), "read", shard.size, detail)

    def take(self, rows: Mapping[str, Row], part: PartReport) -> None:
        known = {self._shards[int(number)].url for number in rows}
        if part.records or part.staged or not {row.path for row in part.rows} <= known:
            raise NbdataError("a worker reported shards that were not in its part")
        self.results.merge(part)
        if part.error is not None:
            raise part.error
        self._found.take(Found(**part.details))
        if self._indexing is not None:
            self._keep(int(next(iter(rows))), len(rows), part.data)
            self._take_next(self._indexing)

    def close(self) -> None:
        """Remove the indexes that still wait, after an error."""
        for first in self._early:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(first))

    def _path(self, first: int) -> str:
        return os.path.join(self.run.folder, f"index-{first}")

    def _keep(self, first: int, count: int, data: bytes) -> None:
        path = self._path(first)
        self._early[first] = count
        try:
            with open(path, "wb") as file:
                file.write(data)
        except OSError as error:
            raise disk_error(error, path) from error

    def _take_next(self, indexing: Indexing) -> None:
        while (count := self._early.get(self._next)) is not None:
            path = self._path(self._next)
            index = SampleIndex(path)
            if not index.is_of_shards(len(self._shards)):
                raise NbdataError("a worker sent an index of something else", path=path)
            indexing.take(index)
            os.unlink(path)
            del self._early[self._next]
            self._next += count
