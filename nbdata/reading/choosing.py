"""Chooses samples and their fields: the options of `nbdata.verbs.choosing.Choosing`, for every kind of source."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

from nbdata.errors import BadOption, NotFound
from nbdata.formats.conditions import parse
from nbdata.redaction import redacted
from nbdata.sizes import counted
from nbdata.verbs.choosing import Choosing

__all__ = ["Choice"]


class Choice:
    """Chooses among the samples of one source, and counts what it leaves out.

    Parameters
    ----------
    operation : Choosing

    Raises
    ------
    BadOption
        If ``--select`` cannot be parsed.
    """

    def __init__(self, operation: Choosing) -> None:
        self._condition = parse(operation.select) if operation.select is not None else None
        self._slice, self._place = operation.sliced, redacted(operation.places()[0])
        self._wanted, self._names = frozenset(operation.wanted), operation.names_of_fields
        self._not_selected = self._not_sliced = self._without = self._dropped = 0
        self._unread = False
        # The last answer of `fields`, and the names that it is for: most samples have the same.
        self._same: tuple[Sequence[str], list[tuple[int, str]]] = ((), [])

    @property
    def changes_fields(self) -> bool:
        """True if it leaves fields out, or renames them."""
        return bool(self._wanted or self._names)

    def refuse_unknown(self, fields: Collection[str]) -> None:
        """Raise BadOption if an option names a field that no sample has."""
        for flag, names in {"--rename": self._names, "--fields": sorted(self._wanted)}.items():
            for name in names:
                if name not in fields:
                    raise BadOption(
                        f"{flag}: no sample has a field {name!r}", expected=", ".join(sorted(fields)[:10])
                    )

    # -- samples ----------------------------------------------------------------------------------

    def numbers(
        self,
        count: int,
        sizes: Callable[[int], tuple[str, Mapping[str, int]]],
        checkpoint: Callable[[], None] = lambda: None,
    ) -> array[int] | None:
        """Return the numbers of the chosen samples, 8 bytes for each; None if all are chosen.

        Parameters
        ----------
        count : int
            How many samples there are.
        sizes : callable
            Returns the key of a sample by its number, and the bytes of its fields.
        checkpoint : callable
            Called for each sample.

        Raises
        ------
        NotFound
            If no sample is left.
        """
        if self._condition is None and self._slice == slice(None, None, 1) and not self._wanted:
            return None
        numbers = array("Q", range(count))
        if self._condition is not None:
            kept = array("Q")
            for number in numbers:
                checkpoint()
                if self._condition(*sizes(number)):
                    kept.append(number)
            self._not_selected, numbers = len(numbers) - len(kept), kept
        sliced = numbers[self._slice]
        self._not_sliced, numbers = len(numbers) - len(sliced), sliced
        if self._wanted:
            kept = array("Q")
            for number in numbers:
                checkpoint()
                if self._has_fields(sizes(number)[1]):
                    kept.append(number)
            numbers = kept
        self._refuse_none(count, len(numbers))
        return numbers

    def stream(self, samples: Iterable[dict[str, Any]]) -> Generator[dict[str, Any], None, None]:
        """Yield the chosen samples of a stream, whose length is not known; see `numbers`."""
        first, end, step = self._slice.start or 0, self._slice.stop, self._slice.step
        if first < 0 or (end is not None and end < 0):
            raise BadOption(
                "--slice: a stream has no end to count from",
                remedy="Count from its beginning, such as 100:200",
            )
        seen = selected = taken = 0
        for sample in samples:
            sizes = {name: len(sample[name]) for name in list(sample)[2:]}
            seen += 1
            if self._condition is not None and not self._condition(sample["__key__"], sizes):
                self._not_selected += 1
                continue
            place, selected = selected, selected + 1
            if end is not None and place >= end:
                self._unread = True
                break
            if place < first or (place - first) % step:
                self._not_sliced += 1
            elif not self._wanted or self._has_fields(sizes):
                taken += 1
                yield sample
            del sample  # it is not held while the next one is read
        self._refuse_none(seen, taken)

    def _has_fields(self, fields: Collection[str]) -> bool:
        """True if a sample has fields to take; counts what is left out."""
        kept = sum(name in self._wanted for name in fields)
        self._dropped += len(fields) - kept if kept else 0
        self._without += not kept
        return kept > 0

    def _refuse_none(self, count: int, taken: int) -> None:
        if not count:
            raise NotFound("there are no samples in this source", path=self._place)
        if not taken:
            raise NotFound(
                f"none of {counted(count, 'samples')} is selected",
                path=self._place,
                remedy="Loosen --select, --slice or --fields; nbdata samples shows which fields there are",
            )

    # -- fields -----------------------------------------------------------------------------------

    def fields(self, key: str, fields: Sequence[str]) -> list[tuple[int, str]]:
        """Return the places of the chosen fields of a sample, and their new names.

        Raises
        ------
        BadOption
            If two fields would have one name.
        """
        of, found = self._same
        if of == fields:
            return found
        names, wanted = self._names, self._wanted
        found = [
            (place, names.get(name, name))
            for place, name in enumerate(fields)
            if not wanted or name in wanted
        ]
        if names and len({name for _, name in found}) < len(found):
            raise BadOption(f"--rename gives two fields of {key!r} one name", remedy="Choose another one")
        self._same = (fields, found)
        return found

    def notes(self) -> list[str]:
        """Return what is left out, for the report; complete once the samples were read."""
        found = []
        if self._not_selected:
            found.append(f"{counted(self._not_selected, 'samples', 'are')} not selected")
        if self._not_sliced:
            found.append(f"{counted(self._not_sliced, 'samples', 'are')} outside --slice")
        if self._unread:
            found.append("what follows --slice was not read")
        if self._without:
            found.append(f"{counted(self._without, 'samples', 'have')} none of these fields")
        if self._dropped:
            found.append(f"{counted(self._dropped, 'fields', 'are')} left out by --fields")
        return found
