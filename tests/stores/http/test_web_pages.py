"""A web page in the place of a file is an error, unless it is what the user wants; everything else is what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbdata
from nbdata.errors import AccessDenied, TransferFailed
from tests.stores.servers import each, ok, serving

pytestmark = pytest.mark.usefixtures("inline")

PAGE = b"<!DOCTYPE html><html><head><title>Are you human?</title></head></html>"
HTML = "Content-Type: text/html; charset=utf-8"
#: What a server may send with status 200 and the type of web pages; the bytes are no page.
NO_PAGES = {
    "other bytes": b"\x00\x01\x02" * 100,
    "text": b"<htmlx> is no tag\n",
    "a table": b"a,b\n<html>,1\n",
    "empty": b"",
    "comments": b"<!-- -->" * 300,
    "no end": b"<!-- -" * 200,
}
#: Pages, as servers send them.
PAGES = {
    "doctype": PAGE,
    "blanks": b"\r\n \t<HTML lang=en>",
    "mark and comment": b"\xef\xbb\xbf<!-- saved\nfrom -->\n<!doctype HTML >",
    "xhtml": b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN">',
    "script": b"<script>location='/login'</script>",
    "comments": b"<!-- --> " * 80 + b"<html>",
}


def _pulled(tmp_path: Path, name: str, body: bytes, *headers: str, **options: bool) -> bytes:
    answer = ok(body, *headers)
    with serving(each(lambda _: answer)) as port:
        nbdata.pull(f"http://127.0.0.1:{port}/{name}", f"{tmp_path}/", quiet=True, **options)  # type: ignore[arg-type]
    return (tmp_path / name.partition("?")[0]).read_bytes()


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_in_place_of_a_file_is_refused_unless_it_is_wanted(tmp_path: Path, page: bytes) -> None:
    with pytest.raises((AccessDenied, TransferFailed), match=r"web page in its place.*--allow-html"):
        _pulled(tmp_path, "data.bin", page, HTML)
    assert list(tmp_path.iterdir()) in ([], [tmp_path / ".nbdata"])
    assert _pulled(tmp_path, "data.bin", page, HTML, allow_html=True) == page


@pytest.mark.parametrize("body", NO_PAGES.values(), ids=NO_PAGES)
def test_a_file_that_is_only_called_a_page_is_taken(tmp_path: Path, body: bytes) -> None:
    assert _pulled(tmp_path, "data.bin", body, HTML) == body


@pytest.mark.parametrize("name", ["page.html", "INDEX.HTM", "view.php", "README", "download?id=7"])
def test_a_page_whose_name_may_be_one_is_taken(tmp_path: Path, name: str) -> None:
    assert _pulled(tmp_path, name, PAGE, HTML) == PAGE


@pytest.mark.parametrize("header", ["x-amz-request-id: 1", "x-guploader-uploadid: 1", "x-ms-request-id: 1"])
def test_an_object_of_a_bucket_is_what_it_is(tmp_path: Path, header: str) -> None:
    assert _pulled(tmp_path, "data.bin", PAGE, HTML, header, 'ETag: W/"1"') == PAGE


def test_a_page_of_another_type_is_taken(tmp_path: Path) -> None:
    assert _pulled(tmp_path, "data.bin", PAGE, "Content-Type: application/octet-stream") == PAGE


def test_in_a_folder_it_is_one_failure(tmp_path: Path) -> None:
    index = b'<html><a href="a.bin">a.bin</a> <a href="b.bin">b.bin</a></html>'

    def answer(head: str) -> bytes:
        path = head.split()[1]
        if path == "/d/":
            return ok(index, HTML)
        return ok(PAGE, HTML) if path == "/d/a.bin" else ok(b"content", HTML)

    with serving(each(answer)) as port, pytest.raises(TransferFailed) as caught:
        nbdata.pull(f"http://127.0.0.1:{port}/d/", tmp_path / "t", quiet=True)
    assert [(row.path, row.action) for row in caught.value.report.rows if row.action == "failed"] == [
        ("a.bin", "failed")
    ]
    assert (tmp_path / "t/b.bin").read_bytes() == b"content"
    assert not (tmp_path / "t/a.bin").exists()


def test_the_first_bytes_are_asked_for_once(tmp_path: Path) -> None:
    """A server may call all files pages; large ones come in many ranges."""
    seen: list[str] = []
    content = bytes(40 << 20)

    def answer(head: str) -> bytes:
        seen.append(head)
        lines = [line[13:] for line in head.lower().split("\r\n") if line.startswith("range: bytes=")]
        wanted = lines[0].split("-") if lines else None
        if wanted is None:
            return ok(content, HTML, 'ETag: "1"')
        start, end = int(wanted[0]), min(int(wanted[1] or len(content)) + 1, len(content))
        told = f"Content-Range: bytes {start}-{end - 1}/{len(content)}"
        return ok(content[start:end], HTML, 'ETag: "1"', told).replace(b"200 OK", b"206 Partial", 1)

    with serving(each(answer)) as port:
        nbdata.pull(f"http://127.0.0.1:{port}/data.bin", f"{tmp_path}/", quiet=True)
    assert (tmp_path / "data.bin").read_bytes() == content
    assert sum("bytes=0-1023" in head for head in seen) == 1
