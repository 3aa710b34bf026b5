"""The gateway ("proxy"): it has no data. It lists, knows the cluster map, and redirects to the node that has an object.

Facts and their sources:

- a GET of the native API is answered with 301, all else with 307, and the query of the redirect is that of the request
  with ``pid`` and ``utm`` behind it (``httpobjget`` … in ``ais/proxy.go``, ``redurl`` in ``ais/prxred.go``);
- the S3 door answers with 307 and a document with the code TemporaryRedirect (``s3Redirect`` in ``ais/prxs3.go``);
- the body of such a request is never read;
- a test may have it redirect elsewhere (``redirect_to``), or by other addresses of the nodes (``through``);
- the cluster map is ``/v1/daemon?what=smap`` (``meta.Smap``, ``meta.Snode``);
- a listing is a GET with a JSON body, answered in JSON, or in msgpack if the client accepts that (``cmn/objlist.go``);
  pages hold 10,000 names, over S3 1,000 (``api/apc/lsmsg.go``).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any
from urllib.parse import unquote, urlencode
from xml.sax.saxutils import escape

from tests.servers.aistore import s3_node
from tests.servers.aistore.answering import Answered, Handler, Server, serve
from tests.servers.aistore.node import signature
from tests.servers.aistore.placing import digest_of, place_of, unique_name

__all__: list[str] = []

_PAGE, _S3_PAGE = 10_000, 1000
# Flags of a listing, and of an entry (``api/apc/lsmsg.go``).
_NO_RECURSION, _IS_DIR = 1 << 11, 1 << 8
# The flag of a node that is drained (``meta.SnodeMaint``).
_MAINTENANCE = 1 << 2
_XML = {"content-type": "application/xml"}
# Characters in a path with which a redirect escapes all of it (``cmn.HasSpecialSymbols``).
_SPECIAL = "%?# +"


class Gateway(Server):
    """The gateway of a cluster.

    Attributes
    ----------
    nodes : dict
        The nodes by id: address and flags.
    pinned : dict
        Objects that are elsewhere than their names say, by unique name.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(GatewayHandler, settings)
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pinned: dict[str, str] = {}
        self.buckets: dict[tuple[str, str], dict[str, Any]] = {}
        self.version = 1
        self.lock = threading.Lock()

    def place(self, provider: str, bucket: str, name: str) -> str:
        """The address of the node that has an object."""
        uname = unique_name(provider, bucket, name)
        live = [node for node, told in self.nodes.items() if not told["flags"] & _MAINTENANCE]
        if not live:
            raise Answered(503, "no targets in the cluster map")
        return str(self.nodes[self.pinned.get(uname) or place_of(uname, live)]["url"])

    def ask(self, url: str, what: str, asked: dict[str, Any]) -> Any:
        """Ask a node."""
        try:
            return json.loads(self.reach(f"{url}/_control/{what}", json.dumps(asked).encode()))
        except OSError as error:
            raise Answered(503, f"failed to reach {url}: {error}") from error

    def everywhere(self, what: str, asked: dict[str, Any]) -> list[Any]:
        """Ask all nodes."""
        return [self.ask(told["url"], what, asked) for told in self.nodes.values()]

    def found(self, provider: str, name: str) -> dict[str, Any]:
        """The properties of a bucket."""
        if (provider, name) not in self.buckets:
            raise Answered(404, f'bucket "{provider}://{name}" does not exist', "ErrBckNotFound")
        return self.buckets[provider, name]

    def named(self, name: str) -> str:
        """The provider of a bucket that is known by its name alone."""
        for provider, known in self.buckets:
            if known == name:
                return provider
        raise Answered(404, f'bucket "{name}" does not exist', "NoSuchBucket")


class GatewayHandler(Handler):
    """A connection of the gateway."""

    server: Gateway

    def respond(self) -> None:
        if (status := self.fault("status")) is not None:
            raise Answered(int(status), "injected")
        if self.parts[0] == "s3":
            try:
                self._s3()
            except Answered as error:
                data = b"" if self.command == "HEAD" else s3_node.error_document(error, self.address.path)
                self.answer(error.status, data, _XML)
            return
        kind = self.parts[1] if self.parts[0] == "v1" and len(self.parts) > 1 else ""
        if kind == "objects" and len(self.parts) > 3:
            self._redirect_native()
        elif kind == "buckets":
            self._buckets()
        elif kind == "daemon" and self.query.get("what") == "smap":
            self._json_answer(self._map())
        elif kind == "health":
            self.answer(200)
        else:
            raise Answered(404, "invalid URL path")

    def _json_answer(self, told: Any) -> None:
        self.answer(200, json.dumps(told).encode(), {"content-type": "application/json"})

    # -- redirects --------------------------------------------------------------------------------

    def _redirect_native(self) -> None:
        provider, bucket, name = self.query.get("provider") or "ais", self.parts[2], self.parts[3]
        self.server.found(provider, bucket)
        where = self._location(self.server.place(provider, bucket, name))
        status = self.fault("redirect_status") or (301 if self.command == "GET" else 307)
        body = b"" if self.command == "HEAD" else f'<a href="{escape(where)}">Moved</a>.\n\n'.encode()
        self.answer(status, body, {"location": where, "content-type": "text/html; charset=utf-8"})

    def _redirect_s3(self, provider: str, bucket: str, name: str) -> None:
        where = self._location(self.server.place(provider, bucket, name))
        inside = (
            "<Error><Code>TemporaryRedirect</Code><Message>Redirect</Message>"
            f"<Endpoint>{escape(where)}</Endpoint><Bucket>{bucket}</Bucket></Error>"
        )
        headers = {"location": where, "content-type": "text/xml; charset=utf-8", "server": "AIStore"}
        body = b"" if self.command == "HEAD" else inside.encode()
        self.answer(self.fault("redirect_status") or 307, body, headers)

    def _location(self, node: str) -> str:
        """The address that a request is redirected to; a fault may name another server."""
        node = self.fault("redirect_to") or (self.fault("through") or {}).get(node, node)
        path = self.address.path
        if not set(unquote(path)) & set(_SPECIAL):  # then it is not escaped again (``redurl``)
            path = (
                unquote(path, errors="surrogateescape").encode("utf-8", "surrogateescape").decode("latin-1")
            )
            if self.parts[0] != "s3":  # ``http.Redirect`` of Go escapes what is not ASCII
                path = "".join(one if one.isascii() else f"%{ord(one):02x}" for one in path)
        query = {"pid": self.server.id, "utm": str(time.time_ns())}
        if key := self.server.settings.get("signs"):
            length = int(self.headers.get("content-length") or 0)
            query["u"] = signature(key, self.command, self.address.path, length)
        own = f"{self.address.query}&" if self.address.query else ""
        return f"{node}{path}?{own}{urlencode(query)}"

    # -- the native API ---------------------------------------------------------------------------

    def _map(self) -> dict[str, Any]:
        """The cluster map. Nodes have three networks, here with one address."""

        def node(name: str, kind: str, url: str, flags: int) -> dict[str, Any]:
            host, _, port = url.partition("://")[2].rpartition(":")
            net = {"node_ip_addr": host, "daemon_port": port, "direct_url": url}
            return {
                "daemon_id": name,
                "daemon_type": kind,
                "public_net": net,
                "intra_control_net": net,
                "intra_data_net": net,
                "flags": flags,
                "id_digest": digest_of(name),
            }

        own = node(self.server.id, "proxy", self.server.url, 0)
        return {
            "pmap": {self.server.id: own},
            "proxy_si": own,
            "tmap": {
                name: node(name, "target", told["url"], told["flags"])
                for name, told in self.server.nodes.items()
            },
            "uuid": "stand-in",
            "creation_time": "2026-11-01T00:00:00",
            "version": str(self.server.version),
        }

    def _buckets(self) -> None:
        provider = self.query.get("provider") or "ais"
        if len(self.parts) < 3 or not self.parts[2]:
            known = [{"name": name, "provider": one} for one, name in self.server.buckets]
            self.json()
            self._json_answer([one for one in known if one["provider"] == provider])
            return
        name = self.parts[2]
        if self.command == "HEAD":
            self.answer(200, b"", {"ais-bucket-props": json.dumps(self.server.found(provider, name))})
            return
        asked = self.json()
        action, value = asked.get("action"), asked.get("value") or {}
        if self.command == "POST" and action == "create-bck":
            self._create({"provider": provider, "name": name})
            self.answer(200)
        elif self.command == "GET" and action == "list":
            self.server.found(provider, name)
            self._list(provider, name, value)
        elif self.command == "DELETE" and action == "destroy-bck":
            del self.server.buckets[provider, name]
            self.answer(200)
        else:
            raise Answered(400, f"invalid action {action!r}")

    def _create(self, bucket: dict[str, Any]) -> None:
        with self.server.lock:
            key = (bucket["provider"], bucket["name"])
            if key in self.server.buckets:
                raise Answered(409, f'bucket "{key[0]}://{key[1]}" already exists', "ErrBucketAlreadyExists")
            self.server.everywhere("bucket", bucket)
            self.server.buckets[key] = bucket

    def _page(
        self, provider: str, bucket: str, prefix: str, after: str, limit: int, *, recursive: bool
    ) -> tuple[list[tuple[str, dict[str, Any] | None]], str]:
        """Return names with what is known of them (None: a folder), and the name to go on behind."""
        asked = {"provider": provider, "bucket": bucket, "prefix": prefix, "limit": limit + 1}
        entries: list[tuple[str, dict[str, Any] | None]] = []
        while True:
            found = [*self.server.everywhere("list", asked | {"after": after})]
            known = {one["name"]: one for of_node in found for one in of_node}
            # Beyond the last name of a node that has more, another node may know less.
            full = [of_node[-1]["name"] for of_node in found if len(of_node) == limit + 1]
            last = min(map(_in_bytes, full), default=None)
            for name in sorted(known, key=_in_bytes):
                if _in_bytes(name) <= _in_bytes(after) or (last is not None and _in_bytes(name) > last):
                    continue
                slash = -1 if recursive else name.find("/", len(prefix))
                entries.append((name, known[name]) if slash < 0 else (name[: slash + 1], None))
                after = name if slash < 0 else f"{name[: slash + 1]}\U0010ffff"
                if len(entries) > limit:
                    name, told = entries[limit - 1]
                    return entries[:limit], name if told is not None else f"{name}\U0010ffff"
            if last is None:
                return entries, ""

    def _list(self, provider: str, bucket: str, value: dict[str, Any]) -> None:
        limit = min(int(value.get("pagesize") or 0) or _PAGE, self.fault("page") or _PAGE)
        flags = int(value.get("flags") or 0)
        after = value.get("continuation_token") or value.get("start_after") or ""
        entries, token = self._page(
            provider,
            bucket,
            value.get("prefix") or "",
            after,
            limit,
            recursive=not flags & _NO_RECURSION,
        )
        props = {one.strip() for one in (value.get("props") or "name,size").split(",")}
        packed = self.headers.get("accept") == "application/msgpack"
        names = _PACKED if packed else _PLAIN
        told = []
        for name, one in entries:
            entry: dict[str, Any] = {names["name"]: name}
            if one is None:
                entry[names["flags"]] = _IS_DIR
            else:
                if "size" in props and (one["size"] or packed):
                    entry[names["size"]] = one["size"] if packed else str(one["size"])
                for prop in ("checksum", "version"):
                    if prop in props and one[prop]:
                        entry[names[prop]] = one[prop]
                if "custom" in props and one["custom"]:
                    pairs = ", ".join(f"{key}:{text}" for key, text in one["custom"].items())
                    entry[names["custom-md"]] = f"[{pairs}]"
            told.append(entry)
        page = {
            names["uuid"]: value.get("uuid") or "stand-in-list",
            names["continuation_token"]: token,
            names["entries"]: told,
            names["Flags"]: 0,
        }
        if packed:
            import msgpack

            self.answer(200, msgpack.packb(page), {"content-type": "application/msgpack"})
            return
        self._json_answer(page)

    # -- the S3 door ------------------------------------------------------------------------------

    def _s3(self) -> None:
        bucket, name = (*self.parts[1:2], ""), "/".join(self.parts[2:])
        if not bucket[0]:
            inside = "".join(f"<Bucket><Name>{one}</Name></Bucket>" for _, one in self.server.buckets)
            self.answer(200, s3_node.document("ListAllMyBucketsResult", f"<Buckets>{inside}</Buckets>"), _XML)
            return
        if self.command == "PUT" and not name:
            self._create({"provider": "ais", "name": bucket[0]})
            self.answer(200)
            return
        provider = self.server.named(bucket[0])
        if name:
            self._redirect_s3(provider, bucket[0], name)
        elif self.command == "HEAD":
            self.answer(200)
        elif self.command == "GET" and "uploads" in self.query:
            self._s3_uploads(provider, bucket[0])
        elif self.command == "GET":
            self._s3_list(provider, bucket[0])
        elif self.command == "POST" and "delete" in self.query:
            names = s3_node.names_to_delete(b"".join(self.body()))
            self.server.everywhere("delete", {"provider": provider, "bucket": bucket[0], "names": names})
            inside = "".join(f"<Deleted><Key>{escape(one)}</Key></Deleted>" for one in names)
            self.answer(200, s3_node.document("DeleteResult", inside), _XML)
        else:
            raise Answered(400, "invalid request", "InvalidRequest")

    def _s3_list(self, provider: str, bucket: str) -> None:
        query = self.query
        limit = min(int(query.get("max-keys") or _S3_PAGE), _S3_PAGE)
        entries, token = self._page(
            provider,
            bucket,
            query.get("prefix", ""),
            query.get("continuation-token") or query.get("start-after") or "",
            limit,
            recursive="delimiter" not in query,
        )
        told: list[tuple[str, dict[str, object] | None]] = [*entries]
        self.answer(200, s3_node.listing(bucket, told, token, query.get("prefix", "")), _XML)

    def _s3_uploads(self, provider: str, bucket: str) -> None:
        """Unfinished uploads. Real gateways redirect this to one node, which knows only its own."""
        found = self.server.everywhere("uploads", {"provider": provider, "bucket": bucket})
        inside = "".join(
            f"<Upload><Key>{escape(name)}</Key><UploadId>{upload_id}</UploadId></Upload>"
            for node in found
            for name, upload_id in node
            if name.startswith(self.query.get("prefix", ""))
        )
        told = f"<IsTruncated>false</IsTruncated>{inside}"
        self.answer(200, s3_node.document("ListMultipartUploadsResult", told), _XML)

    # -- tests ------------------------------------------------------------------------------------

    def controlled(self, what: str, asked: dict[str, Any]) -> Any:
        gateway = self.server
        if what == "node":
            gateway.nodes[asked["id"]] = {"url": asked["url"], "flags": 0}
            gateway.version += 1
            for bucket in gateway.buckets.values():
                gateway.ask(asked["url"], "bucket", bucket)
            return {}
        if what == "bucket":
            self._create(asked)
            return {}
        if what == "where":
            return gateway.place(asked["provider"], asked["bucket"], asked["name"])
        if what == "pin":
            gateway.pinned[unique_name(asked["provider"], asked["bucket"], asked["name"])] = asked["node"]
            return {}
        if what == "maintenance":
            gateway.nodes[asked["id"]]["flags"] |= _MAINTENANCE
            gateway.version += 1
            return {}
        return super().controlled(what, asked)


# The names of members in JSON and in msgpack (``cmn/objlist.go``, ``sdk/types.py``).
_PLAIN = {name: name for name in ("name", "checksum", "version", "size", "flags", "custom-md")} | {
    "uuid": "uuid",
    "continuation_token": "continuation_token",
    "entries": "entries",
    "Flags": "flags",
}
_PACKED = {
    "name": "n",
    "checksum": "cs",
    "version": "v",
    "size": "s",
    "flags": "f",
    "custom-md": "m",
    "uuid": "UUID",
    "continuation_token": "ContinuationToken",
    "entries": "Entries",
    "Flags": "Flags",
}


def _in_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


if __name__ == "__main__":
    serve(Gateway(json.loads(sys.argv[1])))
