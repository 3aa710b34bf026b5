"""The terminal's display while a job runs, read frame by frame from a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.sizes import format_size, parse_size
from tests.waiting import PATIENCE, wait_until

NBDATA = str(Path(sys.executable).with_name("nbdata"))
Put = Callable[[dict[str, bytes]], str]
_SIZE, _RATE = 24_000_000, 6_000_000


def in_a_terminal(*words: object, columns: int = 120) -> tuple[str, list[str]]:
    """Return a command's stdout, and the frames that it draws on the terminal at its stderr."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        process = subprocess.Popen(
            [NBDATA, *map(str, words)], stdout=subprocess.PIPE, stderr=its, stdin=subprocess.DEVNULL
        )
    finally:
        os.close(its)
    drawn = b""
    while True:
        try:
            more = os.read(ours, 1 << 16)
        except OSError:  # Linux reports this when the other end is closed
            break
        drawn += more
    os.close(ours)
    stdout, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, drawn.decode()
    return stdout.decode(), [frame for frame in re.split(r"[\r\n]+", drawn.decode()) if frame.strip()]


@pytest.mark.long
def test_a_terminal_shows_the_rate_of_the_job_and_not_of_what_was_there_before(
    put: Put, s3: object, tmp_path: Path
) -> None:
    url, out = put({"d/a": os.urandom(_SIZE)}) + "d/", tmp_path / "out"
    job = nbdata.pull(url, out, max_rate=_RATE, background=True)
    wait_until(lambda: job.snapshot().bytes > _SIZE // 2)
    job.cancel()
    wait_until(lambda: job.snapshot().finished)

    stdout, frames = in_a_terminal("pull", url, out, "--max-rate", _RATE)

    assert "were there already" in stdout
    rates = [parse_size(rate) for frame in frames for rate in re.findall(r"([\d.]+ [kMGT]?B)/s", frame)]
    assert rates, frames
    assert max(rates) < 2 * _RATE, frames
    moving = next(frame for frame in frames if "/s, " in frame)
    words = rf"pull \|.*\| +\d+%, <?[\d.]+ s left, [\d.]+ MB of {re.escape(format_size(_SIZE))}, [\d.]+ MB/s, 0/1 files"
    assert re.search(words, moving), moving


def test_a_narrow_terminal_keeps_the_share_and_draws_no_second_line(
    put: Put, s3: object, tmp_path: Path
) -> None:
    url = put({"d/a": os.urandom(_SIZE // 4)}) + "d/"
    _, frames = in_a_terminal("pull", url, tmp_path / "out", "--max-rate", _RATE // 2, columns=32)
    assert all(len(frame.replace("\x1b[A", "")) <= 32 for frame in frames), frames
    assert any("%, " in frame for frame in frames), frames


def test_a_python_prompt_shows_a_table_once(tree: Path, tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-i", "-q"], input=f"import nbdata\nnbdata.ls({str(tree)!r})\n", text=True,
        capture_output=True, timeout=PATIENCE, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert (said.stdout + said.stderr).count("a.txt") == 1, "with the value of the call, not while it runs"
