"""What loading a pickle costs, found before it is loaded.

A pickle is a program, and two of its costs have no bound in CPython. Its table of remembered objects is as long as the
largest number in the pickle. And keys are hashed: if a tuple holds another one twice, which holds another one twice,
and so on, the hash takes 2**n steps, in C, where no interrupt ends it; that of a deep tuple overflows the C stack.

So this module follows the instructions, with the steps of a hash in place of each object. Source of the instructions:
Python's ``pickletools``.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["HashSteps", "refuse_costly"]

# Largest number of a remembered object that is allowed whatever the size of the pickle.
_LEAST_MEMO = 1 << 16
# Steps of hashing that are allowed for each byte of a pickle, and whatever its size.
_STEPS_PER_BYTE, _LEAST_STEPS = 16, 1 << 20
# Steps count more with each level of a tuple, so their bound also bounds the levels: a billion steps are 1,600 levels.
_LEVEL = 1.01


def refuse_costly(data: memoryview) -> None:
    """Raise ValueError if the cost of loading a pickle is out of proportion to its size.

    A pickle that takes more from its stack than lies there raises IndexError.
    """
    at, size = 0, len(data)
    most, hashing = max(size, _LEAST_MEMO), HashSteps(size)
    stack: list[float] = []  # the steps of the hash of each object: 1.0 for all but tuples
    marks: list[int] = []
    tuples: dict[int, float] = {}  # the steps of remembered tuples, by number
    unnumbered, numbered = 0, False
    while at < size:
        code = data[at]
        kind, taken, marked, made, width = _EFFECTS[code]
        begin = at + 1
        if width >= 0:
            at = begin + width
        elif width == pickletools.UP_TO_NEWLINE:
            at = _after_lines(data, begin, 2 if code in _TWO_LINES else 1)
        else:
            count = _COUNTS[width]
            at = begin + count + int.from_bytes(data[begin : begin + count], "little")

        if kind == "new":
            stack.append(1.0)
        elif kind == "remember":
            if code == _MEMOIZE:
                number, unnumbered = unnumbered, unnumbered + 1
            else:
                number, numbered = _number(data[begin:at], width), True
            if number > most:
                raise ValueError(f"object number {number:,} of a pickle that has fewer")
            if stack[-1] != 1.0 or number in tuples:
                tuples[number] = stack[-1]
        elif kind == "recall":
            stack.append(tuples.get(_number(data[begin:at], width), 1.0))
        elif kind == "mark":
            marks.append(len(stack))
        elif kind == "tuple":
            first = marks.pop() if marked else len(stack) - taken
            stack[first:] = [_steps(stack[first:])]
        elif kind == "again":
            stack.append(stack[-1])
        elif kind == "pop" and marks and marks[-1] == len(stack):
            marks.pop()
        elif kind == "stop":
            break
        elif kind == "refused":
            raise ValueError(f"the instruction {bytes([code])!r}")
        else:
            first = marks.pop() if marked else len(stack) - taken
            if kind in ("keys", "items"):
                hashing.take(sum(stack[first :: 2 if kind == "keys" else 1]))
            del stack[first:]
            stack += [1.0] * made
    if unnumbered and numbered:  # no program writes both, and then a number could stand for two objects
        raise ValueError("objects that are remembered both with and without a number")


class HashSteps:
    """The steps of hashing that are left for a pickle of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._left = float(_STEPS_PER_BYTE * size + _LEAST_STEPS)

    def take(self, steps: float) -> None:
        """Count steps that are about to be made; raises ValueError if none are left."""
        self._left -= steps
        if self._left < 0:
            raise ValueError("keys of tuples within tuples, whose hashes would not end")

    def take_keys(self, keys: Iterable[Any]) -> None:
        """Count the steps for loaded objects that are about to be hashed."""
        known: dict[int, float] = {}
        for key in keys:
            self.take(_steps_of(key, known))


def _steps_of(key: Any, known: dict[int, float]) -> float:
    if type(key) is not tuple:
        return 1.0
    if id(key) not in known:
        known[id(key)] = _steps([_steps_of(part, known) for part in key])
    return known[id(key)]


def _steps(parts: list[float]) -> float:
    return (1.0 + sum(parts)) * _LEVEL


def _after_lines(data: memoryview, at: int, lines: int) -> int:
    """Return where the next instruction begins after one line of content, or two."""
    for _ in range(lines):
        line = _LINE.match(data, at)
        if line is None:
            raise ValueError("a line without an end")
        at = line.end()
    return at


def _number(argument: memoryview, width: int) -> int:
    """Return the number of a remembered object."""
    return int(bytes(argument)) if width == pickletools.UP_TO_NEWLINE else int.from_bytes(argument, "little")


# -- what each instruction does -------------------------------------------------------------------------


class _Effect(NamedTuple):
    """What an instruction does to the stack: it takes objects, or all down to the last mark, and makes others."""

    kind: str = "refused"
    taken: int = 0
    marked: bool = False
    made: int = 0
    #: Bytes of its content, or how pickletools says that they vary.
    width: int = 0


_KINDS = {
    "PUT": "remember",
    "BINPUT": "remember",
    "LONG_BINPUT": "remember",
    "MEMOIZE": "remember",
    "GET": "recall",
    "BINGET": "recall",
    "LONG_BINGET": "recall",
    "DUP": "again",
    "MARK": "mark",
    "POP": "pop",
    "STOP": "stop",
    "TUPLE": "tuple",
    "TUPLE1": "tuple",
    "TUPLE2": "tuple",
    "TUPLE3": "tuple",
    "SETITEM": "keys",
    "SETITEMS": "keys",
    "DICT": "keys",
    "ADDITEMS": "items",
    "FROZENSET": "items",
    # Registered classes: CPython keeps those that were loaded before, and would not ask for their names again.
    "EXT1": "refused",
    "EXT2": "refused",
    "EXT4": "refused",
}


def _effect(opcode: pickletools.OpcodeInfo) -> _Effect:
    before = [one.name for one in opcode.stack_before]
    marked = "mark" in before
    # What lies below the mark, or is a collection that gets more, stays.
    kept = before.index("mark") if marked else int(opcode.name == "SETITEM")
    taken = 0 if marked else len(before) - kept
    made = len(opcode.stack_after) - kept
    simple = "new" if not before and made == 1 else "other"
    width = 0 if opcode.arg is None else opcode.arg.n
    return _Effect(_KINDS.get(opcode.name, simple), taken, marked, made, width)


_EFFECTS = [_Effect()] * 256
for _one in pickletools.opcodes:
    _EFFECTS[ord(_one.code)] = _effect(_one)
_MEMOIZE = 0x94
_LINE = re.compile(rb"[^\n]*\n")
_TWO_LINES = {ord(one.code) for one in pickletools.opcodes if one.arg is pickletools.stringnl_noescape_pair}
# Bytes of the length before content of variable length.
_COUNTS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
