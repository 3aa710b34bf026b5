"""Tab with nbdata loaded offers what it offers without nbdata, and beside it only the names of nbdata's magics."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kernel import Kernel
from tests.notebook.tab_lines import LINES, SETTING, split
from tests.notebook.twin_kernels import OWN_MAGICS, TwinKernels, cell, replies, without_own
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
# In these lines Tab once failed.
REPORTED = ["os.pa", "pri", "x = ", "%timeit --", ""]
# Jedi, which kernels use, is slow, so they get some of the lines.
WITH_JEDI = LINES[1::18]


def completed(kernel: Kernel, lines: list[str]) -> dict[str, dict[str, Any]]:
    """Return a kernel's reply to Tab in each of some lines."""
    asked = [kernel.client.complete(*split(line)) for line in lines]
    return dict(zip(lines, replies(kernel, asked), strict=True))


def typed(kernel: Kernel, line: str) -> list[str]:
    """Return a line as each completion leaves it."""
    reply = completed(kernel, [line])[line]
    return sorted(line[: reply["cursor_start"]] + match for match in reply["matches"])


def test_a_kernel_offers_the_same_as_without_nbdata(twins: TwinKernels) -> None:
    twins.same(cell, SETTING)
    without, beside = twins.both(completed, [*REPORTED, *WITH_JEDI])
    for line in without:
        assert without[line]["status"] == "ok", line
        assert beside[line]["status"] == "ok", line
        assert without_own(beside[line]) == without_own(without[line]), line
        assert not OWN_MAGICS & set(without[line]["matches"]), line
    assert {"path", "pardir"} <= set(without["os.pa"]["matches"])


def test_nbdatas_own_names_are_offered_where_magics_are(twins: TwinKernels) -> None:
    without, beside = twins.both(completed, ["", "%", "%%", "x = %pul"])
    for line in ("", "%"):
        assert set(beside[line]["matches"]) - set(without[line]["matches"]) == OWN_MAGICS
    assert set(beside["%%"]["matches"]) - set(without["%%"]["matches"]) == {"%%cache_stream"}
    assert beside["x = %pul"]["matches"] == ["%pull"]


def test_nbdatas_own_lines_are_still_completed(twins: TwinKernels) -> None:
    kernel = twins.beside
    assert typed(kernel, "%pull --over") == ["%pull --overwrite"]
    assert typed(kernel, "number = %pull --over") == ["number = %pull --overwrite"]
    assert typed(kernel, "%nbdata pull --over") == ["%nbdata pull --overwrite"]
    assert typed(kernel, "%%cache_stream --by fo") == ["%%cache_stream --by folder"]
    assert typed(kernel, "%push data/tw") == [r"%push data/two\ words.txt"]
    assert typed(kernel, "%nbdata ls --recurs") == ["%nbdata ls --recursive"]
    assert typed(kernel, "%ls s3://bucket --recurs") == ["%ls s3://bucket --recursive"]
    assert typed(kernel, "%ls --recurs") == ["%ls --recursive"], "a URL may follow"


@pytest.fixture(scope="module")
def in_process(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The answers of `tab_in_process`, by state and line."""
    environment = {
        **os.environ,
        "IPYTHONDIR": str(folder / "ipython"),
        "HOME": str(folder),
        "PYTHONHASHSEED": "1",
    }
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    written = tmp_path_factory.mktemp("answers") / "answers.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.notebook.tab_in_process", str(written)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # IPython shows errors of its own completers.
    assert "nbdata/" not in done.stdout + done.stderr, done.stdout + done.stderr
    answers: dict[str, dict[str, Any]] = json.loads(written.read_text())
    return answers


@pytest.mark.long
def test_each_way_to_ask_ipython_gives_the_same_as_without_nbdata(
    in_process: dict[str, dict[str, Any]],
) -> None:
    for line, ways in in_process["without"].items():
        for way, offered in ways.items():
            kept = [one for one in in_process["loaded"][line][way] if one[0] not in OWN_MAGICS]
            assert kept == offered, (way, line)


@pytest.mark.long
def test_after_unloading_tab_is_as_before(in_process: dict[str, dict[str, Any]]) -> None:
    for line, ways in in_process["unloaded"].items():
        for way in ("complete", "completions"):
            assert ways[way] == in_process["without"][line][way], (way, line)


@pytest.mark.long
def test_a_terminal_completes_python(folder: Path) -> None:
    ours, theirs = os.openpty()
    environment = {
        **os.environ,
        "IPYTHONDIR": str(folder / "ipython"),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",  # nobody answers where the cursor is
    }
    command = [sys.executable, "-m", "IPython", "--no-banner", "--no-confirm-exit", "--colors=NoColor"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as terminal:
        os.close(theirs)
        try:
            see, seen = _reader(ours)
            see(b"In [1]")
            os.write(ours, b"%load_ext nbdata\r")
            see(b"In [2]")
            os.write(ours, b"import qqmodule\r")
            see(b"In [3]")
            os.write(ours, b"qqmodule.un\t")
            see(b"mistakable_name")
            os.write(ours, b" + 6001\r")
            see(b"6002")
        finally:
            terminal.kill()
            os.close(ours)
    assert b"Traceback" not in seen
    assert b"Error" not in seen


def _reader(terminal: int) -> tuple[Callable[[bytes], None], bytearray]:
    """Return a function that waits until a terminal shows a text after the last one, and all that it showed."""
    seen, place = bytearray(), 0

    def see(wanted: bytes) -> None:
        nonlocal place
        while (found := seen.find(wanted, place)) < 0:
            assert select.select([terminal], [], [], PATIENCE)[0], bytes(seen[-3000:])
            seen.extend(os.read(terminal, 4096))
        place = found + len(wanted)

    return see, seen
