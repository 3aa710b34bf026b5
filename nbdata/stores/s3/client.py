"""Send signed requests to one S3 bucket, and repeat them with new credentials or for another region."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from nbdata.bounded import Unreadable, parse_xml
from nbdata.errors import AccessDenied, StoreUnavailable
from nbdata.stores.base import Stop
from nbdata.stores.credentials.asked import EARLY
from nbdata.stores.http.client import Origin, Pool, Response
from nbdata.stores.http.dial import proxy_address, wants_password
from nbdata.stores.http.heads import request_head
from nbdata.stores.http.hops import Hops, Target, follow
from nbdata.stores.http.object_store import refuse_spent
from nbdata.stores.http.pools import pool_of
from nbdata.stores.http.servers import server_at
from nbdata.stores.s3.config import S3Config
from nbdata.stores.s3.errors import EXPIRED, error_of, field, new_region
from nbdata.stores.s3.extensions import may_lack
from nbdata.stores.s3.parameters import Parameters
from nbdata.stores.s3.sigv4 import EMPTY, UNSIGNED, Identity, Signer, quote_path, quote_query

__all__ = ["Endpoint", "S3Client"]

# Seconds between two requests for new credentials, if the source keeps giving some that expire soon.
_ASK_AGAIN = 30.0

# The namespace of a document, which differs between servers. Without one, the document is parsed in half the time.
_NAMESPACE = re.compile(rb"\A((?:<\?xml[^>]*>\s*)?<[\w.-]+)\s+xmlns=(?:\"[^\"<>]*\"|'[^'<>]*')")


class Endpoint(NamedTuple):
    """The address of requests, and how they are signed."""

    region: str
    prefix: str
    netloc: str
    pool: Pool
    signer: Signer | None


class S3Client:
    """Sends requests to one bucket and reads their responses. Safe to use from many threads.

    Parameters
    ----------
    bucket : str
        Empty for the service itself.
    config, stop, renew
        See `nbdata.stores.s3.store.S3Store`.
    """

    def __init__(
        self, bucket: str, config: S3Config, stop: Stop | None, renew: Callable[[str], S3Config] | None
    ) -> None:
        self.name = f"s3://{bucket}"
        self.bucket, self._config, self._stop, self._renew = bucket, config, stop, renew
        self._renewing, self._asked = threading.Lock(), 0.0
        self._lacking: frozenset[str] = frozenset()
        self._refusals: Counter[str] = (
            Counter()
        )  # of extensions, since the last request with them that succeeded
        self.left_out: set[str] = set()
        self._set_endpoint(config.region)

    def said(self, key: str) -> str:
        """A key as users know it: with the bucket's URL."""
        return f"{self.name}/{key}" if key else self.name

    @property
    def server(self) -> str:
        """See `Store.server`."""
        return server_at(self._config.address)

    @property
    def given_endpoint(self) -> str:
        """The endpoint that was given; empty for AWS."""
        return self._config.endpoint.rstrip("/").lower()

    @property
    def stop(self) -> Stop | None:
        """The `Stop` that ends this client's requests."""
        return self._stop

    @property
    def identity(self) -> tuple[str, ...]:
        """The keys and token, which identify the user whatever their origin."""
        identity = self._config.identity
        return (identity.key, identity.secret, identity.token) if identity else ()

    # -- endpoint and identity ----------------------------------------------------------------

    def _set_endpoint(self, region: str) -> Endpoint:
        """Set address and signer for a region. A single assignment, so that other threads see all of it or nothing."""
        config = self._config
        scheme, host, port, prefix = S3Config(**{**vars(config), "region": region}).host_for(self.bucket)
        origin = Origin(scheme, host, port, config.proxy, config.ca, config.verify, config.stall)
        signer = Signer(config.identity, region, origin.netloc) if config.identity else None
        self._endpoint = endpoint = Endpoint(
            region, prefix, origin.netloc, pool_of(origin, config.identity), signer
        )
        return endpoint

    @property
    def endpoint(self) -> Endpoint:
        """The current endpoint."""
        return self._endpoint

    def renewed_endpoint(self) -> Endpoint:
        """The current endpoint. If the identity expires soon, it is renewed first, if possible."""
        identity = self._config.identity
        if identity is not None and identity.expires is not None and time.time() > identity.expires - EARLY:
            try:
                self._renewed(identity)
            except AccessDenied:
                if time.time() > identity.expires:
                    raise
        return self._endpoint

    def _renewed(self, old: Identity, refused: str = "") -> bool:
        """Renew the identity `old`. Returns whether there is another one now."""
        with self._renewing:
            if self._renew is None or self._config.identity != old:
                return self._config.identity != old
            if not refused and time.monotonic() < self._asked:
                return False
            self._asked = time.monotonic() + _ASK_AGAIN
            config = self._renew(refused)
            if config.identity == old:
                return False
            self._config = config
            self._set_endpoint(self._endpoint.region)
            return True

    @property
    def parameters(self) -> Parameters:
        """The headers that the user wants objects to be stored with, and read with."""
        return self._config.parameters

    @property
    def lacking(self) -> frozenset[str]:
        """The extensions of S3 that this store has refused; see `nbdata.stores.s3.extensions`."""
        return self._lacking

    # -- one request --------------------------------------------------------------------------

    def send(
        self,
        method: str,
        key: str,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: bytes | Iterator[memoryview] | None = None,
        *,
        size: int = 0,
        ok: tuple[int, ...] = (200,),
    ) -> Response:
        """Send a signed request and return its response. Raise the matching error if the status is not in `ok`.

        What the store may lack is left out, if it refuses the request and takes it without that.
        """
        asked, lacking = {**(headers or {}), **(query or {})}, self._lacking
        response, data = self._answered(method, key, query, headers, body, size, ok, lacking)
        if data is None:
            if self._refusals:
                self._took(asked)
            return response
        names = may_lack(response.status, data, method, asked, lacking)
        # Each alone, and then all of them: what the store knows is not left out with what it does not.
        for without in [[name] for name in names] + [names] * (len(names) > 1):
            if body is not None and not isinstance(body, bytes):
                self._refused(without)
                refuse_spent(body, f"the store refuses {without[0]}", self.name)
            again, refused = self._answered(
                method, key, query, headers, body, size, ok, lacking.union(without)
            )
            if refused is None:
                self._refused(without)
                return again
        identity = self._config.identity
        raise error_of(
            response,
            data,
            path=self.said(key),
            identity=identity.source if identity else "anonymous access",
            copied_along=identity.copied_along if identity else "",
            has_token=bool(identity and identity.token),
            bucket_twice=self._config.names_bucket(self.bucket),
            proxy=proxy_address(self._config.proxy) if self._config.proxy else "",
        )

    def _refused(self, names: list[str]) -> None:
        """Note that a request may have been refused because of extensions; the second time, the store lacks them.

        A single refusal may have passed by itself.
        """
        self.left_out.update(names)
        self._refusals.update(names)
        self._lacking |= {name for name in names if self._refusals[name] > 1}

    def _took(self, asked: Container[str]) -> None:
        """Note that the store took a request with what this asks for."""
        for name in [name for name in self._refusals if name in asked and name not in self._lacking]:
            del self._refusals[name]

    def _answered(
        self,
        method: str,
        key: str,
        query: dict[str, str] | None,
        headers: dict[str, str] | None,
        body: bytes | Iterator[memoryview] | None,
        size: int,
        ok: tuple[int, ...],
        without: frozenset[str],
    ) -> tuple[Response, bytes | None]:
        """Send a request `without` these extensions; return its response, and the error document if it is refused."""
        for last in (False, False, True):
            endpoint, signed = self.renewed_endpoint(), self._config.identity
            if self._config.hops is None:
                target, extra = self._signed(endpoint, method, key, query, headers, body, without)
                response = endpoint.pool.request(method, target, extra, body, size=size, stop=self._stop)
            else:
                response = self._followed(
                    self._config.hops, endpoint, method, key, query, headers, body, size, without
                )
            if response.status in ok:
                return response, None
            if response.status == 407 and self._config.proxy:
                response.close()
                raise wants_password(endpoint.pool.origin)
            data = b"" if method == "HEAD" else response.read(limit=1 << 20)
            if (
                not last
                and signed is not None
                and (field(data, "Code") in EXPIRED or self._may_have_expired(method, response, signed))
                and self._renewed(signed, signed.token)
            ):
                refuse_spent(body, "the credentials had expired, and there are new ones", self.name)
                continue
            region = new_region(response, data)
            if region and not last and region != endpoint.region:
                if self._endpoint is endpoint:  # otherwise another thread has learned it meanwhile
                    self._set_endpoint(region)  # the response names the bucket's region
                refuse_spent(body, f"the bucket is in region {region}", self.name)
                continue
            break
        return response, data

    def _followed(
        self,
        hops: Hops,
        endpoint: Endpoint,
        method: str,
        key: str,
        query: dict[str, str] | None,
        headers: dict[str, str] | None,
        body: bytes | Iterator[memoryview] | None,
        size: int,
        without: frozenset[str],
    ) -> Response:
        """Send a request and follow its redirects. It is signed anew for each server."""
        if not size and body is not None and not isinstance(body, bytes):
            body = b"".join(body)  # it checks that there are no bytes

        def send(at: Target, body: bytes | Iterator[memoryview] | None, more: dict[str, str]) -> Response:
            pool = endpoint.pool if at is first else pool_of(at.origin, self._config.identity)
            if at is first:
                target, extra = self._signed(endpoint, method, key, query, headers, body, without)
            else:
                target, extra = self._signed_at(at, endpoint, method, headers, body, without)
            return pool.request(method, target, extra | more, body, size=size, stop=self._stop)

        path, text, _ = self._parts(endpoint, key, query, headers, without)
        first = Target(endpoint.pool.origin, f"{path}?{text}" if text else path, key)
        return follow(hops, first, send, body, self.said(key))

    def _signed_at(
        self,
        at: Target,
        endpoint: Endpoint,
        method: str,
        headers: dict[str, str] | None,
        body: bytes | Iterator[memoryview] | None,
        without: frozenset[str],
    ) -> tuple[str, dict[str, str]]:
        """Return the target and all headers of a request for the place that a redirect leads to."""
        identity = self._config.identity
        extra = self._parts(endpoint, "", None, headers, without)[2]
        if identity is None:
            return at.target, {**extra, "host": at.origin.netloc}
        path, mark, text = at.target.partition("?")
        path = quote(unquote_to_bytes(path), safe="/-_.~")  # escaped in the one way that is signed
        asked = dict(parse_qsl(text, keep_blank_values=True, errors="surrogateescape"))
        signer = Signer(identity, endpoint.region, at.origin.netloc)
        return path + mark + text, signer.headers(method, path, quote_query(asked), extra, _payload(body))

    def _may_have_expired(self, method: str, response: Response, signed: Identity) -> bool:
        """Whether a response without a body may stand for an expired token, and it is time to ask for a new one."""
        if method != "HEAD" or response.status not in (400, 403) or not signed.token:
            return False
        return self._config.identity != signed or time.monotonic() >= self._asked

    def _signed(
        self,
        endpoint: Endpoint,
        method: str,
        key: str,
        query: dict[str, str] | None,
        headers: dict[str, str] | None,
        body: bytes | Iterator[memoryview] | None,
        without: frozenset[str],
    ) -> tuple[str, dict[str, str]]:
        """Return the target and all headers of a request."""
        path, text, extra = self._parts(endpoint, key, query, headers, without)
        if endpoint.signer is not None:
            extra = endpoint.signer.headers(method, path, text, extra, _payload(body))
        else:
            extra["host"] = endpoint.netloc
        return f"{path}?{text}" if text else path, extra

    def _parts(
        self,
        endpoint: Endpoint,
        key: str,
        query: dict[str, str] | None,
        headers: dict[str, str] | None,
        without: frozenset[str],
    ) -> tuple[str, str, dict[str, str]]:
        """Return path, query and headers of a request, as they are signed."""
        path = f"{endpoint.prefix}/{quote_path(key)}"
        extra = {**(headers or {}), **self._config.parameters.each}
        if without:
            extra = {name: value for name, value in extra.items() if name not in without}
            query = {name: value for name, value in (query or {}).items() if name not in without}
        if self._config.requester_pays:
            extra["x-amz-request-payer"] = "requester"
        return path, quote_query(query) if query else "", extra

    def request(
        self,
        endpoint: Endpoint,
        method: str,
        key: str,
        query: dict[str, str],
        headers: dict[str, str],
        body: bytes | None = None,
    ) -> bytes:
        """Return a complete request, signed now, which the caller sends."""
        # The body is not hashed, as for streams: hashing takes as long as sending.
        target, signed = self._signed(
            endpoint, method, key, query, headers, None if body is None else iter(()), self._lacking
        )
        size = None if body is None else len(body)
        return request_head(endpoint.pool.origin, method, target, signed, size) + (body or b"")

    @property
    def hops(self) -> Hops | None:
        """The redirects that requests follow; None for none."""
        return self._config.hops

    def request_at(
        self, at: Target, endpoint: Endpoint, method: str, headers: dict[str, str]
    ) -> tuple[bytes, Pool]:
        """Return a complete request for the place that a redirect leads to, and the pool to send it on."""
        target, signed = self._signed_at(at, endpoint, method, headers, None, self._lacking)
        return request_head(at.origin, method, target, signed), pool_of(at.origin, self._config.identity)

    def xml(
        self,
        method: str,
        key: str,
        query: dict[str, str],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ET.Element:
        """Send a request and return the XML document in its response, with names without their namespace."""
        return self.answer(method, key, query, body, headers)[1]

    def answer(
        self,
        method: str,
        key: str,
        query: dict[str, str],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[Response, ET.Element]:
        """Send a request and return its response and the XML document in it."""
        sent = dict(headers or {})
        if body:
            digest = hashlib.md5(body, usedforsecurity=False).digest()
            sent["content-md5"] = base64.b64encode(digest).decode()
        response = self.send(method, key, query, sent, body)
        return response, self.document(response, response.read(), key)

    def document(self, response: Response, data: bytes, key: str = "") -> ET.Element:
        """Return the XML document in a response to a request for a key, with names without their namespace."""
        try:
            # Blanks may come first: they keep the connection alive while the store works (CompleteMultipartUpload).
            data = _NAMESPACE.sub(rb"\1", data.lstrip())
            root = parse_xml(data)
        except Unreadable as error:
            if re.match(rb"\s*<(!doctype )?html", data[:256], re.IGNORECASE):
                raise self._web_page() from error
            root = ET.Element("Unreadable")
        if root.tag.lower().endswith("html"):
            raise self._web_page()
        if root.tag in ("Error", "Unreadable"):  # S3 may send errors with 200 (CompleteMultipartUpload)
            response.status = 500
            raise error_of(response, data, path=f"{self.name}/{key}", identity="")
        return root

    def _web_page(self) -> StoreUnavailable:
        return StoreUnavailable(
            "a web page came in place of an answer of S3",
            path=self.name,
            remedy="Name the address of S3 in endpoint_url or AWS_ENDPOINT_URL, not that of a console or login page",
        )


def _payload(body: bytes | Iterator[memoryview] | None) -> str:
    """The digest of a body, as it is signed."""
    if body is None:
        return EMPTY
    return hashlib.sha256(body).hexdigest() if isinstance(body, bytes) else UNSIGNED
