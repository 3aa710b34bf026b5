"""The order of reading samples, over epochs, batches and ranks, with a view of the coming ones."""

from __future__ import annotations

import itertools
import re
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from nbdata.client.reading.dealers import Dealer, dealer_of, refuse_distributed, says_epoch, warn_of_skipped
from nbdata.client.reading.epochs import epoch_of_sampler
from nbdata.errors import BadOption
from nbdata.formats.permutation import Permutation
from nbdata.protocols import Epoch
from nbdata.sizes import counted

__all__ = ["AheadBatches", "AheadIndices", "Batch", "Index", "part_of", "positions_of"]

_T = TypeVar("_T")
_STATE = 1
# The most characters of a wrong value that an error shows.
_SHOWN = 60
# The share of an epoch that may be left out without a warning.
_LEFT_OUT = 0.1


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


class Position:
    """The position of a sampler: the next epoch, how much of its order to skip, and what was drawn last.

    Attributes
    ----------
    next : tuple of (int, int)
        The epoch of the next pass, and how many samples of its order all ranks had together.
    said : bool
        Whether a user or a state has said an epoch, or a pass began here.
    """

    def __init__(self) -> None:
        self.next = self._last = (0, 0)
        self.said = False

    def set(self, epoch: int, start: int | None = None, *, said: bool = True) -> None:
        """Set the next pass. With None, a start in the middle stays if this epoch would come anyway."""
        self.said = self.said or said
        if start is None:
            start = self.next[1] if epoch == self.next[0] else 0
        self.next = self._last = (epoch, start)

    def begin(self) -> tuple[int, int]:
        """Return the epoch and the start of a pass that begins now; the one after it is the next epoch."""
        begun, self.next = self.next, (self.next[0] + 1, 0)
        self._last, self.said = begun, True
        return begun

    def drawn(self, epoch: int, taken: int) -> None:
        """Note how many samples of an epoch were drawn; 0 after the last one."""
        self._last = (epoch, taken) if taken else (epoch + 1, 0)

    def state_dict(self, sampler: Any) -> dict[str, Any]:
        """Return the position behind what was drawn last."""
        epoch, taken = self._last
        about = {name: getattr(sampler, name) for name in ("count", "shuffle", "seed")}
        return {"version": _STATE, **about, "epoch": epoch, "taken": taken}

    def load_state_dict(self, state: Any, sampler: Any) -> None:
        """Continue at a position. BadOption if it is none, or of other samples or another order."""
        expected = self.state_dict(sampler)
        if not isinstance(state, dict) or not expected.keys() <= state.keys():
            raise BadOption(
                "this is no state of a sampler",
                expected="what its state_dict() returned",
                got=repr(state)[:_SHOWN],
            )
        for name in ("version", "count", "shuffle", "seed"):
            if state[name] != expected[name]:
                raise BadOption(
                    "this state is of other samples or another order",
                    expected=f"{name}={expected[name]!r}",
                    got=f"{name}={state[name]!r}",
                    remedy="Make the sampler with the samples, the seed and the shuffle of the saved state",
                )
        epoch, taken = state["epoch"], state["taken"]
        if not (isinstance(epoch, int) and isinstance(taken, int) and epoch >= 0 and taken >= 0):
            raise BadOption(f"this is no state of a sampler: epoch={epoch!r}, taken={taken!r}")
        self.set(epoch, taken)


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
        self._at = Position()

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return self._at.next[0]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass; each later pass is the next epoch.

        It begins at its beginning, unless a loaded state is in its middle.
        """
        self._at.set(epoch, said=says_epoch(sys._getframe(1)))

    def __len__(self) -> int:
        refuse_distributed(self, sys._getframe(1))
        return self.count // self._ranks(dealer_of(sys._getframe(1)))[1]

    def _ranks(self, dealer: Dealer | None) -> tuple[int, int]:
        """Return the rank and the number of ranks; a dealer gets the indices of all."""
        if dealer is not None:
            return 0, 1
        if 0 < self.count < self.world_size:
            raise BadOption(
                f"{counted(self.count, 'samples')} for {self.world_size} ranks: none for some of them",
                remedy="Train with fewer ranks",
            )
        return self.rank, self.world_size

    def __iter__(self) -> Iterator[Index]:
        dealer = dealer_of(sys._getframe(1))
        if not self._at.said:
            warn_of_skipped(sys._getframe(1), self.epoch)
        rank, ranks = self._ranks(dealer)
        if dealer is not None and dealer.epoch is not None:
            self.set_epoch(dealer.epoch)
        epoch, start = self._at.begin()
        order = order_of(self.count, shuffle=self.shuffle, seed=self.seed, epoch=epoch)
        steps = max(0, self.count - start) // ranks
        every = (order[start + step * ranks + rank] for step in range(steps))
        coming = deque(itertools.islice(every, self.ahead))
        name = f"{self.shuffle} {self.seed} {rank}/{ranks}"
        told = epoch_of_sampler(name, whole=not start)
        for left in reversed(range(steps)):
            coming.extend(itertools.islice(every, 1))
            index = Index(coming.popleft())
            index.coming, index.epoch, index.last = coming, told, not left
            self._at.drawn(epoch, self.count - left * ranks if left else 0)
            yield index

    def state_dict(self) -> dict[str, Any]:
        """Return the position: small, the same for all ranks. Loaders that save a sampler's state call it."""
        return self._at.state_dict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next pass resume at a position; the number of ranks may differ. BadOption for another order."""
        self._at.load_state_dict(state, self)


class AheadBatches:
    """Batches of indices that each carry the coming batches, so that their samples can be fetched ahead.

    For the ``batch_sampler=`` of a PyTorch DataLoader over `nbdata.loaders.pytorch.SampleDataset`. Only the parent
    process knows the order of a shuffled sampler, so its batches carry it to the workers. Each pass is the next epoch,
    with its own order; see `set_epoch`. If Accelerate deals the batches out to the ranks, it gets those of all ranks.

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
        if not isinstance(count, int):  # Lightning puts a sampler of its own into any batch sampler
            raise BadOption(
                "samples.batch_sampler deals out its own order, and takes no sampler",
                got=type(count).__name__,
                remedy="To train with Lightning use SampleLoader; to predict, or to let Lightning deal, "
                "DataLoader(SampleDataset(samples), batch_size=…); or make the sampler in train_dataloader() with "
                "rank= and world_size= of self.trainer, and give use_distributed_sampler=False to the Trainer",
            )
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
        self._at, self._warned = Position(), False

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return self._at.next[0]

    @property
    def start(self) -> int:
        """How many samples of its order the next pass skips."""
        return self._at.next[1]

    def set_epoch(self, epoch: int, start: int | None = None) -> None:
        """Set the epoch of the next pass, and how many samples of its order to skip; later passes are whole.

        None skips as many as before if this epoch would come anyway, else none. Trainers set the epoch before each
        pass, also before one that resumes in the middle.
        """
        self._at.set(epoch, start, said=says_epoch(sys._getframe(1)))

    def follow_epoch(self, epoch: int) -> None:
        """Set the epoch of the first pass to that of the trainer, unless a user or a state has said one."""
        if not self._at.said:
            self._at.set(epoch, said=False)

    def state_dict(self) -> dict[str, Any]:
        """Return the position: small, the same for all ranks. Loaders that save a sampler's state call it."""
        return self._at.state_dict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next pass resume at a position; batch size and number of ranks may differ.

        After the last batch of an epoch, that is the beginning of the next one.

        Raises
        ------
        BadOption
            If it is no position of a sampler, or one of other samples or of another order.
        """
        self._at.load_state_dict(state, self)

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

    @property
    def repeated(self) -> int:
        """Samples of a whole epoch that come once more, to fill its last step."""
        return -self.count % self.of_step if self.world_size > 1 and self.uneven == "repeat" else 0

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
        refuse_distributed(self, sys._getframe(1))
        if (dealer := dealer_of(sys._getframe(1))) is not None:
            return len(self._undivided(dealer))
        self.refuse_no_step()
        return self.steps()

    def refuse_no_step(self) -> None:
        """Raise BadOption if no epoch has a single step, though there are samples."""
        if not self.count or self.steps() or (self.world_size > 1 and self.uneven == "keep"):
            return
        if self.world_size > 1:
            raise self._no_step(self.world_size, 'fill the step up with uneven="repeat"')
        raise self._no_step(1, "keep the rest with drop_last=False")

    def _no_step(self, ranks: int, remedy: str) -> BadOption:
        of_each = f" for each of {ranks} ranks" if ranks > 1 else ""
        return BadOption(
            f"{counted(self.count, 'samples', 'fill')} no step: a batch of {self.batch_size}{of_each}",
            remedy=f"Make batches smaller, or {remedy}",
        )

    def __iter__(self) -> Iterator[Batch]:
        dealer = dealer_of(sys._getframe(1))
        if not self._at.said:
            warn_of_skipped(sys._getframe(1), self.epoch)
        return self._own() if dealer is None else self._of_all(dealer)

    def _warn_of_dropped(self, dropped: int) -> None:
        """Warn once if an epoch leaves out many samples: who sees no report would not notice."""
        if self._warned or dropped <= _LEFT_OUT * self.count:
            return
        self._warned = True
        more = ' (uneven="repeat" or uneven="keep" takes them)' if self.world_size > 1 else ""
        left_out = f"{dropped:,} of {counted(self.count, 'samples')}"
        warnings.warn(f"nbdata: each epoch leaves out {left_out}, which fill no step{more}", stacklevel=3)

    def _own(self) -> Iterator[Batch]:
        """Yield the batches of this rank."""
        self.refuse_no_step()
        self._warn_of_dropped(self.dropped)
        epoch, start = self._at.begin()
        order = f"{self.shuffle} {self.seed} {self.rank}/{self.world_size}"
        told, left = epoch_of_sampler(order, whole=not start), self.steps(start)
        taken = start
        for indices, ahead in self.over(self.batches(epoch, start), self.ahead):
            left -= 1
            taken += self.of_step
            self._at.drawn(epoch, taken if left else 0)
            yield Batch(indices, ahead, told, last=not left)

    def _undivided(self, dealer: Dealer) -> AheadBatches:
        """Return the batches of all ranks, as of one; BadOption if the dealer would drop them all."""
        if self.drop_last and 0 < self.count < self.batch_size * dealer.ranks:
            raise self._no_step(dealer.ranks, "keep the rest with drop_last=False")
        return AheadBatches(
            self.count, self.batch_size, shuffle=self.shuffle, seed=self.seed, drop_last=self.drop_last
        )

    def _of_all(self, dealer: Dealer) -> Iterator[Batch]:
        """Yield the batches of all ranks in turn, for an owner that deals them out itself.

        That owner says how to treat a last step without a batch for each rank.
        """
        whole, every = self._undivided(dealer), dealer.every
        if self.drop_last:
            self._warn_of_dropped(self.count % (self.batch_size * dealer.ranks))
        if dealer.epoch is not None:
            self.set_epoch(dealer.epoch)
        epoch, start = self._at.begin()
        told = epoch_of_sampler(f"{self.shuffle} {self.seed} all", whole=not start)
        left, taken = whole.steps(start), start
        for indices, ahead in self.over(whole.batches(epoch, start), self.ahead * every):
            left -= 1
            taken += self.batch_size
            self._at.drawn(epoch, taken if left else 0)
            # Of the coming batches this process gets each one that is a multiple of the ranks away.
            yield Batch(indices, ahead[every - 1 :: every], told, last=left < every)

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
