"""How the stores of objects over `http1` (S3, Google's, Azure's) read one, and send a request again."""

from __future__ import annotations

import abc
from collections.abc import Iterator

from nbdata.errors import NotFound, SourceChanged, StoreUnavailable
from nbdata.stores.answers import ResponseBody, beyond_end, range_header, refuse_another, start_of
from nbdata.stores.base import ObjectInfo, Store
from nbdata.stores.http1 import Response

__all__ = ["ObjectStore", "refuse_spent"]


class ObjectStore(Store):
    """A store that answers GET with an object, or with a range of it, and tells of it in the same answer."""

    flat = True
    _gone = "the object vanished after it was listed"

    def _said(self, key: str) -> str:
        """A key as users know it."""
        return f"{self.name}/{key}" if key else self.name

    @abc.abstractmethod
    def _get(
        self, key: str, headers: dict[str, str], match: ObjectInfo | None, ok: tuple[int, ...]
    ) -> Response:
        """The answer to a GET with these headers, on the condition that it is of the version of `match`.

        Its status is one of `ok`; else the error it means is raised.
        """

    @abc.abstractmethod
    def _told(self, key: str, response: Response, match: ObjectInfo | None) -> ObjectInfo:
        """What an answer to GET tells of the whole object."""

    def read(
        self, key: str, start: int = 0, end: int | None = None, *, match: ObjectInfo | None = None
    ) -> ResponseBody:
        path, headers = self._said(key), range_header(start, end)
        try:
            if end is not None and end <= start:
                return beyond_end(self, path, key, start, match)
            response = self._get(key, headers, match, ok=(200, 206, 416) if headers else (200,))
            if response.status == 416:
                response.close()
                return beyond_end(self, path, key, start, match)
        except NotFound as error:
            if match is not None and not error.details.get("bucket"):
                raise SourceChanged(self._gone, path=path) from error
            raise
        try:
            info = self._told(key, response, match)
            refuse_another(path, info, match)
        except BaseException:
            response.close()
            raise
        return ResponseBody(response, info, start_of(response) if response.status == 206 else 0)


def refuse_spent(body: bytes | Iterator[memoryview] | None, why: str, path: str) -> None:
    """Before a request is sent again: whoever made a body of pieces has to begin again, for these are spent.

    Raises
    ------
    StoreUnavailable
        With ``details["retry"]``, for such a body.
    """
    if body is not None and not isinstance(body, bytes):
        raise StoreUnavailable(why, path=path, details={"retry": True})
