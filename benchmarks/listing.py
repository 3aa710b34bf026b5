"""A server that only lists: it offers a bucket of any number of objects, which it makes up while it lists them.

It answers ListObjectsV2 (and version 1) in pages of 1,000, HEAD, and GET of objects of 100 bytes, without
authentication. Objects of another size (`--size`) are all zeros, and ranges of them are answered, too. So a plan of a
million objects, or a sync without changes, can be measured without uploading a million objects first, and every tool
gets the same responses. ``python listing.py --objects 1000000`` prints its address.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import parse_qsl, unquote

PREFIX = "many/"
SIZE = 100
# The modification time of all objects; it is earlier than that of any file of a benchmark.
MODIFIED = 1_700_000_000
_PAGE = 1000
_BLOCK = 1 << 20
_LISTED = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(MODIFIED))
_TOLD = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(MODIFIED))
_ENTRY = (
    "<Contents><Key>%s</Key><LastModified>" + _LISTED + "</LastModified><ETag>&quot;%s&quot;</ETag>"
    "<Size>%d</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
_DOCUMENT = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<Name>bench</Name><Prefix>%s</Prefix><KeyCount>%d</KeyCount><MaxKeys>1000</MaxKeys>"
    "<IsTruncated>%s</IsTruncated>%s%s</ListBucketResult>"
)


def content(number: int) -> bytes:
    """The content of an object."""
    return b"%0*d" % (SIZE, number)


class Bucket:
    """A bucket of `objects` objects, in one folder or in folders of `per_folder` objects each.

    With `pairs`, two objects form a sample. If `size` is not `SIZE`, the content of all objects is zeros, which costs
    the server next to nothing.
    """

    def __init__(
        self, objects: int, per_folder: int, delay: float, *, pairs: bool = False, size: int = SIZE
    ) -> None:
        self.objects, self.per_folder, self.delay, self.pairs = objects, per_folder, delay, pairs
        self.size = size
        if size != SIZE:
            self._zeros = os.memfd_create("zeros")
            os.ftruncate(self._zeros, size)
            digest = hashlib.md5()
            for begin in range(0, size, _BLOCK):
                digest.update(bytes(min(_BLOCK, size - begin)))
            self._tag = digest.hexdigest()

    def tag(self, number: int) -> str:
        """Return the ETag of an object: its MD5."""
        return hashlib.md5(content(number)).hexdigest() if self.size == SIZE else self._tag

    def _entries(self, first: int, last: int) -> str:
        """Return the entries of these objects in a listing."""
        return "".join(_ENTRY % (PREFIX + self.name(n), self.tag(n), self.size) for n in range(first, last))

    def name(self, number: int) -> str:
        """Return the path of an object below the prefix; the order of paths is that of the numbers."""
        if self.pairs:
            return f"{number // 2:09d}.{('cls', 'jpg')[number % 2]}"
        name = f"object-{number:09d}"
        return f"{number // self.per_folder:06d}/{name}" if self.per_folder else name

    def page(self, query: dict[str, str]) -> bytes:
        """Return one page of the listing."""
        prefix = query.get("prefix", "")
        if self.per_folder and query.get("delimiter"):
            return self._folder_page(prefix, query)
        after = query.get("continuation-token") or query.get("start-after") or query.get("marker") or ""
        first = int(after.rpartition("-")[2]) + 1 if after else 0
        last = min(self.objects, first + min(_PAGE, int(query.get("max-keys", _PAGE))))
        if not PREFIX.startswith(prefix):
            first = last = self.objects
        entries = self._entries(first, last)
        more = "" if last >= self.objects else f"<NextContinuationToken>-{last - 1}</NextContinuationToken>"
        return (_DOCUMENT % (prefix, last - first, str(bool(more)).lower(), more, entries)).encode()

    def _folder_page(self, prefix: str, query: dict[str, str]) -> bytes:
        """Return one page of the listing of a single folder, with the folders in it as common prefixes."""
        after = query.get("continuation-token") or query.get("start-after") or query.get("marker") or ""
        most = min(_PAGE, int(query.get("max-keys", _PAGE)))
        folders = -(-self.objects // self.per_folder)
        folder = prefix.removeprefix(PREFIX).rstrip("/")
        entries, shown, last, more = "", 0, 0, ""
        if prefix == PREFIX:
            first = int(after.rpartition("-")[2]) + 1 if after else 0
            shown, last = min(most, folders - first), min(folders, first + most)
            entries = "".join(
                f"<CommonPrefixes><Prefix>{PREFIX}{n:06d}/</Prefix></CommonPrefixes>"
                for n in range(first, last)
            )
            more = "" if last >= folders else f"<NextContinuationToken>-{last - 1}</NextContinuationToken>"
        elif folder.isdigit() and int(folder) < folders and prefix.endswith("/"):
            begin = int(folder) * self.per_folder
            end = min(self.objects, begin + self.per_folder)
            first = int(after.rpartition("-")[2]) + 1 if after else begin
            last = min(end, first + most)
            shown = last - first
            entries = self._entries(first, last)
            more = "" if last >= end else f"<NextContinuationToken>-{last - 1}</NextContinuationToken>"
        elif PREFIX.startswith(prefix) or (folder.isdigit() and int(folder) < folders):
            below = PREFIX if PREFIX.startswith(prefix) else prefix + "/"
            shown, entries = 1, f"<CommonPrefixes><Prefix>{below}</Prefix></CommonPrefixes>"
        return (_DOCUMENT % (prefix, shown, str(bool(more)).lower(), more, entries)).encode()

    def answer(self, method: str, target: str) -> tuple[int, str, bytes | None]:
        """Return status, additional headers and body of the response to a request; None for the zeros."""
        path, _, query = target.partition("?")
        key = unquote(path).lstrip("/").partition("/")[2]
        if method == "GET" and not key:
            time.sleep(self.delay)
            return 200, "Content-Type: application/xml\r\n", self.page(dict(parse_qsl(query)))
        name = key.removeprefix(PREFIX)
        digits = name.rpartition("-")[2]
        number = int(digits) if digits.isdigit() else self.objects
        if number >= self.objects or name != self.name(number):
            return 404, "", b""
        headers = f'ETag: "{self.tag(number)}"\r\nLast-Modified: {_TOLD}\r\n'
        return 200, headers, content(number) if self.size == SIZE else None

    def serve(self, connection: socket.socket) -> None:
        """Answer the requests of one connection, one after the other."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as lines:
            while line := lines.readline():
                asked = ""
                while (header := lines.readline()) not in (b"\r\n", b""):
                    if header.lower().startswith(b"range: bytes="):  # no other header matters
                        asked = header.decode().partition("=")[2].strip()
                method, target, _ = line.decode().split(" ", 2)
                status, headers, body = self.answer(method, target)
                if body is None:
                    self._send_zeros(connection, headers, asked, head=method == "HEAD")
                    continue
                head = f"HTTP/1.1 {status} -\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode()
                connection.sendall(head if method == "HEAD" else head + body)

    def _send_zeros(self, connection: socket.socket, headers: str, asked: str, *, head: bool) -> None:
        """Answer with an object of zeros, or a range of it."""
        status, begin, end = 200, 0, self.size
        if asked:
            first, _, last = asked.partition("-")
            status, begin, end = 206, int(first), min(self.size, int(last or self.size) + 1)
            headers += f"Content-Range: bytes {begin}-{end - 1}/{self.size}\r\n"
        headers += f"Accept-Ranges: bytes\r\nContent-Length: {end - begin}\r\n\r\n"
        connection.sendall(f"HTTP/1.1 {status} -\r\n{headers}".encode())
        while begin < end and not head:
            begin += os.sendfile(connection.fileno(), self._zeros, begin, end - begin)


class ListServer:
    """The server in its own process; a context manager."""

    def __init__(
        self,
        objects: int,
        *,
        per_folder: int = 0,
        delay: float = 0.0,
        pairs: bool = False,
        size: int = SIZE,
    ) -> None:
        command = [sys.executable, __file__, "--objects", str(objects), "--per-folder", str(per_folder)]
        command += ["--size", str(size)]
        command += ["--pairs"] * pairs
        self.process = subprocess.Popen(
            [*command, "--delay", str(delay)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.place = f"s3://bench/{PREFIX.rstrip('/')}"

    def __enter__(self) -> ListServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def write_files(folder: Path, objects: int) -> None:
    """Write the objects as files with their modification times, as a pull would."""
    folder.mkdir()
    bucket = Bucket(objects, 0, 0.0)
    for number in range(objects):
        path = folder / bucket.name(number)
        path.write_bytes(content(number))
        os.utime(path, (MODIFIED, MODIFIED))


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--per-folder", type=int, default=0, help="0: all in one")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before a page is answered")
    parser.add_argument("--pairs", action="store_true", help="samples of two objects; they cannot be read")
    parser.add_argument("--size", type=int, default=SIZE, help="bytes of an object")
    options = parser.parse_args()
    bucket = Bucket(
        options.objects, options.per_folder, options.delay, pairs=options.pairs, size=options.size
    )
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=bucket.serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
