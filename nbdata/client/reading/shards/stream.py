"""One pass through shards: in order, or with shards shuffled and samples shuffled in windows; resumable.

The order of an epoch depends only on its seed and number. This holds for the shards, and for the samples in each, which
has its own window. A part (one worker of one rank) keeps several shards open and draws from them, so neighbours come
from several shards. Its position is the number of samples that each open shard has given. So the same part resumes with
the same sequence, or other parts share the rest, each sample once.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nbdata.archives.decompress import open_decompressed
from nbdata.archives.forward_reader import ForwardReader
from nbdata.client.reading.changed import advising_on_changes
from nbdata.client.reading.epochs import epoch_of_stream
from nbdata.client.reading.orders import part_of
from nbdata.client.reading.passing import Pass, refuse_other, states_of
from nbdata.client.reading.shards.deal import Left, Work, merged, work_of
from nbdata.errors import SourceChanged
from nbdata.formats.permutation import Permutation
from nbdata.formats.shards import LeftOut, Sample, samples_in
from nbdata.protocols import Epoch
from nbdata.reading.counts import Counts
from nbdata.reading.shards.content import Bodies
from nbdata.reading.source_file import SourceFile

__all__ = ["Limits", "Order", "pass_of"]

# Shards that are open at a time in a shuffled pass; they share the window.
_SIDE_BY_SIDE = 4
# Most bytes of samples in the windows of one pass, whatever the number of parts: it decides the order.
_WINDOW_BYTES = 256 << 20
# Bytes that a field takes beside its name and its content.
_EACH_FIELD = 256
_STATE = 1
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Limits:
    """The memory that data may ask for; see `nbdata.verbs.options.HoldingSamples`. Each open shard has it.

    Attributes
    ----------
    max_window : int or None
        Largest window of a decoder.
    max_sample : int or None
        Largest sample.
    """

    max_window: int | None
    max_sample: int | None


@dataclass(frozen=True)
class Order:
    """The order of shards and of the samples in them.

    Attributes
    ----------
    shuffle : bool
    seed, epoch : int
    window : int
        How many samples are shuffled together.
    """

    shuffle: bool
    seed: int
    epoch: int
    window: int

    def shards(self, count: int) -> Sequence[int] | Permutation:
        """Return the numbers of that many shards, by position."""
        return Permutation(count, seed=self.seed, epoch=self.epoch) if self.shuffle else range(count)

    def within(self, position: int, samples: Iterator[Sample]) -> Iterator[Sample]:
        """Yield the samples of the shard at a position, in their order."""
        if not self.shuffle:
            return samples
        own = random.Random(f"nbdata {self.seed} {self.epoch} {position}")
        return _shuffled(samples, own, max(1, self.window // _SIDE_BY_SIDE), _WINDOW_BYTES // _SIDE_BY_SIDE)

    def draw(self, part: tuple[int, int], number: int, among: int) -> int:
        """Choose the open shard, one of `among`, that gives the `number`-th sample."""
        if among == 1:
            return 0
        # The finaliser of MurmurHash3 (Appleby, public domain).
        mixed = (number * 0x9E3779B97F4A7C15 + (self.seed << 32) + (self.epoch << 16) + part[0]) & _MASK
        mixed = (mixed ^ (mixed >> 33)) * 0xFF51AFD7ED558CCD & _MASK
        mixed = (mixed ^ (mixed >> 33)) * 0xC4CEB9FE1A85EC53 & _MASK
        return (mixed ^ (mixed >> 33)) % among


def _shuffled(
    samples: Iterator[Sample], own: random.Random, window: int, most: int
) -> Generator[Sample, None, None]:
    """Yield samples in a random order, holding no more than a window, nor more than `most` bytes."""
    held: list[Sample] = []
    size = 0
    for sample in samples:
        held.append(sample)
        size += _size(sample)
        del sample  # else it would be in memory until the next one is read
        while len(held) > window or (size > most and len(held) > 1):
            at = int(own.random() * len(held))
            held[at], held[-1] = held[-1], held[at]
            size -= _size(held[-1])
            yield held.pop()
    own.shuffle(held)
    while held:
        yield held.pop()


def _size(sample: Sample) -> int:
    """Return the bytes that a sample takes, with its names; alike in each version of Python: it decides the order."""
    return sum(len(content) + 4 * len(name) + _EACH_FIELD for name, content in sample[1].items())


class _Slot:
    """An open shard."""

    def __init__(self, position: int, url: str, samples: Generator[Sample, None, None]) -> None:
        self.position, self.url, self.given = position, url, 0
        self.samples = samples


def pass_of(
    shards: Sequence[SourceFile],
    bodies: Bodies,
    order: Order,
    *,
    fingerprint: str,
    part: str | None,
    resume: dict[str, Any] | Sequence[dict[str, Any]] | None,
    counts: Counts,
    left_out: LeftOut,
    verify: str,
    limits: Limits,
    ended: Callable[[], None],
) -> Pass:
    """Make a pass through some shards.

    Parameters
    ----------
    fingerprint : str
        The fingerprint of the shards.
    part : str or None
        ``"I/N"``.
    resume : dict, sequence of dict or None
        The state of that part, or the states of all parts of an epoch, of which this part then reads its share.
    counts, left_out
        Receive counts of what is read, and of members that belong to no sample.
    limits : Limits
    ended : callable
        Called at the end of the pass, whatever the reason.
    """
    expected = {
        "version": _STATE, "samples": fingerprint, "shuffle": order.shuffle, "seed": order.seed, "window": order.window,
        "epoch": order.epoch,
    }  # fmt: skip
    mine, left, state = part_of(part), Left(), dict[str, Any]()
    states = [] if resume is None else states_of(resume)
    for one in states:
        refuse_other(one, expected)
    if len(states) == 1 and part_of(states[0]["part"]) == mine:
        state = dict(states[0])
        left = Left.of(state["left"])
    elif states:
        left = merged(states, len(shards))
    walk = _Walk(shards, bodies, order, mine, work_of(mine, len(shards), left), left, state)
    walk.counts, walk.left_out, walk.verify, walk.about = counts, left_out, verify, expected
    walk.limits, walk.ended = limits, ended
    walk.epoch = epoch_of_stream(expected, whole=resume is None)
    return Pass(_advised(walk.run()), walk.state)


def _advised(samples: Generator[Any, None, None]) -> Generator[Any, None, None]:
    with advising_on_changes():
        yield from samples


class _Walk:
    """A pass with its position."""

    counts: Counts
    left_out: LeftOut
    verify: str
    about: dict[str, Any]
    limits: Limits
    ended: Callable[[], None]
    epoch: Epoch

    def __init__(
        self,
        shards: Sequence[SourceFile],
        bodies: Bodies,
        order: Order,
        part: tuple[int, int],
        work: Work,
        left: Left,
        state: dict[str, Any],
    ) -> None:
        self._shards, self._bodies, self._order = shards, bodies, order
        self._part, self._work, self._left = part, work, left
        self._numbers = order.shards(len(shards))
        self._slots: list[_Slot] = []
        self._next, self._draws = state.get("next", 0), state.get("draws", 0)
        self._begin_with: list[list[int]] | None = state.get("open", [])  # None once the pass has begun
        bodies.coming = self._coming

    def state(self) -> dict[str, Any]:
        """See `Pass.state_dict`."""
        return {
            **self.about,
            "part": f"{self._part[0]}/{self._part[1]}",
            "left": self._left.to_dict(),
            "next": self._next,
            "open": self._begin_with or [[slot.position, slot.given] for slot in self._slots],
            "draws": self._draws,
        }

    def run(self) -> Generator[Any, None, None]:
        """Yield the samples."""
        counts, slots, began = self.counts, self._slots, time.monotonic()
        before = counts.seconds
        try:
            self._bodies.note_epoch(self.epoch)
            for position, given in self._begin_with or ():
                slots.append(self._opened(position, given))
            if not self._next:
                for _ in range(_SIDE_BY_SIDE if self._order.shuffle else 1):
                    self._open_next(len(slots))
            self._begin_with = None
            while slots:
                at = self._order.draw(self._part, self._draws, len(slots))
                slot = slots[at]
                sample = next(slot.samples, None)
                if sample is None:
                    del slots[at]
                    self._open_next(at)
                    continue
                slot.given += 1
                self._draws += 1
                key, fields, _ = sample
                counts.samples += 1
                counts.bytes += sum(map(len, fields.values()))
                counts.seconds = before + time.monotonic() - began
                whole = {"__key__": key, "__url__": slot.url, **fields}
                del sample, fields  # else they would be in memory until the next one is read
                yield whole
                del whole
            self._bodies.note_epoch(self.epoch._replace(over=True))
        finally:
            for slot in slots:
                slot.samples.close()
            self.ended()

    def _open_next(self, at: int) -> None:
        """Open the next shard, if there is one, at a place among the open ones."""
        if self._next < len(self._work.positions):
            position = self._work.positions[self._next]
            self._next += 1
            self._slots.insert(at, self._opened(position, self._left.begun.get(position, 0)))

    def _opened(self, position: int, given: int) -> _Slot:
        """Open a shard whose first `given` samples were given before."""
        number = self._numbers[position]
        url = self._shards[number].url
        slot = _Slot(position, url, self._samples(position, number))
        for slot.given in range(1, given + 1):
            if next(slot.samples, None) is None:
                raise SourceChanged("a shard has fewer samples than were given out", path=url)
        return slot

    def _samples(self, position: int, number: int) -> Generator[Sample, None, None]:
        url, share = self._shards[number].url, self._work.share
        body = self._bodies.open(number)
        with contextlib.closing(body):
            stream, _ = open_decompressed(body, name=url, max_window=self.limits.max_window)
            reader = ForwardReader(stream, url, 0)
            with contextlib.closing(reader), contextlib.closing(stream):
                samples: Iterator[Sample] = samples_in(
                    reader,
                    lambda name, why: self.left_out.add(f"{url}: {name}", why),
                    max_sample=self.limits.max_sample,
                )
                if share[1] > 1:
                    samples = itertools.islice(samples, share[0], None, share[1])
                yield from self._order.within(position, samples)
        if not body.proven and self.verify != "none" and not body.is_on_disk:
            self.counts.unverified += 1

    def _coming(self) -> Iterator[int]:
        """Yield the shards that are opened next."""
        positions = self._work.positions
        return (self._numbers[positions[at]] for at in range(self._next, len(positions)))
