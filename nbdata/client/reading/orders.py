"""In which order samples are read: over epochs, batches and ranks, with a look ahead."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from nbdata.errors import BadOption
from nbdata.formats.permutation import Permutation

__all__ = ["AheadBatches", "AheadIndices", "Batch", "Index", "part_of", "positions_of"]


class Batch(list[int]):
    """The indices of a batch, which carries those of the coming ones.

    Attributes
    ----------
    ahead : list of list of int
        The next batches of all workers, soonest first.
    """

    def __init__(self, indices: Iterable[int], ahead: Iterable[Sequence[int]] = ()) -> None:
        super().__init__(indices)
        self.ahead = [list(batch) for batch in ahead]


def order_of(count: int, *, shuffle: bool, seed: int, epoch: int) -> Sequence[int] | Permutation:
    """The numbers below `count` in the order of an epoch; takes no memory."""
    return Permutation(count, seed=seed, epoch=epoch) if shuffle else range(count)


def part_of(text: str | None) -> tuple[int, int]:
    """``"I/N"`` as two numbers; None is all, ``0/1``. BadOption if it is no part."""
    if text is None:
        return 0, 1
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if found is None or not int(found[1]) < int(found[2]):
        raise BadOption(f"part: {text!r} is no part", expected="I/N with I from 0 to N-1, such as 0/4")
    return int(found[1]), int(found[2])


def positions_of(
    count: int,
    *,
    shuffle: bool = False,
    seed: int = 0,
    epoch: int = 0,
    part: str | None = None,
) -> Iterator[int]:
    """The indices of one epoch, or of a part ``"I/N"`` of it.

    Raises
    ------
    BadOption
        If `part` is none.
    """
    first, step = part_of(part)
    order = order_of(count, shuffle=shuffle, seed=seed, epoch=epoch)
    return (order[position] for position in range(first, count, step))


class Index(int):
    """The index of a sample, which knows those that come next.

    Attributes
    ----------
    coming : deque of int or None
        They change as the sampler goes on: only who draws from it, in its process, is told the right ones. What is
        pickled is a number alone.
    """

    coming: deque[int] | None = None

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


class AheadIndices:
    """Single indices that know the coming ones: for the ``sampler=`` of a DataLoader without workers.

    With workers it is a sampler as any other; use `AheadBatches` there.

    Parameters
    ----------
    count : int
    ahead : int
        How many of the coming samples are known.
    shuffle, seed, rank, world_size
        As of `AheadBatches`; rank R of N takes every N-th sample of the order, and all ranks equally many.
    """

    def __init__(
        self,
        count: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        ahead: int = 256,
    ) -> None:
        if ahead < 0 or not 0 <= rank < world_size:
            raise BadOption(
                f"ahead={ahead}, rank={rank}, world_size={world_size} make no sense",
                expected="0 or more ahead, and a rank below world_size",
            )
        self.count, self.shuffle, self.seed = count, shuffle, seed
        self.rank, self.world_size, self.ahead = rank, world_size, ahead
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass; each pass after it is the next one."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count // self.world_size

    def __iter__(self) -> Iterator[Index]:
        epoch = self.epoch
        self.epoch = epoch + 1
        part = f"{self.rank}/{self.world_size}"
        every = positions_of(self.count, shuffle=self.shuffle, seed=self.seed, epoch=epoch, part=part)
        order = itertools.islice(every, len(self))
        coming = deque(itertools.islice(order, self.ahead))
        while True:
            coming.extend(itertools.islice(order, 1))
            if not coming:
                return
            index = Index(coming.popleft())
            index.coming = coming
            yield index


class AheadBatches:
    """Batches of indices, each of which carries the coming ones, so that they can be fetched ahead.

    For the ``batch_sampler=`` of a PyTorch DataLoader over `nbdata.loaders.pytorch.SampleDataset`: the order of a
    shuffled sampler is known only in the parent process, and so its batches tell the workers. Each pass is the next
    epoch, with an order of its own; see `set_epoch`.

    Parameters
    ----------
    count : int
        How many samples there are.
    batch_size : int
        Samples of a batch of one rank.
    shuffle : bool
        A random order that depends on `seed` and the epoch alone, not on the number of ranks or workers.
    rank, world_size : int
        Each step of the training takes the next ``batch_size * world_size`` samples of one order for all ranks.
    ahead : int
        Batches that each batch carries: for all workers together, so at least two for each.
    drop_last : bool
        Whether a last batch that is not full is left out.
    uneven : {"drop", "repeat", "keep"}
        What becomes of a last step that has not a full batch for each rank. drop: it is left out; repeat: it is filled
        up from the beginning of the order, so that all ranks make equally many steps with full batches; keep: ranks
        may get less than others, or nothing. One rank alone has no such step.
    """

    def __init__(
        self,
        count: int,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        ahead: int = 8,
        drop_last: bool = False,
        uneven: str = "drop",
    ) -> None:
        if batch_size < 1 or ahead < 0 or not 0 <= rank < world_size:
            raise BadOption(
                f"batch_size={batch_size}, ahead={ahead}, rank={rank}, world_size={world_size} make no sense",
                expected="a batch of 1 or more, 0 or more ahead, and a rank below world_size",
            )
        if uneven not in ("drop", "repeat", "keep"):
            raise BadOption(f"uneven={uneven!r} is not known", expected="drop, repeat or keep")
        self.count, self.batch_size, self.shuffle, self.seed = count, batch_size, shuffle, seed
        self.rank, self.world_size = rank, world_size
        self.ahead, self.drop_last, self.uneven = ahead, drop_last, uneven
        self.epoch = self.start = 0

    def set_epoch(self, epoch: int, start: int | None = None) -> None:
        """The epoch of the next pass, and how many samples of its order are left out; passes after it are whole.

        None: as many as before if it is the epoch that would come anyway, else none. Trainers say before each pass
        which epoch it is, also before the one that goes on in the middle.
        """
        self.start = (self.start if epoch == self.epoch else 0) if start is None else start
        self.epoch = epoch

    @property
    def of_step(self) -> int:
        """Samples of the order that a step of all ranks takes."""
        return self.batch_size * self.world_size

    def steps(self, start: int = 0) -> int:
        """Steps of an epoch behind its first `start` samples."""
        whole, rest = divmod(max(0, self.count - start), self.of_step)
        if not rest:
            return whole
        if self.world_size == 1:
            return whole + (not self.drop_last)
        if self.uneven == "keep":
            of_rank = rest - self.rank * self.batch_size
            return whole + (of_rank >= self.batch_size if self.drop_last else of_rank > 0)
        return whole + (self.uneven == "repeat")

    def __len__(self) -> int:
        """Steps of the next pass."""
        return self.steps(self.start)

    def __iter__(self) -> Iterator[Batch]:
        epoch, start = self.epoch, self.start
        self.epoch, self.start = epoch + 1, 0
        for indices, ahead in self.over(self.batches(epoch, start), self.ahead):
            yield Batch(indices, ahead)

    def batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        """The indices of each batch of an epoch, behind its first `start` samples."""
        order = order_of(self.count, shuffle=self.shuffle, seed=self.seed, epoch=epoch)
        for step in range(self.steps(start)):
            begin = start + step * self.of_step + self.rank * self.batch_size
            end = begin + self.batch_size
            if self.uneven == "repeat" and self.world_size > 1:
                yield [order[position % self.count] for position in range(begin, end)]
            else:
                yield [order[position] for position in range(begin, min(end, self.count))]

    @staticmethod
    def over(batches: Iterable[list[int]], ahead: int) -> Iterator[tuple[list[int], list[list[int]]]]:
        """Each batch with those that follow it, at most `ahead`."""
        source = iter(batches)
        window = deque(itertools.islice(source, ahead))
        for batch in source:
            window.append(batch)
            yield window.popleft(), list(window)
        while window:
            yield window.popleft(), list(window)
