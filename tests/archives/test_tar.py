"""Members are read from a tar stream completely, in order, and never outside their target."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata.archives.forward_reader import ForwardReader
from nbdata.archives.member import Member
from nbdata.archives.member_budget import MemberBudget, bytes_of
from nbdata.archives.remarks import Remarks
from nbdata.archives.stream import JoinedStream
from nbdata.archives.tar import read_members
from nbdata.archives.tar_headers import Headers
from nbdata.errors import BadArchive, BadOption, NbdataError, NotFound, UnsafeMember
from tests.archives.test_stream import cut, volumes_of

Entry = tuple[str, str, object]  # name, kind, content or link target


def tar_of(*entries: Entry, format: int = tarfile.PAX_FORMAT, **attributes: object) -> bytes:  # noqa: A002
    kinds = {
        "file": tarfile.REGTYPE,
        "folder": tarfile.DIRTYPE,
        "symlink": tarfile.SYMTYPE,
        "hardlink": tarfile.LNKTYPE,
        "fifo": tarfile.FIFOTYPE,
        "device": tarfile.CHRTYPE,
        "block device": tarfile.BLKTYPE,
    }
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as tar:
        for name, kind, value in entries:
            info = tarfile.TarInfo(name)
            info.type = kinds.get(kind, kind.encode())
            for attribute, of_all in attributes.items():
                setattr(info, attribute, of_all)
            if isinstance(value, bytes):
                info.size = len(value)
            else:
                info.linkname = str(value or "")
            tar.addfile(info, io.BytesIO(value) if isinstance(value, bytes) else None)
    return file.getvalue()


def members_of(blob: bytes, **options: object) -> list[Member]:
    return list(read_members(io.BytesIO(blob), **options))  # type: ignore[arg-type]


def contents(blob: bytes, **options: object) -> dict[str, bytes]:
    return {m.name: m.reader.read() for m in read_members(io.BytesIO(blob), **options)}  # type: ignore[arg-type]


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_come_in_order_with_their_bytes_and_facts(format_: int) -> None:
    blob = tar_of(
        ("./a", "folder", None),
        ("a/b", "file", b"x" * 1000),
        ("a/link", "symlink", "b"),
        ("a/hard", "hardlink", "a/b"),
        ("empty", "file", b""),
        format=format_,
        mtime=1_700_000_000,
    )
    found = [(m.name, m.kind, m.size, m.linkname, m.mtime_ns) for m in members_of(blob)]
    when = 1_700_000_000 * 10**9
    assert found == [
        ("a", "folder", 0, "", when),
        ("a/b", "file", 1000, "", when),
        ("a/link", "symlink", 0, "b", when),
        ("a/hard", "hardlink", 0, "a/b", when),
        ("empty", "file", 0, "", when),
    ]
    assert contents(blob)["a/b"] == b"x" * 1000


@given(
    st.lists(st.binary(max_size=3000), max_size=6),
    st.lists(st.integers(0, 20_000), max_size=5),
    st.lists(st.integers(0, 3000), max_size=6),
)
def test_content_is_the_same_however_it_is_cut_and_whatever_is_left_unread(
    files: list[bytes], points: list[int], reads: list[int]
) -> None:
    blob = tar_of(*((f"f{n}", "file", content) for n, content in enumerate(files)))
    stream = JoinedStream(volumes_of(cut(blob, points)))
    for n, member in enumerate(read_members(stream)):
        amount = reads[n] if n < len(reads) else 5000
        buffered = io.BufferedReader(member.reader)
        assert buffered.read(amount) == files[n][:amount]
    assert not stream.closed


@pytest.mark.parametrize("format_", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_come_whole(format_: int) -> None:
    names = ["/".join(["folder" * 20] * 5) + "/file", "dätä/文件", "byte\udcff"]
    blob = tar_of(*((name, "file", b"1") for name in names), format=format_)
    assert [m.name for m in members_of(blob)] == names


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1700000000.123456789", 1_700_000_000_123_456_789),
        ("-86400.5", -86_400_500_000_000),
        ("12abc", 12 * 10**9),  # text after the number is ignored
        ("1e300", 10**9),
        ("12.5 s", 12_500_000_000),
        ("nan", 7 * 10**9),  # without a number, the time of the plain header is used
        ("inf", 7 * 10**9),
        ("9" * 19, 0),
    ],
)
def test_times_keep_their_nanoseconds_and_junk_behind_them_is_passed_over(written: str, meant: int) -> None:
    blob = tar_of(("a", "file", b""), pax_headers={"mtime": written}, mtime=7)
    assert members_of(blob)[0].mtime_ns == meant


@pytest.mark.parametrize(
    ("given_mode", "kept"), [(0o7777, 0o755), (0o666, 0o644), (0o000, 0o600), (0o011, 0o600), (0o4711, 0o711)]
)
def test_permissions_are_those_of_pythons_data_filter(given_mode: int, kept: int) -> None:
    assert members_of(tar_of(("a", "file", b""), mode=given_mode))[0].mode == kept
    info = tarfile.TarInfo("a")
    info.mode = given_mode
    assert tarfile.data_filter(info, "/nowhere").mode == kept
    assert members_of(tar_of(("a", "folder", None), mode=given_mode))[0].mode is None


@pytest.mark.parametrize(
    "entries",
    [
        [("/../a", "file", b"")],
        [("../a", "file", b"")],
        [("a/../../b", "file", b"")],
        [("a/..", "folder", None)],
        [("a", "symlink", "/etc")],
        [("a", "symlink", "..")],
        [("a/b", "symlink", "../../c")],
        [("a", "symlink", "b/../../c")],
        [("a", "symlink", ".nbdata/x")],
        [("a", "symlink", "")],
        [("a", "hardlink", "../b")],
        [("a", "fifo", None)],
        [("a", "device", None)],
        [("a", "block device", None)],
        [(".nbdata/parts", "file", b"")],
        [("deep/.NbData", "folder", None)],
        [("n" * 256, "file", b"")],
        [("a", "symlink", "b"), ("a/x", "file", b"")],
        [("a", "symlink", "."), ("A/x", "file", b"")],
        [("a", "symlink", "b"), ("a", "folder", None)],
        [("a/x", "file", b""), ("a", "symlink", "b")],
        [("d/e", "symlink", "."), ("d/e/f", "symlink", "../..")],
        [("a", "symlink", "b"), ("c", "hardlink", "a/x")],
        [("d/a", "symlink", "../b"), ("c", "hardlink", "d/a")],
    ],
    ids=lambda entries: " ".join(f"{name[:20]}-{kind}-{str(value)[:20]}" for name, kind, value in entries),
)
def test_what_would_leave_the_target_is_refused(entries: Sequence[Entry]) -> None:
    *before, last = members_and_error(tar_of(*entries))
    assert isinstance(last, UnsafeMember)
    assert last.remedy
    assert len(before) == len(entries) - 1


def test_the_slash_at_the_start_of_a_name_is_taken_off() -> None:
    blob = tar_of(("/data", "folder", None), ("/data/a", "file", b"1"), ("//b", "hardlink", "/data/a"))
    remarks = Remarks()
    assert [(m.name, m.linkname) for m in members_of(blob, remarks=remarks)] == [
        ("data", ""),
        ("data/a", ""),
        ("b", "data/a"),
    ]
    assert remarks.absolute == 3
    with pytest.raises(BadArchive, match="did not come before"):
        members_of(tar_of(("a", "hardlink", "/etc/passwd")))


@pytest.mark.parametrize("name", ["", ".", "./", "/"])
def test_a_file_without_a_name_is_left_out_and_said_so(name: str) -> None:
    remarks = Remarks()
    blob = bytearray(tar_of(("x", "file", b"1")))
    blob[:100] = name.encode().ljust(100, b"\0")
    checked(blob)
    assert members_of(bytes(blob), remarks=remarks) == []
    assert remarks.left_out == ([] if name.endswith("/") else [name])
    assert remarks.complete == name.endswith("/")


def checked(blob: bytearray, start: int = 0) -> bytes:
    """Set the right checksum in a header."""
    block = blob[start : start + 512]
    blob[start + 148 : start + 156] = b"%06o\0 " % (sum(block[:148]) + 256 + sum(block[156:]))
    return bytes(blob)


def members_and_error(blob: bytes) -> list[object]:
    found: list[object] = []
    try:
        found.extend(read_members(io.BytesIO(blob)))  # keeps the members before the error
    except NbdataError as error:
        found.append(error)
    return found


def test_a_name_with_nul_is_refused() -> None:
    blob = tar_of(("short", "file", b""), pax_headers={"path": "a\0b"})
    with pytest.raises(UnsafeMember, match="NUL"):
        members_of(blob)


def test_safe_links_pass_and_their_targets_are_normalised() -> None:
    blob = tar_of(
        ("a/b/c", "symlink", "../../d/./e"),
        ("f", "symlink", "x/../g"),
        ("h", "hardlink", "f"),
        ("back\\slash", "file", b""),
    )
    assert [(m.kind, m.linkname) for m in members_of(blob)] == [
        ("symlink", "../../d/e"),
        ("symlink", "g"),
        ("symlink", "g"),
        ("file", ""),
    ]


def test_a_hard_link_needs_its_target_before_it() -> None:
    with pytest.raises(BadArchive, match="did not come before"):
        members_of(tar_of(("a", "hardlink", "b"), ("b", "file", b"")))
    with pytest.raises(BadArchive, match="did not come before"):
        members_of(tar_of(("b", "file", b""), ("a", "hardlink", "b")), members=["a"])


def test_a_hard_link_to_itself_is_there_already() -> None:
    blob = tar_of(("a", "file", b"1"), ("a", "hardlink", "a"))
    assert contents(blob) == {"a": b"1"}


def test_a_name_that_comes_twice_comes_twice_and_a_file_replaces_a_link() -> None:
    blob = tar_of(("a", "symlink", "b"), ("a", "file", b"1"), ("a", "file", b"2"), ("c", "hardlink", "a"))
    assert [(m.name, m.kind) for m in members_of(blob)] == [
        ("a", "symlink"),
        ("a", "file"),
        ("a", "file"),
        ("c", "hardlink"),
    ]


def test_stripped_components_are_taken_off_names_and_hard_links() -> None:
    blob = tar_of(("r", "folder", None), ("r/a/b", "file", b"1"), ("r/c", "hardlink", "r/a/b"))
    assert [(m.name, m.linkname) for m in members_of(blob, strip_components=1)] == [("a/b", ""), ("c", "a/b")]
    with pytest.raises(UnsafeMember, match="leaves the target"):
        members_of(tar_of(("r/a", "symlink", "../x")), strip_components=1)
    with pytest.raises(BadOption):
        members_of(blob, strip_components=-1)


@pytest.mark.parametrize(
    ("patterns", "taken"),
    [
        (["train"], {"train", "train/a/1.jpg", "train/2.jpg"}),
        (["train/"], {"train", "train/a/1.jpg", "train/2.jpg"}),
        (["train/*"], {"train/a/1.jpg", "train/2.jpg"}),
        (["*.jpg"], {"top.jpg"}),
        (["**/*.jpg"], {"top.jpg", "train/a/1.jpg", "train/2.jpg", "test/3.jpg"}),
        (["train/**"], {"train/a/1.jpg", "train/2.jpg"}),
        (["**/[12].jpg"], {"train/a/1.jpg", "train/2.jpg"}),
        (["**/[!1].jpg", "top.???"], {"train/2.jpg", "test/3.jpg", "top.jpg"}),
        (["./test"], {"test/3.jpg"}),
        (["t*t"], {"test/3.jpg"}),
        (["{test,top}*"], {"test/3.jpg", "top.jpg"}),
        (["**/{1..2}.jpg"], {"train/a/1.jpg", "train/2.jpg"}),
    ],
)
def test_patterns_take_members_and_all_below_a_folder(patterns: list[str], taken: set[str]) -> None:
    names = ["./train/a/1.jpg", "train/2.jpg", "test/3.jpg", "top.jpg"]
    blob = tar_of(("train", "folder", None), *((name, "file", b"") for name in names))
    assert {m.name for m in members_of(blob, members=patterns)} == taken


def test_a_pattern_without_a_match_is_named_at_the_end() -> None:
    with pytest.raises(NotFound, match=r"\*\.png"):
        members_of(tar_of(("a.jpg", "file", b"")), members=["*.jpg", "*.png"])
    with pytest.raises(BadOption):
        members_of(b"", members="text")
    with pytest.raises(BadOption):
        members_of(b"", members=[""])


def test_members_left_out_are_not_checked() -> None:
    assert contents(tar_of(("../a", "file", b""), ("b", "file", b"1")), members=["b"]) == {"b": b"1"}


def test_the_target_check_gets_final_names() -> None:
    seen: list[str] = []
    members_of(tar_of(("r/a", "file", b"")), strip_components=1, target_check=seen.append)
    assert seen == ["a"]


def test_an_empty_archive_has_no_members() -> None:
    assert members_of(tar_of()) == []
    assert members_of(bytes(512)) == []


def test_every_end_before_the_end_block_is_too_early() -> None:
    blob = tar_of(("a", "file", b"x" * 600), ("b" * 120, "file", b"y" * 100), ("c", "file", b""))
    end = len(blob.rstrip(b"\0")) // 512 * 512 + 512
    for length in range(512, end + 1, 64):
        with pytest.raises(BadArchive, match="ends too early") as caught:
            contents(blob[:length])
        assert caught.value.details["offset"] <= length
    assert len(contents(blob[: end + 512])) == 3


def test_a_missing_last_volume_is_told_with_the_last_one_that_was_there() -> None:
    blob = tar_of(("a", "file", b"x" * 1024), ("b", "file", b"y" * 1024))
    with pytest.raises(BadArchive, match="ends too early at byte 1,536, in volume v1"):
        list(read_members(JoinedStream(volumes_of([blob[:1000], blob[1000:1536]]))))


def test_a_reader_whose_member_is_cut_short_raises_where_it_stands() -> None:
    blob = tar_of(("a", "file", b"x" * 5000))
    for member in read_members(io.BytesIO(blob[:2000])):
        with pytest.raises(BadArchive, match="ends too early"):
            member.reader.read()
        break


def test_an_invalid_header_is_damage_and_not_the_end() -> None:
    blob = bytearray(tar_of(("a", "file", b"x" * 512), ("b", "file", b"")))
    blob[1024 + 3] ^= 1
    with pytest.raises(BadArchive, match="damaged header"):
        members_of(bytes(blob))


def test_data_after_the_end_is_not_dropped_in_silence() -> None:
    one, two = tar_of(("a", "file", b"")), tar_of(("b", "file", b""))
    with pytest.raises(BadArchive, match="more data after its end") as caught:
        members_of(one + two)
    assert caught.value.details["offset"] == len(one)
    assert len(members_of(one + bytes(20 << 20))) == 1


def test_the_reader_is_closed_when_the_next_member_is_asked_for() -> None:
    readers = [m.reader for m in members_of(tar_of(("a", "file", b"1"), ("b", "file", b"2")))]
    with pytest.raises(ValueError, match="next one"):
        readers[0].readinto(bytearray(1))


@pytest.mark.parametrize(
    "options", [["--format=gnu"], *(["--format=pax", f"--sparse-version={v}"] for v in ("0.0", "0.1", "1.0"))]
)
def test_sparse_files_of_gnu_tar_come_expanded(tmp_path, options: list[str]) -> None:
    pieces = {
        0: b"start",
        1 << 20: b"x" * 9000,
        3 << 20: b"y" * 5,
        5 << 20: b"z",
        9 << 20: b"w",
        12 << 20: b"v",
    }
    with open(tmp_path / "holes", "wb") as file:
        for offset, piece in pieces.items():
            file.seek(offset)
            file.write(piece)
        file.truncate(20 << 20)
    (tmp_path / "after").write_bytes(b"after")
    tar = ["tar", "--sparse", "--hole-detection=raw", *options, "-cf", "a.tar", "holes", "after"]
    subprocess.run(tar, cwd=tmp_path, check=True)
    blob = (tmp_path / "a.tar").read_bytes()
    assert len(blob) < 1 << 20
    assert contents(blob) == {"holes": (tmp_path / "holes").read_bytes(), "after": b"after"}
    assert [m.size for m in members_of(blob)] == [20 << 20, 5]  # without reading their content
    with pytest.raises(BadArchive, match="expands to more"):
        members_of(blob, max_expansion=10 << 20)


def test_a_forged_map_of_a_sparse_file_is_refused() -> None:
    for forged in ("0,5,3,5", "0,30000", "0,9999", "0,-5"):
        headers = {"GNU.sparse.map": forged, "GNU.sparse.size": "20000", "GNU.sparse.numblocks": "1"}
        with pytest.raises(BadArchive, match=r"impossible map|damaged header"):
            members_of(tar_of(("a", "file", b"12345"), pax_headers=headers))


def test_more_than_the_limit_is_refused() -> None:
    blob = tar_of(("a", "file", b"x" * 100_000))
    assert len(members_of(blob, max_expansion=len(blob))) == 1
    with pytest.raises(BadArchive, match="expands to more"):
        contents(blob, max_expansion=50_000)


def test_folders_within_folders_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of 4 KB can lead through 2,000 folders, whose names together have 4 million characters."""
    monkeypatch.setattr("nbdata.archives.member_budget.FREE", 45_000_000)
    few = [(f"{number}/" + "a/" * 2000, "folder", None) for number in range(2)]
    assert len(members_of(tar_of(*few))) == 2
    many = [(f"{number}/" + "a/" * 2000 + "x", "file", b"") for number in range(4)]
    for listing in (False, True):
        with pytest.raises(BadArchive, match="would fill the memory"):
            members_of(tar_of(*many), listing=listing)


_DEEP = ("long" * 60 + "/") * 15
_WIDE = ("😀" * 50 + "/") * 15


@pytest.mark.parametrize(
    ("prefix", "kind", "content"),
    [
        (_DEEP, "file", b""), (_DEEP, "folder", None), (_DEEP, "symlink", "a"), ("", "symlink", _DEEP),
        ("", "hardlink", "link"), (_WIDE, "file", b""), ("", "symlink", _WIDE),
    ],
)  # fmt: skip
def test_long_names_beside_each_other_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch, prefix: str, kind: str, content: str | bytes | None
) -> None:
    """Characters count by the bytes that they take in memory and in records, and so does the target of a link."""
    monkeypatch.setattr("nbdata.archives.member_budget.FREE", 400_000)
    first = ("link", "symlink", _DEEP)
    many = [first, *((prefix + str(number), kind, content) for number in range(40))]
    few = 3 if "😀" in f"{prefix}{content!s}" else 10
    assert len(members_of(tar_of(*many[: few + 1]))) == few + 1
    with pytest.raises(BadArchive, match="would fill the memory") as failure:
        members_of(tar_of(*many))
    assert "--members" in str(failure.value)


def test_the_same_name_again_and_again_counts_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each member has a record of its own, whatever its name."""
    monkeypatch.setattr("nbdata.archives.member_budget.FREE", 50_000)
    with pytest.raises(BadArchive, match="would fill the memory"):
        members_of(tar_of(*[("a", "file", b"")] * 1000))


def test_what_was_read_of_an_archive_says_how_much_its_names_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nbdata.archives.member_budget.FREE", 50_000)
    blob = tar_of(*((_DEEP + str(number), "file", b"") for number in range(40)))
    stream = io.BytesIO(blob)
    assert len(list(read_members(stream, budget=MemberBudget(stream.tell)))) == 40
    with pytest.raises(BadArchive, match=r"after 1\.0 kB of the archive"):
        list(read_members(io.BytesIO(blob), budget=MemberBudget(lambda: 1000)))


def test_a_million_names_of_a_hundred_characters_are_no_bomb() -> None:
    """They do not reach the limit, however small the archive is."""
    budget, size = MemberBudget(), bytes_of("a" * 100)
    for number in range(1_000_000):
        budget.spend(size, str(number))


def test_a_listing_shortens_names_that_no_system_takes() -> None:
    blob = tar_of(("a" * 100_000, "file", b""), ("b", "symlink", "a" * 100_000), ("c", "file", b""))
    found = members_of(blob, listing=True)
    assert [(one.name[0], len(one.name) < 300, len(one.linkname) < 300) for one in found] == [
        ("a", True, True),
        ("b", True, True),
        ("c", True, True),
    ]


def test_a_link_to_a_name_that_no_system_takes_is_refused() -> None:
    assert members_of(tar_of(("a", "symlink", "./" * 2000 + "b")))[0].linkname == "b"
    with pytest.raises(UnsafeMember, match="to a name of more than 4,096 bytes"):
        members_of(tar_of(("a", "symlink", "./" * 2100 + "b")))


def test_names_are_safe_also_after_their_folders_were_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbdata.archives.safety._RESOLVED", 2)
    names = [f"{number % 5}/./{number}" for number in range(20)]
    found = [member.name for member in members_of(tar_of(*[(name, "file", b"") for name in names]))]
    assert found == [name.replace("/./", "/") for name in names]


@pytest.mark.long
def test_deep_names_beside_a_link_take_no_quadratic_time() -> None:
    link = ("link", "symlink", "a")
    start = time.process_time()
    members_of(tar_of(link, *[("a/" * 2000 + "x", "file", b"") for _ in range(1500)]))
    assert time.process_time() - start < 5
    with pytest.raises(UnsafeMember, match="through the symbolic link a/b/LINK"):
        members_of(tar_of(("a/b/link", "symlink", "c"), ("a/b/LINK/x", "file", b"")))


def test_global_records_take_no_time_for_each_member() -> None:
    """The 13,000 records of 64 KiB took a second for 1,000 members, of which 100 KB can hold millions."""
    info = tarfile.TarInfo("pax")
    info.type, data = tarfile.XGLTYPE, b"".join(b"9 %04x=1\n" % number for number in range(13_000))
    info.size = len(data)
    head = info.tobuf() + data.ljust(-(-len(data) // 512) * 512, b"\0")
    start = time.process_time()
    assert len(members_of(head + tar_of(*[("a", "file", b"")] * 20_000))) == 20_000
    assert time.process_time() - start < 8


def test_many_files_and_folders_do_not_reach_that_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbdata.archives.member_budget.FREE", 0)
    names = [f"{'d' * 200}/{'e' * 200}/{number:04}/{number}" for number in range(500)]
    stream = io.BytesIO(tar_of(*[(name, "file", b"") for name in names]))
    assert len(list(read_members(stream, budget=MemberBudget(stream.tell)))) == 500


def _in_maps(count: int, size: int = 0) -> bytes:
    """A sparse file of zeros that are all stored, whose map has so many numbers, most for pieces of no bytes."""
    info = tarfile.TarInfo("a")
    info.size = size
    numbers = ["0"] * (count - 1) + [str(size)]
    info.pax_headers = {"GNU.sparse.map": ",".join(numbers), "GNU.sparse.size": str(size)}
    return info.tobuf(tarfile.PAX_FORMAT) + bytes(size)


def _in_records(count: int) -> bytes:
    info = tarfile.TarInfo("pax")
    info.type, data = tarfile.XHDTYPE, b"9 uid=10\n" * count
    info.size = len(data)
    return info.tobuf() + data.ljust(-(-len(data) // 512) * 512, b"\0") + tar_of(("a", "file", b""))[:512]


@pytest.mark.parametrize("member", [_in_maps, _in_records])
def test_records_and_maps_take_time_in_proportion_to_the_content(
    monkeypatch: pytest.MonkeyPatch, member: Callable[[int], bytes]
) -> None:
    monkeypatch.setattr("nbdata.archives.tar_headers._ENTRIES", 1000)
    assert len(members_of(member(64) * 50 + bytes(1024))) == 50
    assert len(members_of(member(264) * 5 + bytes(1024))) == 5
    with pytest.raises(BadArchive, match="more pax records, or smaller pieces of sparse files"):
        members_of(member(264) * 6 + bytes(1024))


def test_a_sparse_file_may_have_as_many_pieces_as_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbdata.archives.tar_headers._ENTRIES", 0)
    many = _in_maps(400, 400 * 256) * 3
    assert [member.size for member in members_of(many + bytes(1024))] == [400 * 256] * 3


def test_endless_header_data_is_refused() -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    with pytest.raises(BadArchive, match="impossible length"):
        members_of(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_an_endless_chain_of_headers_is_refused(kind: bytes) -> None:
    info = tarfile.TarInfo("a")
    info.type = kind
    with pytest.raises(BadArchive, match="impossible length"):
        members_of(info.tobuf(tarfile.USTAR_FORMAT) * 10_000 + bytes(1024))


def test_a_negative_size_neither_loops_nor_winds_back() -> None:
    header = bytearray(tarfile.TarInfo("a").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 11 + b"\x00"  # base 256, -256
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    with pytest.raises(BadArchive):
        members_of(bytes(header) + bytes(2048))


def test_a_later_volume_of_gnu_multi_volume_is_told_as_such(tmp_path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(30_000))
    tar = ["tar", "-cM", "-L20", "--file=a.tar", "--file=a.tar-2", "--format=gnu", "big"]
    subprocess.run(tar, cwd=tmp_path, check=True)
    with pytest.raises(BadArchive, match="another volume"):
        members_of((tmp_path / "a.tar-2").read_bytes())


def test_what_tar_itself_writes_is_what_it_extracts(tmp_path) -> None:
    source = tmp_path / "source"
    (source / "deep" / ("long" * 40)).mkdir(parents=True)
    for n in range(50):
        (source / "deep" / ("long" * 40) / f"{n}.bin").write_bytes(os.urandom(n * 97))
    (source / "link").symlink_to("deep")
    subprocess.run(["tar", "-cf", "../a.tar", "."], cwd=source, check=True)
    found = contents((tmp_path / "a.tar").read_bytes())
    assert {name: found[name] for name in found if name.endswith(".bin")} == {
        str(path.relative_to(source)): path.read_bytes() for path in source.rglob("*.bin")
    }


@settings(max_examples=300)
@given(st.data())
def test_no_damage_makes_it_raise_anything_but_its_own_errors(data: st.DataObject) -> None:
    blob = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 5))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):  # then the parser trusts the header
            start = data.draw(st.integers(0, len(blob) // 512 - 1)) * 512
            block = blob[start : start + 512]
            blob[start + 148 : start + 156] = b"%06o\0 " % (sum(block[:148]) + 256 + sum(block[156:]))
    try:
        for member in read_members(io.BytesIO(bytes(blob)), max_expansion=10 << 20):
            member.reader.read(1 << 20)
    except NbdataError:
        pass


SAMPLE = tar_of(
    ("a" * 150, "file", b"content"),
    ("b", "symlink", "c" * 150),
    ("d", "file", b"x" * 600),
    format=tarfile.GNU_FORMAT,
)[:6144] + tar_of(("é" * 90, "file", b"content"), ("e", "hardlink", "d"), pax_headers={"mtime": "1.5"})


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_header_says_what_tarfile_reads_in_it(data: st.DataObject) -> None:
    text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=60)
    info = tarfile.TarInfo(data.draw(text))
    info.mode, info.mtime = data.draw(st.integers(0, 0o7777)), data.draw(st.integers(-(1 << 34), 1 << 34))
    info.type = data.draw(
        st.sampled_from([tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE])
    )
    format_ = data.draw(st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    try:
        blob = info.tobuf(format_) + bytes(1024)
    except ValueError:
        return
    with tarfile.open(fileobj=io.BytesIO(blob)) as tar:
        (expected,) = tar.getmembers()
    found = Headers(ForwardReader(io.BytesIO(blob), None, 0), {}).following()
    assert found is not None
    assert found.name == (expected.name.rstrip("/") or "/")  # of "/" tarfile leaves nothing
    assert (found.mode, found.size, found.mtime_ns) == (expected.mode, 0, int(expected.mtime) * 10**9)
    assert found.kind == ("folder" if expected.isdir() or info.name.endswith("/") else "file")


_NAMES = st.text(st.sampled_from("aé/. Ω"), min_size=1, max_size=150)


@settings(max_examples=150)
@given(st.data())
def test_what_is_read_the_fast_way_is_what_is_read_the_other_way(data: st.DataObject) -> None:
    entries: list[Entry] = [
        (data.draw(_NAMES), "file", data.draw(st.binary(max_size=700)))
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    mtime = data.draw(st.sampled_from(["", "7.25", "1234567890.123456789123", "1e5", "-3.5", "9" * 13]))
    records = {"mtime": mtime} if mtime else {}
    records |= data.draw(
        st.dictionaries(st.sampled_from(["uid", "comment", "size"]), st.sampled_from(["0", "7"]))
    )
    format_ = data.draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
    blob = bytearray(tar_of(*entries, format=format_, pax_headers=records))
    if data.draw(st.booleans()):  # changes one byte; in a header, the checksum is corrected
        at = data.draw(st.integers(0, len(blob) - 1))
        blob[at] = data.draw(st.integers(0, 255))
        start = at // 512 * 512
        if blob[start + 257 : start + 262] == b"ustar":
            block = blob[start : start + 512]
            blob[start + 148 : start + 156] = b"%06o\0 " % (sum(block[:148]) + 256 + sum(block[156:]))

    def read() -> list[object]:
        found: list[object] = []
        try:
            for member in read_members(io.BytesIO(bytes(blob)), max_expansion=1 << 20):
                facts = (member.name, member.kind, member.size, member.mode, member.mtime_ns, member.offset)
                found.append((*facts, member.reader.content()))
        except NbdataError as error:
            found.append(type(error))
        return found

    fast = read()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Headers, "_plain_file", lambda _: None)
        assert read() == fast


def test_plain_files_are_read_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = tar_of(*((name, "file", b"1") for name in ("first", "d/a", "d/" + "b" * 120)), mtime=5.5)
    members = read_members(io.BytesIO(blob))
    monkeypatch.setattr(Headers, "_any", None)
    found = [(next(members).name) for _ in range(3)]
    assert found == ["first", "d/a", "d/" + "b" * 120]


# -- variants that only some programs write -------------------------------------------------------


def test_the_times_that_gnu_tar_keeps_in_a_header_are_no_part_of_the_name() -> None:
    blob = bytearray(tar_of(("name", "file", b"1"), format=tarfile.GNU_FORMAT))
    blob[345:369] = b"14524770400\0" * 2  # atime and ctime
    assert [m.name for m in members_of(checked(blob))] == ["name"]
    blob[156:157] = b"5"
    assert [m.name for m in members_of(checked(blob)[:512] + bytes(1024))] == ["name"]


def test_of_two_long_names_for_one_member_the_last_counts() -> None:
    blob = b"".join(long_name(f"{n}" * 120) for n in (1, 2)) + tar_of(("short", "file", b"x"))
    assert contents(blob) == {"2" * 120: b"x"}


def long_name(name: str) -> bytes:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, len(name) + 1
    return info.tobuf(tarfile.GNU_FORMAT) + name.encode().ljust(512, b"\0")


def test_an_empty_pax_header_says_nothing() -> None:
    info = tarfile.TarInfo("pax")
    info.type = tarfile.XHDTYPE
    assert contents(info.tobuf(tarfile.USTAR_FORMAT) + tar_of(("a", "file", b"1"))) == {"a": b"1"}


def test_an_empty_pax_record_takes_back_what_was_said_before() -> None:
    one, two = tar_of(("a", "file", b"1")), tar_of(("b", "file", b"2"), pax_headers={"mtime": ""}, mtime=7)
    globals_ = tarfile.TarInfo.create_pax_global_header({"mtime": "99"})
    found = members_of(globals_ + one[:1024] + two)
    assert [(m.name, m.mtime_ns) for m in found] == [("a", 99 * 10**9), ("b", 7 * 10**9)]


def test_a_lone_zero_block_amid_the_archive_is_passed_over_and_said() -> None:
    one, two = tar_of(("a", "file", b"1"))[:1024], tar_of(("b", "file", b"2"))
    remarks = Remarks()
    assert [m.name for m in members_of(one + bytes(512) + two, remarks=remarks)] == ["a", "b"]
    assert remarks.lone_blocks == 1
    for end in (1, 600):
        with pytest.raises(BadArchive, match="more data after its end"):
            members_of(one + bytes(512) + b"x" * end)


def test_an_unknown_kind_of_member_is_a_file_as_the_standard_wants() -> None:
    remarks = Remarks()
    blob = tar_of(("a", "Z", b"content"), ("b", "file", b"x"))
    assert [(m.name, m.kind) for m in members_of(blob, remarks=remarks)] == [("a", "file"), ("b", "file")]
    assert remarks.unknown == {"Z"}


def test_names_and_records_that_no_member_follows_are_damage() -> None:
    with pytest.raises(BadArchive, match="no member"):
        members_of(long_name("n" * 120) + bytes(1024))


def test_a_sparse_file_holds_all_that_is_stored_of_it() -> None:
    headers = {"GNU.sparse.size": "600", "GNU.sparse.numblocks": "0"}
    for records in (headers, {**headers, "GNU.sparse.map": "0,60"}):
        with pytest.raises(BadArchive, match="impossible map"):
            members_of(tar_of(("a", "file", b"Q" * 600), pax_headers=records))


@pytest.mark.parametrize("field", [b"000000001_2", b"      +0012", b"     -00012", b"     0o0012"])
def test_only_octal_digits_are_accepted_as_a_number(field: bytes) -> None:
    blob = bytearray(tar_of(("a", "file", b"x" * 10)))
    blob[124:136] = field + b"\0"
    with pytest.raises(BadArchive):
        members_of(checked(blob))


def test_an_extension_header_may_have_an_invalid_mode_and_time() -> None:
    blob = bytearray(long_name("n" * 120) + tar_of(("short", "file", b"x")))
    blob[100:108] = blob[136:144] = b"nonsense"
    for offset in (0, 512 * 3):  # for the fast parser and the other one
        assert contents(
            bytes(tar_of(("f", "file", b"x" * 600))[: offset and 1536]) + checked(blob)
        ).keys() >= {"n" * 120}


def test_global_records_are_bounded_and_no_map_of_a_sparse_file() -> None:
    for records in ({"comment": "x" * 70_000}, {"GNU.sparse.map": "0,1"}):
        header = tarfile.TarInfo.create_pax_global_header(records)
        with pytest.raises(BadArchive, match="damaged header"):
            members_of(header + tar_of(("a", "file", b"1")))


def test_names_of_megabytes_are_refused_in_a_short_message() -> None:
    for name in ("a/" * 20_000 + "b", "c" * 3_000_000):
        with pytest.raises(UnsafeMember) as caught:
            members_of(tar_of((name, "file", b""), format=tarfile.GNU_FORMAT))
        assert len(str(caught.value)) < 1000
