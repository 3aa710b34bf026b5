"""The scene for the mistakes of the table: files, a bucket, servers that refuse, and full disks."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import re
import socket
import ssl
import struct
import subprocess
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from nbdata.demo.server import EmbeddedServer
from tests.hostile.bombs import tar_with, zstd_of_zeros
from tests.stores.servers import Handler, read_body, read_head, serving

NOBODY = 65534
HTML = b"<!DOCTYPE html><html><body>Log in</body></html>"


def answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    """Return one HTTP response, after which the connection closes."""
    lines = [f"HTTP/1.1 {status} Told", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def error(code: str, message: str = "", more: str = "") -> bytes:
    """Return an error body in S3's format."""
    return f"<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>".encode()


def answering(tell: Callable[[str], bytes]) -> Handler:
    """Return a server that responds with `tell("GET /target")`, without a body after HEAD."""

    def handle(connection: socket.socket) -> None:
        head = read_head(connection)
        if head:
            read_body(connection, head)
            asked = b" ".join(head.split()[:2]).decode()
            told = tell(asked)
            connection.sendall(told[: told.index(b"\r\n\r\n") + 4] if asked.startswith("HEAD") else told)

    return handle


def ffrecord(samples: dict[bytes, int]) -> bytes:
    """Return an FFRecord file of these samples; the values are their sizes."""
    at, starts = 12 + 12 * len(samples), []
    for size in samples.values():
        starts.append(at)
        at += size
    columns = [len(samples), *map(zlib.crc32, samples), *starts]
    head = struct.pack(f"<q{len(samples)}I{len(samples)}q", *columns)
    return struct.pack("<I", zlib.crc32(head)) + head + b"".join(samples)


class Scene:
    """A folder with everything that the commands name, and the names; a context manager."""

    def __init__(self, folder: Path, server: EmbeddedServer, url: str, certificate: Path) -> None:
        self.work, self._certificate = folder / "work", certificate
        self._stack = contextlib.ExitStack()
        self._shown = {
            str(self.work): "/work",
            url.rstrip("/"): "s3://bucket",
            server.url: "http://store:9000",
        }
        self.names = {"b": url.rstrip("/"), "nobucket": "none-of-that-name"}
        self.shown_names = {"b": "s3://bucket", "nobucket": "none-of-that-name"}
        self.asked = threading.Event()
        self.env = {
            **server.environment(),
            "HOME": str(self.work),
            "PATH": os.environ["PATH"],
            "NBDATA_QUOTA": f"100:{self.work}/limited",
            **{n: v for n, v in os.environ.items() if n.startswith(("AWS_", "NBDATA_", "PYTHON"))},
        }
        self.env |= server.environment()

    def __enter__(self) -> Scene:
        self._files()
        self._servers()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    # -- files --------------------------------------------------------------------------------------

    def _files(self) -> None:
        work = self.work
        for name, text in {
            "file.txt": "text\n" * 200,
            "list.txt": "other.txt\n",
            "tree/a.txt": "a",
            "fields/12.cls": "3",
            "fields/12.jpg": "a picture",
            "above/x/x/a.txt": "lies in a folder of the same name",
            "clash/a.d/b.txt": "in a folder",
            "clash/a.txt": "called like it once it is renamed",
            "limited/x": "",
            "stands/a.txt/x": "a folder",
            "sums/here.txt": "here",
            "sums/MD5SUMS": f"{hashlib.md5(b'here').hexdigest()}  here.txt\n{'0' * 32}  gone.txt\n",
            "wrong/a.txt": "changed",
            "wrong/a.txt.md5": "0" * 32,
            "twice/a.txt": "alpha\n",
            "twice/MD5SUMS": f"{'0' * 32}  a.txt\n{'1' * 32}  a.txt\n",
            "unread/a.txt": "alpha\n",
            "leading/f1.bin": "one\n",
            "leading/MD5SUMS": f"{hashlib.md5(b'one' + bytes([10])).hexdigest()}  f1.bin\n"
            f"{'0' * 32}  /home/b/f2.bin\n",
            "unread/MD5SUMS": f"{hashlib.md5(b'alpha' + bytes([10])).hexdigest()}  a.txt\n{'0' * 31}  b.txt\n",
            "x.rar": "Rar!\x1a\x07",
            "mine/other.txt": "",
            "open/x": "",
            "empty.py": "",
            "fails.py": "def get_datasets(folder):\n    return open('none.json')\n",
            "split.py": "def get_datasets(folder):\n    return [(['x'], 'a.txt')]\n",
            "config.py": "import os\ndata = dict(train=dict(ann_file=os.environ['ANN']))\n",
        }.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text)
        (work / "lost").symlink_to("gone")
        (work / "circle").symlink_to("circle")
        (work / "open").chmod(0o755)
        self.names["open_folder"] = str(work / "open")
        (work / "shared").mkdir()
        (work / "shared").chmod(0o777)
        self.names["shared_folder"] = str(work / "shared")
        self.names["used_folder"] = str(work / "mine")
        data = archive({"a/one.bin": os.urandom(3000), "a/two.bin": os.urandom(3000)})
        for folder, parts in (("vols", "abc"), ("hole", "ac"), ("two", "a"), ("listed", "ab")):
            (work / folder).mkdir()
            for number, part in enumerate("abc"):
                if part in parts:
                    (work / folder / f"set.tar.a{part}").write_bytes(data[number * 4096 :][:4096])
        (work / "vols" / "set.tar.ac").write_bytes(data[8192:])
        names = [f"set.tar.a{part}" for part in "abc"]
        (work / "listed" / "MD5SUMS").write_text("".join(f"{'0' * 32}  {name}\n" for name in names))
        text = archive({"a/one.txt": b"one " * 700, "a/two.txt": b"two " * 700})
        for folder, damaged in (("empty", b""), ("short", text[2048:3000])):
            (work / folder).mkdir()
            for number, part in enumerate("abcde"):
                content = damaged if part == "b" else text[number * 2048 :][:2048]
                (work / folder / f"set.tar.a{part}").write_bytes(content)
        for folder, sums in (("unlike", ("MD5SUMS",)), ("disputed", ("MD5SUMS", "set.tar.md5"))):
            (work / folder).mkdir()
            (work / folder / "set.tar").write_bytes(text)
            for digit, name in enumerate(sums):
                (work / folder / name).write_text(f"{str(digit) * 32}  set.tar\n")
        (work / "zeros.tar").write_bytes(bytes(20_000))
        records = ffrecord({b"one": 3, b"two": 3, b"three": 5})
        for name, content in {
            "good.ffr": records,
            "unfinished.ffr": bytes(len(records)),
            "short.ffr": records[:7],
            "cut.ffr": records[:-9],
            "spoilt.ffr": records[:20] + b"?" + records[21:],
            "photo.ffr": b"\xff\xd8\xff\xe0" + bytes(range(200)),
        }.items():
            (work / name).write_bytes(content)
        for name in ("one.tar", "other.tar"):
            (work / "two" / name).write_bytes(data)
        (work / "two" / "set.tar.aa").unlink()
        (work / "alike").mkdir()
        for name in ("x.tar", "X.tar"):
            (work / "alike" / name).write_bytes(data)
        (work / "away.lst").write_text("../one.tar\n")
        (work / "two.md5").write_text(
            "".join(f"{'0' * 32}  two/{name}\n" for name in ("one.tar", "other.tar"))
        )
        (work / "cut.tar.gz").write_bytes(gzip.compress(data, mtime=0)[:2000])
        (work / "evil.tar").write_bytes(archive({"../evil": b"x"}))
        with zipfile.ZipFile(work / "cut.zip", "w") as zipped:
            zipped.writestr("a", "b")
        whole = (work / "cut.zip").read_bytes()
        os.truncate(work / "cut.zip", 80)
        end = whole.rfind(b"PK\5\6")
        (work / "last.zip").write_bytes(
            whole[: end + 4] + b"\2" + whole[end + 5 :]
        )  # the third of a split set
        (work / "two.zip").write_bytes(whole[:-5] + whole)
        (work / "long.tar.zst").write_bytes(zstd_of_zeros(31, 1 << 20, tar_with("a", 1 << 20)))
        (work / "large.tar").write_bytes(tar_with("a.mp4", 3 << 30))

    # -- servers ------------------------------------------------------------------------------------

    def _serve(
        self, name: str, handle: Handler, *, tls: ssl.SSLContext | None = None, scheme: str = "http"
    ) -> int:
        port = self._stack.enter_context(serving(handle, tls=tls))
        self._shown[f"127.0.0.1:{port}"] = "store:9000"
        self.names[name] = f"AWS_ENDPOINT_URL={scheme}://127.0.0.1:{port}"
        return port

    def _servers(self) -> None:
        denied = answer(403, error("AccessDenied", "Access Denied"))
        empty = answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        for name, told in {
            "expired": answer(400, error("ExpiredToken", "The provided token has expired.")),
            "token": answer(400, error("InvalidToken", "The provided token is malformed.")),
            "skewed": answer(403, error("RequestTimeTooSkewed", "The difference is too large.")),
            "denied": denied,
            "quota": answer(403, error("QuotaExceeded", "The bucket is over its quota.")),
            "virtual": answer(
                403, error("SecondLevelDomainForbidden", "Please use virtual hosted style to access.")
            ),
            "refusing_404": answer(404, error("NoSuchBucket")),
            "elsewhere": answer(301, error("PermanentRedirect", "Use the specified endpoint.")),
            "region": answer(400, error("AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong")),
            "website": answer(200, HTML, "Content-Type: text/html"),
        }.items():
            self._serve(name, answering(lambda _, told=told: told))
        self._serve("readable", answering(lambda asked: empty if asked.startswith("GET") else denied))
        there = answer(200, b"", 'ETag: "0"').replace(b"Content-Length: 0", b"Content-Length: 5")
        cold = answer(403, error("InvalidObjectState", "It is in GLACIER."))
        self._serve(
            "archived",
            answering(lambda m: there if m.startswith("HEAD") else empty if "list-type" in m else cold),
        )
        self._serve("no_tls", self._no_tls, scheme="https")
        self._serve("no_plain", lambda connection: self._say(connection, b"\x15\x03\x01\x00\x02\x02\x46"))
        self._serve("ssh", lambda connection: self._say(connection, b"SSH-2.0-OpenSSH_9.6\r\n\r\n\r\n"))
        self._serve("hangs", self._hang)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate)
        self._serve("tls", answering(lambda _: denied), tls=context, scheme="https")
        for name, status, scheme in (
            ("proxy_407", 407, "http"),
            ("tunnel_407", 407, "https"),
            ("tunnel_403", 403, "https"),
        ):
            port = self._serve(name, answering(lambda _, status=status: answer(status)))
            self._shown[f"127.0.0.1:{port}"] = "proxy:3128"
            self.names[name] = (
                f"AWS_ENDPOINT_URL={scheme}://s3.example.com {scheme}_proxy=http://127.0.0.1:{port}"
            )
        port = self._serve("filtering", answering(lambda _: answer(403, HTML, "Content-Type: text/html")))
        self._shown[f"127.0.0.1:{port}"] = "proxy:3128"
        self.names["filtering"] = f"AWS_ENDPOINT_URL=http://s3.example.com http_proxy=http://127.0.0.1:{port}"
        for status in (403, 404):
            port = self._serve(f"web_{status}", answering(lambda _, status=status: answer(status)))
            self.names[f"web_{status}"] = f"127.0.0.1:{port}"
            self.shown_names[f"web_{status}"] = "store:9000"
        page = answer(200, HTML, "Content-Type: text/html")
        port = self._serve("web_page", answering(lambda _: page))
        self.names["web_page"], self.shown_names["web_page"] = f"127.0.0.1:{port}", "store:9000"
        taken = self._stack.enter_context(socket.socket())  # no server listens there, and nobody else can
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        self._shown[f"127.0.0.1:{port}"] = "gone:9000"
        self.names["gone"] = f"http://127.0.0.1:{port}"
        self.names["proxy_gone"] = (
            f"AWS_ENDPOINT_URL=https://s3.example.com https_proxy=http://127.0.0.1:{port}"
        )

    @staticmethod
    def _say(connection: socket.socket, what: bytes) -> None:
        read_head(connection)
        connection.sendall(what)

    @staticmethod
    def _no_tls(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(answer(400))

    def _hang(self, connection: socket.socket) -> None:
        read_head(connection)
        self.asked.set()
        connection.recv(1)

    # -- disks --------------------------------------------------------------------------------------

    def disks(self) -> None:
        """Mount the small disks."""
        if "small" in self.names:
            return
        for name, how in {
            "small": "size=64k",
            "no_inodes": "nr_inodes=2,size=8m",
            "read_only": "ro,size=1m",
        }.items():
            disk = self.work.parent / name
            disk.mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", how, "none", str(disk)], check=True)
            self._stack.callback(subprocess.run, ["umount", "-l", str(disk)], check=False)
            self.names[name] = str(disk)
            self.shown_names[name] = f"/{name.replace('_', '-')}"
            self._shown[str(disk)] = f"/{name.replace('_', '-')}"

    def closed(self) -> None:
        """Make folders that the user may not read."""
        if "closed" in self.names:
            return
        root = os.getuid() == 0
        for name, mode in (("closed", 0o555), ("hidden", 0o000)):
            folder = self.work.parent / "theirs" / name
            (folder / "tree").mkdir(parents=True)
            for file in (folder / "tree" / "a.txt", folder / "x.tar"):
                file.write_bytes(b"theirs")
                file.chmod(0o000)
                if root:
                    os.chown(file, NOBODY, NOBODY)
            if root:
                os.chown(folder, NOBODY, NOBODY)
            folder.chmod(mode)
            self._stack.callback(folder.chmod, 0o755)
            self.names[name] = str(folder)
            self.shown_names[name] = f"/{name}"
            self._shown[str(folder)] = f"/{name}"

    def stranger(self) -> None:
        """Have another user listen at a port."""
        if "theirs" in self.names:
            return
        os.seteuid(NOBODY)  # a socket belongs to the user who makes it
        try:
            theirs = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        finally:
            os.seteuid(0)
        self.names["theirs"] = f"127.0.0.1:{theirs.getsockname()[1]}"
        self.shown_names["theirs"] = self._shown[self.names["theirs"]] = "localhost:8786"
        self._shown[f"got user {NOBODY}"] = "got user nobody"

    # -- displayed texts ----------------------------------------------------------------------------

    def page(self, text: str) -> str:
        """Replace the names of this machine in a text, as the page does."""
        for real in sorted(self._shown, key=len, reverse=True):
            text = text.replace(real, self._shown[real])
        # Other programs of this machine mount disks, and end them, meanwhile.
        text = re.sub(
            r"It would fit on /[^<\n]* free(, outside [^)]*)?\)", "It would fit on /data (80.0 GB free)", text
        )
        text = re.sub(r"(user|owner) \d+", r"\1 1000", text.replace("self signed", "self-signed"))
        return text.replace(self.names["b"].removeprefix("s3://"), "bucket")


def archive(members: dict[str, bytes]) -> bytes:
    """Return a tar archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()
