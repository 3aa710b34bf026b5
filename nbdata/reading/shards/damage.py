"""Damaged shards: which of their samples are left out, by name, so that the others can be packed."""

from __future__ import annotations

import contextlib
import tarfile
from collections.abc import Iterator

from nbdata.archives.forward_reader import ForwardReader
from nbdata.errors import ChecksumMismatch, NbdataError
from nbdata.formats.shards import split_member, sums_in
from nbdata.reading.shards.content import Bodies, Body
from nbdata.reading.source_file import SourceFile

__all__ = ["Damage"]

_BLOCK = 512
# Where headers of POSIX and GNU have this word.
_MAGIC, _AT = b"ustar", 257


class Damage:
    """The samples that are left out of an index, because their shards are damaged.

    A shard with another checksum than the store's is left out as a whole: nobody knows which of its bytes are wrong.
    Of one whose archive is broken, the samples before the break are kept if the store does not contradict. Those
    behind it are left out, and named as far as headers can be found there.

    Parameters
    ----------
    bodies : Bodies
        The shards, read without comparing them: for names only.

    Attributes
    ----------
    left_out : list of (str, NbdataError)
        The key of each sample, or what is known of it, and the reason.
    excluded : list of range
        Numbers of samples in the index that must not be used.
    """

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.left_out: list[tuple[str, NbdataError]] = []
        self.excluded: list[range] = []

    def note(self, error: NbdataError, number: int, shard: SourceFile, added: range) -> None:
        """Note a damaged shard, of which some samples were added to the index."""
        before, behind = self._names(number, shard)
        names = behind
        if isinstance(error, ChecksumMismatch):
            self.excluded.append(added)
            names = before + behind
        if not names:
            names = [f"what follows {before[-1]!r}" if before else f"all samples of {shard.url}"]
        self.left_out += [(name, error) for name in names]

    def _names(self, number: int, shard: SourceFile) -> tuple[list[str], list[str]]:
        """Return the keys before the place where a shard is broken, and those that are found behind it."""
        before = list[str]()
        body = self._bodies.open(number)
        with contextlib.closing(body), contextlib.closing(ForwardReader(body, shard.url, 0)) as reader:
            try:
                before += (key for key, _, _ in sums_in(reader, lambda _name, _why: None))
            except NbdataError as error:
                place, amid = reader.tell(), error.details.get("sample")
            else:
                return before, []
        body = self._bodies.open(number)
        with contextlib.closing(body), contextlib.suppress(NbdataError):
            behind = dict.fromkeys([amid] if amid else [])
            behind.update(dict.fromkeys(_keys_behind(body, place)))
            return before, [key for key in behind if not before or key != before[-1]]
        return before, [amid] if amid else []


def _keys_behind(body: Body, place: int) -> Iterator[str]:
    """Yield the keys of the headers behind a place; content that looks like a header counts as one."""
    at, left = 0, b""
    while block := bytes(body.block()):
        data, begin = left + block, at - len(left)
        at += len(block)
        whole = len(data) // _BLOCK * _BLOCK
        for start in range(0, whole, _BLOCK):
            if begin + start >= place and data[start + _AT : start + _AT + len(_MAGIC)] == _MAGIC:
                with contextlib.suppress(tarfile.HeaderError):
                    found = tarfile.TarInfo.frombuf(data[start : start + _BLOCK], "utf-8", "surrogateescape")
                    parts = split_member(found.name) if found.isreg() else None
                    if parts is not None:
                        yield parts[0]
        left = data[whole:]
