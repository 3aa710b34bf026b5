"""What was found in shards: samples, fields, and members that are in no sample."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Found"]

# Number of members in no sample that are named.
_NAMED = 10
# Most bytes of names of fields that are counted one by one, each with its counts; and the name for all others.
_NAMES, _EACH_NAME, _OTHERS = 32 << 20, 256, "(other names)"


@dataclass
class Found:
    """The sums over shards, as JSON-able data.

    Attributes
    ----------
    samples : int
    fields : dict of str to [int, int]
        Per field, the number of members and their bytes.
    left_out : int
        Members in no sample, and
    left_out_names : list of str
        the first of them.
    apart : int
        Members whose sample ended before them.
    doubtful : list of str
        Shards whose JSON index holds no comparable checksum.
    unproven : int
        Shards without a checksum in their store.
    room : int
        Bytes for more names of fields.
    """

    samples: int = 0
    fields: dict[str, list[int]] = field(default_factory=dict)
    left_out: int = 0
    left_out_names: list[str] = field(default_factory=list)
    apart: int = 0
    doubtful: list[str] = field(default_factory=list)
    unproven: int = 0
    room: int = _NAMES

    def count(self, name: str, size: int, members: int = 1) -> None:
        """Count members of a field, and their bytes."""
        if name not in self.fields:
            taken = _EACH_NAME + 4 * len(name)
            if self.room < taken:
                name = _OTHERS
            else:
                self.room -= taken
        sums = self.fields.setdefault(name, [0, 0])
        sums[0] += members
        sums[1] += size

    def leave_out(self, count: int, names: list[str]) -> None:
        """Note members that are in no sample."""
        self.left_out += count
        self.left_out_names += names[: _NAMED - len(self.left_out_names)]

    def take(self, other: Found) -> None:
        """Add what was found in other shards."""
        self.samples += other.samples
        self.apart += other.apart
        self.unproven += other.unproven
        self.doubtful += other.doubtful
        for name, (members, size) in other.fields.items():
            self.count(name, size, members)
        self.leave_out(other.left_out, other.left_out_names)
