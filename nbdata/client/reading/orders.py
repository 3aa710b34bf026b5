"""In which order samples are read: over epochs, batches and ranks, with a look ahead."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from nbdata.errors import BadOption
from nbdata.formats.permutation import Permutation

__all__ = ["AheadBatches", "Batch", "positions_of"]


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


def positions_of(
    count: int, *, shuffle: bool = False, seed: int = 0, epoch: int = 0, part: str | None = None
) -> Iterator[int]:
    """The indices of one epoch, or of a part ``"I/N"`` of it.

    Raises
    ------
    BadOption
        If `part` is none.
    """
    first, step = 0, 1
    if part is not None:
        found = re.fullmatch(r"(\d+)/(\d+)", part)
        if found is None or not int(found[1]) < int(found[2]):
            raise BadOption(f"part: {part!r} is no part", expected="I/N with I from 0 to N-1, such as 0/4")
        first, step = int(found[1]), int(found[2])
    order = order_of(count, shuffle=shuffle, seed=seed, epoch=epoch)
    return (order[position] for position in range(first, count, step))


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
        self.epoch = 0
        self.first_step = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass; each pass after it is the next one."""
        self.epoch, self.first_step = epoch, 0

    @property
    def steps(self) -> int:
        """Steps of a whole epoch."""
        whole, rest = divmod(self.count, self.batch_size * self.world_size)
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
        return self.steps - self.first_step

    def __iter__(self) -> Iterator[Batch]:
        epoch, first = self.epoch, self.first_step
        self.epoch, self.first_step = epoch + 1, 0
        for indices, ahead in self.over(self.batches(epoch, first), self.ahead):
            yield Batch(indices, ahead)

    def batches(self, epoch: int, first: int = 0) -> Iterator[list[int]]:
        """The indices of each batch of an epoch, from a step on."""
        order = order_of(self.count, shuffle=self.shuffle, seed=self.seed, epoch=epoch)
        for step in range(first, self.steps):
            start = (step * self.world_size + self.rank) * self.batch_size
            end = start + self.batch_size
            if self.uneven == "repeat" and self.world_size > 1:
                yield [order[position % self.count] for position in range(start, end)]
            else:
                yield [order[position] for position in range(start, min(end, self.count))]

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
