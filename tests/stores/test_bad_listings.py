"""One bad entry of a listing is reported, and the rest goes on; a listing without end has one."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import fsspec
import pytest

import nbdata
from nbdata.errors import StoreUnavailable, TransferFailed
from nbdata.operation import Context
from nbdata.stores.base import Store
from nbdata.stores.fsspec_store import _find
from nbdata.stores.http.pages import EMPTY_PAGES, Pages
from nbdata.stores.resolve import open_place
from tests.stores.s3.test_odd_servers import job
from tests.stores.servers import each, ok, serving

pytestmark = pytest.mark.usefixtures("inline")

BODY = b"content"
# Entries whose size cannot be read, and entries that cannot be used, with what is said of them.
SIZES = ["1e9", "9" * 5000, "²", "-5", "+7", "1_0", ""]
UNUSABLE = [
    ("elsewhere/x", "the store lists 'elsewhere/x' when it is asked for 'd/'"),
    ("", "the store lists an object without a name"),
    ("d/%ED%A0%80", "its key is not UTF-8"),
    ("d/%FF", "its key is not UTF-8"),
    ("d/" + "k" * (3 << 20), "its key has 3,145,730 characters, and nbdata takes 8,192"),
]


def page(*items: tuple[str, str], token: str = "") -> bytes:
    """Return a page of an S3 listing with these keys (as in a URL) and sizes."""
    contents = "".join(f"<Contents><Key>{key}</Key><Size>{size}</Size></Contents>" for key, size in items)
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return (
        f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{'true' if token else 'false'}</IsTruncated>"
        f"{more}{contents}</ListBucketResult>"
    ).encode()


def s3(*items: tuple[str, str]) -> Callable[[str], bytes]:
    """Return a server that lists these entries, and has the same content under every key."""

    def answer(head: str) -> bytes:
        if "list-type=2" in head:
            return ok(page(*items))
        if head.startswith("HEAD"):  # a folder is no object
            return b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"
        return ok(b"", f'ETag: "{hashlib.md5(BODY).hexdigest()}"') if head.startswith("PUT") else ok(BODY)

    return answer


def store_at(url: str, port: int, **env: str) -> Store:
    options = job(port) if url.startswith("s3:") else {}
    return open_place(url, Context(cwd="/", env=env, storage_options=options)).store


@pytest.mark.parametrize("size", SIZES)
def test_an_object_whose_size_cannot_be_read_is_fetched(size: str, tmp_path: Path) -> None:
    with serving(each(s3(("d/a", "7"), ("d/b", size), ("d/c", "7")))) as port:
        report = nbdata.pull("s3://bucket/d/", tmp_path, storage_options=job(port), quiet=True)
    assert report.counts == {"fetched": 3}
    assert [(tmp_path / name).read_bytes() for name in "abc"] == [BODY] * 3


@pytest.mark.parametrize(("key", "why"), UNUSABLE, ids=["elsewhere", "empty", "surrogate", "bytes", "long"])
def test_an_entry_that_cannot_be_used_is_a_failure_and_the_rest_is_fetched(
    key: str, why: str, tmp_path: Path
) -> None:
    with serving(each(s3(("d/a", "7"), (key, "7"), ("d/c", "7")))) as port:
        with pytest.raises(TransferFailed, match=re.escape(why[:40])) as caught:
            nbdata.pull("s3://bucket/d/", tmp_path, storage_options=job(port), quiet=True)
        plan = nbdata.pull("s3://bucket/d/", tmp_path, storage_options=job(port), dry_run=True)
    report = caught.value.report
    assert report.counts == {"fetched": 2, "unreadable": 1}
    assert [row.detail["reason"] for row in report.rows if row.action == "unreadable"] == [why]
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["a", "c"]
    assert plan.actions["unreadable"] == [1, 0]
    assert why in plan.notes[0]
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("verb", ["ls", "du"])
def test_ls_and_du_list_the_rest_and_fail(verb: str) -> None:
    with (
        serving(each(s3(("d/a", "7"), ("elsewhere", "7"), ("d/b", "1e9")))) as port,
        pytest.raises(TransferFailed, match="1 of 3 cannot be read") as caught,
    ):
        getattr(nbdata, verb)("s3://bucket/d/", storage_options=job(port), quiet=True)
    report = caught.value.report
    assert (report.details["objects"], report.details["bytes"]) == (2, 7)
    assert report.failures == [["elsewhere", "the store lists 'elsewhere' when it is asked for 'd/'"]]


def test_a_mirror_deletes_nothing_if_an_entry_of_its_source_was_bad(tmp_path: Path) -> None:
    entries = [("d/a", "7"), ("d/b", "7")]

    def answer(head: str) -> bytes:
        return s3(*entries)(head)

    with serving(each(answer)) as port:
        nbdata.pull("s3://bucket/d/", tmp_path, storage_options=job(port), quiet=True)
        entries[1] = ("e/b", "7")
        with pytest.raises(TransferFailed) as caught:
            nbdata.pull("s3://bucket/d/", tmp_path, storage_options=job(port), delete=True, quiet=True)
        assert (tmp_path / "b").read_bytes() == BODY
        assert "nothing was deleted, because not everything was fetched" in caught.value.report.notes
        entries[1] = ("d/c", "7")
        nbdata.pull("s3://bucket/d/", tmp_path, storage_options=job(port), delete=True, quiet=True)
    assert not (tmp_path / "b").exists()


def test_a_bad_entry_at_the_target_of_a_push_is_a_failure_and_deletes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BODY)
    seen: list[str] = []
    with (
        serving(each(s3(("d/other", "7"), ("e/a", "7")), seen)) as port,
        pytest.raises(TransferFailed) as caught,
    ):
        nbdata.push(
            tmp_path,
            "s3://bucket/d/",
            storage_options=job(port),
            delete=True,
            force=True,
            verify="none",
            quiet=True,
        )
    assert caught.value.report.counts == {"unreadable": 1, "sent": 1}
    assert not [head for head in seen if head.startswith(("DELETE", "POST"))]


def test_samples_leave_out_a_bad_entry_and_say_so() -> None:
    with serving(each(s3(("d/a.jpg", "7"), ("e/b.jpg", "7")))) as port:
        with pytest.warns(UserWarning, match="the store lists 'e/b.jpg'"):
            samples = nbdata.samples("s3://bucket/d/", storage_options=job(port))
        assert (len(samples), samples.report.left_out) == (1, 1)


@pytest.mark.parametrize("count", [2, 20_000])
def test_a_key_that_is_listed_often_is_fetched_once(count: int, tmp_path: Path) -> None:
    seen: list[str] = []
    many = [("d/a", "7")] * count
    with serving(each(s3(*many, ("d/b", "7")), seen)) as port:
        begun = time.process_time()
        report = nbdata.pull("s3://bucket/d/", tmp_path, storage_options=job(port), quiet=True)
        took = time.process_time() - begun
    assert report.counts == {"fetched": 2}
    assert len([head for head in seen if "/d/a " in head and head.startswith("GET")]) == 1
    assert took < 5


# -- listings without end ------------------------------------------------------------------------------


def endless_s3(kind: str) -> Callable[[str], bytes]:
    """Return a server whose listing has too many pages: empty ones, one again and again, or three in turn."""
    count = 0

    def answer(head: str) -> bytes:
        nonlocal count
        count += 1
        keys = {"empty": [], "same": ["a", "b"], "circle": [f"{count % 3}a", f"{count % 3}b"]}[kind]
        return ok(page(*((key, "1") for key in keys), token=f"t{count}" if count < 1200 else ""))

    return answer


@pytest.mark.in_ci("circle")
@pytest.mark.parametrize("kind", ["empty", "same", "circle"])
def test_a_listing_without_end_is_an_error(kind: str) -> None:
    seen: list[str] = []
    said = "1,000 empty pages" if kind == "empty" else "the same page again"
    with serving(each(endless_s3(kind), seen)) as port, pytest.raises(StoreUnavailable, match=said):
        list(store_at("s3://bucket/", port).list(""))
    assert len(seen) <= (EMPTY_PAGES + 1 if kind == "empty" else 10)


def test_a_listing_may_have_many_pages_and_some_empty_ones() -> None:
    pages = Pages("s3://bucket/")
    for number in range(3 * EMPTY_PAGES):
        pages.add([number] if number % EMPTY_PAGES == 0 else [])


# -- the other stores ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b'{"items": 5}',
        b'{"items": {"name": "a"}}',
        b'{"prefixes": "abc"}',
        b'{"nextPageToken": 5}',
        b'{"items": ' + b"[" * 100_000,
        b'{"items": [], "items": []}',
        b"5",
    ],
)
def test_a_listing_of_google_that_is_none_is_an_error(body: bytes) -> None:
    with serving(each(lambda head: ok(body))) as port:
        there = store_at("gs://bucket/", port, STORAGE_EMULATOR_HOST=f"http://127.0.0.1:{port}")
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            list(there.list(""))


def test_an_entry_of_google_that_is_none_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = [
        5,
        {},
        {"name": 5},
        {"name": "e/b"},
        {"name": "d/\ud800"},
        {"name": "d/a", "size": {}, "updated": 5},
    ]

    def answer(head: str) -> bytes:
        if "/o?" in head:
            return ok(json.dumps({"items": odd}).encode())
        return ok(BODY) if "alt=media" in head else ok(b'{"name": "d/a"}')

    with serving(each(answer)) as port:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        with pytest.raises(TransferFailed) as caught:
            nbdata.pull("gs://bucket/d/", tmp_path, quiet=True)
    # Three entries have no name, and count as one.
    assert caught.value.report.counts == {"unreadable": 3, "fetched": 1}
    assert (tmp_path / "a").read_bytes() == BODY


def test_an_entry_of_azure_that_is_none_is_reported(tmp_path: Path) -> None:
    blobs = "".join(
        f"<Blob>{name}<Properties><Content-Length>{size}</Content-Length></Properties></Blob>"
        for name, size in [
            ("<Name>d/a</Name>", "²"),
            ("", "5"),
            ('<Name Encoded="true">d/%FF</Name>', "5"),
            ("<Name>e/b</Name>", "5"),
        ]
    )
    found = f"<EnumerationResults><Blobs>{blobs}</Blobs></EnumerationResults>".encode()
    options = {"account_name": "a", "anon": "true"}

    def answer(head: str) -> bytes:
        if "comp=list" in head:
            return ok(found)
        return ok(BODY, 'ETag: "x"')

    with serving(each(answer)) as port:
        text = f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey=aaaa;BlobEndpoint=http://127.0.0.1:{port}/a"
        del options["account_name"], options["anon"]
        options["connection_string"] = text
        with pytest.raises(TransferFailed) as caught:
            nbdata.pull("az://bucket/d/", tmp_path, storage_options=options, quiet=True)
    assert caught.value.report.counts == {"unreadable": 3, "fetched": 1}
    assert (tmp_path / "a").read_bytes() == BODY


def test_a_link_of_an_index_page_that_no_request_can_ask_for_is_reported(tmp_path: Path) -> None:
    links = "".join(f'<a href="{quote(name)}">x</a>' for name in ("a", "b/" * 500_000 + "c"))

    def answer(head: str) -> bytes:
        return ok(links.encode(), "Content-Type: text/html") if " /d/ " in head else ok(BODY)

    with serving(each(answer)) as port, pytest.raises(TransferFailed) as caught:
        nbdata.pull(f"http://127.0.0.1:{port}/d/", tmp_path, quiet=True)
    assert caught.value.report.counts == {"unreadable": 1, "fetched": 1}


class _Endless(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Each folder has a folder, and some files."""

    def __init__(self, files: int, depth: int) -> None:
        super().__init__()
        self._files, self._depth = files, depth

    def ls(self, path: str, detail: bool = True, **options: object) -> list[dict[str, object]]:
        folder = {"name": f"{path}/sub", "type": "directory", "size": 0}
        files = [{"name": f"{path}/{number}", "type": "file", "size": 1} for number in range(self._files)]
        return [folder, *files] if path.count("/") < self._depth else files


class _Timeless(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Has files with times that are none."""

    protocol = "timeless"

    def ls(self, path: str, detail: bool = True, **options: object) -> list[dict[str, object]]:
        times = {"inf": float("inf"), "nan": float("nan"), "past": -1e300, "huge": 10**400, "yes": 1.5}
        return [
            {"name": f"{path.rstrip('/')}/{name}", "type": "file", "size": 1, "mtime": time}
            for name, time in times.items()
        ]


def test_a_time_that_is_no_number_of_json_is_none() -> None:
    report = nbdata.ls("timeless://top/", fs=_Timeless(skip_instance_cache=True), quiet=True)
    told = {row.path: row.detail.get("modified") for row in report.rows}
    assert told == {"inf": None, "nan": None, "past": -1e300, "huge": None, "yes": 1.5}


def test_folders_without_end_of_any_file_system_are_an_error() -> None:
    with pytest.raises(nbdata.BadOption, match="the folders have no end"):
        _find(_Endless(1, 1000), "top")
    assert len(_find(_Endless(1, 200), "top")) == 201


def test_entries_without_end_of_any_file_system_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbdata.stores.fsspec_store._LISTED", 1100 * 1000)
    with pytest.raises(nbdata.BadOption, match="the folders have no end"):
        _find(_Endless(20, 100), "top")
    assert len(_find(_Endless(20, 10), "top")) == 220


def test_a_key_that_is_not_below_the_place_is_refused(
    put: Callable[[dict[str, bytes]], str], tmp_path: Path
) -> None:
    """SeaweedFS treats two slashes as one, so names below such a place would be cut at the wrong position."""
    url = put({"set/take-0": b"0", "set/take-1": b"1"})
    with pytest.raises(nbdata.BadOption, match="the store lists 'set/take-0' when it is asked for '/set/'"):
        nbdata.pull(f"{url}/set/", tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()
