"""Options that choose samples, their fields and their keys."""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass

from nbdata.errors import BadOption
from nbdata.operation import Operation
from nbdata.option import option

__all__ = ["Choosing", "SlicingShards", "parse_slice"]

# A:B and A:B:S, each number of at most 18 digits.
_SLICE = re.compile(r"(-?\d{1,18})?:(-?\d{1,18})?(?::(\d{1,18})?)?")
_KEYS = re.compile(r"[^%]*%(?:0\d{1,2})?d[^%]*")


def parse_slice(flag: str, text: str | None) -> slice:
    """Return the slice that ``A:B`` or ``A:B:S`` means; all without a text.

    Raises
    ------
    BadOption
        If it is no slice, or steps backwards or not at all.

    Examples
    --------
    >>> parse_slice("--slice", "10:20"), parse_slice("--slice", "::2")
    (slice(10, 20, 1), slice(None, None, 2))
    """
    match = _SLICE.fullmatch(text or ":")
    first, end, step = (None if one is None else int(one) for one in match.groups()) if match else (0, 0, 0)
    if step == 0:
        raise BadOption(
            f"{flag}: {text!r} is no slice",
            expected="A:B or A:B:S, such as 100:200 or ::10: from A to before B, each S-th",
        )
    return slice(first, end, 1 if step is None else step)


@dataclass(frozen=True)
class SlicingShards(Operation):
    """Verbs that can read some of the files of a data set."""

    shard_slice: str | None = option(
        None,
        "Read only the shards or FFRecord files from number A to before B, each S-th, in the order in which SOURCE "
        "names them; the first is 0, and a negative number counts from the end.",
        metavar="A:B[:S]",
    )

    def check(self) -> None:
        super().check()
        _ = self.shards_sliced

    @property
    def shards_sliced(self) -> slice:
        """The slice of shards."""
        return parse_slice("--shard-slice", self.shard_slice)


@dataclass(frozen=True)
class Choosing(Operation):
    """Verbs that choose among the samples of their source, and what of each they take, under which names.

    They apply in this order: select, slice, fields, rename; keys last, in packing order.
    `nbdata.reading.choosing.Choice` applies them for every kind of source.
    """

    select: str | None = option(
        None,
        "Pack only samples for which EXPR is true, such as \"jpg and size(jpg) < 1MB and not key = 'test/*'\". A "
        "condition is the name of a field that must exist, size or size(FIELD) compared with SIZE, or key compared "
        "with GLOB. Combine conditions with and, or, not and brackets.",
        metavar="EXPR",
    )
    slice: str | None = option(
        None,
        "Pack only the samples from number A to before B in the order of SOURCE, each S-th; the first is 0, and a "
        "negative number counts from the end, as in Python. It counts what --select leaves.",
        metavar="A:B[:S]",
    )
    fields: tuple[str, ...] = option(
        (),
        "Pack only these fields, such as jpg,cls. A sample that has none of them is left out. Repeatable.",
        kind="texts",
        metavar="FIELD,…",
    )
    rename: tuple[str, ...] = option(
        (),
        "Rename a field, such as jpeg=jpg. --select and --fields use the old names. Repeatable.",
        kind="texts",
        metavar="OLD=NEW",
    )
    keys: str | None = option(
        None,
        'Give the samples new keys: their number in packing order from 0, in FORMAT, such as "%06d" or "train/%06d".',
        metavar="FORMAT",
    )

    def check(self) -> None:
        super().check()
        _ = self.sliced
        for pair in self.rename:
            old, _, new = pair.partition("=")
            if not old or not new or [one.partition("=")[0] for one in self.rename].count(old) > 1:
                raise BadOption(
                    f"--rename: {pair!r}", expected="OLD=NEW, such as jpeg=jpg, once for each field"
                )
        if self.fields and not all(self.wanted):
            raise BadOption(
                f"--fields: {','.join(self.fields)!r}", expected="names of fields, such as jpg,cls"
            )
        if dropped := [old for old in self.names_of_fields if self.fields and old not in self.wanted]:
            raise BadOption(
                f"--rename renames {dropped[0]!r}, which --fields leaves out",
                remedy="--fields uses the old names: add it there",
            )
        if self.keys is not None:
            name = self.keys.rpartition("/")[2]
            if not _KEYS.fullmatch(self.keys) or self.keys.startswith("/") or "%" not in name or "." in name:
                raise BadOption(
                    f"--keys: {self.keys!r}",
                    expected='a format with one number in its last part, and no dot there, such as "%06d"',
                )

    @property
    def sliced(self) -> builtins.slice:
        """The slice of samples."""
        return parse_slice("--slice", self.slice)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The names in SOURCE of the fields to take; empty for all."""
        return tuple(name for text in self.fields for name in text.split(","))

    @property
    def names_of_fields(self) -> dict[str, str]:
        """The new name of each renamed field."""
        return {old: new for old, _, new in (pair.partition("=") for pair in self.rename)}

    @property
    def takes_samples(self) -> bool:
        """True if an option counts or chooses samples, so that files have to be grouped into samples."""
        return self.select is not None or self.slice is not None or self.keys is not None
