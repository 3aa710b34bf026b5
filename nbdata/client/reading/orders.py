"""The order of reading samples, over epochs, batches and ranks, with a view of the coming ones."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from nbdata.client.reading.epochs import epoch_of_sampler
from nbdata.errors import BadOption
from nbdata.formats.permutation import Permutation
from nbdata.protocols import Epoch

__all__ = ["AheadBatches", "AheadIndices", "Batch", "Index", "part_of", "positions_of"]

_T = TypeVar("_T")


class Batch(list[int]):
    """The indices of a batch, together with the indices of the coming batches.

    Attributes
    ----------
    ahead : list of list of int
        The next batches of all workers, soonest first.
    epoch : Epoch or None
        The epoch that it belongs to.
    last : bool
        Whether it is the last one of its epoch.
    """

    def __init__(
        self,
        indices: Iterable[int],
        ahead: Iterable[Sequence[int]] = (),
        epoch: Epoch | None = None,
        *,
        last: bool = False,
    ) -> None:
        super().__init__(indices)
        self.ahead = [list(batch) for batch in ahead]
        self.epoch, self.last = epoch, last


def order_of(count: int, *, shuffle: bool, seed: int, epoch: int) -> Sequence[int] | Permutation:
    """Return the numbers below `count` in the order of an epoch, without storing them."""
    return Permutation(count, seed=seed, epoch=epoch) if shuffle else range(count)


def part_of(text: str | None) -> tuple[int, int]:
    """Parse ``"I/N"`` into two numbers; None means all, ``0/1``. BadOption for any other text."""
    if text is None:
        return 0, 1
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if found is None or not int(found[1]) < int(found[2]):
        raise BadOption(f"part: {text!r} is not a part", expected="I/N with I from 0 to N-1, such as 0/4")
    return int(found[1]), int(found[2])


def positions_of(
    count: int,
    *,
    shuffle: bool = False,
    seed: int = 0,
    epoch: int = 0,
    part: str | None = None,
) -> Iterator[int]:
    """Return the indices of one epoch, or of a part ``"I/N"`` of it.

    Raises
    ------
    BadOption
        If `part` is not valid.
    """
    first, step = part_of(part)
    order = order_of(count, shuffle=shuffle, seed=seed, epoch=epoch)
    return (order[position] for position in range(first, count, step))


class Index(int):
    """The index of a sample, together with the coming indices.

    Attributes
    ----------
    coming : deque of int or None
        Changes as the sampler continues, so it is right only in the sampler's own process and while drawing from
        it. Pickling keeps the number alone.
    epoch, last
        As in `Batch`.
    """

    coming: deque[int] | None = None
    epoch: Epoch | None = None
    last = False

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


class AheadIndices:
    """Single indices that know the coming ones: the ``sampler=`` of a DataLoader without workers.

    With workers it acts as an ordinary sampler; use `AheadBatches` there.

    Parameters
    ----------
    count : int
    ahead : int
        How many coming samples each index knows.
    shuffle, seed, rank, world_size
        As in `AheadBatches`; rank R of N takes every N-th sample of the order, and all ranks equally many.
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
        """Set the epoch of the next pass; each later pass is the next epoch."""
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
        told = epoch_of_sampler(f"{self.shuffle} {self.seed} {part}", whole=True)
        for left in reversed(range(len(self))):
            coming.extend(itertools.islice(order, 1))
            index = Index(coming.popleft())
            index.coming, index.epoch, index.last = coming, told, not left
            yield index


class AheadBatches:
    """Batches of indices that each carry the coming batches, so that their samples can be fetched ahead.

    For the ``batch_sampler=`` of a PyTorch DataLoader over `nbdata.loaders.pytorch.SampleDataset`. Only the parent
    process knows the order of a shuffled sampler, so its batches carry it to the workers. Each pass is the next epoch,
    with its own order; see `set_epoch`.

    Parameters
    ----------
    count : int
        How many samples there are.
    batch_size : int
        Samples per batch of one rank.
    shuffle : bool
        Use a random order that depends only on `seed` and the epoch, not on the number of ranks or workers.
    rank, world_size : int
        Each step of the training takes the next ``batch_size * world_size`` samples of one order for all ranks.
    ahead : int
        How many batches each batch carries, for all workers together: use at least two per worker.
    drop_last : bool
        Whether to leave out a last batch that is not full.
    uneven : {"drop", "repeat", "keep"}
        How to treat a last step without a full batch for each rank. drop: leave it out. repeat: fill it up from the
        beginning of the order, so that all ranks make equally many steps with full batches. keep: ranks may get
        fewer samples than others, or none. A single rank has no such step.
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
        """Set the epoch of the next pass, and how many samples of its order to skip; later passes are whole.

        None skips as many as before if this epoch would come anyway, else none. Trainers set the epoch before each
        pass, also before one that resumes in the middle.
        """
        self.start = (self.start if epoch == self.epoch else 0) if start is None else start
        self.epoch = epoch

    @property
    def of_step(self) -> int:
        """Samples of the order that one step of all ranks takes."""
        return self.batch_size * self.world_size

    @property
    def dropped(self) -> int:
        """Samples of a whole epoch that no rank gets, because they do not fill a step or a batch."""
        rest = self.count % self.of_step
        if self.world_size > 1 and self.uneven != "keep":
            return rest if self.uneven == "drop" else 0
        return rest % self.batch_size if self.drop_last else 0

    def steps(self, start: int = 0) -> int:
        """Return the steps of an epoch after its first `start` samples."""
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
        """Return the steps of a whole epoch, also while the next pass resumes in the middle of one.

        Trainers count the steps that were made before against it.
        """
        return self.steps()

    def __iter__(self) -> Iterator[Batch]:
        epoch, start = self.epoch, self.start
        self.epoch, self.start = epoch + 1, 0
        order = f"{self.shuffle} {self.seed} {self.rank}/{self.world_size}"
        told, left = epoch_of_sampler(order, whole=not start), self.steps(start)
        for indices, ahead in self.over(self.batches(epoch, start), self.ahead):
            left -= 1
            yield Batch(indices, ahead, told, last=not left)

    def batches(self, epoch: int, start: int = 0) -> Iterator[list[int]]:
        """Yield the indices of each batch of an epoch, after its first `start` samples."""
        order = order_of(self.count, shuffle=self.shuffle, seed=self.seed, epoch=epoch)
        for step in range(self.steps(start)):
            begin = start + step * self.of_step + self.rank * self.batch_size
            end = begin + self.batch_size
            if self.uneven == "repeat" and self.world_size > 1:
                yield [order[position % self.count] for position in range(begin, end)]
            else:
                yield [order[position] for position in range(begin, min(end, self.count))]

    @staticmethod
    def over(batches: Iterable[_T], ahead: int) -> Iterator[tuple[_T, list[_T]]]:
        """Yield each batch with the batches that follow it, at most `ahead`."""
        source = iter(batches)
        window = deque(itertools.islice(source, ahead))
        for batch in source:
            window.append(batch)
            yield window.popleft(), list(window)
        while window:
            yield window.popleft(), list(window)
