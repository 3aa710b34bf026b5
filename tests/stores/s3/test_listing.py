"""A page of S3's listing is parsed while the next one is on its way; the parser has the last word on which that is."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from nbdata.errors import BadOption
from nbdata.stores.s3.client import S3Client
from nbdata.transfer.free_control import FreeControl
from nbdata.transfer.retry import listing, listing_of_folder
from tests.stores.s3.test_odd_servers import store
from tests.stores.servers import each, ok, serving, status
from tests.waiting import PATIENCE

PAGES = [[f"{letter}{number}" for number in range(3)] for letter in "abcde"]
KEYS = [key for page in PAGES for key in page]


def token(number: int) -> str:
    return f"<NextContinuationToken>t{number}</NextContinuationToken>"


# How a server writes the token of the next page: before and behind the objects.
WRITTEN: dict[str, Callable[[int], tuple[str, str]]] = {
    "before": lambda number: (token(number), ""),
    "behind": lambda number: ("", token(number)),
    "escaped": lambda number: ("", token(number).replace(">t", ">&#116;")),
    "another before": lambda number: (f"<!--{token(7)}-->", token(number)),
    "the same before": lambda number: (f"<!--{token(number - 1)}-->", token(number)),
}


def page(number: int, written: str = "before") -> bytes:
    more = number + 1 < len(PAGES)
    before, behind = WRITTEN[written](number + 1) if more else ("", "")
    keys = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in PAGES[number])
    said = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
    return ok(f"<ListBucketResult>{said}{before}{keys}{behind}</ListBucketResult>".encode())


def asked(head: str) -> int:
    """Return the number of the page that a request is for."""
    found = re.search(r"continuation-token=([^& ]*)", head)
    return int(unquote(found[1])[1:]) if found else 0


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("written", WRITTEN)
def test_every_page_is_asked_for_once_wherever_its_token_stands(written: str, folder: bool) -> None:
    seen: list[str] = []
    answer = each(lambda head: ok(b"<wrong/>") if asked(head) == 7 else page(asked(head), written), seen)
    with serving(answer) as port:
        there = store(port)
        found = [info.key for info in (there.list_folder("") if folder else there.list(""))]
    assert found == KEYS
    assert sorted(number for number in map(asked, seen) if number != 7) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("written", WRITTEN)
def test_a_page_of_a_folder_costs_one_request_and_its_token_gets_the_next_one(written: str) -> None:
    seen: list[str] = []
    with serving(each(lambda head: page(asked(head), written), seen)) as port:
        there = store(port)
        found, token = there.folder_page("")
        keys = [[info.key for info in found]]
        for number in range(1, len(PAGES)):
            assert len(seen) == number
            found, token = there.folder_page("", token)
            keys.append([info.key for info in found])
    assert (keys, token) == (PAGES, "")
    assert [asked(head) for head in seen] == [0, 1, 2, 3, 4]


def test_a_folder_tells_the_storage_class_where_it_is_another_than_the_usual_one() -> None:
    told = {
        "a": "",
        "b": "<StorageClass>STANDARD</StorageClass>",
        "c": "<StorageClass>GLACIER</StorageClass>",
    }
    objects = "".join(f"<Contents><Key>{k}</Key><Size>1</Size>{said}</Contents>" for k, said in told.items())
    below = "<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>"
    said = f"<ListBucketResult><IsTruncated>false</IsTruncated>{objects}{below}</ListBucketResult>"
    with serving(each(lambda _: ok(said.encode()))) as port:
        found, _ = store(port).folder_page("")
    assert [(info.key, info.storage_class) for info in found] == [
        ("a", ""),
        ("b", ""),
        ("b/", ""),
        ("c", "GLACIER"),
    ]


@pytest.mark.parametrize("wrong", ["[]", "x", '{"prefix": "other/"}', '{"marker": 1}'])
def test_a_token_that_is_none_asks_the_store_for_nothing(wrong: str) -> None:
    seen: list[str] = []
    with serving(each(lambda head: page(0), seen)) as port, pytest.raises(BadOption, match="no token"):
        store(port).folder_page("", wrong)
    assert seen == []


def test_the_next_page_is_asked_for_before_this_one_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    came = [threading.Event() for _ in range(6)]
    parse = S3Client.document

    def document(self: S3Client, response: Any, data: bytes, key: str = "") -> Any:
        number = next(number for number, keys in enumerate(PAGES) if keys[0].encode() in data)
        if 0 < number < 4:
            assert came[number + 1].wait(PATIENCE)
            assert not came[number + 2].is_set()
        return parse(self, response, data, key)

    def answer(head: str) -> bytes:
        came[asked(head)].set()
        return page(asked(head))

    monkeypatch.setattr(S3Client, "document", document)
    with serving(each(answer)) as port:
        found = store(port).list("")
        assert next(found).key == "a0"
        assert not came[1].is_set()  # perhaps only the first is wanted
        assert [info.key for info in found] == KEYS[1:]


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("fault", ["busy", "cut", "error"])
def test_a_page_that_fails_on_its_way_is_asked_for_again(fault: str, folder: bool) -> None:
    failed = set[int]()

    def answer(head: str) -> bytes:
        number = asked(head)
        if (found := re.search(r"start-after=(\w*)", head)) is not None:  # where it was taken up again
            number = next(n for n, keys in enumerate(PAGES) if keys[0] > found[1])
        if number and number not in failed:
            failed.add(number)
            if fault == "cut":
                return (
                    b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\nConnection: close\r\n\r\n" + page(number)[50:]
                )
            return status(503) if fault == "busy" else ok(b"<Error><Code>InternalError</Code></Error>")
        return page(number)

    control = FreeControl()
    control.sleep = lambda seconds: None  # type: ignore[method-assign]
    with serving(each(answer)) as port:
        listed = listing_of_folder if folder else listing
        assert [info.key for info in listed(control, store(port), "")] == KEYS
    assert failed


def test_a_page_that_says_that_it_is_the_last_is_the_last() -> None:
    seen: list[str] = []

    def answer(head: str) -> bytes:
        whole = page(min(asked(head), 3))
        return whole.replace(b"true</IsTruncated>", b"false</IsTruncated>") if asked(head) > 2 else whole

    with serving(each(lambda head: ok(answer(head).partition(b"\r\n\r\n")[2]), seen)) as port:
        assert [info.key for info in store(port).list("")] == KEYS[:12]
    assert sorted(map(asked, seen)) == [0, 1, 2, 3]
