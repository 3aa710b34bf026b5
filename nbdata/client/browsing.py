"""Lists one page of a folder of a store in this process, for people who browse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbdata.client.opened import Opened
from nbdata.errors import BadOption
from nbdata.paths import is_url
from nbdata.redaction import AZURE_SCHEMES, S3_SCHEMES, redacted
from nbdata.stores.base import ObjectInfo
from nbdata.stores.resolve import children, is_account
from nbdata.transfer.retry import Tries
from nbdata.verbs.listing import Ls, url_of

__all__ = ["BROWSED", "Browsing", "FoundPage", "browsed", "refuse_place"]

#: The protocols that can be browsed. Others of fsspec lead to the disk, or to another URL.
BROWSED = (*S3_SCHEMES, "gs", "gcs", "ais", *AZURE_SCHEMES, "http", "https", "sftp", "ssh", "hf")
# Most buckets listed.
_BUCKETS = 1000


@dataclass(frozen=True)
class FoundPage:
    """One page of a folder.

    Attributes
    ----------
    base : str
        The URL of the folder.
    entries : sequence of ObjectInfo
        Their keys are relative to the folder. Folders end in a slash and have no size.
    token : str
        Gets the next page; empty after the last one.
    """

    base: str
    entries: Sequence[ObjectInfo]
    token: str

    def url(self, name: str) -> str:
        """Return the URL of an entry."""
        return url_of(self.base, name)


class Browsing:
    """The listing of a folder, page by page. Any thread may call `stop`.

    Parameters
    ----------
    place : str
        The URL of a folder or a bucket; ``s3://`` alone is the account with its buckets.
    options : dict, optional
        Storage options, such as ``{"connection": NAME}``.

    Raises
    ------
    BadOption
        If it is no URL of a store that can be browsed, or holds a password or a signature.
    """

    def __init__(self, place: str, options: Mapping[str, Any] | None = None) -> None:
        self._operation = browsed(place, options)
        self._place = self._operation.place
        self._opened = Opened(self._operation)

    def stop(self) -> None:
        """End the listing; it then raises Cancelled."""
        self._opened.control.stop()

    def page(self, begin: str = "", token: str = "") -> FoundPage:
        """List one page.

        Parameters
        ----------
        begin : str
            The names of the entries begin with this.
        token : str
            Of the page before; empty for the first one.
        """
        return Tries(self._opened.control).run(lambda: self._page(begin, token))

    def _page(self, begin: str, token: str) -> FoundPage:
        control = self._opened.control
        scheme = self._place.partition("://")[0]
        place = self._place if self._place.endswith("/") else f"{self._place}/"
        if is_account(place):
            found = children(place + begin, self._opened.context, _BUCKETS, stop=control)
            return FoundPage(place, [ObjectInfo(url[len(place) :], -1) for url in found], "")
        folder = self._opened.open(place)
        page = folder.store.folder_page(folder.key + begin, token)
        entries = [
            info._replace(key=info.key[len(folder.key) :]) for info in page.entries if info.key != folder.key
        ]
        base = folder.place if scheme in ("http", "https") else place
        return FoundPage(base, entries, page.token)


def browsed(place: str, options: Mapping[str, Any] | None = None) -> Ls:
    """Return the operation that lists a place.

    Raises
    ------
    BadOption
        If it is no URL of a store that can be browsed, or holds a password or a signature.
    """
    operation = Ls(place=place, storage_options=dict(options) if options else None)
    refuse_place(operation.place)
    return operation


def refuse_place(place: str) -> None:
    """Raise BadOption if a place is no URL of a store that can be browsed, or holds a password or a signature."""
    if not is_url(place) or place.partition("://")[0] not in BROWSED:
        raise BadOption(
            "this is no URL of a store that can be browsed",
            path=redacted(place),
            expected="for example s3://bucket/folder/",
        )
    if redacted(place) != _without_user(place):
        raise BadOption(
            "a URL with a password or a signature is not browsed",
            path=redacted(place),
            remedy="Keep the credentials in a profile or in variables of the server",
        )


def _without_user(place: str) -> str:
    """Return the URL without the user that it names, which is no secret where a key or an agent proves who it is."""
    scheme, _, rest = place.partition("://")
    host, slash, path = rest.partition("/")
    user, _, server = host.rpartition("@")
    return f"{scheme}://{server}{slash}{path}" if scheme in ("sftp", "ssh") and ":" not in user else place
