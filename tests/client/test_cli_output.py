"""What the command writes: to outputs that are full or closed, to narrow or plain terminals, and as JSON."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import struct
import subprocess
import tarfile
import termios
from pathlib import Path

import pytest

from tests.client.test_cli import NBDATA, nbdata
from tests.waiting import PATIENCE


def terminal_output(*words: object, columns: int) -> str:
    """Return what nbdata writes to a terminal of this width."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 50, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen([NBDATA, *map(str, words)], stdin=theirs, stdout=theirs, env=env) as process:
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):  # the terminal is closed
            while piece := os.read(ours, 1 << 16):
                written += piece
        os.close(ours)
        assert process.wait(PATIENCE) == 0
    return written.decode().replace("\r\n", "\n")


@pytest.mark.in_ci("words0-True", "words1-False", 1)
@pytest.mark.parametrize(
    ("words", "buffered"),
    [
        (("transfers",), True),
        (("transfers",), False),
        (("pull", "--help"), True),
        (("pull", "{tree}", "{out}", "--json"), True),
        (("agent", "status"), True),
    ],
)
def test_output_that_cannot_be_written_is_told_in_one_line(
    words: tuple[str, ...], buffered: bool, tree: Path, tmp_path: Path
) -> None:
    line = [NBDATA, *(word.format(tree=tree, out=tmp_path / "out") for word in words)]
    env = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    with open("/dev/full", "wb") as full:
        run = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, env=env, text=True, timeout=PATIENCE)
    told = "nbdata: standard output cannot be written (No space left on device)\n"
    assert (run.returncode, run.stderr) == (1, told)
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *line]
    assert subprocess.run(closed, env=env, timeout=PATIENCE, check=False).returncode == 0


@pytest.mark.long
def test_without_standard_error_the_work_is_done_and_stdout_has_only_results(
    tree: Path, tmp_path: Path
) -> None:
    for words, status in (
        (("pull", tree, tmp_path / "out"), 0),
        (("pull", "/none/such", tmp_path / "out"), 1),
    ):
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", NBDATA, *map(str, words)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert (run.returncode, "5 fetched" in run.stdout) == (status, status == 0)
        assert "no such object" not in run.stdout


@pytest.mark.in_ci("ascii")
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8:strict"])
def test_characters_that_a_terminal_cannot_show_are_escaped(
    encoding: str, tree: Path, tmp_path: Path
) -> None:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    for words in (["pull", tree, tmp_path / "out"], ["quota", tmp_path]):
        run = subprocess.run([NBDATA, *map(str, words)], capture_output=True, env=env, timeout=PATIENCE)
        assert (run.returncode, run.stderr) == (0, b"")
        assert (rb"\u2192" in run.stdout or rb"\u2588" in run.stdout) is (encoding != "utf-8:strict")


@pytest.mark.long
def test_a_narrow_terminal_has_lines_of_its_width(tree: Path, tmp_path: Path) -> None:
    nbdata("pull", tree, tmp_path / "out")
    assert terminal_output("transfers", columns=500).startswith("id ")
    narrow = terminal_output("transfers", columns=80)
    assert "  pull, done" in narrow
    assert "ago by" in narrow


@pytest.mark.long
def test_the_json_of_a_listing_has_all_members(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for number in range(1234):
            member = tarfile.TarInfo(f"d/{number:04}\udcff")
            member.size, member.mtime = number % 3, number
            tar.addfile(member, io.BytesIO(b"ab"[: number % 3]))
    run = nbdata("untar_volumes", tmp_path / "x.tar", "--list", "--json")
    said = json.loads(run.stdout)
    assert said["counts"] == {"members": 1234}
    assert [(one["name"], one["size"], one["mtime"], one["kind"]) for one in said["members"]] == [
        (f"d/{number:04}\udcff", number % 3, number, "file") for number in range(1234)
    ]
    assert "members" not in json.loads(
        nbdata("untar_volumes", tmp_path / "x.tar", tmp_path / "out", "--json").stdout
    )
