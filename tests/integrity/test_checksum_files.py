"""Checksum files of every style, compared with the real md5sum and sha256sum."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata.integrity import checksum_files
from nbdata.integrity.checksum_files import Entry, format_checksums, parse_checksums

A, B = hashlib.md5(b"a").hexdigest(), hashlib.md5(b"b").hexdigest()
SHA1, SHA256 = hashlib.sha1(b"a").hexdigest(), hashlib.sha256(b"a").hexdigest()
SHA512 = hashlib.sha512(b"a").hexdigest()

ODD_NAMES = [
    "plain",
    "with space",
    " leading and trailing ",
    "*star",
    "#hash",
    "new\nline",
    "back\\slash",
    "back\\nslash",
    "\\leading",
    "carriage\rreturn",
    "ends in carriage return\r",
    "tab\there",
    "MD5 (x) = y",
    "quotes'\"",
    "größe-数据-🙂",
    "sub/folder name/file",
    os.fsdecode(b"not-utf8-\xff\xfe"),
    " ",
]

coreutils = pytest.mark.needs("coreutils")


def _make(folder: Path, names) -> None:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"content %d" % number)


def _run(folder: Path, *command: str, stdin: bytes | None = None) -> bytes:
    return subprocess.run(command, cwd=folder, input=stdin, capture_output=True, check=True).stdout


@coreutils
@pytest.mark.parametrize(
    ("tool", "algorithm"),
    [("md5sum", "md5"), ("sha1sum", "sha1"), ("sha256sum", "sha256"), ("sha512sum", "sha512")],
)
@pytest.mark.parametrize("options", [[], ["--binary"], ["--tag"], ["--zero"]])
def test_what_the_coreutils_write_is_read_with_every_name_as_it_is(tmp_path, tool, algorithm, options):
    _make(tmp_path, ODD_NAMES)
    # Only --zero can express a name that consists of blanks.
    names = [name for name in ODD_NAMES if name.strip()]
    found = parse_checksums(_run(tmp_path, tool, *options, "--", *names))
    assert found.problems == []
    assert found.entries == [
        Entry(name, algorithm, hashlib.new(algorithm, (tmp_path / name).read_bytes()).hexdigest())
        for name in names
    ]


@pytest.mark.needs("coreutils")
@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256", "sha512"])
def test_what_cksum_writes_with_an_algorithm_is_read(tmp_path, algorithm):
    _make(tmp_path, ["a (1).tar", "new\nline"])
    made = _run(tmp_path, "cksum", "-a", algorithm, "--", "a (1).tar", "new\nline")
    found = parse_checksums(made)
    assert found.problems == []
    assert [entry.name for entry in found.entries] == ["a (1).tar", "new\nline"]
    assert found.entries[0].digest == hashlib.new(algorithm, b"content 0").hexdigest()


@coreutils
@pytest.mark.parametrize(
    ("tool", "algorithm"), [("md5sum", "md5"), ("sha256sum", "sha256"), ("sha512sum", "sha512")]
)
def test_what_is_written_here_the_coreutils_check(tmp_path, tool, algorithm):
    _make(tmp_path, [*ODD_NAMES, "-"])
    entries = [
        Entry(name, algorithm, hashlib.new(algorithm, (tmp_path / name).read_bytes()).hexdigest())
        for name in [*ODD_NAMES, "-"]
    ]
    text = format_checksums(entries).encode(errors="surrogateescape")
    checked = _run(tmp_path, tool, "--check", "--strict", "-", stdin=text)
    assert checked.count(b": OK\n") == len(entries)


@coreutils
def test_the_lines_are_those_of_md5sum_to_the_byte(tmp_path):
    names = [name for name in ODD_NAMES if name.strip()]
    _make(tmp_path, names)
    made = _run(tmp_path, "md5sum", "--", *names)
    # coreutils escape the carriage return since version 9.0.
    if rb"carriage\rreturn" in made:
        assert format_checksums(parse_checksums(made).entries).encode(errors="surrogateescape") == made


@coreutils
@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_a_file_of_any_name_goes_through_md5sum_and_back(name):
    if name in (".", "..") or not name.strip() or name.strip() == "-":
        return
    with tempfile.TemporaryDirectory() as folder:
        _make(Path(folder), [name])
        made = _run(Path(folder), "md5sum", "--", name)
        (entry,) = parse_checksums(made).entries
        assert entry == Entry(name, "md5", hashlib.md5(b"content 0").hexdigest())
        text = format_checksums([entry]).encode(errors="surrogateescape")
        assert _run(Path(folder), "md5sum", "--check", "--strict", "-", stdin=text).endswith(b": OK\n")


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256", "sha512"])
def test_what_openssl_writes_is_read(tmp_path, algorithm):
    _make(tmp_path, ["a (1).tar"])
    found = parse_checksums(_run(tmp_path, "openssl", "dgst", f"-{algorithm}", "a (1).tar"))
    digest = hashlib.new(algorithm, b"content 0").hexdigest()
    assert (found.entries, found.problems) == ([Entry("a (1).tar", algorithm, digest)], [])


_ENTRIES = st.lists(
    st.builds(
        Entry,
        st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=[]), min_size=1),
        st.just("md5"),
        st.sampled_from([A, B]),
    )
)


def _writable(entry: Entry) -> bool:
    try:
        (entry.name or "").encode(errors="surrogateescape").decode(errors="surrogateescape")
    except UnicodeError:
        return False
    return True


@given(_ENTRIES)
def test_what_is_written_is_read_again(entries):
    entries = [entry for entry in entries if _writable(entry)]
    data = format_checksums(entries).encode(errors="surrogateescape")
    found = parse_checksums(data)
    assert found.problems == []
    read = [(entry.digest, os.fsencode(entry.name or "").removeprefix(b"./")) for entry in found.entries]
    assert read == [(entry.digest, os.fsencode(entry.name or "").removeprefix(b"./")) for entry in entries]


@pytest.mark.parametrize(
    "data",
    [
        A.encode(),
        A.encode() + b"\n",
        A.upper().encode() + b"\r\n",
        b"\xef\xbb\xbf" + A.encode() + b"  \n\n",
        f"{A}\r\n".encode("utf-16"),
        f"  {A}\t\n".encode(),
        f"{A}  -\n".encode(),
        f"{A} *-\n".encode(),
        base64.b64encode(bytes.fromhex(A)) + b"\n",
    ],
)
def test_a_digest_alone_is_read_however_it_was_saved(data):
    found = parse_checksums(data)
    assert (found.entries, found.problems) == ([Entry(None, "md5", A)], [])


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (f"{A}  a", Entry("a", "md5", A)),
        (f"{A} *a", Entry("a", "md5", A)),
        (f"{A} a", Entry("a", "md5", A)),
        (f"{A}\ta", Entry("a", "md5", A)),
        (f"  {A}  a", Entry("a", "md5", A)),
        (f"{A}  *a", Entry("*a", "md5", A)),
        (f"{A}   a", Entry(" a", "md5", A)),
        (rf"\{A}  a\nb\\c\rd", Entry("a\nb\\c\rd", "md5", A)),
        (rf"{A}  a\nb", Entry(r"a\nb", "md5", A)),
        (f"MD5 (a) = {A}", Entry("a", "md5", A)),
        (f"md5 (a) = {A.upper()}", Entry("a", "md5", A)),
        (f"MD5(a)= {A}", Entry("a", "md5", A)),
        (f"MD5 (a) = {B}) = {A}", Entry(f"a) = {B}", "md5", A)),
        (rf"\MD5 (a\\b) = {A}", Entry(r"a\b", "md5", A)),
        (f"SHA1 (a) = {SHA1}", Entry("a", "sha1", SHA1)),
        (f"SHA256 (a) = {SHA256}", Entry("a", "sha256", SHA256)),
        (f"SHA2-256(a)= {SHA256}", Entry("a", "sha256", SHA256)),
        ("CRC32C (a) = E3069283", Entry("a", "crc32c", "e3069283")),
        (f"{SHA1}  a", Entry("a", "sha1", SHA1)),
        (f"{SHA512}  a", Entry("a", "sha512", SHA512)),
        (f"SHA512 (a) = {SHA512}", Entry("a", "sha512", SHA512)),
        (f"SHA2-512(a)= {SHA512}", Entry("a", "sha512", SHA512)),
        ("CRC32 (a) = cbf43926", Entry("a", "crc32", "cbf43926")),
        ("CRC64NVME (a) = ae8b14860a799888", Entry("a", "crc64nvme", "ae8b14860a799888")),
        ("DMF1ucDxtqgxw5niaXcmYQ==  a", Entry("a", "md5", A)),
        ("DMF1ucDxtqgxw5niaXcmYQ== *a", Entry("a", "md5", A)),
        ("MD5 (a) = DMF1ucDxtqgxw5niaXcmYQ==", Entry("a", "md5", A)),
        # Contains both letters in which the alphabets of base64 differ.
        ("-_-_-_-_-_-_-_-_-_-_-w==  a", Entry("a", "md5", "fbffbf" * 5 + "fb")),
        ("+/+/+/+/+/+/+/+/+/+/+w==  a", Entry("a", "md5", "fbffbf" * 5 + "fb")),
    ],
)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_each_style_of_line_is_read(line, entry, end):
    found = parse_checksums((line + end).encode())
    assert (found.entries, found.problems) == ([entry], [])


@pytest.mark.parametrize(
    "line",
    [
        "<html>404 Not Found</html>",
        A[:-1],
        f"{A}0  a",
        f"{A}a",
        f"a  {A}",
        f"MD5 (a) = {SHA1}",
        f"MD5 () = {A}",
        f"SHA384 (a) = {'0' * 96}",
        f"{'0' * 96}  a",
        "DMF1ucDxtqgxw5niaXcm==  a",
        "DMF1ucDxtqgxw5ni-aXcmYQ=  a",
        "4038471504 12 a",
        "deadbeef  a",
        rf"\{A}  a\tb",
        f"\\{A}  a\\",
        "MD5 (a)",
    ],
)
def test_a_line_that_is_no_checksum_is_a_problem_with_its_number_and_never_skipped(line):
    found = parse_checksums(f"# made by hand\n{A}  first\n\n{line}\n{B}  last\n".encode())
    assert [entry.name for entry in found.entries] == ["first", "last"]
    assert [problem.line for problem in found.problems] == [4]
    assert repr(line)[1:12] in found.problems[0].message


def test_comments_and_blank_lines_are_neither_entry_nor_problem():
    found = parse_checksums(b"# MD5 checksums\n; generated by\n \t\n\r\n\n")
    assert (found.entries, found.problems) == ([], [])


def test_digests_of_another_algorithm_than_the_file_is_of_are_problems_unless_tagged():
    found = parse_checksums(f"{A}  a\n{SHA1}  b\nSHA1 (c) = {SHA1}\n".encode(), algorithm="md5")
    assert [entry.name for entry in found.entries] == ["a", "c"]
    assert "no digest of md5" in found.problems[0].message


def test_crc32c_is_read_where_it_is_known_to_be_that():
    assert parse_checksums(b"e3069283  a", algorithm="crc32c").entries == [Entry("a", "crc32c", "e3069283")]


def test_a_file_too_large_for_checksums_is_not_read(monkeypatch):
    monkeypatch.setattr(checksum_files, "MAX_SIZE", 40)
    data = f"{A}  a\n{B}  b\n".encode()
    assert parse_checksums(data[:40]).entries
    found = parse_checksums(data)
    assert found.entries == []
    assert [problem.line for problem in found.problems] == [0]


def test_a_wrong_file_does_not_fill_the_memory_with_problems():
    found = parse_checksums(b"x\n" * 5000 + f"{A}  a".encode())
    assert len(found.entries) == 1
    assert len(found.problems) == 1001
    assert found.problems[-1].message.startswith("4000 more lines")


@given(st.binary() | st.text("abcdef0123456789 *()=\\\n\r#M").map(str.encode))
def test_no_content_whatever_raises(data):
    parse_checksums(data)


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_no_line_can_say_is_refused(name):
    with pytest.raises(ValueError, match="not a file name"):
        format_checksums([Entry(name, "md5", A)])


@pytest.mark.parametrize("before", ["", "x"])
def test_signatures_without_an_end_take_no_quadratic_time(before):
    data = f"{before}-----BEGIN PGP SIGNATURE-----\n".encode() * 30_000
    start = time.process_time()
    assert parse_checksums(data).entries == []
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "data",
    [
        f"{A}  a\n" * 4,
        "\n" * 4,
        f"{A}  a\0" * 4,
        "%%%% HASHDEEP-1.0\n%%%% md5,md5,md5,md5,md5,filename\n" + f"{A}," * 5 + "a",
    ],
    ids=["digests", "blank", "zero", "columns"],
)
def test_a_list_of_too_many_lines_or_digests_is_not_read(monkeypatch, data):
    monkeypatch.setattr(checksum_files, "_MOST_LINES", 4)
    found = parse_checksums(data.encode())
    assert (found.entries, [problem.harmless for problem in found.problems]) == ([], [False])
    assert "lines or digests" in found.problems[0].message
    assert parse_checksums(f"{A}  a\n".encode() * 3).problems == []


def test_a_name_longer_than_any_key_is_a_problem():
    longest = "a" * (32 << 10)
    found = parse_checksums(f"{A}  {longest}\n{A}  {longest}a\n".encode())
    assert [entry.name for entry in found.entries] == [longest]
    assert [problem.line for problem in found.problems] == [2]
    assert "a name of 32,769 characters, which may have at most 32,768" in found.problems[0].message


@pytest.mark.parametrize(
    "data", [f"{'a' * 5000} (x) = {A}", f"%%%% HASHDEEP-1.0\n%%%% {'a' * 5000},filename\n{A},x\n,x"]
)
def test_what_is_said_of_an_unknown_algorithm_is_short(data):
    assert all(len(problem.message) < 200 for problem in parse_checksums(data.encode()).problems)
