"""pack from standard input and to standard output, and commands over many samples, on the disk and in a store."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.shard_writing import END
from tests.client.test_mapped_pack import PYTHON, nothing_left
from tests.engine.pack.shards import NUMBER, WHOLE, Shelf, fields_of, members, shelf, tar_of
from tests.waiting import AT_ONCE, PATIENCE

__all__ = ["nothing_left", "shelf"]


def run(*words: str, data: bytes = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a command line in a process of its own."""
    return subprocess.run(
        [PYTHON, "-m", "nbdata", *words],
        input=data,
        capture_output=True,
        check=False,
        timeout=PATIENCE,
        **options,
    )


@pytest.mark.long
def test_a_tar_comes_from_standard_input(shelf: Shelf) -> None:
    tar = tar_of(WHOLE)
    done = run("pack", "-", f"{shelf.root}out/x-%06d.tar", "--shard-samples", "25", data=gzip.compress(tar))
    assert (done.returncode, b"does not resume" in done.stdout) == (0, True), done.stderr
    assert list(shelf.samples("out/")) == list(WHOLE.items())
    assert len(shelf.read("out/")) == 4  # with the index
    words = ("--fields", "cls", "--slice", "1:3", "--keys", "%02d", "--overwrite", "always")
    assert run("pack", "-", f"{shelf.root}out/x-%06d.tar", *words, data=tar).returncode == 0
    assert list(shelf.samples("out/")) == [(f"{n:02}", {"cls": fields_of(n + 1)["cls"]}) for n in (0, 1)]


@pytest.mark.in_ci("store")
def test_a_tar_goes_to_standard_output_and_nothing_else_does(shelf: Shelf) -> None:
    places = shelf.shards()
    nbdata.pack(places, f"{shelf.root}one/x-%06d.tar", shard_count=1, quiet=True)
    done = run("pack", *places, "-")
    assert done.returncode == 0
    assert done.stdout == shelf.read("one/")["x-000000.tar"]
    assert b"does not resume" in done.stderr
    piped = run("pack", "-", "-", "--select", "key = '000*'", data=done.stdout)
    assert members(piped.stdout) == [(f"000{n}.{k}", v) for n in range(10) for k, v in fields_of(n).items()]
    planned = run("pack", *places, "-", "-n")
    assert (planned.returncode, planned.stdout) == (0, b"")


def test_a_reader_that_goes_away_ends_it(tmp_path: Path, inline: None) -> None:
    big = {f"{n:04}": {"bin": os.urandom(1 << 20)} for n in range(8)}
    (tmp_path / "big.tar").write_bytes(tar_of(big))
    words = [PYTHON, "-m", "nbdata", "pack", str(tmp_path / "big.tar"), "-"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(512)
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(AT_ONCE) == 1
    assert b"Traceback" not in errors


@pytest.mark.in_ci("store")
def test_what_comes_damaged_or_is_no_tar_makes_no_shard_and_no_whole_stream(shelf: Shelf) -> None:
    tar = tar_of(WHOLE)
    target = f"{shelf.root}out/x-%06d.tar"
    for data, told in {
        tar[: len(tar) // 2]: b"a stream cannot be read twice",
        b"": b"standard input",
        b"hello" * 500: b"not an archive",
    }.items():
        done = run("pack", "-", target, data=data)
        assert (done.returncode, told in done.stderr) == (1, True), done.stderr
        assert shelf.read("out/") == {}
    half = run("pack", "-", "-", data=tar[: len(tar) // 2])
    assert half.returncode == 1
    assert not half.stdout.endswith(END)  # so that a reader finds out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-", "x-%d.tar", "--shuffle"), "--shuffle: standard input is read once"),
        (("-", "x-%d.tar", "--sort"), "--sort: standard input is read once"),
        (("-", "x-%d.tar", "--slice=-3:"), "a stream has no end to count from"),
        (("-", "x-%d.tar", "-n"), "cannot be read twice, so there is no plan"),
        (("-", "x-%d.tar", "-b"), "standard input cannot run in the background"),
        (("-", "x.ffr"), "standard input is read once"),
        (("-", "x.tar.gz"), "standard input is read once"),
        (("-", "-", "--shard-size", "1MB"), "--shard-size: standard output is one stream"),
        (("-", "-", "--json"), "--json and a TARGET of - exclude each other"),
        (("-", "-", "--include", "*.jpg"), "--include is for files"),
        (("a.tar", "-", "b.tar"), "'-' would be standard input or output"),
    ],
)
@pytest.mark.in_ci("words0*", "words3*", "words10*", 1)
def test_what_a_stream_cannot_do_is_refused(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    done = run("pack", *words, data=tar_of(WHOLE), cwd=tmp_path)
    assert (done.returncode, told in done.stderr.decode(), done.stdout) == (2, True, b""), done.stderr
    assert [path for path in tmp_path.iterdir() if path.name != ".nbdata"] == []


def program(tmp_path: Path, code: str) -> str:
    """Return a command that runs Python code in the folder of the samples."""
    path = tmp_path / "change.py"
    path.write_text(f"import os, pathlib, sys\nos.chdir(sys.argv[1])\nhere = pathlib.Path('.')\n{code}\n")
    return f"{sys.executable} -S {path}"


def packed(shelf: Shelf, **options: Any) -> Any:
    return nbdata.pack(shelf.shards(), f"{shelf.root}out/x-%06d.tar", quiet=True, fields="cls", **options)


@pytest.mark.in_ci("disk")
def test_a_command_reads_and_writes_the_key(shelf: Shelf, tmp_path: Path) -> None:
    code = "key = here / 'sample.__key__'\nkey.write_text('new/' + key.read_text() + '\\n')"
    packed(shelf, map=program(tmp_path, code))
    assert [key for key, _ in shelf.samples("out/")] == [f"new/{key}" for key in WHOLE]


def test_a_command_makes_many_samples_of_one(shelf: Shelf, tmp_path: Path) -> None:
    code = (
        "for part in range(2):\n"
        "    (here / f'sample-{part:06}.txt').write_bytes((here / 'sample.cls').read_bytes() * part)\n"
        "(here / 'sample-000001.__key__').write_text((here / 'sample.__key__').read_text() + '/second')\n"
    )
    packed(shelf, map=program(tmp_path, code), slice=":3")
    cls = [fields_of(n)["cls"] for n in range(3)]
    assert list(shelf.samples("out/")) == [
        one
        for n in range(3)
        for one in ((f"{n:04}-000000", {"txt": b""}), (f"{n:04}/second", {"txt": cls[n]}))
    ]


COUNT = """
names = sorted(here.glob('sample-*.cls'))
assert len(names) == len(list(here.iterdir())) / 2
for name in names:
    name.write_text(name.read_text() + f' of {len(names)}')
names[0].unlink()
names[0].with_name('sample-%06d.txt' % len(names)).write_text('more')
key = names[0].with_suffix('.__key__').read_text()
names[0].with_name('sample-%06d.__key__' % len(names)).write_text(key + '-more')
"""


def test_a_command_changes_many_samples_at_a_time(shelf: Shelf, tmp_path: Path) -> None:
    report = packed(shelf, map_many=program(tmp_path, COUNT), map_samples=25, map_workers=2)
    wanted: list[tuple[str, dict[str, bytes]]] = []
    for first, count in ((0, 25), (25, 25), (50, 10)):
        wanted += [
            (f"{n:04}", {"cls": fields_of(n)["cls"] + f" of {count}".encode()})
            for n in range(first + 1, first + count)
        ]
        wanted.append((f"{first:04}-more", {"txt": b"more"}))
    assert list(shelf.samples("out/")) == wanted
    assert f"--map-many got {NUMBER} samples" in report.notes


@pytest.mark.in_ci(2)
@pytest.mark.parametrize(
    ("option", "code", "told"),
    [
        ("map", "(here / 'sample.__key__').write_text('')", "sample.__key__ holds no key, for the sample '0000'"),
        ("map", "(here / 'sample.__key__').write_text('x' * 5000)", "holds no key"),
        ("map", "(here / 'sample.__url__').write_text('x')", "the field '__url__' of the sample '0000' would be lost"),
        ("map_many", "(here / 'sample-000099.txt').write_text('x')", "made sample-000099 of the samples '0000' to"),
        ("map_many", "(here / 'sample-000001.__key__').write_text('0000')", "made two samples with the key '0000'"),
        ("map_many", "os.symlink('/etc/passwd', 'sample-000000.txt')", "something else than a file as sample-0"),
        ("map_many", "sys.exit(3)", "ended with status 3 for the samples '0000' to '0059'"),
    ],
)  # fmt: skip
def test_what_a_command_leaves_is_checked(
    tmp_path: Path, inline: None, option: str, code: str, told: str
) -> None:
    shelf = Shelf.folder(tmp_path / "shelf")
    with pytest.raises((BadOption, NbdataError)) as error:
        packed(shelf, **{option: program(tmp_path, code)})
    assert told in str(error.value)
    assert shelf.read("out/") == {}


def test_a_folder_has_at_most_so_many_bytes(
    tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbdata.client.mapping.commands._MOST_BYTES", 30)
    shelf = Shelf.folder(tmp_path / "shelf")
    counted = "[n.write_text(str(len(list(here.glob('*.cls'))))) for n in here.glob('*.cls')]"
    packed(shelf, map_many=program(tmp_path, counted), map_samples=50)
    assert {int(fields["cls"]) for _, fields in shelf.samples("out/")} <= set(range(10, 31))


def test_the_report_of_a_stream_tells_its_samples(tmp_path: Path, inline: None) -> None:
    done = run("pack", "-", f"{tmp_path}/x-%d.tar", "--json", data=tar_of(WHOLE))
    told = json.loads(done.stdout)
    assert (told["counts"], told["details"]) == ({"packed": 1}, {"samples": NUMBER})
