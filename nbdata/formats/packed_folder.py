"""The names of a packed folder: the last sample of an FFRecord file whose other samples are the folder's files.

It is a mark, followed by a pickle of nested ``OrderedDict``. They map a child's name to its sample's number, or to the
contents of that folder. A pickle is a program, and this one may come from anyone, so it is not unpickled. This module
interprets the few instructions that build such a structure, and no others. Sources: the FFRecord library,
``package.py``; Python's ``pickletools``, which documents each instruction.
"""

from __future__ import annotations

import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nbdata.errors import BadArchive, BadOption
from nbdata.redaction import shortened
from nbdata.sizes import counted

__all__ = [
    "MARK",
    "NamesSize",
    "Tree",
    "files_of",
    "is_packed",
    "names_bytes",
    "names_of",
    "names_sample",
    "refuse_large_names",
]

#: Start of the last sample of a packed folder.
MARK = b"piouhjgbr"
#: The contents of a folder by name: the number of a file's sample, or a folder.
Tree = OrderedDict[str, Any]
# Start of the pickle that `names_bytes` writes: protocol 4, the class as number 0 of the memo, and the outer folder.
_BEGIN = MARK + b"\x80\x04ccollections\nOrderedDict\nq\x00)R"
# An empty folder, and the number of children that are put into a folder at a time.
_FOLDER, _AT_A_TIME = b"h\x00)R", 1000
# Most nested folders: more than a path can have.
_DEEPEST = 2048
# Most characters of a path: no store of nbdata has longer keys. And of all paths: so many, and so many more for each
# byte of the names, in which a folder's name comes once for all of its files.
_LONGEST, _ALL_PATHS, _FOR_A_BYTE = 8192, 64 << 20, 32
# Most bytes of names; of few files so many, and so many more for each.
_MOST, _OF_FEW, _FOR_A_FILE = 1 << 30, 1 << 20, 4096
# Most instructions of names; of few files so many, and so many more for each. Each may take memory. The name
# of a file takes three or four, and that of a folder eight.
_STEPS, _STEPS_FOR_A_FILE = 1 << 20, 32
_CLASS = object()
_STORES = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
_LOADS = ("GET", "BINGET", "LONG_BINGET")
_TEXTS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4")


def is_packed(sample: bytes | bytearray | memoryview) -> bool:
    """True if the last sample of a file, or its start, holds the names of a folder."""
    return bytes(sample[: len(MARK)]) == MARK


def names_sample(tree: Tree) -> bytes:
    """Make the last sample of a packed folder."""
    return MARK + pickle.dumps(tree, protocol=4)


class NamesSize:
    """Tracks the size of the output of `names_bytes` while paths are added; holds the path of each folder."""

    def __init__(self) -> None:
        self.bytes = len(_BEGIN) + 1
        self._children = {"": 0}

    def more(self, paths: Iterable[str]) -> int:
        """Return the bytes that some paths would add."""
        children: dict[str, int] = {}
        return sum(self._added(path, children) for path in paths)

    def add(self, path: str) -> None:
        """Add the path of a file."""
        children: dict[str, int] = {}
        self.bytes += self._added(path, children)
        self._children.update(children)

    def _added(self, path: str, children: dict[str, int]) -> int:
        folder, _, name = path.rpartition("/")
        size = len(_text(name)) + len(_number(0))
        while True:
            count = children.get(folder, self._children.get(folder))
            if count is None:  # a new folder, which is a child of its parent
                children[folder] = 1
                folder, _, name = folder.rpartition("/")
                size += 2 + len(_text(name)) + len(_FOLDER)
                continue
            children[folder] = count + 1
            return size + 2 * (count % _AT_A_TIME == 0)


def names_bytes(paths: Sequence[str]) -> bytes:
    """Make the same sample as `names_sample` of a folder with these files, in their order; always the same bytes.

    Raises
    ------
    BadOption
        If a path comes twice, or is both a file and a folder.
    """
    out = bytearray(_BEGIN)
    counts = [0]  # per open folder, the children since its last MARK
    opened: list[str] = []  # the names of the open folders
    before: list[str] = []
    # By folder, and not by the bytes of paths: no name has a zero byte, so it comes before all.
    keys = [path.replace("/", "\0") for path in paths]
    for number in sorted(range(len(keys)), key=keys.__getitem__):
        parts = keys[number].split("\0")
        shared = 0
        while shared < len(opened) and shared < len(parts) - 1 and opened[shared] == parts[shared]:
            shared += 1
        if parts == before or (len(parts) > len(before) and parts[: len(before)] == before and before):
            raise BadOption(
                f"two files are called {'/'.join(parts)!r}"
                if parts == before
                else f"{'/'.join(before)!r} is a file, and a folder with {'/'.join(parts)!r}",
                remedy="Leave one of them out, or give it another name",
            )
        while len(opened) > shared:
            opened.pop()
            counts.pop()
            out += b"u"
        for name in parts[shared:-1]:
            _begin_child(out, counts)
            out += _text(name) + _FOLDER
            opened.append(name)
            counts.append(0)
        _begin_child(out, counts)
        out += _text(parts[-1]) + _number(number)
        before = parts
    out += b"u" * sum(count > 0 for count in counts) + b"."
    return bytes(out)


def _begin_child(out: bytearray, counts: list[int]) -> None:
    """Start one more child of the innermost folder."""
    if counts[-1] % _AT_A_TIME == 0:
        out += b"u(" if counts[-1] else b"("
    counts[-1] += 1


def _text(name: str) -> bytes:
    data = name.encode("utf-8", "surrogatepass")
    return b"X" + len(data).to_bytes(4, "little") + data


def _number(number: int) -> bytes:
    return b"J" + number.to_bytes(4, "little")


def refuse_large_names(size: int, count: int, path: str) -> None:
    """BadOption if the names of a folder with this number of files have too many bytes to be read.

    A hole in a file can be names of any size, and takes no room on the disk.
    """
    most = min(_MOST, _OF_FEW + _FOR_A_FILE * count)
    if size > most:
        raise BadOption(
            "the names of this packed folder are too large", path=path, expected=f"at most {most:,} bytes",
            got=f"{size:,}",
        )  # fmt: skip


def names_of(sample: bytes | memoryview, count: int, path: str) -> Tree:
    """Return the contents of a packed folder.

    Parameters
    ----------
    sample : bytes-like
        The last sample of the file.
    count : int
        The number of files in the folder.
    path : str
        The file's name in errors.

    Raises
    ------
    BadArchive
        If it holds anything but names and numbers of samples, names that lead out of the folder, or far more
        instructions than so many names take.
    """
    if not is_packed(sample):
        raise BadArchive(
            "this FFRecord file is no packed folder",
            path=path,
            remedy="Read its samples by number, with nbdata.ffrecord.FileReader or nbdata.samples",
        )
    try:
        tree = _carried_out(bytes(sample[len(MARK) :]), _STEPS + _STEPS_FOR_A_FILE * count)
    except (ValueError, IndexError, KeyError, TypeError, UnicodeDecodeError, OverflowError) as error:
        raise _bad(f"cannot be read ({error})", path) from None
    left = _ALL_PATHS + _FOR_A_BYTE * len(sample)
    for name, number in _entries(tree, path):
        left -= len(name)
        if left < 0:
            raise _bad("have the long name of a folder too many times", path)
        if not 0 <= number < count:
            raise _bad(f"have {name!r} as sample {number:,} of {count:,}", path)
    return tree


def files_of(tree: Tree) -> Iterator[tuple[str, int]]:
    """Yield the files of a folder and its subfolders: path, and number of the sample."""
    return _entries(tree, "")


def _entries(tree: Tree, path: str) -> Iterator[tuple[str, int]]:
    levels = [("", iter(tree.items()))]
    while levels:
        prefix, children = levels[-1]
        for name, child in children:
            if not name or name in (".", "..") or "/" in name or "\0" in name:
                raise _bad(f"have a file {shortened(name)!r}", path)
            if len(prefix) + len(name) > _LONGEST:
                raise _bad(f"have a path of more than {_LONGEST:,} characters", path)
            if isinstance(child, OrderedDict):
                if len(levels) >= _DEEPEST:
                    raise _bad(f"lie in more than {counted(_DEEPEST, 'folders')}", path)
                levels.append((f"{prefix}{name}/", iter(child.items())))
                break
            yield prefix + name, child
        else:
            levels.pop()


def _carried_out(program: bytes, most: int) -> Tree:
    """Interpret a pickle of nested ``OrderedDict``; raises ValueError or others if it is anything else.

    It may have `most` instructions, so that the stack and the memo take memory in proportion to the files.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    for step, (opcode, argument, _) in enumerate(pickletools.genops(program)):
        if step >= most:
            raise ValueError(f"more than {most:,} instructions")
        name = opcode.name
        if name in _TEXTS or name in _NUMBERS:
            if isinstance(argument, bool):
                raise ValueError("a truth value")
            stack.append(argument)
        elif name in _STORES:
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif name in _LOADS:
            loaded = memo[argument]
            if isinstance(loaded, OrderedDict):  # the same folder in two places, or in itself
                raise ValueError("a folder twice")
            stack.append(loaded)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _set(stack[-1], key, value)
        elif name == "SETITEMS":
            begin = marks.pop()
            pairs = stack[begin:]
            del stack[begin:]
            for key, value in zip(pairs[::2], pairs[1::2], strict=True):
                _set(stack[-1], key, value)
        elif name == "REDUCE":
            if (stack.pop(), stack.pop()) != ((), _CLASS):
                raise ValueError("a call")
            stack.append(OrderedDict())
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "EMPTY_TUPLE":
            stack.append(())
        elif name == "GLOBAL":
            stack.append(_class(*str(argument).split(" ", 1)))
        elif name == "STACK_GLOBAL":
            what, module = stack.pop(), stack.pop()
            stack.append(_class(module, what))
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"the instruction {name}")
    (tree,) = stack
    if not isinstance(tree, OrderedDict):
        raise ValueError("no folder")
    return tree


def _class(module: str, name: str) -> object:
    if (module, name) != ("collections", "OrderedDict"):
        raise ValueError(f"{module}.{name}")
    return _CLASS


def _set(folder: Any, name: Any, child: Any) -> None:
    if not isinstance(folder, OrderedDict) or not isinstance(name, str):
        raise ValueError("a name that is none")
    if not isinstance(child, (int, OrderedDict)):
        raise ValueError(f"{shortened(name)!r} is neither a file nor a folder")
    folder[name] = child


def _bad(what: str, path: str) -> BadArchive:
    return BadArchive(
        f"the names of this packed folder {what}",
        path=path,
        remedy="It is damaged, or not made by pack_folder; nothing of it was executed",
    )
