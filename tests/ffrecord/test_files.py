"""FFRecord files on the disk match the format byte for byte, appear only when complete, and damage is detected."""

import array
import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata import BadArchive, BadOption, ChecksumMismatch, NbdataError, NotFound
from nbdata.ffrecord import FileReader, FileWriter
from nbdata.formats import ffrecord
from nbdata.formats.ffrecord import HeadWriter

#: Samples and the file that contains them, computed from the format's rules.
GOLDEN = [
    ([b"12345"], "f8e3ccca 0100000000000000 1c3af5cb 1800000000000000 3132333435"),
    (
        [bytes([1, 2, 3, 4]), bytes([5, 6, 7, 8])],
        "6d2872d7 0200000000000000 cdfb3cb6 694d8d53 2400000000000000 2800000000000000 01020304 05060708",
    ),
    (
        [b"", b"a", b""],
        "41453328 0300000000000000 00000000 43beb7e8 00000000 3000000000000000 3000000000000000 3100000000000000 61",
    ),
    ([], "69df2265 0000000000000000"),
]


def write(path, samples, n="count"):
    with FileWriter(path, len(samples) if n == "count" else n) as writer:
        for sample in samples:
            writer.write_one(sample)
    return path


def made(samples):
    """Return a file built by the rules of the format, without nbdata's code."""
    offsets, at = [], 12 + 12 * len(samples)
    for sample in samples:
        offsets.append(at)
        at += len(sample)
    body = struct.pack("<q", len(samples))
    body += struct.pack(f"<{len(samples)}I", *map(zlib.crc32, samples))
    body += struct.pack(f"<{len(samples)}q", *offsets)
    return struct.pack("<I", zlib.crc32(body)) + body + b"".join(samples)


def contents(reader):
    return [bytes(sample) for sample in reader.read(range(reader.n))]


@pytest.mark.parametrize(("samples", "expected"), GOLDEN)
@pytest.mark.parametrize("n", ["count", None])
def test_the_bytes_are_those_of_the_format(tmp_path, samples, expected, n):
    path = write(tmp_path / "x.ffr", samples, n)
    assert path.read_bytes() == bytes.fromhex(expected) == made(samples)
    assert contents(FileReader(path)) == samples


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=30), st.booleans(), st.booleans())
def test_any_list_of_byte_strings_comes_back(tmp_path_factory, samples, counted, mapped):
    path = tmp_path_factory.mktemp("any") / "x.ffr"
    write(path, samples, "count" if counted else None)
    assert path.read_bytes() == made(samples)
    with FileReader(path, mapped=mapped) as reader:
        assert contents(reader) == samples
        turned = [index for index in range(reader.n) for _ in (1, 2)][::-1]
        assert [bytes(one) for one in reader.read(turned)] == [samples[index] for index in turned]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), st.data())
def test_a_flipped_bit_is_found_or_lies_in_nothing_that_is_read(tmp_path_factory, samples, data):
    path = tmp_path_factory.mktemp("flipped") / "x.ffr"
    whole = bytearray(made(samples))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    with pytest.raises((ChecksumMismatch, BadArchive)):
        contents(FileReader(path))


def test_what_is_not_read_is_not_looked_at(tmp_path):
    path = tmp_path / "x.ffr"
    path.write_bytes(made([b"good", b"bad"])[:-1] + b"?")
    reader = FileReader(path)
    assert bytes(reader.read_one(0)) == b"good"
    with pytest.raises(ChecksumMismatch, match="cut off or appended"):
        reader.read_one(1)
    assert bytes(FileReader(path, check_data=False).read_one(1)) == b"ba?"


def spoilt(what):
    whole = bytearray(made([b"one", b"two", b"three"]))
    if what == "nothing":
        return b""
    if what == "cut in the header":
        return bytes(whole[:30])
    if what == "cut before the last sample":
        return bytes(whole[:-9])
    if what == "never finished":
        return bytes(48) + bytes(whole[48:])
    if what == "a negative count":
        whole[4:12] = struct.pack("<q", -1)
    if what == "a huge count":
        whole[4:12] = struct.pack("<q", 1 << 60)
    if what == "the header is another":
        whole[13] ^= 1
    if what == "no samples, but bytes":
        return made([]) + b"?"
    if what == "something else":
        return b"\x89PNG\r\n\x1a\n" + bytes(range(200))
    starts = {
        "the first offset lies in the header": [20, 51, 54],
        "a gap before the first sample": [49, 51, 54],
        "offsets fall": [48, 54, 51],
        "offsets behind the end": [48, 51, 99],
        "a negative offset": [-1, 51, 54],
    }.get(what)
    if starts is not None:
        whole[24:48] = struct.pack("<3q", *starts)
        whole[0:4] = struct.pack("<I", zlib.crc32(whole[4:48]))
    return bytes(whole)


CORPUS = [
    "nothing", "cut in the header", "cut before the last sample", "never finished", "a negative count",
    "a huge count", "the header is another", "no samples, but bytes", "something else",
    "the first offset lies in the header", "a gap before the first sample", "offsets fall",
    "offsets behind the end", "a negative offset",
]  # fmt: skip


@pytest.mark.parametrize("what", CORPUS)
def test_a_damaged_file_is_refused_when_it_is_opened(tmp_path, what):
    path = tmp_path / "x.ffr"
    path.write_bytes(spoilt(what))
    with pytest.raises((BadArchive, ChecksumMismatch)) as told:
        FileReader(path)
    assert told.value.remedy
    assert str(path) in str(told.value)


@pytest.mark.parametrize("what", CORPUS)
def test_unchecked_damage_never_reads_outside_the_file(tmp_path, what):
    path = tmp_path / "x.ffr"
    path.write_bytes(spoilt(what))
    try:
        reader = FileReader(path, check_data=False)
    except BadArchive:
        return
    for number in range(min(reader.n, 5)):
        with contextlib.suppress(BadArchive):
            assert len(reader.read_one(number)) <= path.stat().st_size


def test_a_file_without_a_checksum_of_its_header_is_read_and_its_offsets_are_checked(tmp_path):
    path = tmp_path / "old.ffr"
    whole = bytearray(made([b"one", b"two"]))
    whole[:4] = bytes(4)
    path.write_bytes(whole)
    assert contents(FileReader(path)) == [b"one", b"two"]
    whole[20:28] = struct.pack("<q", 40)
    path.write_bytes(whole)
    with pytest.raises(BadArchive):
        FileReader(path)


def test_a_hole_of_gigabytes_is_refused_as_a_header_at_its_first_zeros(tmp_path, monkeypatch):
    """Its CRC-32 would take as long as the hole is large, and nothing could interrupt it."""
    count = 1 << 32
    with open(tmp_path / "hole.ffr", "wb") as file:
        file.write(struct.pack("<Iq", 1, count))
        file.seek(12 + 4 * count)
        file.write(struct.pack("<q", 12 + 12 * count))
        file.truncate(12 + 12 * count + 1)
    monkeypatch.setattr(ffrecord, "crc32", lambda *_: pytest.fail("it reads the whole header"))
    with pytest.raises(BadArchive, match="sample 0 of this FFRecord file does not end"):
        FileReader(tmp_path / "hole.ffr")


def test_appended_bytes_are_found_when_the_last_sample_is_read(tmp_path):
    path = write(tmp_path / "x.ffr", [b"one", b"two"])
    with open(path, "ab") as file:
        file.write(b"more")
    reader = FileReader(path)
    assert bytes(reader.read_one(0)) == b"one"
    with pytest.raises(ChecksumMismatch, match="appended"):
        reader.read_one(1)


@pytest.mark.parametrize("mapped", [False, True])
def test_a_file_that_becomes_shorter_is_told(tmp_path, mapped):
    path = write(tmp_path / "x.ffr", [b"one", bytes(100_000), b"two"])
    reader = FileReader(path, mapped=mapped)
    os.truncate(path, 5000)
    with pytest.raises(BadArchive, match="became shorter"):
        reader.read([1, 2])


@pytest.mark.parametrize("index", [-1, 2, 1 << 70])
def test_indices_outside_the_range_are_refused(tmp_path, index):
    reader = FileReader(write(tmp_path / "x.ffr", [b"one", b"two"]))
    with pytest.raises(BadOption, match="there is no sample"):
        reader.read([0, index])


def test_more_samples_than_the_original_allows_are_read_at_once(tmp_path):
    samples = [str(number).encode() for number in range(10_000)]
    reader = FileReader(write(tmp_path / "x.ffr", samples))
    assert contents(reader) == samples


def test_files_of_a_folder_come_in_the_order_of_their_names(tmp_path):
    for number in (2, 0, 1):
        write(tmp_path / f"PART_{number:05}.ffr", [b"%d %d" % (number, at) for at in range(number + 1)])
    (tmp_path / "meta.pkl").write_bytes(b"?")
    (tmp_path / ".hidden.ffr").write_bytes(b"?")
    reader = FileReader(tmp_path)
    assert contents(reader) == [b"0 0", b"1 0", b"1 1", b"2 0", b"2 1", b"2 2"]
    assert [path.rpartition("/")[2] for path in reader.fnames] == [f"PART_{n:05}.ffr" for n in range(3)]
    chosen = FileReader([tmp_path / "PART_00002.ffr", str(tmp_path / "PART_00000.ffr")])
    assert contents(chosen) == [b"2 0", b"2 1", b"2 2", b"0 0"]


def test_offsets_and_checksums_are_those_of_the_file(tmp_path):
    reader = FileReader(write(tmp_path / "x.ffr", [b"", b"a", b""]))
    assert reader.get_offsets(0).tolist() == [48, 48, 49, 49]
    assert reader.get_offsets(0).dtype == np.int64
    assert reader.get_checksums(0).tolist() == [0, zlib.crc32(b"a"), 0]
    assert reader.get_checksums(0).dtype == np.uint32


def test_arrays_are_the_callers_own(tmp_path):
    reader = FileReader(write(tmp_path / "x.ffr", [b"abc"] * 3))
    one, same, other = reader.read([1, 1, 2])
    one[0] = ord("X")
    reader.close()
    assert (bytes(one), bytes(same), bytes(other)) == (b"Xbc", b"abc", b"abc")
    with pytest.raises(BadOption, match="closed"):
        reader.read_one(0)


def test_a_view_of_the_file_cannot_be_written_to(tmp_path):
    reader = FileReader(write(tmp_path / "x.ffr", [b"abc"]), mapped=True)
    (view,) = reader.read([0])
    reader.close()
    assert bytes(view) == b"abc"
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_no_such_file(tmp_path):
    with pytest.raises(NotFound):
        FileReader(tmp_path / "x.ffr")
    with pytest.raises(NotFound, match=r"no \.ffr file"):
        FileReader(tmp_path)
    with pytest.raises(BadOption, match="ends in"):
        FileReader(tmp_path / "x.tar")
    with pytest.raises(BadOption, match="no file was named"):
        FileReader([])
    os.mkfifo(tmp_path / "pipe.ffr")
    with pytest.raises(BadOption, match="no file"):
        FileReader(tmp_path / "pipe.ffr")


def test_a_header_is_the_same_when_samples_come_in_any_order():
    samples = [os.urandom(size) for size in (5, 0, 70, 1)]
    head = HeadWriter(map(len, samples))
    assert list(head.starts()) == [60, 65, 65, 135, 136]
    for number in (2, 0, 3, 1):
        head.found(number, zlib.crc32(samples[number]))
    assert b"".join(head.pieces()) + b"".join(samples) == made(samples)


# -- batches ------------------------------------------------------------------------------------------


def test_many_threads_read_at_a_time(tmp_path):
    samples = [os.urandom(size) for size in range(0, 60_000, 300)]
    reader = FileReader(write(tmp_path / "x.ffr", samples))
    wrong = []

    def read(first):
        for step in range(40):
            indices = [(first * 31 + step * 17 + at * 7) % len(samples) for at in range(20)]
            if [bytes(one) for one in reader.read(indices)] != [samples[index] for index in indices]:
                wrong.append(indices)

    threads = [threading.Thread(target=read, args=(first,)) for first in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_pickled_reader_is_opened_again(tmp_path):
    reader = FileReader(write(tmp_path / "x.ffr", [b"one", b"two"]), check_data=False)
    again = pickle.loads(pickle.dumps(reader))
    assert (again.n, again.check_data, contents(again)) == (2, False, [b"one", b"two"])


def test_a_child_of_a_fork_reads_while_its_parent_does(tmp_path):
    samples = [os.urandom(5000) for _ in range(50)]
    reader = FileReader(write(tmp_path / "x.ffr", samples))
    children = []
    for _ in range(3):
        pid = os.fork()
        if not pid:
            os._exit(0 if all(contents(reader) == samples for _ in range(20)) else 1)
        children.append(pid)
    assert all(contents(reader) == samples for _ in range(20))
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]


# -- writing ------------------------------------------------------------------------------------------


def left(folder):
    return sorted(os.listdir(folder))


def test_nothing_has_the_name_before_it_is_whole(tmp_path):
    path = tmp_path / "x.ffr"
    writer = FileWriter(path, 2)
    writer.write_one(b"one")
    assert not path.exists()
    writer.write_one(b"two")
    assert not path.exists()
    writer.close()
    writer.close()
    assert contents(FileReader(path)) == [b"one", b"two"]
    assert left(tmp_path) == ["x.ffr"]


def test_a_file_that_is_there_stays_until_the_new_one_is_whole(tmp_path):
    path = write(tmp_path / "x.ffr", [b"old"])
    os.chmod(path, 0o640)
    with pytest.raises(ZeroDivisionError):
        write(path, (bytes(1 // number) for number in (1, 0)), 2)
    assert contents(FileReader(path)) == [b"old"]
    assert left(tmp_path) == ["x.ffr"]
    write(path, [b"new"])
    assert contents(FileReader(path)) == [b"new"]
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_samples_than_announced(tmp_path, count):
    with pytest.raises(BadOption, match="announced") as told:
        write(tmp_path / "x.ffr", [b"x"] * count, 2)
    assert told.value.remedy
    assert left(tmp_path) == []


def test_one_sample_too_many_is_refused_and_the_file_is_right_without_it(tmp_path):
    writer = FileWriter(tmp_path / "x.ffr", 1)
    writer.write_one(b"x")
    with pytest.raises(BadOption, match="one more"):
        writer.write_one(b"y")
    writer.close()
    assert contents(FileReader(tmp_path / "x.ffr")) == [b"x"]


def test_a_writer_that_is_forgotten_leaves_nothing(tmp_path):
    writer = FileWriter(tmp_path / "x.ffr", 1)
    writer.write_one(b"x")
    del writer
    assert left(tmp_path) == []


def test_bytes_like_objects_can_be_written(tmp_path):
    given = [
        bytearray(b"ab"),
        memoryview(b"cd"),
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        array.array("b", [1, -1]),
    ]
    path = write(tmp_path / "x.ffr", given)
    assert contents(FileReader(path)) == [b"ab", b"cd", bytes(range(6)), b"\x01\xff"]


@pytest.mark.parametrize("wrong", [np.zeros(3, np.float32), np.zeros((4, 4), np.uint8)[:, 1], "text", 3])
def test_what_is_no_bytes_is_refused(tmp_path, wrong):
    with pytest.raises(BadOption, match="a sample is bytes"):
        write(tmp_path / "x.ffr", [wrong])
    assert left(tmp_path) == []


def test_large_and_small_samples_keep_their_order(tmp_path):
    samples = [os.urandom(size) for size in (10, 3 << 20, 0, 900_000, 200_000, 5 << 20, 1)]
    for n in ("count", None):
        assert write(tmp_path / "x.ffr", samples, n).read_bytes() == made(samples)


def test_names_and_places_that_cannot_be_written(tmp_path):
    with pytest.raises(BadOption, match="ends in"):
        FileWriter(tmp_path / "x.bin", 1)
    with pytest.raises(BadOption, match="local disk"):
        FileWriter("s3://bucket/x.ffr", 1)
    with pytest.raises(NotFound):
        FileWriter(tmp_path / "no" / "x.ffr", 1)
    with pytest.raises(BadOption, match="n=-1"):
        FileWriter(tmp_path / "x.ffr", -1)
    assert left(tmp_path) == []


KILLED = """
import os, signal, sys
from nbdata.ffrecord import FileWriter
path, moment = sys.argv[1], sys.argv[2]
named = getattr(os, moment)
def killed(*_args, **_options):
    os.kill(os.getpid(), signal.SIGKILL)
with FileWriter(path, None if moment == "read" else 50) as writer:
    for number in range(50):
        if number == 25 and moment in ("write",):
            setattr(os, moment, killed)
        writer.write_one(bytes(100_000))
    setattr(os, moment, killed)
"""


@pytest.mark.parametrize("moment", ["write", "lseek", "fsync", "replace", "read"])
def test_a_kill_in_the_middle_leaves_nothing_under_the_name(tmp_path, moment):
    path = write(tmp_path / "x.ffr", [b"old"])
    done = subprocess.run([sys.executable, "-c", KILLED, path, moment], check=False)
    assert done.returncode == -signal.SIGKILL
    assert contents(FileReader(path)) == [b"old"]
    path.unlink()
    with pytest.raises(NotFound):
        FileReader(tmp_path)  # only hidden files are left, no data


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(NbdataError, match="full"):
        write(tmp_path / "x.ffr", [bytes(100_000)] * 40)
    monkeypatch.undo()
    assert left(tmp_path) == []
