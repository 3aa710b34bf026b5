"""Numbers, XML and JSON of strangers are parsed within bounds, or refused with one kind of error."""

from __future__ import annotations

import tracemalloc

import pytest

from nbdata.bounded import Unreadable, parse_json, parse_xml, size_in, whole_number

# Memory that a document may take once it is parsed.
MOST = 400 << 20


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1), ("9" * 19, -1), ("9" * 5000, -1)]
    + [(text, -1) for text in ("", "1e9", "²", "٣", "-1", "+1", "1_0", " 1", "1\n", "1.0", "0x1", None)],  # type: ignore[list-item]
)
def test_a_number_is_at_most_18_ascii_digits(text: str | None, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    ("value", "size"),
    [(5, 5), ("5", 5), (5.0, 5), (0, 0)]
    + [(bad, -1) for bad in (None, -1, 10**18, 1.5, float("nan"), float("inf"), "1e9", [5], b"5")],
)
def test_a_size_of_a_library_may_have_several_types(value: object, size: int) -> None:
    assert size_in(value) == size


@pytest.mark.parametrize(
    "data",
    [
        b"<a><b>1</b></a>",
        b"\xef\xbb\xbf<?xml version='1.0' encoding='UTF-8'?>\n<!-- <!DOCTYPE a> --><?x y?> <a><b>1</b></a>",
        b'<a xmlns="urn:any"><b xmlns="">1</b></a>',
        b"<!--><a--><!-- b --><a><b>1</b></a>",
        "<?xml version='1.0' encoding='UTF-16'?><a><b>1</b></a>".encode("utf-16"),
    ],
)
def test_xml_without_a_dtd_is_read(data: bytes) -> None:
    assert parse_xml(data).findtext("b") == "1"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"<a>",
        b"<a/><b/>",
        b"{}",
        b"<!DOCTYPE a><a/>",
        b"<?a?> <!-- - --><!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
        b"<?a ?><!DOCTYPE a ?><a/>",
        "<!DOCTYPE a><a/>".encode("utf-16"),
        "<!DOCTYPE a><a/>".encode("utf-16-le"),
        b"<?xml version='1.0' encoding='cp037'?>" + "<!DOCTYPE a><a/>".encode("cp037"),
        b"<?xml version='1.0' encoding='no-such'?><a/>",
        b"<?xml version='1.0' encoding='shift_jis'?><a/>",
        b"<!-- <a/>",
        b"<!--->" + b"<!---->" * 100 + b"<a/>",
        b"<!--><a--><!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
        b"<!--->-><!DOCTYPE a><a/>",
        b"<?a><b?><!DOCTYPE a><a/>",
        b"<!DOCTYPE a",
        b"<a>&#0;</a>",
        b"<a>\xff</a>",
    ],
)
def test_what_is_no_xml_or_has_a_dtd_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        parse_xml(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"nul",
        b'{"a": 1, "a": 2}',
        b"[NaN]",
        b"[-Infinity]",
        b"[%b]" % (b"9" * 5000),
        b"\xff\xfe",
        b"[1] 2",
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_json_or_cannot_be_sure_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        parse_json(data)


def test_a_document_over_its_bytes_is_refused() -> None:
    assert parse_json(b"[1234]", limit=6) == [1234]
    for parse, data in ((parse_json, b"[1234] "), (parse_xml, b"<a></a>")):
        with pytest.raises(Unreadable, match="more than 6 bytes"):
            parse(data, limit=6)


def test_the_root_of_an_xml_document_begins_within_64_kib() -> None:
    assert parse_xml(b"<!--%b--><a/>" % (b" " * 60_000)).tag == "a"
    with pytest.raises(Unreadable, match="more than 65,536 bytes before its root"):
        parse_xml(b"<!--%b--><a/>" % (b" " * 70_000))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "latin-1"])
def test_names_in_xml_have_no_namespace(encoding: str) -> None:
    declared = "utf-16" if encoding == "utf-16-le" else encoding
    text = f"<?xml version='1.0' encoding='{declared}'?><x:a xmlns:x='urn:x'><b xmlns='urn:b' x:c='d'>1</b></x:a>"
    root = parse_xml(text.encode(encoding))
    assert [root.tag, *(child.tag for child in root)] == ["a", "b"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "latin-1"])
@pytest.mark.parametrize("prefix", ["", "x:"])
def test_a_namespace_is_not_repeated_for_each_name_of_its_elements(encoding: str, prefix: str) -> None:
    declared = f"xmlns{prefix and ':x'}='{'u' * 400_000}'"
    names = "".join(f"<{prefix}a{number}/>" for number in range(500))
    text = f"<r><{prefix}s {declared}>{names}</{prefix}s></r>"
    if encoding == "latin-1":
        text = f"<?xml version='1.0' encoding='{encoding}'?>{text}"
    tracemalloc.start()
    try:
        assert len(parse_xml(text.encode(encoding))[0]) == 500
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_deep_xml_is_read_like_any_other() -> None:
    assert sum(1 for _ in parse_xml(b"<a>" * 100_000 + b"</a>" * 100_000).iter()) == 100_000


@pytest.mark.parametrize("item", [b"[],", b"{},", b'{"":1},', b"0,", b'"a",'])
def test_a_json_document_takes_bounded_memory(item: bytes) -> None:
    bounded(lambda: parse_json(b"[" + item * ((16 << 20) // len(item)) + b"0]"))


@pytest.mark.parametrize("item", [b"<a/>", b"<a b='c'/>", b"<a><b><c/></b></a>"])
def test_an_xml_document_takes_bounded_memory(item: bytes) -> None:
    bounded(lambda: parse_xml(b"<x>" + item * ((16 << 20) // len(item)) + b"</x>"))


def bounded(parse) -> None:  # type: ignore[no-untyped-def]
    """Parse, and compare the peak of the memory with the bound."""
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match="more than"):
            parse()
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()
