"""Names in zip archives that do not say their encoding."""

from __future__ import annotations

import io
import struct
import subprocess
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbdata
from nbdata.archives.remarks import Remarks
from nbdata.archives.zip import read_zip
from nbdata.archives.zip_names import guessed_encoding
from nbdata.errors import BadOption
from tests.archives.test_zip import Ranges

_WINDOWS, _UNIX = 0, 3


def zipped(*names: bytes, system: int = _WINDOWS, extra: bytes = b"") -> bytes:
    """Return an archive with these bytes as names, without the mark of UTF-8, as programs of Windows write it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number, name in enumerate(names):
            info = zipfile.ZipInfo(chr(65 + number) * len(name))
            info.create_system, info.extra = system, extra
            archive.writestr(info, b"%d" % number)
    data = out.getvalue()
    for number, name in enumerate(names):
        data = data.replace((chr(65 + number) * len(name)).encode(), name)
    return data


def read(data: bytes, **options: str) -> tuple[dict[str, bytes], list[str]]:
    remarks = Remarks()
    found = {one.name: one.reader.read() for one in read_zip(Ranges(data), remarks=remarks, **options)}  # type: ignore[arg-type]
    return found, remarks.notes()


LANGUAGES = {
    "cp932": ["写真/表紙ソ.jpg", "写真/第1章能.txt", "データ/画像001.png"],
    "gb18030": ["数据/图片001.jpg", "新建文本文档.txt", "训练/标注.json"],
    "big5": ["資料/圖片001.jpg", "資料/說明.txt", "功能許可.txt"],
    "cp949": ["데이터/그림001.jpg", "데이터/설명.txt"],
    "cp866": ["Данные/Картинка 1.jpg", "Данные/описание.txt"],
    "cp1251": ["Данные/Картинка 1.jpg", "Данные/описание.txt"],
    "cp437": ["résumé.txt", "Übung/größe.txt"],
    "utf-8": ["写真/表紙.jpg", "größe.txt"],
}


@pytest.mark.parametrize("encoding", LANGUAGES)
def test_names_are_guessed_and_that_is_said(encoding: str) -> None:
    names = LANGUAGES[encoding]
    found, notes = read(zipped(b"plain.txt", *(name.encode(encoding) for name in names)))
    assert [*found] == ["plain.txt", *names]
    (note,) = notes
    assert f"names that do not say their encoding: {len(names)}, read as {encoding}, which is a guess" in note


@pytest.mark.parametrize("encoding", LANGUAGES)
def test_a_given_encoding_counts_and_no_guess(encoding: str) -> None:
    names = LANGUAGES[encoding]
    for system in (_WINDOWS, _UNIX):
        found, notes = read(
            zipped(*(name.encode(encoding) for name in names), system=system), names_encoding=encoding
        )
        assert [*found] == names
        assert notes == []


def test_half_a_character_that_looks_like_a_backslash_makes_no_folder() -> None:
    assert "能ソ.txt".encode("cp932").count(b"\\") == 2
    for options in ({}, {"names_encoding": "cp932"}):
        assert [*read(zipped("能ソ.txt".encode("cp932"), "写真\\表.txt".encode("cp932")), **options)[0]] == [
            "能ソ.txt", "写真/表.txt",
        ]  # fmt: skip


def test_a_name_that_is_not_in_the_given_encoding_is_an_error_that_shows_it() -> None:
    with pytest.raises(BadOption, match=r"a name in the zip archive is not in cp932.*\\x85") as caught:
        read(zipped(b"\x85\x00\xff.txt".replace(b"\0", b"!")), names_encoding="cp932")
    assert "guessed" in caught.value.remedy


def test_names_that_are_marked_or_have_a_unicode_path_are_not_guessed() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("größe.txt", b"")
    assert read(out.getvalue()) == ({"größe.txt": b""}, [])
    stored, path = "größe.txt".encode("cp850"), "größe.txt".encode()
    for crc, names in (
        (zlib.crc32(stored), ["größe.txt"]),
        (zlib.crc32(b"another"), [stored.decode("cp437")]),
    ):
        field = struct.pack("<HHBI", 0x7075, 5 + len(path), 1, crc) + path
        found, notes = read(zipped(stored, extra=field))
        assert [*found] == names
        assert bool(notes) == (crc != zlib.crc32(stored))


def test_names_of_unix_that_are_not_utf8_stay_and_that_is_said() -> None:
    found, notes = read(zipped("数据.txt".encode("gbk"), "größe.txt".encode(), system=_UNIX))
    assert [*found] == ["数据.txt".encode("gbk").decode("utf-8", "surrogateescape"), "größe.txt"]
    assert notes == ["names that are not UTF-8: 1, left as they are; --names-encoding NAME decodes them"]


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=5))
def test_any_bytes_have_a_guess_that_python_knows(names: list[bytes]) -> None:
    found = guessed_encoding(names)
    assert found == guessed_encoding(names)
    b"a".decode(found)


@pytest.mark.needs("bsdtar")
def test_the_verb_takes_the_encoding(tmp_path: Path, inline: None) -> None:
    (tmp_path / "写真").mkdir()
    (tmp_path / "写真" / "表.txt").write_bytes(b"1")
    subprocess.run(
        ["bsdtar", "--format", "zip", "--options", "hdrcharset=CP932", "-cf", "x.zip", "写真"],
        cwd=tmp_path, check=True, env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    report = nbdata.untar_volumes(tmp_path / "x.zip", tmp_path / "raw", quiet=True)
    assert any("--names-encoding" in note for note in report.notes)
    report = nbdata.untar_volumes(tmp_path / "x.zip", tmp_path / "out", names_encoding="cp932", quiet=True)
    assert (tmp_path / "out" / "写真" / "表.txt").read_bytes() == b"1"
    assert not any("--names-encoding" in note for note in report.notes)
    with pytest.raises(BadOption, match="no encoding that Python knows"):
        nbdata.untar_volumes(tmp_path / "x.zip", tmp_path / "out", names_encoding="cp0", quiet=True)


@pytest.mark.parametrize(
    ("name", "encoding", "guessed"),
    [("新建文本文档.txt", "gbk", "gb18030"), ("größe.txt", "cp850", "cp437"), ("ソ連.txt", "cp932", "cp932")],
)
def test_what_names_hardly_have_is_no_guess(name: str, encoding: str, guessed: str) -> None:
    assert guessed_encoding([name.encode(encoding)]) == guessed
