"""Bounds what the members of an archive make nbdata remember, in memory and in the state folder.

Names are remembered to find repeated members and links, and recorded to resume. A compressed header takes a few bytes
of an archive, and its name may have 4,096. So the size of the archive decides how much that may be.
"""

from __future__ import annotations

from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from sys import getsizeof

from nbdata.errors import BadArchive
from nbdata.redaction import shortened
from nbdata.sizes import format_size

__all__ = ["FREE", "PER_BYTE", "MemberBudget", "bytes_of"]

#: Bytes that the members of any archive may take, and those for each byte of the archive that was read. A million files
#: with names of 100 characters take 460 MB.
FREE, PER_BYTE = 512 << 20, 16
# Beside its texts: an entry of a set and one of the index in memory, and the numbers of a record.
_ENTRY = 200
_SHOWN = 200


def bytes_of(text: str) -> int:
    """Return the bytes that an entry with this text takes in memory and in a record."""
    return _ENTRY + getsizeof(text) + len(encode_basestring_ascii(text))


class MemberBudget:
    """The bytes that the members of one archive may still take.

    Parameters
    ----------
    read : callable, optional
        Returns how many bytes of the archive were read, as they are stored. None: what any archive may take.
    """

    def __init__(self, read: Callable[[], int] | None = None) -> None:
        self._read = read or (lambda: 0)
        self._left, self._counted = FREE, 0

    def spend(self, size: int, member: str) -> None:
        """Count bytes before they are remembered for a member.

        Its error is not about one member. So it is no UnsafeMember, of which a listing goes on.
        """
        self._left -= size
        if self._left < 0:
            read = self._read()
            self._left += PER_BYTE * (read - self._counted)
            self._counted = read
            if self._left < 0:
                raise self._spent(member)

    def _spent(self, member: str) -> BadArchive:
        allowed = FREE + PER_BYTE * self._counted
        return BadArchive(
            "the names in the archive, with those of its folders and links, would fill the memory",
            path=shortened(member, _SHOWN),
            expected=f"names that take at most {format_size(allowed)} in memory and in records, after "
            f"{format_size(self._counted)} of the archive",
            got="more",
            remedy="Do not trust this archive. --members or --exclude selects members with shorter names, or fewer",
        )
