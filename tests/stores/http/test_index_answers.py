"""What a web server gives in place of an index page is no empty folder: a mirror would delete all files."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbdata
from nbdata.errors import BadOption, NbdataError
from tests.stores.servers import each, ok, serving

LOGIN = b"<html><title>Log in</title><form action=/login><input name=user></form></html>"
TOP = b'<html><h1>Index of /d/</h1><a href="../">../</a><a href="a.bin">a</a><a href="sub/">sub</a></html>'


def redirect(where: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nlocation: {where}\r\ncontent-length: 0\r\n\r\n".encode()


def page(text: bytes) -> bytes:
    return ok(text, "content-type: text/html")


@pytest.fixture
def mirror(tmp_path: Path, inline: None) -> Path:
    """A folder with a file that the server does not name."""
    (tmp_path / "out/sub").mkdir(parents=True)
    (tmp_path / "out/sub/mine.bin").write_bytes(b"mine")
    return tmp_path / "out"


@pytest.mark.parametrize(
    "answer",
    [
        page(LOGIN),
        page(b"<html></html>"),
        page(b"<html><a href=/elsewhere/>x</a></html>"),
        redirect("/login"),
    ],
    ids=["login", "nothing", "links elsewhere", "led to a login"],
)
def test_a_page_that_is_no_index_is_an_error(answer: bytes, mirror: Path) -> None:
    def said(head: str) -> bytes:
        return page(LOGIN) if " /login" in head else answer

    with serving(each(said, [])) as port, pytest.raises(BadOption, match="does not look like an index page"):
        nbdata.pull(f"http://127.0.0.1:{port}/d/", mirror, delete=True, force=True, quiet=True)
    assert (mirror / "sub/mine.bin").exists()


@pytest.mark.parametrize(
    "sub", [page(LOGIN), b"HTTP/1.1 404 Gone\r\ncontent-length: 0\r\n\r\n"], ids=["login", "gone"]
)
def test_a_folder_that_cannot_be_read_is_not_empty(sub: bytes, mirror: Path) -> None:
    def said(head: str) -> bytes:
        return page(TOP) if " /d/ " in head else sub if "sub" in head else ok(b"a")

    with serving(each(said, [])) as port, pytest.raises(NbdataError):
        nbdata.pull(f"http://127.0.0.1:{port}/d/", mirror, delete=True, force=True, quiet=True)
    assert (mirror / "sub/mine.bin").exists()


@pytest.mark.parametrize(
    "empty",
    [
        b"<html><head><title>Index of /d/</title></head><body><h1>Index of /d/</h1></body></html>",
        b"<h1>Directory listing for /d/</h1><hr><ul></ul>",
        b'<pre><a href="../">../</a></pre>',
        b'<table><tr><td><a href="/">Parent Directory</a></td></tr></table>',
    ],
)
def test_an_empty_folder_of_usual_servers_is_one(empty: bytes, tmp_path: Path, inline: None) -> None:
    with serving(each(lambda head: page(empty), [])) as port:
        report = nbdata.pull(f"http://127.0.0.1:{port}/d/", tmp_path / "out", quiet=True)
    assert (report.ok, report.files) == (True, 0)


@pytest.mark.in_ci("http://a..b/x")
@pytest.mark.parametrize("where", ["http://a..b/x", f"http://{'a' * 70}.example/x", "http://[::1/"])
def test_a_redirect_to_no_host_is_an_error_of_the_server(where: str, tmp_path: Path, inline: None) -> None:
    with (
        serving(each(lambda head: redirect(where), [])) as port,
        pytest.raises(NbdataError, match="no http address"),
    ):
        nbdata.pull(f"http://127.0.0.1:{port}/x.bin", tmp_path / "out", quiet=True)
