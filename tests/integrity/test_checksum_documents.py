"""Lists of checksums that are documents: of hashdeep, PowerShell, certutil, repositories; compressed ones; SFV."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbdata.integrity import checksum_files
from nbdata.integrity.checksum_files import Entry, parse_checksums

CONTENTS = {"a.bin": b"a\n", "sub/b c.bin": b"b\n", "sub/d,e.bin": b"de\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in CONTENTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def made(folder: Path, *command: str) -> bytes:
    return subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def entries(text: str | bytes, name: str = "") -> list[Entry]:
    """Return the entries of a file without problems."""
    found = parse_checksums(text if isinstance(text, bytes) else text.encode(), name=name)
    assert found.problems == []
    return found.entries


def expected(*algorithms: str, before: str = "") -> set[Entry]:
    return {
        Entry(before + name, algorithm, hashlib.new(algorithm, data).hexdigest())
        for name, data in CONTENTS.items()
        for algorithm in algorithms
    }


@pytest.mark.needs("hashdeep")
def test_hashdeep_gives_each_digest_that_it_has(folder: Path) -> None:
    text = made(folder, "hashdeep", "-r", ".")
    assert {*entries(text)} == expected("md5", "sha256", before=f"{folder}/")
    text = made(folder, "hashdeep", "-l", "-c", "md5,sha1,tiger,whirlpool", "-r", ".")
    found = parse_checksums(text)
    assert {*found.entries} == expected("md5", "sha1", before="./")
    assert {problem.message.split(" is not")[0] for problem in found.problems} == {"tiger", "whirlpool"}
    assert all(problem.harmless for problem in found.problems)


def test_a_line_of_hashdeep_that_is_cut_is_a_problem() -> None:
    text = f"%%%% HASHDEEP-1.0\n%%%% size,md5,filename\n2,{md5(b'a')}\n2,{md5(b'a')},a\n"
    found = parse_checksums(text.encode())
    assert found.entries == [Entry("a", "md5", md5(b"a"))]
    assert [(problem.line, problem.harmless) for problem in found.problems] == [(3, False)]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("cksfv", marks=pytest.mark.needs("cksfv")),
        pytest.param("rhash", marks=pytest.mark.needs("rhash")),
    ],
)
def test_sfv_has_the_names_first(folder: Path, program: str) -> None:
    command = ["cksfv", *CONTENTS] if program == "cksfv" else ["rhash", "--sfv", "-r", "."]
    found = entries(made(folder, *command), "all.sfv")
    assert {*found} == {Entry(name, "crc32", f"{zlib.crc32(data):08x}") for name, data in CONTENTS.items()}


def test_a_name_in_sfv_may_look_like_a_digest() -> None:
    assert entries("12345678 9abcdef0\n{x} 00000000\n", "x.sfv") == [
        Entry("12345678", "crc32", "9abcdef0"), Entry("{x}", "crc32", "00000000")
    ]  # fmt: skip


@pytest.mark.needs("rhash")
@pytest.mark.parametrize("options", [["--md5", "--bsd"], ["--sha256"], ["--sha512", "--bsd"]])
def test_what_rhash_writes_is_read(folder: Path, options: list[str]) -> None:
    assert {*entries(made(folder, "rhash", *options, "-r", "."))} == expected(options[0].removeprefix("--"))


@pytest.mark.needs("coreutils")
def test_a_compressed_list_is_read(folder: Path) -> None:
    (folder / "SHA256SUMS").write_bytes(made(folder, "sha256sum", *CONTENTS))
    assert {*entries(made(folder, "gzip", "-c", "SHA256SUMS"), "SHA256SUMS.gz")} == expected("sha256")


def test_members_of_gzip_one_after_the_other_are_one_list() -> None:
    one, other = (f"{md5(name)}  {name.decode()}\n".encode() for name in (b"a", b"b"))
    assert [entry.name for entry in entries(gzip.compress(one) + gzip.compress(other))] == ["a", "b"]


def test_a_compressed_list_that_is_cut_or_too_large_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    data = gzip.compress(f"{md5(b'a')}  a\n".encode())
    assert "cut short" in parse_checksums(data[:-9]).problems[0].message
    monkeypatch.setattr(checksum_files, "MAX_SIZE", 1000)
    bomb = gzip.compress(b"#" * 100_000_000)
    assert len(bomb) > 1000
    (problem,) = parse_checksums(bomb).problems
    assert "too much for a checksum file" in problem.message
    assert not problem.harmless


# -- Windows: texts as PowerShell 5.1 and 7, and certutil, write them

DIGEST = hashlib.sha256(b"a").hexdigest()
NAMES = [r"D:\data\a.bin", r"D:\data\b, c.bin"]
NAMED = [Entry(name, "sha256", DIGEST) for name in NAMES]
ROWS = "".join(f'"SHA256","{DIGEST.upper()}","{name}"\r\n' for name in NAMES)
HEAD = "Algorithm       Hash                   Path\r\n---------       ----                   ----"
DONE = "CertUtil: -hashfile command completed successfully."
PAIRS = " ".join(DIGEST[at : at + 2] for at in range(0, 64, 2))
WINDOWS = {
    "Export-Csv": '"Algorithm","Hash","Path"\r\n' + ROWS,
    "Export-Csv of 5.1": '#TYPE Microsoft.PowerShell.Commands.FileHashInfo\r\n"Algorithm","Hash","Path"\r\n'
    + ROWS,
    "Export-Csv -UseCulture": '"Algorithm";"Hash";"Path"\r\n' + ROWS.replace('",', '";'),
    "a spreadsheet": "filename\tsize\tsha256\n" + "".join(f"{name}\t2\t{DIGEST}\n" for name in NAMES),
    "Format-List": "\r\n\r\n"
    + "".join(
        f"Algorithm : SHA256\r\nHash      : {DIGEST.upper()}\r\nPath      : {name}\r\n\r\n" for name in NAMES
    ),
    "Format-List of a narrow window": "\r\n\r\n"
    + "".join(
        f"Algorithm : SHA256\r\nHash      : {DIGEST[:50].upper()}\r\n            {DIGEST[50:].upper()}\r\n"
        f"Path      : {name[:9]}\r\n            {name[9:]}\r\n\r\n"
        for name in NAMES
    ),
    "a table": f"\r\n{HEAD}\r\n"
    + "".join(f"SHA256          {DIGEST.upper()}       {name}   \r\n" for name in NAMES),
    "certutil": "".join(f"SHA256 hash of {name}:\r\n{DIGEST}\r\n{DONE}\r\n" for name in NAMES),
    "certutil of Windows 7": "".join(
        f"SHA256 hash of file {name}:\r\n{PAIRS}\r\n{DONE}\r\n" for name in NAMES
    ),
}


@pytest.mark.parametrize("written_by", WINDOWS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_windows_writes_is_read(written_by: str, encoding: str) -> None:
    assert entries(WINDOWS[written_by].encode(encoding)) == NAMED


def test_a_path_that_powershell_cut_short_is_a_problem_with_a_remedy() -> None:
    text = WINDOWS["a table"].replace("a.bin   ", "a…")
    found = parse_checksums(text.encode())
    assert found.entries == NAMED[1:]
    (problem,) = found.problems
    assert "Export-Csv" in problem.message
    assert not problem.harmless


def test_a_row_without_all_columns_is_a_problem() -> None:
    found = parse_checksums(f"path,md5\na,{md5(b'a')}\nb\n".encode())
    assert found.entries == [Entry("a", "md5", md5(b"a"))]
    assert [(problem.line, problem.harmless) for problem in found.problems] == [(3, False)]


# -- what repositories of data say of their files

MD5 = md5(b"a")
JSON = {
    "Zenodo": {
        "id": 1,
        "metadata": {"title": "t"},
        "files": [{"id": "f", "key": "a.zip", "size": 1, "checksum": f"md5:{MD5}"}],
    },
    "Zenodo, entries": {
        "files": {"count": 1, "entries": {"a.zip": {"key": "a.zip", "checksum": f"md5:{MD5}", "size": 1}}}
    },
    "Figshare": {
        "title": "t",
        "files": [{"id": 3, "name": "a.zip", "size": 1, "supplied_md5": MD5, "computed_md5": MD5}],
    },
    "Figshare, the files": [
        {"id": 3, "name": "a.zip", "size": 1, "is_link_only": False, "supplied_md5": "", "computed_md5": MD5}
    ],
    "Dataverse": {
        "status": "OK",
        "data": [
            {
                "label": "a",
                "dataFile": {"filename": "a.zip", "md5": MD5, "checksum": {"type": "MD5", "value": MD5}},
            }
        ],
    },
    "a mapping": {"a.zip": MD5},
}


@pytest.mark.parametrize("repository", JSON)
def test_what_a_repository_says_of_its_files_is_read(repository: str) -> None:
    assert {*entries(json.dumps(JSON[repository]))} == {Entry("a.zip", "md5", MD5)}


def test_an_unknown_algorithm_in_json_is_harmless_and_a_cut_digest_is_not() -> None:
    text = json.dumps(
        [
            {"name": "a", "checksum": "tiger:00"},
            {"name": "b", "checksum": f"md5:{MD5[1:]}"},
            {"name": "c", "md5": "no"},
        ]
    )
    found = parse_checksums(text.encode())
    assert found.entries == []
    assert [problem.harmless for problem in found.problems] == [True, False, False]


@pytest.mark.parametrize("text", ["{", "[1, 2", '{"a": 1, "a": 2}', "[" * 100_000])
def test_json_that_is_none_gives_nothing(text: str) -> None:
    found = parse_checksums(text.encode())
    assert found.entries == []
    assert found.problems


@given(
    st.binary(max_size=300) | st.text(max_size=300).map(str.encode), st.sampled_from(["", "x.sfv", "MD5SUMS"])
)
def test_any_bytes_are_entries_or_problems(data: bytes, name: str) -> None:
    for start in (
        b"",
        b"{",
        b"%%%% HASHDEEP-1.0\n",
        b"Algorithm : MD5\n",
        b"path,md5\n",
        b"MD5 hash of a:\n",
        b"\x1f\x8b",
    ):
        parse_checksums(start + data, name=name)
