"""What reads the members of an archive for those who put them somewhere."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Protocol

from nbdata.archives.member import Member
from nbdata.archives.place import Place, Restart
from nbdata.archives.remarks import Remarks

__all__ = ["MemberStream"]


class MemberStream(Protocol):
    """The members of an archive; a context manager around reading them.

    Attributes
    ----------
    members : generator of Member
    place : Place
        Behind the member that was handed over last.
    format : str
        Compression of the volumes, or ``zip``.
    began : Restart
        Where reading began.
    read : int
        Bytes of the volumes that were read so far.
    remarks : Remarks
        What was left out or put right; all of it at the end.
    """

    members: Generator[Member, None, None]
    place: Place
    format: str
    began: Restart
    read: int
    remarks: Remarks

    def volume(self) -> int:
        """The number of the volume up to which was read."""

    @property
    def volume_begun(self) -> int:
        """The number of the volume in which reading began."""

    @property
    def verified(self) -> int:
        """Up to where what came is known to be right, as far as its compression has checksums."""

    @property
    def proven(self) -> int:
        """The same, as far as volumes were read whole and so are what their store vouches for."""

    def restart(self, offset: int) -> Restart:
        """Where reading may begin to reach an offset of what came."""

    def __enter__(self) -> MemberStream: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
