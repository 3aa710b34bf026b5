"""Decides which consumer gets which batch of a pass, and knows which batches are acknowledged. Sends nothing itself."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nbdata.loaders.service.batches import Encoded

__all__ = ["Batch", "Consumer", "Pass"]


@dataclass(frozen=True)
class Batch:
    """A batch that is ready.

    Attributes
    ----------
    number : int
        Its place in the epoch.
    content : Encoded
    state : dict or None
        The loader's state just before it.
    """

    number: int
    content: Encoded
    state: dict[str, Any] | None


@dataclass(eq=False)
class Consumer:
    """A trainer that is connected.

    Attributes
    ----------
    id : str
        What it calls itself; it stays when it connects again.
    name : str
        For messages.
    route : bytes
        Its connection.
    room : int
        How many batches it may hold unacknowledged.
    seen : int
        The number of its last message.
    asks : bool
        Whether it waits for a batch, or has got one in this pass and may get more.
    turn : int or None
        The pass that it takes part in.
    ended : int or None
        The last pass whose end it was told.
    out : dict of int to None
        What was sent to it in this pass and is not acknowledged, in this order.
    next : int
        Broadcast: the next batch to send.
    """

    id: str
    name: str
    route: bytes
    room: int
    seen: int = 0
    asks: bool = False
    turn: int | None = None
    ended: int | None = None
    out: dict[int, None] = field(default_factory=dict)
    next: int = 0

    @property
    def lowest(self) -> int:
        """Broadcast: the first batch that it has not acknowledged."""
        return min(self.out, default=self.next)


class Pass:
    """One pass over the loader: an epoch, or the rest of one.

    Parameters
    ----------
    turn : int
        Tells passes apart.
    mode : {"share", "broadcast"}
    first : int
        The number of the first batch that is made.
    done : iterable of int
        Those behind it that are acknowledged already, so they are not dealt.
    absent : dict, optional
        What `out` returned before a restart of the service: batches that wait for consumers to come back.
    """

    def __init__(
        self,
        turn: int,
        mode: str,
        first: int = 0,
        done: Iterable[int] = (),
        absent: dict[str, list[int]] | None = None,
    ) -> None:
        self.turn, self.mode, self.first = turn, mode, first
        self.epoch: int = 0
        self.running = False
        self.made = first  # the number of the next batch that is made
        self.whole = False  # whether the last one is made
        self.next_state: dict[str, Any] | None = None  # the loader's before that one
        self.done = {number for number in done if number >= first}
        self.absent = absent or {}
        self.batches: dict[int, Batch] = {}
        self.held = self.last = 0  # bytes of all batches here, and of the latest one
        self._ready: list[int] = []  # share: those that nobody has
        self._claimed: set[int] = (
            set()
        )  # share: those that a consumer has from before a restart of the service

    # -- the loader's side ----------------------------------------------------------------------

    def add(self, batch: Batch) -> None:
        """Take a batch that is made."""
        self.made = batch.number + 1
        if batch.number in self.done:
            return
        self.batches[batch.number] = batch
        self.last = batch.content.size
        self.held += self.last
        if batch.number in self._claimed:
            self._claimed.discard(batch.number)
        elif not any(batch.number in held for held in self.absent.values()):
            heapq.heappush(self._ready, batch.number)

    def wants_more(self, ahead: int, consumers: Iterable[Consumer]) -> bool:
        """True if the next batch may be made: there is room, or a consumer would get nothing else."""
        if not self.held or self.held + self.last <= ahead:
            return True
        if self.mode == "broadcast" or self._ready:
            return False
        return any(one.asks and one.turn == self.turn and not one.out for one in consumers)

    # -- the consumers' side --------------------------------------------------------------------

    def join(self, consumer: Consumer) -> None:
        """Let a consumer take part, from what is there on."""
        self.release(consumer.id)
        consumer.turn, consumer.out = self.turn, {}
        consumer.next = min(self.batches, default=self.made)

    def rejoin(self, consumer: Consumer, holds: Iterable[int], following: int | None) -> list[int]:
        """Let a consumer take part that holds batches of this pass; return those that others have by now.

        `following` is the batch that it expects next; only a broadcast has such an order.
        """
        self.join(consumer)
        theirs = list[int]()
        for number in sorted(set(holds)):
            if self.mode == "broadcast":
                consumer.out[number] = None
            elif number in self._ready:
                self._ready.remove(number)
                heapq.heapify(self._ready)
                consumer.out[number] = None
            elif number >= self.made and number not in self._claimed | self.done:
                self._claimed.add(number)
                consumer.out[number] = None
            else:
                theirs.append(number)
        if self.mode == "broadcast" and following is not None:
            consumer.next = max(consumer.next, following)
        return theirs

    def release(self, who: str) -> None:
        """Deal what waits for a consumer that had it before a restart of the service."""
        for number in self.absent.pop(who, ()):
            if self.mode == "share" and number in self.batches and number not in self._ready:
                heapq.heappush(self._ready, number)

    def release_all(self, consumers: Iterable[Consumer]) -> None:
        """Wait for no consumer any more that has not come back."""
        for who in list(self.absent):
            self.release(who)
        self._retire(consumers)

    def deal(self, consumer: Consumer) -> Iterator[Batch]:
        """Yield what a consumer gets now; it counts as sent."""
        while self.running and consumer.turn == self.turn and consumer.asks:
            if len(consumer.out) >= consumer.room:
                return
            if self.mode == "share":
                if not self._ready:
                    return
                number = heapq.heappop(self._ready)
            elif consumer.next in self.batches:
                number, consumer.next = consumer.next, consumer.next + 1
            else:
                return
            consumer.out[number] = None
            yield self.batches[number]

    def acknowledge(self, consumer: Consumer, numbers: Iterable[int], consumers: Iterable[Consumer]) -> None:
        """Note that a consumer has used batches."""
        for number in numbers:
            consumer.out.pop(number, None)
            if self.mode == "share" and number >= self.first:
                self._forget(number)
        self._retire(consumers)

    def gone(self, consumer: Consumer, consumers: Iterable[Consumer]) -> None:
        """Deal again what a consumer had, before anything else."""
        if consumer.turn != self.turn:
            return
        if self.mode == "share":
            for number in consumer.out:
                self._claimed.discard(number)
                if number in self.batches and number not in self._ready:
                    heapq.heappush(self._ready, number)
        consumer.turn, consumer.out = None, {}
        self._retire(consumers)

    def _forget(self, number: int) -> None:
        self.done.add(number)
        self._claimed.discard(number)
        if number in self._ready:
            self._ready.remove(number)
            heapq.heapify(self._ready)
        batch = self.batches.pop(number, None)
        if batch is not None:
            self.held -= batch.content.size

    def _retire(self, consumers: Iterable[Consumer]) -> None:
        """Broadcast: forget what all who take part have acknowledged. Without anybody, all stays for the next one."""
        part = [one for one in consumers if one.turn == self.turn]
        if self.mode == "broadcast" and part:
            lowest = min(one.lowest for one in part)
            lowest = min([lowest, *(number for held in self.absent.values() for number in held)])
            for number in [number for number in self.batches if number < lowest]:
                self._forget(number)
        low = self.lowest
        if len(self.done) > 64 and min(self.done) < low:
            self.done = {number for number in self.done if number >= low}

    # -- where it stands ------------------------------------------------------------------------

    def out(self, consumers: Iterable[Consumer]) -> dict[str, list[int]]:
        """Return the batches that each consumer may have; in a broadcast, the first one that it may not have used."""
        part = [one for one in consumers if one.turn == self.turn]
        share = self.mode == "share"
        return {**self.absent, **{one.id: sorted(one.out) if share else [one.lowest] for one in part}}

    @property
    def used(self) -> int:
        """The batches of the epoch that are acknowledged."""
        low, later = self.position()
        return low + len(later)

    @property
    def lowest(self) -> int:
        """The first batch that is not acknowledged."""
        return min(self.batches, default=self.made)

    def ended(self, consumers: Iterable[Consumer]) -> bool:
        """True if all batches are made, and acknowledged by all who take part and are still there."""
        if not self.batches or self.mode == "share":
            return self.whole and not self.batches
        if self.absent:
            return False
        there = list(consumers)
        return self.ended_for(*(one for one in there if one.turn == self.turn)) and any(
            one.ended == self.turn for one in there
        )

    def ended_for(self, *consumers: Consumer) -> bool:
        """Broadcast: true if there is nothing left for these."""
        return self.whole and all(one.next >= self.made and not one.out for one in consumers)

    def position(self, consumer: Consumer | None = None, hand: int | None = None) -> tuple[int, list[int]]:
        """Return the first batch that is not acknowledged, and the later ones that are.

        With `consumer`, the batch in its hand counts as acknowledged; in a broadcast, all counts that it has used.
        """
        if self.mode == "broadcast" and consumer is not None and consumer.turn == self.turn:
            low = min((number for number in consumer.out if number != hand), default=consumer.next)
            return (low, []) if low <= self.made else (self.made, [*range(self.made, low)])
        open_ = self.batches.keys() - {hand} if consumer is not None else self.batches.keys()
        low = min(open_, default=self.made)
        done = self.done | ({hand} if hand is not None and consumer is not None else set())
        return low, sorted(number for number in done if number >= low)

    def state_before(self, number: int) -> dict[str, Any] | None:
        """Return the loader's state before a batch."""
        return self.batches[number].state if number in self.batches else self.next_state
