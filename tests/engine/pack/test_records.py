"""pack into FFRecord files and back: the same samples and bytes, complete or absent, on the disk and in stores."""

from __future__ import annotations

import io
import itertools
import random
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from isal.isal_zlib import crc32

import nbdata
from nbdata.engine.pack.records import RecordLayout, record_cuts
from nbdata.engine.pack.source import Field
from nbdata.errors import BadOption, ChecksumMismatch, NbdataError, NotEnoughSpace, TransferFailed
from nbdata.ffrecord import FileReader, PackedFolder, pack_folder
from nbdata.formats.packed_folder import NamesSize, files_of, names_bytes, names_of, names_sample
from nbdata.formats.sample_index import IndexWriter
from nbdata.reading.pieces import Piece
from nbdata.stores.base import ObjectInfo
from nbdata.transfer.parted_send import PartedSend
from nbdata.verbs.shard_names import ShardNames
from nbdata.writing.growing_file import GrowingFile
from tests.conftest import client_of
from tests.engine.pack.test_pack import content, members, plain, there
from tests.faults.proxy import BODY, Fault, FaultProxy
from tests.faults.scene import files_of as files_in
from tests.faults.test_lines import proxy

__all__ = ["proxy", "there"]

pytestmark = pytest.mark.usefixtures("inline")

Put = Callable[[dict[str, bytes]], str]
MIB = 1 << 20


def samples_of(place: str, **options: Any) -> list[dict[str, Any]]:
    with nbdata.samples(place, **options) as samples:
        return plain(samples)


def wrong_header(data: bytes) -> bool:
    """True if the CRC-32 of the header or of a record is wrong; parses only the file layout."""
    crc, count = struct.unpack_from("<Iq", data)
    crcs = struct.unpack_from(f"<{count}I", data, 12)
    starts = (*struct.unpack_from(f"<{count}q", data, 12 + 4 * count), len(data))
    right = [crc32(data[start:end]) for start, end in itertools.pairwise(starts)]
    return crc != crc32(data[4 : 12 + 12 * count]) or list(crcs) != right


@pytest.mark.parametrize("source", ["objects", "folder", "shards"])
@pytest.mark.parametrize("target", ["store", "disk"])
@pytest.mark.in_ci("disk-objects")
def test_samples_become_files_that_every_reader_reads(
    source: str, target: str, put: Put, there: Any, tmp_path: Path
) -> None:
    files = content(60)
    url = put(files)
    wanted = samples_of(f"{url}in/")
    place = f"{url}in/"
    if source == "folder":
        nbdata.pull(f"{url}in/", tmp_path / "in", quiet=True)
        place = f"{tmp_path}/in/"
    elif source == "shards":
        nbdata.pack(f"{url}in/", f"{url}shards/", shard_size=70_000, quiet=True)
        place = f"{url}shards/shard-*.tar"
    out = f"{url}out.ffr/" if target == "store" else f"{tmp_path}/out.ffr/"
    line = nbdata.Pack(place, out, format="ffrecord", shard_size=60_000)
    job = line.start()
    report = job.wait()
    assert report.ok
    assert job.snapshot().bytes == report.bytes == sum(row.size for row in report.rows)
    found = there("out.ffr/") if target == "store" else files_in(tmp_path / "out.ffr")
    assert len(found) > 3
    assert sorted(found) == [f"PART_{number:05}.ffr" for number in range(len(found))]
    assert report.counts == {"packed": len(found)}
    assert all(len(data) <= 60_000 and not wrong_header(data) for data in found.values())
    assert samples_of(out) == wanted
    local = tmp_path / "read"
    local.mkdir()
    names = dict[str, bytes]()
    for name, data in found.items():
        (local / name).write_bytes(data)
        with PackedFolder(local / name) as folder:
            names |= {path: bytes(folder.read_one(path)) for path in folder.files()}
    assert names == {name.removeprefix("in/"): data for name, data in files.items()}
    with FileReader(local) as reader:
        reader.validate()
        assert reader.n == 120 + len(found)
        assert bytes(reader.read_one(0)) == files[min(files)]
    assert line.run(quiet=True).counts == {"unchanged": len(found)}


def test_the_bytes_are_the_same_from_wherever_they_come_and_again(
    put: Put, there: Any, tmp_path: Path
) -> None:
    url = put(content(40))
    options: dict[str, Any] = {"format": "ffrecord", "shard_count": 3, "quiet": True}
    nbdata.pack(f"{url}in/", f"{url}a/", **options)
    nbdata.pack(f"{url}in/", f"{tmp_path}/a/", **options)
    nbdata.pack(f"{url}in/", f"{url}tar/", quiet=True)
    nbdata.pack(f"{url}tar/shard-000000.tar", f"{url}b/", **options)
    nbdata.pack(f"{url}a/*.ffr", f"{tmp_path}/c/", **options)
    first = there("a/")
    assert first == files_in(tmp_path / "a") == there("b/") == files_in(tmp_path / "c")
    nbdata.pack(f"{url}in/", f"{url}a/", overwrite="always", **options)
    assert there("a/") == first


def test_only_what_has_changed_or_is_missing_is_packed_again(
    put: Put, there: Any, s3: Any, bucket: str
) -> None:
    files = content(40)
    url = put(files)
    line = nbdata.Pack(f"{url}in/", f"{url}out/x-%03d.ffr", shard_count=5)
    line.run(quiet=True)
    first = there("out/")
    put({max(files): bytes(len(files[max(files)]))})
    assert line.run(quiet=True).counts == {"unchanged": 4, "packed": 1}
    second = there("out/")
    assert {name for name in first if first[name] != second[name]} == {"x-004.ffr"}
    client = client_of(s3)
    client.delete_object(Bucket=bucket, Key="out/x-001.ffr")
    client.close()
    assert line.run(quiet=True).counts == {"unchanged": 4, "packed": 1}
    assert there("out/") == second
    with pytest.raises(BadOption, match="higher numbers"):
        nbdata.pack(f"{url}in/", f"{url}out/x-%03d.ffr", shard_count=2, quiet=True)


def test_samples_keep_their_order_and_shuffled_ones_theirs(put: Put, tmp_path: Path) -> None:
    url = put(content(50))
    wanted = samples_of(f"{url}in/")
    options: dict[str, Any] = {"format": "ffrecord", "shard_size": 40_000, "quiet": True}
    nbdata.pack(f"{url}in/", f"{tmp_path}/a.ffr/", shuffle=True, seed=3, **options)
    nbdata.pack(f"{url}in/", f"{tmp_path}/tar/", shuffle=True, seed=3, quiet=True)
    shuffled = samples_of(f"{tmp_path}/a.ffr")
    assert shuffled != wanted
    assert shuffled == samples_of(f"{tmp_path}/tar/shard-000000.tar")
    nbdata.pack(f"{tmp_path}/a.ffr", f"{tmp_path}/b.ffr/", sort=True, **options)
    assert samples_of(f"{tmp_path}/b.ffr") == sorted(wanted, key=lambda one: one["__key__"])


@pytest.mark.in_ci("tar/-options1")
@pytest.mark.parametrize(("target", "options"), [("x.ffr/", {}), ("tar/", {}), ("tar/", {"map": dict})])
def test_files_are_not_shuffled_out_of_their_samples(
    target: str, options: dict[str, Any], put: Put, there: Any, tmp_path: Path
) -> None:
    url = put(content(20))
    line: dict[str, Any] = {"by": "file", "shuffle": True, "seed": 3, "quiet": True, **options}
    with pytest.raises(BadOption, match=r"have the key .* and belong to one sample") as caught:
        nbdata.pack(f"{url}in/", f"{url}{target}", shard_size=10_000, **line)
    assert "--by" in str(caught.value)
    assert not there(target)
    nbdata.pack(f"{url}in/", f"{tmp_path}/packed.ffr", by="file", quiet=True)
    with pytest.raises(BadOption, match="belong to one sample"):
        nbdata.pack(f"{tmp_path}/packed.ffr", f"{url}{target}", **line)
    # Files that are a sample each may be shuffled.
    nbdata.pack(f"{url}in/", f"{url}{target}", include="*.jpg", **line)
    name = f"{target}PART_00000.ffr" if target == "x.ffr/" else f"{target}shard-000000.tar"
    found = samples_of(f"{url}{name}", by="sample")
    wanted = samples_of(f"{url}in/", include="*.jpg")
    assert [one["__key__"] for one in found] != [one["__key__"] for one in wanted]
    assert sorted(one["__key__"] for one in found) == [one["__key__"] for one in wanted]


def test_without_names_a_sample_is_a_record(put: Put, there: Any, tmp_path: Path) -> None:
    files = content(30)
    url = put(files)
    texts = [data for name, data in sorted(files.items()) if name.endswith(".txt")]
    report = nbdata.pack(
        f"{url}in/", f"{tmp_path}/x.ffr/", format="ffrecord", include="*/*.txt", no_names=True, shard_count=2,
        quiet=True,
    )  # fmt: skip
    assert report.ok
    with FileReader(tmp_path / "x.ffr") as reader:
        assert [bytes(data) for data in reader.read(list(range(30)))] == texts
    found = samples_of(f"{tmp_path}/x.ffr")
    assert [one["bin"] for one in found] == texts
    assert [one["__key__"] for one in found][14:16] == ["PART_00000/00000014", "PART_00001/00000000"]
    with pytest.raises(BadOption, match=r"has 2 fields .cls.txt, jpg"):
        nbdata.pack(f"{url}in/", f"{tmp_path}/y.ffr", no_names=True, quiet=True)
    # The numbers become their names.
    nbdata.pack(f"{tmp_path}/x.ffr", f"{url}back/", format="files", quiet=True)
    assert [data for _, data in sorted(there("back/").items())] == texts
    assert min(there("back/")) == "PART_00000/00000000.bin"
    nbdata.pack(f"{tmp_path}/x.ffr", f"{url}tar/", quiet=True)
    assert list(members(there("tar/")["shard-000000.tar"]).values()) == texts
    with pytest.raises(BadOption, match="have no names"):
        nbdata.pack(f"{tmp_path}/x.ffr", f"{url}tar/", include="*.bin", quiet=True)


@pytest.mark.in_ci("disk")
@pytest.mark.parametrize("target", ["store", "disk"])
def test_files_come_back_under_their_names(target: str, put: Put, there: Any, tmp_path: Path) -> None:
    files = {**content(30), "in/LICENSE": b"mine", "in/UPPER.JPG": b"case", "in/.hidden": b"h"}
    url = put(files)
    nbdata.pack(f"{url}in/", f"{url}x.ffr/", format="ffrecord", by="file", shard_size=30_000, quiet=True)
    assert samples_of(f"{url}x.ffr/") == samples_of(f"{url}in/")  # no FFRecord file ends within a sample
    out = f"{url}out/" if target == "store" else f"{tmp_path}/out/"
    line = nbdata.Pack(f"{url}x.ffr/", out, format="files")
    assert line.run(quiet=True).counts == {"packed": len(files)}
    found = there("out/") if target == "store" else files_in(tmp_path / "out")
    assert found == {name.removeprefix("in/"): data for name, data in files.items()}
    assert line.run(quiet=True).counts == {"unchanged": len(files)}
    some = nbdata.pack(
        f"{url}x.ffr/", f"{tmp_path}/some/", format="files", select="jpg", rename="jpg=jpeg", quiet=True
    )
    assert some.counts == {"packed": 61}
    assert (tmp_path / "some" / "UPPER.jpeg").read_bytes() == b"case"


def test_shards_of_samples_come_back_as_files(put: Put, there: Any) -> None:
    files = content(30)
    url = put(files)
    nbdata.pack(f"{url}in/", f"{url}tar/", shard_size=50_000, quiet=True)
    nbdata.pack(f"{url}tar/shard-*.tar", f"{url}out/", format="files", quiet=True)
    assert there("out/") == {name.removeprefix("in/"): data for name, data in files.items()}
    put({"copy.tar": there("tar/")["shard-000000.tar"]})
    with pytest.raises(BadOption, match="would be called"):
        nbdata.pack(
            [f"{url}tar/shard-000000.tar", f"{url}copy.tar"], f"{url}two/", format="files", quiet=True
        )


@pytest.mark.long
@pytest.mark.parametrize("big", [700_000, 5 * MIB])
@pytest.mark.in_ci("700000")
def test_objects_that_lie_across_the_edges_of_parts_are_whole(
    put: Put, there: Any, monkeypatch: pytest.MonkeyPatch, big: int, tmp_path: Path
) -> None:
    monkeypatch.setattr("nbdata.engine.pack.perform.WINDOW", 5 * MIB)
    monkeypatch.setattr("nbdata.engine.pack.content.WINDOW", 2 * MIB)
    monkeypatch.setattr("nbdata.engine.pack.files.WINDOW", 5 * MIB)
    source = random.Random(4)
    files = {f"in/{n:02}.bin": source.randbytes(big + n) for n in range(14 * MIB // big + 3)}
    url = put(files)
    nbdata.pack(f"{url}in/", f"{url}a/x.ffr", quiet=True)
    nbdata.pack(f"{url}a/*.ffr", f"{url}b/", format="ffrecord", shard_size=12 * MIB, quiet=True)
    nbdata.pack(f"{url}b/*.ffr", f"{tmp_path}/c.ffr", quiet=True)
    assert there("a/")["x.ffr"] == (tmp_path / "c.ffr").read_bytes()
    assert not any(wrong_header(data) for data in (there("a/") | there("b/")).values())
    nbdata.pack(f"{url}b/*.ffr", f"{url}back/", format="files", quiet=True)
    assert {f"in/{name}": data for name, data in there("back/").items()} == files


def test_the_part_that_has_the_header_is_written_last(
    put: Put, there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first part of an upload contains the header; it is sent after all other parts."""
    monkeypatch.setattr("nbdata.engine.pack.perform.WINDOW", 5 * MIB)
    url = put({f"in/{n:03}.bin": random.Random(n).randbytes(200_000) for n in range(100)})
    order: list[int] = []
    send = PartedSend._send

    def sent(self: PartedSend, number: int) -> None:
        send(self, number)
        order.append(number)

    monkeypatch.setattr(PartedSend, "_send", sent)
    nbdata.pack(f"{url}in/", f"{url}out/x.ffr", quiet=True)
    assert sorted(order) == [0, 1, 2, 3]
    assert order[-1] == 0
    assert not wrong_header(there("out/")["x.ffr"])


@pytest.mark.long
def test_network_faults_are_repaired_or_reported(proxy: FaultProxy, put: Put, there: Any) -> None:
    url = put(content(80, most=40_000))
    options: dict[str, Any] = {"format": "ffrecord", "shard_size": MIB, "concurrency": 8, "quiet": True}
    nbdata.pack(f"{url}in/", f"{url}good/", **options)
    good = there("good/")

    def plan(request: Any, before: int) -> Fault | None:
        return (
            Fault("flip", BODY, 0.5) if not before and (request.download or request.action == "put") else None
        )

    tally = proxy.begin(plan)
    nbdata.pack(f"{url}in/", f"{url}bad/", **options)
    assert len(tally.faults) > 80
    assert there("bad/") == good
    proxy.begin()
    nbdata.pack(f"{url}good/*.ffr", f"{url}first/", **options)  # also stores names and headers
    tally = proxy.begin(plan)
    nbdata.pack(f"{url}good/*.ffr", f"{url}again/", **options)
    assert tally.faults
    assert there("again/") == good
    # If data stays wrong, no file is written.
    proxy.begin(lambda request, before: Fault("flip", BODY, 0.5) if request.download else None)
    with pytest.raises(TransferFailed, match="CRC-32"):
        nbdata.pack(f"{url}good/*.ffr", f"{url}never/", **options)
    proxy.begin()
    assert there("never/") == {}


def test_damaged_files_are_not_packed_again(put: Put, there: Any, tmp_path: Path) -> None:
    url = put(content(20))
    nbdata.pack(f"{url}in/", f"{tmp_path}/x.ffr", quiet=True)
    whole = (tmp_path / "x.ffr").read_bytes()
    for at, match, kind in (
        (5, "header", NbdataError), (20, "header", ChecksumMismatch), (12 + 12 * 41 + 50, "CRC-32", TransferFailed),
        (len(whole) - 5, "CRC-32", ChecksumMismatch),
    ):  # fmt: skip
        broken = bytearray(whole)
        broken[at] ^= 1
        (tmp_path / "broken.ffr").write_bytes(broken)
        for target, form in ((f"{url}out/", None), (f"{url}out/", "files"), (f"{url}out/y.ffr", None)):
            with pytest.raises(kind, match=match):
                nbdata.pack(f"{tmp_path}/broken.ffr", target, format=form, quiet=True)
    assert not [name for name in there("out/") if name.endswith((".tar", ".ffr"))]


def test_a_header_waits_for_its_records() -> None:
    class Source:
        """A source of two samples of ten bytes."""

        stores: ClassVar[set[Any]] = set()
        shards: ClassVar[list[Any]] = []
        folder, not_selected, left_out = None, 0, (0, list[str]())

        def __len__(self) -> int:
            return 2

        def key(self, number: int) -> str:
            return str(number)

        def fields(self, number: int) -> list[Field]:
            return [Field("bin", None, Piece(ObjectInfo(f"{number}.bin", 10, "e")), None, f"{number}.bin")]  # type: ignore[arg-type]

    source, order = Source(), range(2)
    (cut,) = record_cuts(nbdata.Pack("in/", "x.ffr"), source, order)
    layout = RecordLayout(source, order, cut, named=True)
    assert not layout.known
    first, second, _ = [at for at, _ in layout.pieces(layout.begin, cut.size)]
    layout.found(first, memoryview(bytes(10)))
    with pytest.raises(NbdataError, match="before its records were read"):
        layout.header()
    layout.found(second, memoryview(b"01234"))
    layout.found(second, memoryview(b"56789"), 5)
    assert layout.header()[16:20] == crc32(b"0123456789").to_bytes(4, "little")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(bytes(100))

    def full(self: GrowingFile, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(GrowingFile, "put_first", full)
    with pytest.raises(NotEnoughSpace):
        nbdata.pack(tmp_path / "in", f"{tmp_path}/out/x.ffr", quiet=True)
    assert list((tmp_path / "out").iterdir()) == []


def test_stores_that_take_whole_objects_only_have_their_bound(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fsspec

    url = put({f"in/{n}.bin": random.Random(n).randbytes(300_000) for n in range(4)})
    nbdata.pack(f"{url}in/", f"{tmp_path}/x.ffr", quiet=True)
    nbdata.pack(f"{url}in/", "memory://records/x.ffr", quiet=True)
    memory = fsspec.filesystem("memory")
    assert memory.cat("/records/x.ffr") == (tmp_path / "x.ffr").read_bytes()
    monkeypatch.setattr("nbdata.engine.pack.perform._IN_MEMORY", MIB)
    with pytest.raises(BadOption, match="takes whole objects only"):
        nbdata.pack(f"{url}in/", "memory://records/y.ffr", quiet=True)
    # The CRC-32s of earlier packs are known, so the header need not wait.
    nbdata.pack(f"{tmp_path}/x.ffr", "memory://records/y.ffr", quiet=True)
    assert memory.cat("/records/y.ffr") == (tmp_path / "x.ffr").read_bytes()


def test_files_are_as_large_and_as_many_as_the_format_advises(
    put: Put, there: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbdata.engine.pack.records.DEFAULT_SIZE", 10_000)
    url = put({f"in/{n:04}.bin": bytes(1000) for n in range(100)})
    nbdata.pack(f"{url}in/", f"{url}a/", format="ffrecord", quiet=True)
    sizes = [len(data) for _, data in sorted(there("a/").items())]
    assert all(10_000 <= size < 11_200 for size in sizes[:-1])
    monkeypatch.setattr("nbdata.engine.pack.records._MOST_FILES", 4)
    nbdata.pack(f"{url}in/", f"{url}b/", format="ffrecord", quiet=True)
    assert len(there("b/")) == 4
    monkeypatch.setattr("nbdata.engine.pack.records.MOST_RECORDS", 8)
    nbdata.pack(f"{url}in/", f"{url}c/", format="ffrecord", quiet=True)
    assert len(there("c/")) == 15  # seven samples per file, and their names
    for target, options in (("d/", {"shard_count": 2}), ("d/x.ffr", {})):
        with pytest.raises(BadOption, match=r"would have (51|101) records"):
            nbdata.pack(f"{url}in/", f"{url}{target}", format="ffrecord", quiet=True, **options)


def test_what_cannot_be_packed_is_told_before_anything_is_written(
    put: Put, there: Any, tmp_path: Path
) -> None:
    url = put({"in/a.jpg": b"1", "in/b.jpg": b"2", "other/a.jpg": b"3"})

    def refused(*args: Any, match: str, **options: Any) -> None:
        with pytest.raises(BadOption, match=match):
            nbdata.pack(*args, quiet=True, **options)

    refused(f"{url}in/", f"{url}out/x.tar", format="ffrecord", match="end in .ffr")
    refused(f"{url}in/", f"{url}out/x.ffr", shard_count=2, match="is one file")
    refused(f"{url}in/", f"{url}out/x.ffr", map=dict, match="makes no sense with ffrecord")
    refused(f"{url}in/", f"{url}out/", no_names=True, match="makes no sense with shards")
    refused(
        f"{url}in/", f"{url}out/", format="files", shuffle=True, match="makes no sense with --format files"
    )
    refused(f"{url}in/", f"{url}out", format="files", match="is not a folder")
    refused(f"{url}", f"{url}in/", format="files", match="among those that they are made of")
    with tarfile.open(tmp_path / "odd-0.tar", "w") as odd:
        odd.addfile(tarfile.TarInfo("../up.jpg"))
    refused(f"{tmp_path}/odd-0.tar", f"{url}out/x.ffr", match="no packed folder can have it")
    refused(f"{tmp_path}/odd-0.tar", f"{url}out/", format="files", match="the name '../up.jpg'")
    for folder in ("in", "other"):
        nbdata.pack(f"{url}{folder}/", f"{url}tar/{folder}-%d.tar", quiet=True)
    refused(f"{url}tar/*.tar", f"{url}out/x.ffr", match="two samples have the key 'a'")
    nbdata.pack(f"{url}tar/*.tar", f"{url}sorted/x.ffr", sort=True, quiet=True)
    assert [one["__key__"] for one in samples_of(f"{url}sorted/x.ffr")] == ["a", "a~2", "b"]
    refused(
        f"{url}sorted/x.ffr",
        f"{url}sorted/x.ffr",
        match="replace those that they are made of|among the files",
    )
    put({"clash/a.jpg": b"1", "clash/a.jpg/b.jpg": b"2"})
    refused(f"{url}clash/", f"{url}out/x.ffr", match="is a file, and a folder")
    assert there("out/") == {}


def test_folders_that_others_packed_are_read_side_by_side(tmp_path: Path) -> None:
    for folder, name in (("a", "1.jpg"), ("b", "2.jpg"), ("c", "1.jpg")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(folder.encode())
        pack_folder(tmp_path / folder, tmp_path / f"{folder}.ffr")
    two = [f"{tmp_path}/{name}.ffr" for name in "ab"]
    assert samples_of(two) == [{"__key__": "1", "jpg": b"a"}, {"__key__": "2", "jpg": b"b"}]  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="the key '1' comes twice"):
        nbdata.samples([*two, f"{tmp_path}/c.ffr"])
    with nbdata.ffrecord.FileWriter(tmp_path / "plain.ffr", 1) as writer:
        writer.write_one(b"x")
    with pytest.raises(BadOption, match="has no names, while others"):
        nbdata.samples([*two, f"{tmp_path}/plain.ffr"])


def tar(path: Path, *names: str) -> None:
    """Write a shard whose members contain their own names."""
    with tarfile.open(path, "w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))


def test_neighbours_of_one_key_stay_two_samples_in_two_files(tmp_path: Path) -> None:
    tar(tmp_path / "s-0.tar", "k0.jpg", "a.jpg")
    tar(tmp_path / "s-1.tar", "a.jpg", "k2.jpg")
    for count, sort in ((2, False), (2, True), (3, False), (4, True)):
        out = f"{tmp_path}/{count}{sort}.ffr/"
        report = nbdata.pack(f"{tmp_path}/s-*.tar", out, shard_count=count, sort=sort, quiet=True)
        assert any("1 sample has the key of their neighbour" in note for note in report.notes)
        found = {one["__key__"]: one["jpg"] for one in samples_of(out)}
        assert found == {"k0": b"k0.jpg", "a": b"a.jpg", "a~2": b"a.jpg", "k2": b"k2.jpg"}
    tar(tmp_path / "s-2.tar", "a~2.cls")
    with pytest.raises(BadOption, match="two samples have the key 'a~2'"):
        nbdata.pack(f"{tmp_path}/s-*.tar", f"{tmp_path}/x.ffr", quiet=True)
    assert nbdata.pack(f"{tmp_path}/s-*.tar", f"{tmp_path}/n.ffr", no_names=True, quiet=True).ok


def test_files_without_records_are_passed_over(tmp_path: Path) -> None:
    """Packed folders and plain files are not mixed, whatever the order."""
    folder = tmp_path / "x.ffr"
    (tmp_path / "in").mkdir()
    folder.mkdir()
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / "in" / name).write_bytes(name.encode())
    with nbdata.ffrecord.FileWriter(folder / "PART_00000.ffr", 0):
        pass
    for number in (1, 3):
        nbdata.pack(
            f"{tmp_path}/in/{number // 2 + 1}*",
            f"{folder}/PART_{number:05}.ffr",
            format="ffrecord",
            quiet=True,
        )
    with nbdata.ffrecord.FileWriter(folder / "PART_00002.ffr", 0):
        pass
    assert samples_of(f"{folder}/") == [{"__key__": "1", "jpg": b"1.jpg"}, {"__key__": "2", "jpg": b"2.jpg"}]
    nbdata.pack(f"{folder}/", f"{tmp_path}/out/", format="files", quiet=True)
    assert files_in(tmp_path / "out") == {"1.jpg": b"1.jpg", "2.jpg": b"2.jpg"}
    with nbdata.ffrecord.FileWriter(folder / "PART_00000.ffr", 1) as writer:
        writer.write_one(b"x")
    with pytest.raises(BadOption, match=r"no names, while others.*PART_00000"):
        nbdata.samples(f"{folder}/")
    for number in (1, 3):
        (folder / f"PART_{number:05}.ffr").unlink()
    for _ in range(2):  # the second time from the cached index
        assert [one["bin"] for one in samples_of(f"{folder}/")] == [b"x"]


def test_an_index_without_paths_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier builds wrote the same file without paths."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "UPPER.JPG").write_bytes(b"1")
    nbdata.pack(f"{tmp_path}/in/", f"{tmp_path}/x.ffr", quiet=True)
    add, pieces = IndexWriter.add_members, IndexWriter.pieces
    with monkeypatch.context() as older:
        older.setattr(
            IndexWriter, "add_members", lambda self, key, members, paths=(): add(self, key, members)
        )
        older.setattr(
            IndexWriter, "pieces",
            lambda self, about: pieces(self, {name: about[name] for name in about if name != "named"}),
        )  # fmt: skip
        samples_of(f"{tmp_path}/x.ffr")
    nbdata.pack(f"{tmp_path}/x.ffr", f"{tmp_path}/out/", format="files", select="jpg", quiet=True)
    assert files_in(tmp_path / "out") == {"UPPER.JPG": b"1"}


def test_names_of_a_folder_are_written_as_the_library_writes_them() -> None:
    source = random.Random(1)
    for count in (0, 1, 5, 999, 1000, 1001, 2500):
        paths = [
            "/".join([*(source.choice("abc") + "d" for _ in range(source.randrange(4))), f"{n}ä.x"])
            for n in range(count)
        ]
        source.shuffle(paths)
        size = NamesSize()
        for path in paths:
            more, before = size.more([path]), size.bytes
            size.add(path)
            assert size.bytes == before + more
        data = names_bytes(paths)
        assert len(data) == size.bytes
        tree = names_of(data, len(paths), "x")
        assert dict(files_of(tree)) == {path: number for number, path in enumerate(paths)}
        assert names_of(names_sample(tree), len(paths), "x") == tree
        with pytest.raises(BadOption, match="two files are called"):
            names_bytes(["a/b", "c", "a/b"])


def test_one_file_has_its_name_and_no_number() -> None:
    names = ShardNames.of("s3://b/x.ffr", "ffrecord")
    assert (names.name(0), names.most, names.is_one("x.ffr"), names.is_one("x.ffr2")) == (
        "x.ffr",
        1,
        True,
        False,
    )
