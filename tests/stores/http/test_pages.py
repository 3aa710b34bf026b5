"""Pages of a listing: exactly one is requested ahead, and pages are parsed in any XML namespace."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from nbdata.errors import StoreUnavailable
from nbdata.stores.http.pages import Page, ahead
from tests.stores.s3.test_odd_servers import each, store
from tests.stores.servers import ok, serving
from tests.waiting import PATIENCE


def test_the_next_page_is_asked_for_while_one_is_looked_at() -> None:
    asked = [threading.Event() for _ in range(4)]

    def pages() -> Iterator[Page[str]]:
        for number in range(3):
            asked[number].set()
            yield Page([f"{number}a", f"{number}b", f"{number}c"], number < 2)
        asked[3].set()

    items = ahead(pages())
    assert (next(items), asked[1].is_set()) == ("0a", False)  # perhaps only the first is wanted
    assert next(items) == "0b"
    assert asked[1].wait(PATIENCE)
    assert not asked[2].is_set()
    assert list(items) == ["0c", "1a", "1b", "1c", "2a", "2b", "2c"]
    assert not asked[3].is_set()  # the last page is marked as the last


def test_an_error_of_the_next_page_comes_after_the_objects_of_this_one() -> None:
    def pages() -> Iterator[Page[int]]:
        yield Page([1, 2], True)
        raise StoreUnavailable("broken off")

    items = ahead(pages())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(StoreUnavailable, match="broken off"):
        next(items)


@pytest.mark.parametrize(
    ("before", "root", "item"),
    [
        ("", "ListBucketResult", "Contents"),
        ("", 'ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"', "Contents"),
        ("<?xml version='1.0'?>\n", "ListBucketResult xmlns='urn:any'", "Contents"),
        ("<!-- a --> ", 'ListBucketResult xmlns="urn:any"', "Contents"),
        ("", 'ListBucketResult xmlns:o="urn:other" xmlns="urn:any"', "Contents"),
        ("", 'ListBucketResult xmlns="urn:any"', 'Contents xmlns="urn:another"'),
        ("", 's:ListBucketResult xmlns:s="urn:any" xmlns="urn:none"', 's:Contents xmlns:s="urn:any"'),
    ],
)
def test_a_listing_is_read_in_every_namespace(before: str, root: str, item: str) -> None:
    key = 'say xmlns="x" &lt;a&gt;'
    ends = [name.partition(" ")[0] for name in (item, root)]
    page = f"{before}<{root}><{item}><Key>{key}</Key><Size>3</Size></{ends[0]}></{ends[1]}>".encode()
    with serving(each(lambda head: ok(page))) as port:
        (info,) = store(port).list("")
    assert (info.key, info.size) == ('say xmlns="x" <a>', 3)
