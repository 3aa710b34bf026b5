"""The answer to an HTTP request, while its body arrives: by length, in chunks, or up to the end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nbdata.errors import StoreUnavailable
from nbdata.stores.http.dial import Closed
from nbdata.stores.http.heads import Head, length_of

if TYPE_CHECKING:
    from nbdata.stores.http.connection import Connection

__all__ = ["Response"]

_CHUNK = re.compile(rb"[0-9A-Fa-f]{1,15}")
# Lines behind the last chunk of a body.
_TRAILERS = 100


class Response:
    """The head of an answer, and its body while it arrives.

    Attributes
    ----------
    status : int
    headers : dict
        Names in lower case.
    length : int
        Bytes of the body, or -1 if nobody knows.
    """

    def __init__(self, connection: Connection, method: str, head: Head) -> None:
        self.status, self.headers, _ = head
        self._connection: Connection | None = connection
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        self._left = -1
        self._keep = head.keeps
        if method == "HEAD" or self.status in (204, 304):
            self._left, self._chunked = 0, False
        elif self._chunked:
            self._left = 0  # of the current chunk
        else:
            self._left = length_of(self.headers)
            self._keep &= self._left >= 0
        self.length = -1 if self._chunked else self._left
        self._first_chunk = True
        if self._left == 0 and not self._chunked:
            self._over()

    def readinto(self, buffer: memoryview, /) -> int:
        """Some bytes of the body, as many as came at once; 0 at its end.

        Raises
        ------
        StoreUnavailable
            If it broke off; with ``details["retry"]``.
        """
        connection = self._connection
        if connection is None or not len(buffer):
            return 0
        try:
            if self._chunked and not self._left and not self._next_chunk(connection):
                self._over()
                return 0
            count = connection.receive(buffer if self._left < 0 else buffer[: self._left])
            if not count and (self._left >= 0 or connection.stopped):
                raise Closed("the connection ended before the body did")
        except (OSError, Closed) as error:
            connection.drop()
            self._connection = None
            raise connection.lost(error) from error
        if self._left >= 0:
            self._left -= count
        if (not self._left and not self._chunked) or not count:
            self._over()
        return count

    def _next_chunk(self, connection: Connection) -> bool:
        if not self._first_chunk and connection.line():  # the line break behind the chunk before
            raise Closed("the server sent a chunk of another size than it said")
        self._first_chunk = False
        size = connection.line().split(b";")[0].strip()
        if not _CHUNK.fullmatch(size):
            raise Closed("the server sent a chunk without a size")
        self._left = int(size, 16)
        if self._left:
            return True
        for _ in range(_TRAILERS):
            if not connection.line():
                return False
        raise Closed("the server sent trailers without end")

    def _over(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release(keep=self._keep)

    def read(self, *, limit: int = 16 << 20) -> bytes:
        """The whole body, which must not be longer than `limit` bytes."""
        data = bytearray()
        block = memoryview(bytearray(64 << 10))
        try:
            while count := self.readinto(block):
                data += block[:count]
                if len(data) > limit:
                    raise StoreUnavailable("the answer is too long", expected=f"at most {limit} bytes")
        finally:
            self.close()
        return bytes(data)

    def close(self) -> None:
        """Give the connection back, or close it if the body was not read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()
