"""copy between real servers, run in this process: what arrives, and how nbdata verifies it."""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import socket
import threading
from pathlib import Path

import pytest

import nbdata
from nbdata.operation import Context
from nbdata.stores.s3.config import s3_config
from nbdata.stores.s3.store import S3Store
from nbdata.transfer.uploads import remembered
from tests.engine.copy.sides import MIB, Side, Sides, copy
from tests.stores.servers import ok, read_body, read_head, serving

pytestmark = pytest.mark.usefixtures("inline")

ODD = ("a//b", "with space/é ü", "a+b", "q?x=1#f", "100%", "line\nbreak", "dot/./x", "deep/er/file", "empty")
# SeaweedFS stores keys as paths of folders, so it cannot hold such keys. moto cannot route a line break.
NOT_IN = {"seaweedfs": ("a//b", "dot/./x"), "moto": ("line\nbreak",)}
PAIRS = [("seaweedfs", "seaweedfs"), ("moto", "moto"), ("seaweedfs", "moto"), ("moto", "seaweedfs")]


@pytest.mark.in_ci(2)
@pytest.mark.parametrize(("kind", "other"), PAIRS)
def test_content_type_and_metadata_arrive_whole_and_a_second_run_moves_nothing(
    kind: str, other: str, side: Sides
) -> None:
    source, target = side(kind), side(other)
    data = {"a.txt": b"alpha", "b/c.bin": os.urandom(300_000), "b/empty": b""}
    source.put(data, ContentType="text/x-odd", Metadata={"who": "me  and   you"}, CacheControl="max-age=9")
    report = copy(source, target, "in/")
    assert report.counts == {"copied": 3}
    assert report.notes == [], "all were proven"
    assert report.details == {"by_store": 3 if kind == other else 0}
    assert target.objects() == {f"in/{key}": content for key, content in data.items()}
    for key in data:
        head = target.head(f"in/{key}")
        assert (head["ContentType"], head["CacheControl"]) == ("text/x-odd", "max-age=9")
        assert head["Metadata"] == source.head(key)["Metadata"]
    assert copy(source, target, "in/").counts == {"unchanged": 3}


@pytest.mark.parametrize("other", ["seaweedfs", "moto"])
def test_metadata_in_utf_8_arrives_byte_for_byte(other: str, side: Sides) -> None:
    """Some of the bytes look like whitespace in another encoding, also at the end of a value."""
    source, target = side("seaweedfs"), side(other)
    said = "Voilà Åse à".encode().decode("latin-1")
    store_of(source).write("f", io.BytesIO(b"x"), 1, headers={"x-amz-meta-said": said})
    copy(source, target)
    assert store_of(target).head("f").headers["x-amz-meta-said"] == said


def store_of(side: Side) -> S3Store:
    """Return the bucket as nbdata's store object."""
    return S3Store(side.bucket, s3_config("s3", Context(cwd="/", storage_options=side.options)))


@pytest.mark.in_ci(2)
@pytest.mark.parametrize(("kind", "other"), PAIRS)
def test_odd_keys_arrive_under_their_very_names(kind: str, other: str, side: Sides) -> None:
    source, target = side(kind), side(other)
    keys = [key for key in ODD if key not in NOT_IN[kind] + NOT_IN[other]]
    data = source.put({key: b"" if key == "empty" else key.encode() for key in keys}) and source.objects()
    assert len(data) == len(keys)
    assert copy(source, target, "p/").counts == {"copied": len(keys)}
    assert {key.removeprefix("p/"): content for key, content in target.objects().items()} == data


@pytest.mark.usefixtures("own_state")
@pytest.mark.parametrize(("kind", "other"), PAIRS)
@pytest.mark.in_ci("seaweedfs-moto")
def test_a_big_object_is_copied_in_the_parts_it_was_made_of_and_so_proven(
    kind: str, other: str, side: Sides
) -> None:
    source, target = side(kind), side(other)
    data = os.urandom(33 * MIB)
    etag = source.put_parts("big", data, 8 * MIB, ContentType="text/x-big", Metadata={"who": "me"})
    report = copy(source, target)
    assert report.counts == {"copied": 1}
    assert report.notes == []
    assert target.get("big") == data
    head = target.head("big")
    assert head["ETag"] == etag
    assert (head["ContentType"], head["Metadata"]) == ("text/x-big", {"who": "me"})
    assert target.pending() == []
    assert remembered(os.environ["NBDATA_STATE_DIR"]) == {}
    assert copy(source, target).counts == {"unchanged": 1}


@pytest.mark.in_ci("seaweedfs-moto")
@pytest.mark.parametrize(("kind", "other"), [("seaweedfs", "moto"), ("moto", "moto")])
def test_a_big_object_with_one_md5_keeps_to_it(kind: str, other: str, side: Sides) -> None:
    source, target = side(kind), side(other)
    data = os.urandom(33 * MIB)
    source.put({"big": data})
    report = copy(source, target, part_size="5MiB")
    assert report.notes == []
    assert target.get("big") == data
    assert target.head("big")["ETag"].strip('"').partition("-")[2] == ("" if kind == other else "7")
    assert copy(source, target).counts == {"unchanged": 1}


def test_bytes_that_differ_from_the_sources_checksum_never_become_an_object(
    side: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the hash is faked instead of the bytes: real bytes come from a real store."""
    from nbdata.engine.copy import copier as copying
    from nbdata.integrity import digests

    class Wrong:
        def update(self, data: memoryview, /) -> None: ...

        def copy(self) -> Wrong:
            return self

        def hexdigest(self) -> str:
            return "0" * 32

    source, target = side("seaweedfs"), side("moto")
    source.put({"small": b"x" * 1000, "big": os.urandom(33 * MIB)})
    monkeypatch.setattr(copying, "new_digest", lambda algorithm: Wrong())
    monkeypatch.setattr(digests, "new_digest", lambda algorithm: Wrong())
    report = copy(source, target, on_error="report")
    assert report.counts == {"failed": 2}
    assert {
        reason for _, reason in report.failures if "checksum of the source" in reason or "wrong" in reason
    }
    assert target.keys() == []
    assert target.pending() == []


def test_one_object_goes_to_the_key_or_into_the_folder(side: Sides) -> None:
    source = side("moto")
    source.put({"d/a.txt": b"alpha"})
    for to in ("name", "folder/"):
        nbdata.copy(f"{source.url}d/a.txt", source.url + to, storage_options=source.options, quiet=True)
    assert sorted(source.keys()) == ["d/a.txt", "folder/a.txt", "name"]


@pytest.mark.long
def test_an_in_memory_store_can_be_copied(side: Sides) -> None:
    source, name = side("moto"), secrets.token_hex(4)
    data = {"a.txt": b"alpha", "d/big": os.urandom(40 * MIB), "empty": b""}
    source.put(data)
    there = nbdata.copy(source.url, f"memory://{name}/", storage_options=source.options, quiet=True)
    assert there.counts == {"copied": 3}
    assert there.notes == ["3 could not be verified: the target returned no checksum"]
    assert nbdata.copy(
        source.url, f"memory://{name}/", storage_options=source.options, quiet=True
    ).counts == {"unchanged": 3}
    back = nbdata.copy(f"memory://{name}/", f"{source.url}back/", target_options=source.options, quiet=True)
    assert back.counts == {"copied": 3}
    assert back.notes == ["3 could not be verified: the source has no checksum"]
    assert {k: v for k, v in source.objects().items() if k.startswith("back/")} == {
        f"back/{key}": content for key, content in data.items()
    }


def test_a_passed_in_file_system_is_used_for_urls_of_its_protocol(side: Sides) -> None:
    import fsspec

    target, name = side("moto"), secrets.token_hex(4)
    fs = fsspec.filesystem("memory")
    fs.pipe_file(f"/{name}/a", b"alpha")
    nbdata.copy(f"memory://{name}/", target.url, fs=fs, target_options=target.options, quiet=True)
    assert target.objects() == {"a": b"alpha"}
    with pytest.raises(nbdata.BadOption, match="for memory"):
        nbdata.copy(target.url, target.url + "x/", fs=fs, storage_options=target.options, quiet=True)


@pytest.mark.in_ci("<ETag>{}</ETag>")
@pytest.mark.parametrize("listed", ["<ETag>&quot;{}&quot;</ETag>", "<ETag>{}</ETag>", ""])
def test_a_source_without_ranges_is_read_in_one_piece(listed: str, side: Sides) -> None:
    """This also holds if only the first part reveals it: its bytes begin at the right place.

    It holds with and without an ETag in the listing; later responses carry one.
    """
    target, data = side("moto"), os.urandom(33 * MIB)
    etag = f"{'0' * 31}x"  # not a digest
    found = f"<Contents><Key>f</Key><Size>{len(data)}</Size>{listed.format(etag)}</Contents>"

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            line = head.split(b"\r\n")[0].decode()
            answer = ok(data, f'ETag: "{etag}"')
            if line.startswith("HEAD"):
                answer = answer[: -len(data)]
            elif "list-type" in line:
                answer = ok(f"<L><IsTruncated>false</IsTruncated>{found}</L>".encode())
            connection.sendall(answer)

    with serving(handle) as port:
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "k", "secret": "s"}
        report = nbdata.copy(
            "s3://bucket/",
            target.url,
            storage_options=options,
            target_options=target.options,
            concurrency=1,
            quiet=True,
        )
    assert report.counts == {"copied": 1}
    assert target.get("f") == data
    assert target.pending() == []


def test_no_password_of_a_url_is_in_a_report(side: Sides) -> None:
    target = side("moto")

    def handle(connection: socket.socket) -> None:  # never tells an object's size
        while head := read_head(connection):
            body = b"" if head.startswith(b"HEAD") else b"3\r\nabc\r\n0\r\n\r\n"
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)

    with serving(handle) as port:
        report = nbdata.copy(
            f"http://user:hunter2@127.0.0.1:{port}/f.bin",
            target.url,
            target_options=target.options,
            on_error="report",
            quiet=True,
        )
    said = repr([report.text(), report.to_dict(), list(report.rows)])
    assert "does not say how large" in said
    assert f"127.0.0.1:{port}/f.bin" in said
    assert "hunter2" not in said


@pytest.mark.long
def test_memory_is_bounded_by_blocks_not_by_objects(side: Sides) -> None:
    source, target = side("seaweedfs"), side("seaweedfs")
    # This name looks like another server to nbdata, so the bytes pass through this process.
    target.options["endpoint_url"] = source.server.url.replace("127.0.0.1", "localhost")
    data = os.urandom(8 * MIB)
    for name in range(3):
        source.put_parts(f"big-{name}", data * 6, 8 * MIB)
    rss = _Peak()
    with rss:
        report = copy(source, target)
    assert (report.counts, report.details) == ({"copied": 3}, {"by_store": 0})
    # Memory for sixteen blocks of 1 MiB and as many socket buffers, not for objects of 144 MiB.
    assert rss.grown < 72 * MIB, f"{rss.grown / MIB:.0f} MiB"
    assert hashlib.md5(target.get("big-2")).digest() == hashlib.md5(data * 6).digest()


def test_a_store_that_does_not_copy_by_itself_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, stored = [], {}
    md5 = hashlib.md5(b"data").hexdigest()
    listing = "".join(
        f"<Contents><Key>in/{name}</Key><Size>4</Size><ETag>&quot;{md5}&quot;</ETag></Contents>"
        for name in "abc"
    )

    def handle(connection: socket.socket) -> None:
        while head := read_head(connection):
            body = read_body(connection, head)
            line = head.split(b"\r\n")[0].decode()
            answer = ok(b"", f'ETag: "{md5}"')
            if b"x-amz-copy-source:" in head:
                asked.append(line)
                document = b"<Error><Code>NotImplemented</Code></Error>"
                answer = ok(document).replace(b"200 OK", b"501 Not Implemented")
            elif line.startswith("PUT"):
                stored[line.split()[1]] = body
            elif line.startswith("GET") and "list-type" in line:
                found = listing if "prefix=in" in line else ""
                answer = ok(f"<L><IsTruncated>false</IsTruncated>{found}</L>".encode())
            elif line.startswith("GET"):
                answer = ok(b"data", f'ETag: "{md5}"', "Content-Type: text/x-odd")
            connection.sendall(answer)

    with serving(handle) as port:
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "k", "secret": "s"}
        report = nbdata.copy(
            "s3://bucket/in/", "s3://bucket/out/", storage_options=options, concurrency=1, quiet=True
        )
    assert report.counts == {"copied": 3}
    assert report.details == {"by_store": 0}
    assert len(asked) == 2  # of one object: with its condition, and without
    assert stored == {f"/bucket/out/{name}": b"data" for name in "abc"}
    assert "does not copy by itself" in report.notes[0]


class _Peak:
    """Measures the maximum growth of this process's memory."""

    def __enter__(self) -> None:
        self._stop, self._began, self.grown = threading.Event(), _rss(), 0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self.grown = max(self.grown, _rss() - self._began)

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
