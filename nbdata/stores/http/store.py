"""A read-only store over HTTP and HTTPS, for any server, with or without ranges, validators and lengths.

Keys are paths without their escapes. The query of the given URL goes with every request, so a signed URL or a folder's
token also holds for everything below it. The query is a secret and is never shown.

A folder is listed from its index page, as Apache, nginx or ``python -m http.server`` make one: from the links that lead
below it. Each file is then asked for its size and validator, because such pages round both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from nbdata.errors import AccessDenied, BadOption, NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.stores.base import FolderPage, ObjectInfo, Source, Stop, Store
from nbdata.stores.http.answers import (
    ResponseBody,
    beyond_end,
    digest_in,
    goog_hashes,
    http_time,
    if_match,
    range_header,
    refuse_another,
    refused,
    start_of,
    total_of,
)
from nbdata.stores.http.client import Origin, Response
from nbdata.stores.http.config import HttpConfig
from nbdata.stores.http.dial import stall_limit
from nbdata.stores.http.index_page import LONGEST, links_below, says_index
from nbdata.stores.http.pools import pool_of
from nbdata.stores.http.proxies import proxy_for
from nbdata.stores.http.web_pages import BEGINNING, begins_as_page, is_of_store, is_page, names_no_page

__all__ = ["HttpStore", "key_of"]

_REDIRECTS, _REDIRECTED = 10, (301, 302, 303, 307, 308)
# Status codes of servers that support GET but not HEAD.
_NO_HEAD = (400, 401, 403, 405, 406, 500, 501)
# Limits, since a server may make up pages and folders without end: the bytes read of an index page, the depth of
# folders, and the number of folders.
_PAGE, _DEPTH, _FOLDERS = 16 << 20, 64, 100_000
# Bytes of memory for the names in the folders that are open at one time, one below the other; and for one name.
_NAMES, _NAME = 256 << 20, 60
# Files that are asked about at the same time, and files asked about ahead of the listing's reader.
_ASKING, _AHEAD = 8, 64
# Characters of a path or query that stay as written: all valid ones, and escapes.
_PATH, _QUERY = "/-_.~!$&'()*+,;=:@%[]", "/-_.~!$&'()*+,;=:@%[]?"
# For how many files it is remembered whether they are web pages.
_REMEMBERED = 10_000
# Files for which servers report the file's own compression as if they had applied it.
_PACKED = (".gz", ".tgz", ".z", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".tzst", ".svgz", ".br")


@dataclass
class _Walked:
    """How far a listing has come: folders that were opened, and bytes for the names in those that are open."""

    folders: int = 0
    names: int = 0


class _Url(NamedTuple):
    """The address of one request. `target` holds path and query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def server(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class HttpStore(Store):
    """The objects of one HTTP server, at one origin and with one query.

    Parameters
    ----------
    url : str
        A URL of the server. The spelling of its path is kept, since it matters to some servers.
    config : HttpConfig
    stop : Stop, optional
        Stops blocking calls.
    """

    read_only = True
    lists_by_page = True

    def __init__(self, url: str, config: HttpConfig, *, stop: Stop | None = None) -> None:
        self._config, self._stop = config, stop
        given = _parsed(url)
        self._server = given.server
        self._query = given.target.partition("?")[2]
        self._spelled = {key_of(url): given.path}
        self._pages: dict[str, bool] = {}  # whether files that are said to be pages are some
        self._object = ""  # the key that `head` found last; nothing is below an object
        self.name = str(self._origin(given))

    @property
    def server(self) -> str:
        return self.name

    def _origin(self, url: _Url) -> Origin:
        proxy = proxy_for(str(Origin(*url.server)), self._config.env)
        config = self._config
        return Origin(*url.server, proxy, config.ca, config.verify, stall_limit(config.env))

    def _said(self, key: str) -> str:
        return f"{self.name}/{key}"

    # -- one request --------------------------------------------------------------------------

    def _send(self, method: str, key: str, headers: Mapping[str, str] | None = None) -> tuple[Response, _Url]:
        """Send a request and follow redirects. Returns the final response and its URL."""
        path = self._spelled.get(key) or "/" + quote(key, safe="/-_.~", errors="surrogateescape")
        url = _Url(*self._server, f"{path}?{self._query}" if self._query else path)
        own = True
        for _ in range(_REDIRECTS + 1):
            own = (
                own and url.server == self._server
            )  # who led elsewhere does not choose what is asked for here
            response = self._exchange(method, url, headers or {}, own=own)
            where = response.headers.get("location", "")
            if response.status not in _REDIRECTED or not where:
                return response, url
            response.close()
            url = self._redirected(url, where, key)
        raise StoreUnavailable("the server redirects without end", path=self._said(key))

    def _redirected(self, url: _Url, where: str, key: str) -> _Url:
        try:
            return _parsed(urljoin(f"{Origin(*url.server)}{url.target}", where))
        except (BadOption, ValueError):  # the address may hold a signature, so it is not shown
            raise StoreUnavailable(
                "the server redirects to what is no http address", path=self._said(key)
            ) from None

    def _exchange(self, method: str, url: _Url, headers: Mapping[str, str], *, own: bool) -> Response:
        origin = self._origin(url)
        # No other server gets the headers and credentials of this one.
        sent = dict(self._config.headers) if own else {}
        sent |= {"host": origin.netloc, "accept-encoding": "identity", "accept": "*/*", **headers}
        sent.setdefault("user-agent", "nbdata")
        if own and self._config.authorization:
            sent["authorization"] = self._config.authorization
        identity = (self._config.authorization, self._config.headers) if own else None
        return pool_of(origin, identity).request(method, url.target, sent, stop=self._stop)

    def _error(self, response: Response, key: str) -> NbdataError:
        response.close()
        remedy = "Give user and password (http://user:password@host/, or --option username=… password=env:…)"
        if self._query:
            remedy = "The signature in the URL may have expired, or be for something else: get a new one"
        elif self._config.authorization:
            remedy = "Check user and password, or the token"
        source = "the query of the URL" if self._query else self._config.source
        return refused(
            response.status, response.headers, path=self._said(key), identity=source, remedy=remedy
        )

    # -- reading ------------------------------------------------------------------------------

    def head(self, key: str) -> ObjectInfo:
        if not key or key.endswith("/"):
            raise NotFound("a folder, not an object", path=self._said(key), details={"folder": True})
        info = None if self._query else self._head(key)  # signatures are mostly for GET alone
        if info is None:
            info = self._head_by_get(key)
        self._object = key
        return info

    def _head(self, key: str) -> ObjectInfo | None:
        """Ask with HEAD; None if the server does not support it."""
        response, url = self._send("HEAD", key)
        response.close()
        if response.status in _NO_HEAD:
            return None
        if response.status != 200:
            raise self._error(response, key)
        return self._info(key, response, url)

    def _head_by_get(self, key: str) -> ObjectInfo:
        response, url = self._send("GET", key, {"range": "bytes=0-0"})
        try:
            if response.status == 416 and total_of(response) in (0, -1):
                return ObjectInfo(key, 0, etag=response.headers.get("etag", ""))
            if response.status not in (200, 206):
                raise self._error(response, key)
            return self._info(key, response, url)
        finally:
            response.close()

    def read(
        self, key: str, start: int = 0, end: int | None = None, *, match: ObjectInfo | None = None
    ) -> ResponseBody:
        if end is not None and end <= start:
            return beyond_end(self, self._said(key), key, start, match)
        headers = range_header(start, end)
        ranged = bool(headers)
        if match is not None and match.etag.startswith('"'):
            headers |= if_match(match.etag)
        response, url = self._send("GET", key, headers)
        if response.status == 416 and ranged:
            response.close()
            return beyond_end(self, self._said(key), key, start, match)
        if response.status not in ((200, 206) if ranged else (200,)):
            error = self._error(response, key)
            if isinstance(error, NotFound) and match is not None:
                raise SourceChanged(
                    "the object vanished after it was listed", path=self._said(key)
                ) from error
            raise error
        try:
            info = self._info(key, response, url)
            refuse_another(self._said(key), info, match)
        except NbdataError:
            response.close()
            raise
        return ResponseBody(response, info, start_of(response) if response.status == 206 else 0)

    def _info(self, key: str, response: Response, url: _Url) -> ObjectInfo:
        headers = response.headers
        asked = self._spelled.get(key) or "/" + quote(key, safe="/-_.~", errors="surrogateescape")
        if url.path == asked + "/" or (url.path.endswith("/") and unquote(url.path) == f"/{key}/"):
            raise NotFound("a folder, not an object", path=self._said(key), details={"folder": True})
        if (
            not self._config.allow_html
            and is_page(response)
            and names_no_page(key)
            and not is_of_store(headers)
        ):
            moved = url.path != asked and not url.path.startswith(asked + "/")
            led_to = unquote(url.path.rpartition("/")[2], errors="surrogateescape")
            if (moved and led_to != key.rpartition("/")[2]) or self._begins_as_page(key):
                raise AccessDenied(
                    "the server gives a web page in its place, perhaps to log in or to ask whether you are human",
                    path=self._said(key),
                    remedy="Open the address in a browser, and give the user and password or token that it asks for. "
                    "If the page is what you want: --allow-html",
                )
        encoding = headers.get("content-encoding", "identity").strip().lower()
        # Apache reports a .gz file's compression as its encoding; the bytes are the file's own.
        if encoding not in ("identity", "") and not key.lower().endswith(_PACKED):
            raise NbdataError(
                f"the server sends it compressed ({encoding[:20]}), although it was asked not to",
                path=self._said(key),
                remedy="Take it by the store's own protocol (s3://, gs:// …), which gives the bytes that are kept",
            )
        return ObjectInfo(
            key,
            total_of(response),
            etag=headers.get("etag", ""),
            modified=http_time(headers.get("last-modified")),
            checksums=_checksums(response),
            # Servers choose ETags freely. S3's ETag is a digest, and its headers identify S3.
            encrypted="x-amz-request-id" not in headers
            or "x-amz-server-side-encryption-customer-algorithm" in headers
            or headers.get("x-amz-server-side-encryption", "").startswith("aws:kms"),
        )

    def _begins_as_page(self, key: str) -> bool:
        """Whether the first bytes of a file are those of a web page; asked once for each file."""
        is_page = self._pages.get(key)
        if is_page is None:
            response, _ = self._send("GET", key, {"range": f"bytes=0-{BEGINNING - 1}"})
            is_page = begins_as_page(response)
            if len(self._pages) >= _REMEMBERED:
                self._pages.clear()
            self._pages[key] = is_page
        return is_page

    # -- listing ------------------------------------------------------------------------------

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        folder, slash, start = prefix.rpartition("/")
        if folder and folder == self._object:
            return
        with ThreadPoolExecutor(_ASKING, thread_name_prefix="http-head") as asking:
            for info in self._walk(folder + slash, start, _Walked(), 0, asking):
                if info.key > after:
                    yield info

    def list_folder(self, prefix: str) -> Iterator[ObjectInfo]:
        folder, slash, start = prefix.rpartition("/")
        if folder and folder == self._object:
            return
        folder += slash
        names = sorted(name for name in self._page(folder) or () if name.startswith(start))
        with ThreadPoolExecutor(_ASKING, thread_name_prefix="http-head") as asking:
            for at in range(0, len(names), _AHEAD):
                some = names[at : at + _AHEAD]
                for name, info in zip(some, asking.map(lambda n: self._look(folder + n), some), strict=True):
                    yield info or ObjectInfo(f"{folder}{name.rstrip('/')}/", -1)

    def folder_page(self, prefix: str, token: str = "") -> FolderPage:
        folder, slash, start = prefix.rpartition("/")
        if folder and folder == self._object:
            return FolderPage((), "")
        folder += slash
        links = self._page(folder) or ()
        names = sorted(name for name in links if name.startswith(start) and name > token)
        some = names[:_AHEAD]  # a request for each
        with ThreadPoolExecutor(_ASKING, thread_name_prefix="http-head") as asking:
            found = asking.map(lambda name: self._look(folder + name), some)
            entries = [
                info or ObjectInfo(f"{folder}{name.rstrip('/')}/", -1)
                for name, info in zip(some, found, strict=True)
            ]
        return FolderPage(entries, some[-1] if len(names) > _AHEAD else "")

    def _walk(
        self, folder: str, start: str, walked: _Walked, depth: int, asking: ThreadPoolExecutor
    ) -> Iterator[ObjectInfo]:
        """Yield all objects below a folder, in key order, from its index pages."""
        walked.folders += 1
        links = self._page(folder)
        if links is None and depth:
            # The page above links to it: not an empty folder, but one that cannot be read.
            yield ObjectInfo(folder.rstrip("/"), -1)
        names = sorted(name for name in links or () if name.startswith(start))
        del links
        held = sum(map(len, names)) + _NAME * len(names)
        walked.names += held
        if depth > _DEPTH or walked.folders > _FOLDERS or walked.names > _NAMES:
            raise BadOption(
                "the server's folders have no end",
                path=self._said(folder),
                expected=f"at most {_DEPTH} below each other, {_FOLDERS:,} in all, and {_NAMES:,} bytes of names in "
                "those from the first to the deepest",
                remedy="Name what is wanted with --files-from FILE",
            )
        for at in range(0, len(names), _AHEAD):
            some = names[at : at + _AHEAD]
            for name, info in zip(some, asking.map(lambda n: self._look(folder + n), some), strict=True):
                if info is not None:
                    yield info
                else:
                    yield from self._walk(f"{folder}{name.rstrip('/')}/", "", walked, depth + 1, asking)
        walked.names -= held

    def _look(self, key: str) -> ObjectInfo | None:
        """Return the object that a link leads to, or None for a folder."""
        if key.endswith("/"):
            return None
        if len(key) > LONGEST:
            return ObjectInfo(key, -1)
        try:
            return self.head(key)
        except StoreUnavailable:
            raise
        except NbdataError as error:
            # A dead link does not end the listing; it is reported when it is fetched.
            return None if error.details.get("folder") else ObjectInfo(key, -1)

    def _page(self, folder: str) -> set[str] | None:
        """Return the names that a folder's index page links to (folders with a slash); None if there is no folder."""
        response, url = self._send("GET", folder)
        if response.status in (404, 410):
            response.close()
            return None
        if response.status != 200:
            raise self._error(response, folder)
        if not is_page(response):
            kind = _kind(response)
            response.close()
            raise BadOption(
                "the server has no index page of this folder",
                path=self._said(folder),
                expected="text/html",
                got=kind or "no content type",
                remedy="Name the objects with --files-from FILE, or a single one without a slash at the end",
            )
        page = response.read(limit=_PAGE).decode("utf-8", "replace")
        names = links_below(page, f"{Origin(*url.server)}{url.path}")
        if not names and (self._is_elsewhere(url, folder) or not says_index(page)):
            # For example a login page. Taken for an empty folder, it would make a mirror delete everything.
            raise BadOption(
                "the server's page of this folder names nothing in it, and does not look like an index page",
                path=self._said(folder),
                remedy="Open the address in a browser: perhaps it asks to log in. Or name the objects with "
                "--files-from FILE",
            )
        return names

    def _is_elsewhere(self, url: _Url, folder: str) -> bool:
        """Whether a redirect has led to the page of something else."""
        return url.host != self._server[1] or unquote(url.path).strip("/") != folder.strip("/")

    def is_folder(self, key: str) -> bool:
        return self._page(key) is not None

    def same_objects(self, other: Store) -> bool:
        return isinstance(other, HttpStore) and (self._server, self._query) == (other._server, other._query)

    # -- writing ------------------------------------------------------------------------------

    def _refused(self) -> BadOption:
        return BadOption(
            f"{self.name} is read-only",
            remedy="Write to a store, by its own protocol: s3://, gs://, az:// …",
        )

    def write(
        self,
        key: str,
        source: Source,
        size: int,
        *,
        headers: Mapping[str, str] | None = None,
        md5: str = "",
    ) -> ObjectInfo:
        raise self._refused()

    def delete(self, keys: Iterable[str]) -> None:
        raise self._refused()


def _kind(response: Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def key_of(url: str) -> str:
    """Return the key of a URL: its path unescaped, except for an escaped slash, which is part of a name."""
    path = urlsplit(url).path.lstrip("/")
    return "/".join(
        unquote(part, errors="surrogateescape") if "%2f" not in part.lower() else part
        for part in path.split("/")
    )


def _parsed(url: str) -> _Url:
    """Split and escape a URL for a request. Raises BadOption if it is not an HTTP URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or not _is_host(parts.hostname):
        raise BadOption("this is no http address", expected="http://host/path or https://host/path")
    path = quote(parts.path or "/", safe=_PATH, errors="surrogateescape")
    query = quote(parts.query, safe=_QUERY, errors="surrogateescape")
    return _Url(
        parts.scheme,
        parts.hostname,
        port or (443 if parts.scheme == "https" else 80),
        f"{path}?{query}" if query else path,
    )


def _is_host(name: str) -> bool:
    """Whether the system can look up a name: labels have 1 to 63 characters (RFC 1035)."""
    try:
        return bool(name.encode("idna"))
    except UnicodeError:
        return False


def _checksums(response: Response) -> dict[str, str]:
    """Read the digests of the whole object from a response.

    ``Repr-Digest`` is defined in RFC 9530, ``Digest`` in RFC 3230 and ``Content-MD5`` in RFC 1864. The other headers
    are of Google's, Azure's and Amazon's stores.
    """
    headers = response.headers
    checksums = goog_hashes(headers.get("x-goog-hash", ""))
    for field in ("digest", "repr-digest"):
        for part in headers.get(field, "").split(","):
            name, _, value = part.strip().partition("=")
            digest = digest_in(value.strip().strip(":"), 32)
            if name.strip().lower() == "sha-256" and digest:
                checksums["sha256"] = digest
    whole = headers.get("x-ms-blob-content-md5", "")
    if response.status == 200:  # in a range response it is the digest of the range
        whole = whole or headers.get("content-md5", "")
    if digest := digest_in(whole, 16):
        checksums["md5"] = digest
    if headers.get("x-amz-checksum-type", "FULL_OBJECT") == "FULL_OBJECT":
        for name, size in (("sha256", 32), ("sha1", 20), ("crc32c", 4)):
            if digest := digest_in(headers.get(f"x-amz-checksum-{name}", ""), size):
                checksums[name] = digest
    return checksums
