"""The interface for reading the members of an archive."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Protocol

from nbdata.archives.member import Member
from nbdata.archives.place import Place, Restart
from nbdata.archives.remarks import Remarks
from nbdata.errors import NotFound

__all__ = ["MemberStream", "collect_unmatched"]


class MemberStream(Protocol):
    """The members of an archive; a context manager around reading them.

    Attributes
    ----------
    members : generator of Member
    place : Place
        The place behind the last member handed over.
    format : str
        Compression of the volumes, or ``zip``.
    began : Restart
        The restart point at which reading began.
    read : int
        Bytes of the volumes read so far.
    remarks : Remarks
        Notes about entries left out or corrected; complete at the end.
    """

    members: Generator[Member, None, None]
    place: Place
    format: str
    began: Restart
    read: int
    remarks: Remarks

    def volume(self) -> int:
        """The number of the last volume that was read from."""

    @property
    def volume_begun(self) -> int:
        """The number of the volume in which reading began."""

    @property
    def verified(self) -> int:
        """The offset up to which the checksums of the compression prove the stream."""

    @property
    def proven(self) -> int:
        """The offset up to which the checksums of wholly read volumes prove the stream."""

    def restart(self, offset: int) -> Restart:
        """The restart point from which an offset of the stream can be reached."""

    def __enter__(self) -> MemberStream: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def collect_unmatched(
    members: Generator[Member, None, None], unmatched: list[str]
) -> Generator[Member, None, None]:
    """Yield the members; patterns that match none are added to a list, instead of raising NotFound."""
    try:
        yield from members
    except NotFound as error:
        if "patterns" not in error.details:
            raise
        unmatched.extend(error.details["patterns"])
