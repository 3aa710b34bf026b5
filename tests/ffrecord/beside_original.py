"""Compares nbdata.ffrecord with the original library: same bytes, same samples. Not part of ``make test``.

It needs that library on the path (https://github.com/HFAiLab/ffrecord), which builds on Linux with libaio, zlib and
pybind11: ``PYTHONPATH=…/ffrecord pytest tests/ffrecord/beside_original.py``.
"""

import pickle
import random
from pathlib import Path

import ffrecord as original
import numpy as np
import pytest

from nbdata import ffrecord

CHANCE = random.Random(7)
SETS = [
    [],
    [b""],
    [b"", b"a", b""],
    [CHANCE.randbytes(CHANCE.randrange(3000)) for _ in range(300)],
    [CHANCE.randbytes(5 << 20), b"x", CHANCE.randbytes(2 << 20)],
]
BOTH = [original, ffrecord]


def write(library, path, samples):
    with library.FileWriter(path, len(samples)) as writer:
        for sample in samples:
            writer.write_one(np.frombuffer(sample, np.uint8))
    return path


@pytest.mark.parametrize("samples", SETS, ids=len)
def test_both_write_the_same_file_and_read_it_alike(tmp_path, samples):
    ours, theirs = (write(library, tmp_path / f"{n}.ffr", samples) for n, library in enumerate(BOTH))
    assert ours.read_bytes() == theirs.read_bytes()
    order = [CHANCE.randrange(len(samples)) for _ in range(200)] if samples else []
    for library in BOTH:
        reader = library.FileReader(ours)
        assert reader.n == len(samples)
        assert [bytes(one) for one in reader.read(order)] == [samples[index] for index in order]
        assert all(
            one.dtype == np.uint8 and one.ndim == 1 and one.flags.writeable for one in reader.read(order)
        )
        if not samples:
            continue  # the original library raises for an empty file
        assert reader.get_checksums(0).tolist() == ffrecord.FileReader(ours).get_checksums(0).tolist()
        assert reader.get_offsets(0).tolist() == ffrecord.FileReader(ours).get_offsets(0).tolist()
        reader.validate()


def test_folders_have_the_same_files_in_the_same_order(tmp_path):
    for number in (10, 2, 1):
        write(ffrecord, tmp_path / f"PART_{number}.ffr", [b"%d" % number])
    read = [[bytes(one) for one in library.FileReader(tmp_path).read([0, 1, 2])] for library in BOTH]
    assert read[0] == read[1] == [b"1", b"10", b"2"]


def test_packed_folders_are_the_same(tmp_path):
    for name in ("b", "a/c.txt", "a/d/e", "a.txt", "z/empty"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (tmp_path / "in/z/empty").unlink()
    for number, library in enumerate(BOTH):
        library.pack_folder(str(tmp_path / "in"), str(tmp_path / f"{number}.ffr"))
    trees = []
    for number in (0, 1):
        reader = ffrecord.FileReader(tmp_path / f"{number}.ffr")
        *files, names = (bytes(one) for one in reader.read(range(reader.n)))
        trees.append((files, pickle.loads(names[9:])))
    assert trees[0] == trees[1]
    for number in (0, 1):
        folders = [library.PackedFolder(tmp_path / f"{number}.ffr") for library in BOTH]
        for ask in (
            lambda folder: folder.num_files(),
            lambda folder: folder.list(),
            lambda folder: folder.list("a"),
            lambda folder: folder.list("a", recursive=True),
            lambda folder: folder.list(recursive=True, list_dir=False),
            lambda folder: folder.list("z"),
            lambda folder: [
                folder.is_file("a"),
                folder.is_dir("a"),
                folder.exists("a/d/e"),
                folder.exists("no"),
            ],
            lambda folder: [bytes(one) for one in folder.read(["a/d/e", "b"])],
        ):
            assert ask(folders[0]) == ask(folders[1])


def test_what_is_wrong_there_is_an_error_here(tmp_path):
    path = write(ffrecord, Path(tmp_path / "x.ffr"), [b"abc", b"def"])
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)
    for library in BOTH:
        reader = library.FileReader(path)
        assert bytes(reader.read_one(0)) == b"abc"
        with pytest.raises(Exception, match=r"checksum|CRC"):
            reader.read_one(1)
