"""http and https: odd servers, redirects, signatures, index pages, and which host gets which headers."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbdata
from nbdata.errors import AccessDenied, BadOption, NbdataError, NotFound, SourceChanged, StoreUnavailable
from nbdata.operation import Context
from nbdata.stores.base import Location
from nbdata.stores.http.index_page import _without_linked_above, links_below
from nbdata.stores.resolve import open_place
from tests.stores import folder_server as folder_server_module
from tests.stores.folder_server import FolderServer, folder_server
from tests.stores.round_trip import files
from tests.stores.servers import each, ok, read_head, serving, status
from tests.waiting import AT_ONCE, PATIENCE

pytestmark = pytest.mark.usefixtures("inline")


def at(url: str, *, env: dict[str, str] | None = None, **options: object) -> Location:
    return open_place(url, Context(cwd="/", env=env or {}, storage_options=options))


@pytest.fixture
def served(tree: Path) -> Iterator[FolderServer]:
    with folder_server(tree) as server:
        yield server


# -- folders --------------------------------------------------------------------------------------


def test_a_folder_is_pulled_by_its_index_pages(served: FolderServer, tree: Path, tmp_path: Path) -> None:
    report = nbdata.pull(served.url, tmp_path / "out", quiet=True)
    assert report.counts == {"fetched": 5}
    assert files(tmp_path / "out") == files(tree)
    report = nbdata.pull(served.url, tmp_path / "out", quiet=True)
    assert report.counts == {"unchanged": 5}


def test_a_folder_without_a_slash_and_a_part_of_it_are_found(
    served: FolderServer, tree: Path, tmp_path: Path
) -> None:
    nbdata.pull(served.url + "b", tmp_path / "one", quiet=True)
    assert files(tmp_path / "one") == files(tree / "b")
    nbdata.pull(served.url + "b/*.txt", tmp_path / "two", quiet=True)
    assert list(files(tmp_path / "two")) == ["e.txt"]
    nbdata.pull(served.url + "with%20space%20&%20%C3%BCn%C3%AF.txt", f"{tmp_path}/three/", quiet=True)
    assert list(files(tmp_path / "three")) == ["with space & ünï.txt"]
    with pytest.raises(NotFound):
        nbdata.pull(served.url + "nothing", tmp_path / "four", quiet=True)


def test_a_file_that_changed_is_fetched_again(served: FolderServer, tree: Path, tmp_path: Path) -> None:
    nbdata.pull(served.url, tmp_path / "out", quiet=True)
    (tree / "a.txt").write_text("other\n")
    report = nbdata.pull(served.url, tmp_path / "out", quiet=True)
    assert report.counts == {"fetched": 1, "unchanged": 4}
    assert (tmp_path / "out/a.txt").read_text() == "other\n"


def test_python_s_own_server_does_without_ranges(tree: Path, tmp_path: Path) -> None:
    import http.server

    from tests.stores.folder_server import _Handler

    class Plain(_Handler):
        send_head = http.server.SimpleHTTPRequestHandler.send_head

    with open(tree / "big", "wb") as file:
        file.truncate(33 << 20)
    with folder_server(tree, Plain) as server:
        report = nbdata.pull(server.url, tmp_path / "out", quiet=True)
        assert report.counts == {"fetched": 6}
    assert files(tmp_path / "out") == files(tree)


def test_a_big_file_comes_in_parts(served: FolderServer, tree: Path, tmp_path: Path) -> None:
    data = os.urandom(33 << 20)
    (tree / "big").write_bytes(data)
    nbdata.pull(served.url + "big", tmp_path / "out", quiet=True)
    assert (tmp_path / "out").read_bytes() == data
    assert sum("range" in headers for line, headers in served.seen if line == "GET /big") >= 3


def test_a_big_file_of_which_nothing_tells_versions_apart_comes_in_one_stream_and_is_called_unguarded(
    served: FolderServer, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_server_module._Handler, "validators", False)
    (tree / "big").write_bytes(data := os.urandom(40 << 20))
    report = nbdata.pull(served.url + "big", f"{tmp_path}/out/", quiet=True)
    assert (tmp_path / "out" / "big").read_bytes() == data
    assert not any("range" in headers for line, headers in served.seen if line.startswith("GET /big"))
    assert any("1 came without version" in note for note in report.notes)


def test_files_from_needs_no_index_page(tree: Path, tmp_path: Path) -> None:
    def answer(head: str) -> bytes:
        path = tree / head.split()[1].lstrip("/")
        return ok(path.read_bytes()) if path.is_file() else status(403 if path.is_dir() else 404)

    wanted = tmp_path / "wanted"
    with serving(each(answer)) as port:
        url = f"http://127.0.0.1:{port}/"
        with pytest.raises(AccessDenied):
            nbdata.pull(url, tmp_path / "out", quiet=True)
        wanted.write_text("b/e.txt\na.txt\n")
        nbdata.pull(url, tmp_path / "out", files_from=wanted, quiet=True)
        assert files(tmp_path / "out") == {name: (tree / name).read_bytes() for name in ("a.txt", "b/e.txt")}
        wanted.write_text("a.txt\nno.txt\n")
        with pytest.raises(NotFound, match="no\\.txt"):
            nbdata.pull(url, tmp_path / "out", files_from=wanted, quiet=True)


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (  # Apache
            '<a href="?C=N;O=D">Name</a> <a href="/pub/">Up</a> <a href="a%20b.txt">a b</a> <a href="sub/">sub/</a>',
            {"a b.txt", "sub/"},
        ),
        (  # nginx
            '<a href="../">../</a>\n<a href="x%2By.bin">x+y.bin</a>  01-Jan-2026 00:00  1234',
            {"x+y.bin"},
        ),
        (
            "<A HREF='/pub/data/abs.txt'>x</A><a href=\"http://host/pub/data/full.txt\">y</a>",
            {"abs.txt", "full.txt"},
        ),
        ("<a href=a&amp;b.txt>x</a><a name=top>y</a><a href='#top'>z</a>", {"a&b.txt"}),
        ("<a href='//other/pub/data/x'>x</a><a href='https://host/pub/data/x'>x</a>", set()),
        ("<a href='%2e%2e/secret'>x</a><a href='a%2Fb'>y</a><a href='a%00b'>z</a>", {"a%2Fb", "a%00b"}),
        ("<a href='/pub/data'>x</a><a href='/pub/database/x'>x</a><a href='http://[bad/'>y</a>", set()),
        (
            "<a href='deep/er/x.txt'>x</a><a href='sub/'>s</a><a href='sub/y.txt'>y</a>",
            {"deep/er/x.txt", "sub/"},
        ),
        ("<a href='x.csv?version=2'>x</a><a href='y.csv#part'>y</a>", {"y.csv"}),
        (  # links that urllib's joining would change
            "".join(
                f"<a href='{link}'>x</a>"
                for link in ("x", "x;", "x;a=b", ";", ".;", "x%3Bb", "y?", "z#", " w ")
            ),
            {"x", "x;", "x;a=b", ";", ".;", "x;b", "y", "z", "w"},
        ),
        ("<a href='a//b'>x</a><a href='/pub/data//c;'>y</a><a href='d;/e;'>z</a>", {"a//b", "/c;", "d;/e;"}),
        (
            "<a href='./f;'>x</a><a href='q/../g;'>y</a><a href='%2E/h;'>z</a><a href='q/.%2e/i'>z</a>",
            {"f;", "g;", "h;", "i"},
        ),
        (
            "<a href='../data;/x'>x</a><a href='../../../pub/data/y;'>y</a><a href='http:k;'>z</a>",
            {"y;", "k;"},
        ),
        ("<a href='//host/pub/data/x;'>x</a><a href='http://HOST/pub/data/y;'>y</a>", {"x;", "y;"}),
        (
            "<a href='//host'>x</a><a href='////host/pub/data/x'>y</a><a href='./'>z</a><a href='%2e%2e'>z</a>",
            set(),
        ),
        (f"<a href='x'>x</a><a href='&#{'9' * 5000};'>y</a>", {"x"}),
        ("<a href='mailto:a@b'>x</a><a href='javascript:x()'>y</a><a>z</a><a href>w</a>", set()),
    ],
)
def test_only_links_below_the_folder_count(page: str, found: set[str]) -> None:
    assert links_below(page, "http://host/pub/data/") == found


def test_names_that_joining_would_change_are_pulled_as_they_are(tmp_path: Path) -> None:
    names = ["x", "x;", "x;a=b", ";", ".;", "d;/x;"]

    def answer(head: str) -> bytes:
        path = unquote(head.split()[1])
        if path == "/":
            links = "".join(f"<a href='{name}'>x</a>" for name in [*names, "a//b", "no%2Fname"])
            return ok(links.encode(), "Content-Type: text/html")
        return ok(path.encode()) if path[1:] in names else status(404)

    with serving(each(answer)) as port, pytest.raises(nbdata.TransferFailed) as caught:
        nbdata.pull(f"http://127.0.0.1:{port}/", tmp_path / "out", quiet=True)
    assert files(tmp_path / "out") == {name: f"/{name}".encode() for name in names}
    assert caught.value.report.counts == {"fetched": len(names), "failed": 1, "unrepresentable": 1}


def _linked_above(name: str, found: set[str]) -> bool:
    folders = {one for one in found if one.endswith("/") and one != name and name.startswith(one)}
    return bool(folders) or (not name.endswith("/") and name + "/" in found)


@given(st.sets(st.text(st.sampled_from("ab/"), min_size=1, max_size=6)))
def test_what_lies_below_a_folder_that_is_linked_too_is_left_to_its_page(names: set[str]) -> None:
    assert _without_linked_above(names) == {name for name in names if not _linked_above(name, names)}


def test_names_of_slashes_take_no_quadratic_time() -> None:
    names = {f"{number}" + "/" * 16_000 for number in range(500)} | {"x/"}
    start = time.process_time()
    assert _without_linked_above(names) == names
    assert time.process_time() - start < 10


@pytest.mark.parametrize("up", ["", "../a/"])
def test_links_of_a_page_with_a_long_path_take_no_quadratic_time(up: str) -> None:
    """A server chooses the path by a redirect."""
    page = "".join(f"<a href='{up}{number}'>x</a>" for number in range(20_000))
    start = time.process_time()
    assert len(links_below(page, "http://host/" + "a/" * 15_000)) == 20_000
    assert time.process_time() - start < 10


def test_folders_without_end_are_an_error(tmp_path: Path) -> None:
    page = ok(b"<a href='deeper/'>x</a>", "Content-Type: text/html")
    with serving(each(lambda head: page)) as port, pytest.raises(BadOption, match="no end"):
        nbdata.pull(f"http://127.0.0.1:{port}/", tmp_path / "out", quiet=True)


def test_folders_with_names_without_end_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the folders from the first to the deepest are in memory; those of folders side by side are not."""
    monkeypatch.setattr("nbdata.stores.http.store._NAMES", 20 * 62)

    def answer(head: str) -> bytes:
        path = head.split()[1]
        if not path.endswith("/"):
            return ok(b"1")
        names = [f"{name}/" for name in "abc"] if path == "/" else [f"{number}" for number in range(9)]
        return ok(
            "".join(f"<a href='{name}'>x</a>" for name in [*names, *also]).encode(), "Content-Type: text/html"
        )

    also: list[str] = []
    with serving(each(answer)) as port:
        report = nbdata.pull(f"http://127.0.0.1:{port}/", tmp_path / "out", quiet=True)
        assert report.counts == {"fetched": 27}
        also.extend(f"more{number}" for number in range(9))
        with pytest.raises(BadOption, match="1,240 bytes of names in those from the first to the deepest"):
            nbdata.pull(f"http://127.0.0.1:{port}/", tmp_path / "again", quiet=True)


def test_a_folder_that_is_no_page_is_named(tmp_path: Path) -> None:
    page = ok(b"{}", "Content-Type: application/json")
    with serving(each(lambda head: page)) as port, pytest.raises(BadOption, match="files-from"):
        nbdata.pull(f"http://127.0.0.1:{port}/x/", tmp_path / "out", quiet=True)


def test_a_link_that_leads_nowhere_fails_alone(tmp_path: Path) -> None:
    def answer(head: str) -> bytes:
        if head.split()[1] == "/":
            return ok(b"<a href=here>x</a><a href=gone>x</a>", "Content-Type: text/html; charset=utf-8")
        return ok(b"hello") if head.split()[1] == "/here" else status(404)

    with serving(each(answer)) as port, pytest.raises(nbdata.TransferFailed) as caught:
        nbdata.pull(f"http://127.0.0.1:{port}/", tmp_path / "out", quiet=True)
    assert caught.value.report.counts == {"fetched": 1, "failed": 1}
    assert caught.value.report.failures[0][0] == "gone"


# -- queries and signatures -----------------------------------------------------------------------


def signed(head: str) -> bytes:
    """A server with presigned URLs like S3's: for GET only, with the signature in the query."""
    line = head.split("\r\n")[0]
    if not line.startswith("GET ") or "Signature=SECRET%2Fabc&x=*?[1]" not in line:
        return status(403)
    return ok(b"content") if line.split()[1].startswith("/f%20%2B.csv?") else status(403)


def test_a_signed_url_is_fetched_as_it_is_and_its_query_is_no_glob(tmp_path: Path) -> None:
    with serving(each(signed)) as port:
        url = f"http://127.0.0.1:{port}/f%20%2B.csv?Signature=SECRET%2Fabc&x=*?[1]"
        report = nbdata.pull(url, f"{tmp_path}/out/", quiet=True)
        assert files(tmp_path / "out") == {"f +.csv": b"content"}
        assert "SECRET" not in f"{report!r} {report.to_dict()} {list(report.rows)}"
        plan = nbdata.Pull(url).plan()
        assert plan.details["root"] == os.getcwd()
        with pytest.raises(AccessDenied) as caught:
            nbdata.pull(url.replace("abc", "wrong"), f"{tmp_path}/no/", quiet=True)
        assert "SECRET" not in f"{caught.value} {caught.value.to_dict()}"
        assert "expired" in str(caught.value)


def test_the_default_target_of_a_signed_url_is_its_file_name(tmp_path: Path) -> None:
    assert nbdata.Pull("https://h/d/a%20b.tar?sig=x/y").target == os.path.join(os.getcwd(), "a b.tar")
    assert nbdata.Pull("https://u:SECRET@h/?sig=x/y").target == os.path.join(os.getcwd(), "h")


def test_a_token_of_a_folder_goes_along_with_all_below_it(tmp_path: Path) -> None:
    def answer(head: str) -> bytes:
        path, _, query = head.split()[1].partition("?")
        if query != "sv=1&sig=SECRET":
            return status(403)
        return ok(path.encode()) if path != "/c/" else ok(b"<a href=x>x</a>", "Content-Type: text/html")

    with serving(each(answer)) as port:
        nbdata.pull(f"http://127.0.0.1:{port}/c/?sv=1&sig=SECRET", tmp_path / "out", quiet=True)
    assert files(tmp_path / "out") == {"x": b"/c/x"}


def test_an_archive_behind_a_signed_url_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "member").write_bytes(b"content")
    with tarfile.open(tmp_path / "made.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "member", "inside/member")
    data = (tmp_path / "made.tar.gz").read_bytes()

    def answer(head: str) -> bytes:
        good = head.split()[1] == "/files/made.tar.gz?sig=a/b%2F" and head.startswith("GET")
        return ok(data) if good else status(403)

    with serving(each(answer)) as port:
        url = f"http://127.0.0.1:{port}/files/made.tar.gz?sig=a/b%2F"
        nbdata.untar_volumes(url, tmp_path / "out", quiet=True)
    assert files(tmp_path / "out") == {"inside/member": b"content"}


def test_a_server_may_be_named_by_an_address_of_ipv6() -> None:
    for url in ("http://[::1]:9/x", "http://[::ffff:127.0.0.1]:9/x"):
        assert nbdata.filesystem(url).place(url).store.server == url.removesuffix("/x")


# -- redirects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [301, 302, 303, 307, 308])
def test_redirects_are_followed_and_passwords_are_told_to_no_other_host(number: int, tmp_path: Path) -> None:
    there: list[str] = []
    here: list[str] = []
    with serving(each(lambda head: ok(b"content"), there)) as other:
        answer = status(number, f"Location: http://127.0.0.1:{other}/real?sig=SECRET")
        with serving(each(lambda head: answer, here)) as port:
            url = f"http://me:PASS@127.0.0.1:{port}/x"
            nbdata.pull(url, tmp_path / "out", storage_options={"headers": {"X-Api-Key": "KEY"}}, quiet=True)
    assert (tmp_path / "out").read_bytes() == b"content"
    basic = "authorization: Basic " + base64.b64encode(b"me:PASS").decode()
    assert all(basic in head and "x-api-key: KEY" in head for head in here)
    assert there
    assert not any("authorization" in head.lower() or "KEY" in head for head in there)
    assert all("/real?sig=SECRET" in head for head in there)


def test_a_page_to_log_in_is_not_taken_for_the_file(tmp_path: Path) -> None:
    def answer(head: str) -> bytes:
        path = head.split()[1]
        if path == "/data.tar":
            return status(302, "Location: /login?next=/data.tar")
        if path == "/moved.tar":
            return status(302, "Location: /store/0123")
        if path == "/store/0123":
            return ok(b"content", "Content-Type: application/octet-stream")
        return ok(b"<html>Log in</html>", "Content-Type: text/html; charset=utf-8")

    with serving(each(answer)) as port:
        with pytest.raises(AccessDenied, match="log in"):
            nbdata.pull(f"http://127.0.0.1:{port}/data.tar", f"{tmp_path}/", quiet=True)
        assert files(tmp_path) == {}
        nbdata.pull(f"http://127.0.0.1:{port}/moved.tar", f"{tmp_path}/", quiet=True)
        nbdata.pull(f"http://127.0.0.1:{port}/page.html", f"{tmp_path}/", quiet=True)
        assert sorted(files(tmp_path)) == ["moved.tar", "page.html"]


def test_a_redirect_on_the_same_server_keeps_the_password() -> None:
    def answer(head: str) -> bytes:
        if "authorization: Basic" not in head:
            return status(401)
        return status(302, "Location: ../b") if head.split()[1] == "/a/x" else ok(b"content")

    with serving(each(answer)) as port:
        place = at(f"http://u:p@127.0.0.1:{port}/a/x")
        assert place.store.read_bytes(place.key) == b"content"


@pytest.mark.parametrize(
    "where", ["/again", "ftp://host/x?sig=SECRET", "http://host:port/SECRET", "http:///SECRET"]
)
def test_redirects_without_end_or_elsewhere_are_errors(where: str) -> None:
    with serving(each(lambda head: status(302, f"Location: {where}"))) as port:
        place = at(f"http://127.0.0.1:{port}/x")
        with pytest.raises(StoreUnavailable, match="redirects") as caught:
            place.store.head(place.key)
    assert "SECRET" not in f"{caught.value} {caught.value.to_dict()}"


# -- server behaviour -----------------------------------------------------------------------------


def test_a_server_without_ranges_lengths_and_validators_is_read_in_one_stream(tmp_path: Path) -> None:
    data = os.urandom(300_000)

    def answer(head: str) -> bytes:
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in (data[:100_000], data[100_000:]))
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"

    with serving(each(answer)) as port:
        place = at(f"http://127.0.0.1:{port}/x")
        assert place.store.head("x").size == -1
        nbdata.pull(f"http://127.0.0.1:{port}/x", tmp_path / "out", quiet=True)
    assert (tmp_path / "out").read_bytes() == data


def test_an_answer_that_breaks_off_is_never_taken_for_whole(tmp_path: Path) -> None:
    short = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n12345"
    with serving(each(lambda head: short)) as port:
        place = at(f"http://127.0.0.1:{port}/x")
        with pytest.raises(StoreUnavailable):
            place.store.read_bytes(place.key)


@pytest.mark.parametrize("wrong", ["bytes 5-9/20", "bytes */20", "nonsense", ""])
def test_a_range_that_is_not_the_one_asked_for_says_so(wrong: str) -> None:
    answer = b"HTTP/1.1 206 X\r\nContent-Length: 5\r\nContent-Range: %b\r\n\r\n12345" % wrong.encode()
    with serving(each(lambda head: answer)) as port:
        body = at(f"http://127.0.0.1:{port}/x").store.read("x", 10, 15)
        assert body.start != 10  # so that the engine reads everything in one piece
        body.close()


@pytest.mark.parametrize("refusal", [405, 501, 403, 400])
def test_a_server_that_knows_no_head_is_asked_by_get(refusal: int) -> None:
    def answer(head: str) -> bytes:
        if head.startswith("HEAD"):
            return status(refusal)
        return b'HTTP/1.1 206 X\r\nContent-Length: 1\r\nContent-Range: bytes 0-0/1234\r\nETag: "e"\r\n\r\nx'

    with serving(each(answer)) as port:
        info = at(f"http://127.0.0.1:{port}/x").store.head("x")
    assert (info.size, info.etag) == (1234, '"e"')


@pytest.mark.parametrize("ranged", [False, True])
def test_a_change_is_seen_by_a_server_that_knows_no_conditions(ranged: bool) -> None:
    etags = iter(['"one"', '"two"'])
    with serving(each(lambda head: ok(b"12345", f"ETag: {next(etags)}"))) as port:
        store = at(f"http://127.0.0.1:{port}/x").store
        info = store.head("x")
        with pytest.raises(SourceChanged):
            store.read("x", *((1, 3) if ranged else ()), match=info)


def test_a_change_is_seen_by_time_where_etags_are_weak_or_missing() -> None:
    times = iter(["Sat, 31 Jan 2026 12:00:00 GMT", "Sat, 31 Jan 2026 12:00:01 GMT"])
    with serving(each(lambda head: ok(b"12345", f"Last-Modified: {next(times)}"))) as port:
        store = at(f"http://127.0.0.1:{port}/x").store
        with pytest.raises(SourceChanged):
            store.read("x", match=store.head("x"))


def test_a_strong_etag_is_insisted_on_and_a_weak_one_never_is() -> None:
    seen: list[str] = []
    for etag, sent in (('"strong"', True), ('W/"weak"', False), ("bare", False)):
        with serving(each(lambda head, etag=etag: ok(b"12345", f"ETag: {etag}"), seen)) as port:  # type: ignore[misc]
            store = at(f"http://127.0.0.1:{port}/x").store
            store.read("x", match=store.head("x")).close()
            assert (f"if-match: {etag}" in seen[-1]) is sent
            assert "accept-encoding: identity" in seen[-1]


def test_what_comes_compressed_is_refused_and_a_gz_file_is_itself() -> None:
    packed = gzip.compress(b"content")
    with serving(each(lambda head: ok(packed, "Content-Encoding: gzip"))) as port:
        store = at(f"http://127.0.0.1:{port}/x").store
        with pytest.raises(NbdataError, match="compressed"):
            store.read_bytes("data.csv")
        assert store.read_bytes("data.tar.gz") == packed


def test_an_etag_that_looks_like_an_md5_is_not_taken_for_one_but_told_digests_are(tmp_path: Path) -> None:
    etag = 'ETag: "0123456789abcdef0123456789abcdef"'
    md5 = base64.b64encode(hashlib.md5(b"content").digest()).decode()
    with serving(each(lambda head: ok(b"content", etag))) as port:
        report = nbdata.pull(f"http://127.0.0.1:{port}/x", tmp_path / "a", quiet=True)
        assert "could not be verified" in report.notes[0]
    with serving(each(lambda head: ok(b"content", etag, f"Content-MD5: {md5}"))) as port:
        report = nbdata.pull(f"http://127.0.0.1:{port}/x", tmp_path / "b", quiet=True)
        assert report.notes == []
    sha256 = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    wrong = ok(b"content", f"Repr-Digest: sha-256=:{sha256}:")
    with serving(each(lambda head: wrong)) as port, pytest.raises(nbdata.TransferFailed, match="sha256"):
        nbdata.pull(f"http://127.0.0.1:{port}/x", tmp_path / "c", quiet=True)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(401, AccessDenied), (403, AccessDenied), (404, NotFound), (410, NotFound), (418, NbdataError)],
)
def test_each_status_gives_its_error(number: int, kind: type[NbdataError]) -> None:
    with serving(each(lambda head: status(number))) as port:
        store = at(f"http://127.0.0.1:{port}/x").store
        for ask in (store.head, store.read_bytes):
            with pytest.raises(kind) as caught:
                ask("x")
            assert not caught.value.details.get("retry")
            assert f"127.0.0.1:{port}/x" in str(caught.value)


@pytest.mark.parametrize("number", [429, 500, 503])
def test_a_busy_server_is_worth_another_try_when_it_says(number: int) -> None:
    busy = status(number, "Retry-After: 7")
    with serving(each(lambda head: busy)) as port, pytest.raises(StoreUnavailable) as caught:
        at(f"http://127.0.0.1:{port}/x").store.read_bytes("x")
    assert caught.value.details["retry"] is True
    assert caught.value.details["retry_after"] == 7


def test_a_plain_proxy_is_asked_unless_it_is_excluded() -> None:
    seen: list[str] = []
    with serving(each(lambda head: ok(b"content"), seen)) as port:
        env = {"http_proxy": f"http://me:word@127.0.0.1:{port}"}
        place = at("http://store.invalid/x", env=env)
        assert place.store.read_bytes("x") == b"content"
        assert seen[0].startswith("GET http://store.invalid/x HTTP/1.1")
        assert "Proxy-Authorization: Basic" in seen[0]
        place = at(f"http://127.0.0.1:{port}/y", env={**env, "no_proxy": "127.0.0.1"})
        assert place.store.read_bytes("y") == b"content"
        assert seen[1].startswith("GET /y HTTP/1.1")


def test_a_stop_ends_a_read_at_once() -> None:
    from tests.stores.http.test_client import Stop

    ended = threading.Event()

    def handle(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1")
        ended.wait(PATIENCE)

    with serving(handle) as port:
        stop = Stop()
        store = open_place(f"http://127.0.0.1:{port}/x", Context(cwd="/"), stop=stop).store
        threading.Timer(0.2, stop.stop).start()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.read_bytes("x")
        assert time.monotonic() - began < AT_ONCE
        ended.set()


# -- options, and writing -------------------------------------------------------------------------


def test_credentials_come_from_the_url_or_from_options() -> None:
    seen: list[str] = []
    with serving(each(lambda head: ok(b""), seen)) as port:
        url = f"127.0.0.1:{port}/x"
        at(f"http://a%40b:c%2Fd@{url}").store.head("x")
        at(f"http://{url}", username="u", password="p%40").store.head("x")
        at(f"http://{url}", token="TOKEN").store.head("x")
        at(f"http://{url}", client_kwargs={"headers": {"Authorization": "Own"}}).store.head("x")
    said = [
        line.split(": ")[1]
        for head in seen
        for line in head.split("\r\n")
        if line.startswith("authorization")
    ]
    assert [base64.b64decode(s[6:]).decode() for s in said[:2]] == ["a@b:c/d", "u:p%40"]
    assert said[2:] == ["Bearer TOKEN", "Own"]


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"X": "a\r\nY: b"}},
        {"headers": {"X Y": "a"}},
        {"headers": "X"},
        {"token": "a\nb"},
        {"tokn": "SECRET"},
    ],
)
def test_options_that_would_break_a_request_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadOption) as caught:
        at("http://h/x", **options)
    assert "SECRET" not in str(caught.value)


def test_nothing_of_a_place_is_secret_in_its_repr() -> None:
    place = at("http://me:PASS@h/x?sig=SECRET", headers={"X-Key": "KEY"})
    shown = f"{place!r} {vars(place.store)['_config']!r} {place.store.name} {place.place}"
    assert not any(secret in shown for secret in ("PASS", "SECRET", "KEY"))


def test_writing_is_refused_in_a_sentence(served: FolderServer, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with pytest.raises(BadOption, match="read-only"):
        nbdata.push(tmp_path / "x", served.url, quiet=True)
    with pytest.raises(BadOption, match="read-only"):
        at(served.url).store.delete(["a.txt"])


def test_md5check_against_a_server_without_checksums_speaks_of_no_encryption(
    served: FolderServer, tree: Path
) -> None:
    with pytest.raises(nbdata.NotFound) as caught:
        nbdata.md5check(tree / "a.txt", against=f"{served.url}a.txt", quiet=True)
    assert "its ETag tells no MD5 (servers make ETags as they like" in str(caught.value)
    assert "encrypted" not in str(caught.value)
