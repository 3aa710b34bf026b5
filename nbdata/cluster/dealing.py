"""The coordinator's side: cuts the work of a job into parts, deals them to the workers, and merges their reports."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any

from nbdata.cluster import performer
from nbdata.cluster.cutting import Cutter, cost
from nbdata.cluster.opening import Cluster, distributed, refuse_unguarded
from nbdata.engine.job.dealing import Dealer, Dealt, Moved, encoded_rows, report_in
from nbdata.engine.job.task import Task
from nbdata.errors import Cancelled, NbdataError
from nbdata.operation import Context, Operation
from nbdata.report import Row
from nbdata.sizes import counted
from nbdata.stores.http.dial import stall_limit

__all__ = ["ClusterDealer", "dealer_of"]

# Parts that are dealt for each that is performed at a time: one waits on the worker while it reports the last.
_AHEAD = 2
# Seconds between two looks at the job and the cluster while no part ends, and until a cluster without workers is lost.
_LOOK, _NOBODY = 0.1, 60.0
# A part is dealt again if its worker reported nothing for so many times the stall limit. Within one, a request reports
# that it is made again; the others are for the waits between its tries, and for the disk.
_STALLS = 4
# How often a part is dealt to workers that do not know the job, or die with its report, before something is wrong.
_TRIES = 10
# The most parts that a Report tells of.
_TOLD = 1000
_AGAIN = "Run the command again to resume"


@contextlib.contextmanager
def dealer_of(operation: Operation, context: Context, task: Task) -> Iterator[Dealer | None]:
    """Give the dealer of a job, or None if the job asks for no cluster; end what was started for it.

    Raises
    ------
    BadOption
        If a cluster cannot be used.
    """
    if getattr(operation, "cluster", None) is None:
        yield None
        return
    refuse_unguarded()
    distributed()
    dealer = ClusterDealer(operation, context, task)
    try:
        yield dealer
    finally:
        dealer.close()


@dataclass
class _Dealt:
    """A part that is being performed."""

    number: int
    rows: dict[str, Row]
    cost: int
    data: bytes
    tries: int = 0
    moved: Moved = Moved()  # as it was last told
    future: Any = None
    answer: Future[Any] | None = None  # its report, which is on its way; the worker has ended it
    worker: str = ""  # which has begun it
    heard: float = 0.0  # when that last reported something
    again: bool = False  # dealt a second time, because the first worker hangs

    @property
    def is_out(self) -> bool:
        """True while it is performed, or its report is fetched."""
        return not (self.future.done() if self.answer is None else self.answer.done())

    def leave_answer(self) -> None:
        """Fetch the report no longer."""
        if self.answer is not None:
            self.answer.cancel()


class ClusterDealer:
    """See `Dealer`. The cluster opens when the first part is dealt, so a job without work starts none."""

    def __init__(self, operation: Operation, context: Context, task: Task) -> None:
        self._operation, self._context, self._task = operation, context, task
        self._open = contextlib.ExitStack()
        # Parts that ended, and by which future: as many as are dealt.
        self._done: queue.SimpleQueue[tuple[_Dealt, Any]] = queue.SimpleQueue()
        self._dealt: dict[int, _Dealt] = {}
        self._quiet = _STALLS * stall_limit(context.env)
        self._heard = 0.0  # when any worker last reported something
        self._hanging: set[str] = set()  # workers that get no more parts of this job
        self._lock = threading.Lock()
        self._number = self._ended = 0
        self._began = 0.0
        self._workers: dict[str, int] = {}  # those that have performed a part, and their numbers
        self._times: list[list[float]] = []

    def told(self) -> dict[str, object]:
        """See `Dealer.told`."""
        if not self._ended:
            return {}
        return {"cluster": {"workers": len(self._workers), "parts": self._ended, "times": self._times}}

    def close(self) -> None:
        """Take back what is dealt, and end the cluster if it was started for this job."""
        for part in self._dealt.values():
            part.leave_answer()
            with contextlib.suppress(Exception):  # the scheduler may be gone
                part.future.cancel()
        self._dealt.clear()
        self._open.close()

    def deal(self, work: Dealt) -> None:
        """See `Dealer.deal`."""
        cutter = Cutter(work.rows(), work.plan.files, work.plan.bytes, work.most)
        if not cutter:
            return
        try:
            self._deal(self._cluster(), work, cutter)
        except BaseException:
            # Before the job gives up its target, its parts end.
            self.close()
            raise

    def _deal(self, cluster: Cluster, work: Dealt, cutter: Cutter) -> None:
        self._looks_at = 0.0
        places, more = self._looked(cluster, work, 1), True
        while True:
            self._task.checkpoint()
            while more and len(self._dealt) < _AHEAD * places:
                rows = cutter.part(places)
                more = bool(rows)
                self._begin(cluster, work, rows, places)
            if not self._dealt:
                return
            places = self._looked(cluster, work, places)
            with contextlib.suppress(queue.Empty):
                part, future = self._done.get(timeout=_LOOK)
                if future is not part.future:  # another worker has got the part
                    continue
                if self._is_lost(cluster, part):
                    self._wait_again(cluster, part)
                elif part.answer is None and future.status == "finished":
                    self._fetch(cluster, part)
                else:
                    self._take(cluster, work, cutter, part, places)

    def _cluster(self) -> Cluster:
        self._task.phase("starts the workers")
        cluster = self._open.enter_context(Cluster(self._task.id, self._operation, self._context, self._task))
        cluster.client.subscribe_topic(performer.topic_of(self._task.id), self._told)
        self._task.phase("")
        self._seen = self._heard = self._began = time.monotonic()
        return cluster

    def _begin(self, cluster: Cluster, work: Dealt, rows: list[Row], places: int) -> None:
        known = {row.path: record for row in rows if (record := work.known(row.path)) is not None}
        if not rows or not (rows := work.begin(rows)):
            return
        self._number += 1
        part = _Dealt(
            self._number,
            {row.path: row for row in rows},
            sum(map(cost, rows)),
            encoded_rows(rows, known, work.facts(rows)),
        )
        with self._lock:
            self._dealt[part.number] = part
        self._submit(cluster, part, places)

    def _submit(self, cluster: Cluster, part: _Dealt, places: int) -> None:
        rate = self._task.rate
        part.tries += 1
        part.worker, part.answer = "", None
        future = part.future = cluster.client.submit(
            performer.perform_part,
            self._task.id,
            part.number,
            None if rate is None else max(1, rate // places),
            part.data,
            key=f"nbdata-{self._operation.verb}-{self._task.id}-part{part.number}-try{part.tries}",
            pure=False,
            workers=sorted(cluster.workers.keys() - self._hanging) if self._hanging else None,
        )
        future.add_done_callback(lambda _: self._done.put((part, future)))

    def _fetch(self, cluster: Cluster, part: _Dealt) -> None:
        """Begin to fetch the report of a part that has ended. Its worker may hang by now, so nothing waits here."""
        future, part.heard = part.future, time.monotonic()
        part.answer = cluster.fetched(future.key)
        part.answer.add_done_callback(lambda _: self._done.put((part, future)))

    def _is_lost(self, cluster: Cluster, part: _Dealt) -> bool:
        """Return whether a part has ended, and its report is lost with its worker."""
        if cluster.client.status != "running":
            return False
        answer = part.answer
        if answer is None:
            return part.future.status in ("lost", "pending")
        return not answer.cancelled() and answer.exception() is None and answer.result() is None

    def _wait_again(self, cluster: Cluster, part: _Dealt) -> None:
        """Wait for a part that the scheduler has another worker do. Dealt here, two would do it at a time."""
        if part.tries >= _TRIES:
            raise NbdataError("the workers of the cluster die with their reports", path=cluster.name)
        part.tries += 1
        part.worker, part.answer, future = "", None, part.future
        cluster.wait_again(future.key)
        future.add_done_callback(lambda _: self._done.put((part, future)))

    def _take(self, cluster: Cluster, work: Dealt, cutter: Cutter, part: _Dealt, places: int) -> None:
        """Merge a part that has ended; deal it again to a worker that did not know the job."""
        worker, data = self._result(cluster, part)
        ended = self._heard = time.monotonic()
        if not data:
            if part.tries >= _TRIES:
                raise NbdataError("the workers of the cluster forget the job", path=cluster.name)
            cluster.enter([worker])
            self._submit(cluster, part, places)
            return
        report = report_in(data)
        with self._lock:
            del self._dealt[part.number]
        self._count(part, report.moved)
        self._note(worker, part, ended, report.seconds)
        for _ in range(report.retries):
            self._task.tried_again(NbdataError(report.why_again))
        if report.seconds:
            cutter.measured(part.cost, report.seconds)
        work.take(part.rows, report)

    def _note(self, worker: str, part: _Dealt, ended: float, seconds: float) -> None:
        """Note for the Report who performed a part, and when, by this machine's clock."""
        number = self._workers.setdefault(worker, len(self._workers))
        self._ended += 1
        if len(self._times) < _TOLD:
            begin = max(0.0, ended - self._began - seconds)
            self._times.append([number, round(begin, 3), round(begin + seconds, 3), len(part.rows)])

    def _result(self, cluster: Cluster, part: _Dealt) -> tuple[str, bytes]:
        """Return who performed a part and the report."""
        future, part.future = part.future, None
        try:
            if part.answer is not None:
                worker, data = part.answer.result()
                return str(worker), bytes(data)
            error = future.exception() if future.status == "error" else None
        except (Exception, CancelledError) as raised:  # while the answer was fetched
            error = raised
        finally:
            with contextlib.suppress(Exception):
                future.release()
        if error is not None and type(error).__name__ == "KilledWorker":
            first = next(iter(part.rows)).partition("\0")[0]  # a range of it
            raise NbdataError(
                f"several workers died one after the other while they worked on the same "
                f"{counted(len(part.rows), 'objects')}, the first of which is {first}",
                remedy=f"See the logs of the workers; they may lack memory. {_AGAIN}",
            )
        if (
            (part.answer is not None and isinstance(error, (OSError, CancelledError)))
            or cluster.client.status != "running"
            or future.status in ("cancelled", "lost")
        ):
            raise self._lost(cluster)
        raise NbdataError(f"a part failed on its worker: {type(error).__name__}: {error}", remedy=_AGAIN)

    def _lost(self, cluster: Cluster) -> NbdataError:
        return NbdataError(
            "the scheduler of the cluster was lost",
            path=cluster.name,
            remedy=f"Start it again. What was done is recorded: {_AGAIN[0].lower()}{_AGAIN[1:]}",
        )

    def _looked(self, cluster: Cluster, work: Dealt, places: int) -> int:
        """Look after the cluster now and then; return how many parts it performs at a time."""
        if cluster.client.status != "running":
            raise self._lost(cluster)
        now = time.monotonic()
        if now - self._looks_at < 1:
            return places
        self._looks_at = now
        try:
            cluster.look()
            if cluster.workers:
                self._seen = now
            self._leave_hanging(cluster, work, places, now)
        except Cancelled:
            raise
        except Exception:
            raise self._lost(cluster) from None
        if now - self._seen > _NOBODY:
            raise NbdataError(
                "all workers of the cluster are gone", path=cluster.name, remedy=f"Start some. {_AGAIN}"
            )
        return sum(threads for one, threads in cluster.workers.items() if one not in self._hanging) or places

    def _leave_hanging(self, cluster: Cluster, work: Dealt, places: int, now: float) -> None:
        """Deal parts of which nothing was heard for too long to other workers, once.

        A worker that hangs before it begins a part shows when nothing is heard of any part any more. One may also hang
        while it has the report of a part that it has performed.
        """
        with self._lock:
            parts = [part for part in self._dealt.values() if not part.again and part.is_out]
            found = {part.worker for part in parts if part.worker and now - part.heard > self._quiet}
        waiting = {
            part.future.key: part
            for part in parts
            if part.answer is not None or work.may_repeat(part.rows.values())
        }
        if not waiting or (not found and now - self._heard <= self._quiet):
            return
        of_workers = {
            worker: [waiting[key] for key in keys if key in waiting]
            for worker, keys in cluster.parts_of_workers().items()
        }
        for part in waiting.values():
            if part.answer is not None:
                of_workers.setdefault(part.worker, []).append(part)
        found = found or {worker for worker, theirs in of_workers.items() if theirs}
        if not cluster.workers.keys() - self._hanging - found:
            return  # there is nobody else
        self._hanging |= found
        for part in itertools.chain.from_iterable(of_workers.get(worker, ()) for worker in found):
            late, part.again = part.future, True
            part.leave_answer()
            self._submit(cluster, part, places)
            late.cancel()
        self._heard = now

    # -- progress -----------------------------------------------------------------------------

    def _told(self, event: tuple[float, Any]) -> None:
        """Count the progress of a part; called in a thread of the client."""
        number, worker, *moved = event[1]
        with self._lock:
            part = self._dealt.get(number)
            if part is None or worker in self._hanging:
                return
            part.worker, part.heard = worker, time.monotonic()
            self._heard = part.heard
        self._count(part, Moved(*moved))

    def _count(self, part: _Dealt, now: Moved) -> None:
        """Count what a part has moved; less than before if another worker performs it again."""
        with self._lock:
            before, part.moved = part.moved, now
        more = Moved(*(a - b for a, b in zip(now, before, strict=True)))
        self._task.advance(files=more.files, bytes=more.bytes, present=more.present, failures=more.failures)
