"""Makes every mistake of the table, in a cell and in a terminal, and compares the errors with docs/errors.md.

``ERRORS_PAGE=write`` rewrites the page with the current errors; read it before you commit it.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.errors.forks import Commands
from tests.errors.scene import Scene
from tests.errors.table import SECTIONS, Mistake
from tests.kernel import Kernel
from tests.stores.certificates import self_signed
from tests.waiting import PATIENCE

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
NBDATA = str(Path(sys.executable).with_name("nbdata"))
ROWS = [mistake for section in SECTIONS.values() for mistake in section]
STATUS = {"BadOption": 2, "Cancelled": 130}
# Largest length of an error line that is still easy to read.
LONGEST = 250
HEAD = """# What goes wrong, and what to do

For everybody who gets an error. This page lists common mistakes, with the error class, the message and the exit status
of each. Tests make every mistake and record its message here.

A notebook shows the message as one line below the cell. A terminal prints it on stderr. In Python the class is raised.
The examples use `/work`, `s3://bucket` and `store:9000`.
"""
COLUMNS = "| mistake | command | message | exit status |\n|---|---|---|---|\n"

made: dict[str, str] = {}


def committed() -> dict[str, str]:
    """Return the error lines of the committed page, by mistake."""
    text = PAGE.read_text() if PAGE.exists() else ""
    return {line.split(" | ")[0][2:]: line for line in text.splitlines() if line.startswith("| ")}


WRITE = os.environ.get("ERRORS_PAGE") == "write"


@pytest.fixture(scope="module")
def scene(seaweedfs: EmbeddedServer) -> Iterator[Scene]:
    name = "errors-table"
    seaweedfs.create_bucket(name)
    client = client_of(seaweedfs)
    for key in ("d/a.txt", "d/b.txt", "both", "both/below", "odd/.nbdata/x"):
        client.put_object(Bucket=name, Key=key, Body=b"x" * 100_000)
    with tempfile.TemporaryDirectory(prefix="nbe-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "work").mkdir()
        made_for = self_signed(Path(folder) / "cert.pem")
        with Scene(Path(folder), seaweedfs, f"s3://{name}/", made_for) as ready:
            yield ready
    client.delete_bucket(Bucket=name)
    client.close()


@pytest.fixture(scope="module")
def cell(scene: Scene) -> Iterator[Kernel]:
    with Kernel(scene.work) as running:
        assert running.run("%load_ext nbdata\nimport os\nseveral = [1, 2]").error is None
        yield running


@pytest.fixture(scope="module")
def commands(scene: Scene) -> Iterator[Commands]:
    with Commands() as running:
        yield running


def test_the_table_has_enough_rows_and_each_occurs_once() -> None:
    assert len(ROWS) >= 100
    assert len({row.what for row in ROWS}) == len(ROWS)
    assert f"errors.md): {len(ROWS)} mistakes" in (Path(__file__).parents[2] / "README.md").read_text()


NEEDS = {"mount": "mounts", "nobody": "setpriv", "stranger": "other users"}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row, id=row.what, marks=[pytest.mark.needs(NEEDS[row.place])] if row.place in NEEDS else []
        )
        for row in ROWS
    ],
)
def test_a_mistake_is_told_in_one_clear_line(
    row: Mistake, scene: Scene, commands: Commands, request: pytest.FixtureRequest
) -> None:
    if row.place == "mount":
        scene.disks()
    if row.place == "nobody":
        scene.closed()
    if row.place == "stranger":
        scene.stranger()
    words = row.words.format(**scene.names)
    env = {**scene.env, **dict(word.split("=", 1) for word in shlex.split(row.env.format(**scene.names)))}
    env = {name: value for name, value in env.items() if value}
    told, status = "", "–"
    if row.face != "cell":
        done = terminal(row, words, env, scene, commands)
        status, last = str(done.returncode), _in_one_line(done.stderr.splitlines())
        assert done.returncode == STATUS.get(row.error, 1), done.stderr
        assert "Traceback" not in done.stderr
        told = last.removeprefix("nbdata: ")
        assert row.error == "Cancelled" or last.startswith("nbdata"), last
    if row.face != "terminal":
        if row.place == "nobody":
            shown = without_rights(words, env, scene)
        else:
            shown = below(request.getfixturevalue("cell"), row, words, env, scene)
        shown = _in_one_line(shown.splitlines())
        assert "\n" not in shown
        name, _, text = shown.partition(": ")
        assert name == row.error, shown
        if row.face == "both" and row.error != "Cancelled":
            in_cell = text.replace(f"%{row.words.split()[0]}", f"nbdata {row.words.split()[0]}")
            assert scene.page(in_cell) == scene.page(told)  # without the free space
        told = text
    assert 20 < len(scene.page(told)) <= LONGEST, told
    assert ". " in told or "(expected" in told or "<br>to do" in told, (
        f"it says nothing of what to do: {told}"
    )
    line = row.words.format(**{**scene.names, **scene.shown_names})
    said = f"`{row.error}`: {escaped(scene.page(told))}"
    made[row.what] = f"| {row.what} | `{escaped(scene.page(line))}` | {said} | {status} |"
    if not WRITE:
        assert made[row.what] == committed().get(row.what)


def _in_one_line(lines: list[str]) -> str:
    """Return the last line, or the last lines of which all but the first are set in: a refusal for lack of space."""
    first = max(number for number, line in enumerate(lines) if not line.startswith("  "))
    return "<br>".join(line.strip() for line in lines[first:])


def escaped(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("&lt;br>", "<br>")


def terminal(
    row: Mistake, words: str, env: dict[str, str], scene: Scene, commands: Commands
) -> subprocess.CompletedProcess[str]:
    """Run the command in a terminal."""
    command = [NBDATA, *shlex.split(words)]
    if row.place == "nobody":
        return run_without_rights(command, env, scene)
    if row.error != "Cancelled":
        return commands.run(command[1:], str(scene.work), env)
    scene.asked.clear()
    process = subprocess.Popen(command, cwd=scene.work, env=env, stderr=subprocess.PIPE, text=True)
    assert scene.asked.wait(PATIENCE)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(command, process.returncode, "", stderr)


def below(kernel: Kernel, row: Mistake, words: str, env: dict[str, str], scene: Scene) -> str:
    """Run the command in a notebook, and return the error below its cell."""
    kernel.run(f"os.environ.clear(); os.environ.update({env!r})")
    scene.asked.clear()
    running = kernel.start(f"%{words}")
    if row.error == "Cancelled":
        assert scene.asked.wait(PATIENCE)
        kernel.manager.interrupt_kernel()
    return str(kernel.collect(running).error)


SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "nbdata")
shell.run_cell(sys.argv[1])
"""


def without_rights(words: str, env: dict[str, str], scene: Scene) -> str:
    """Run the command in a cell as a user without rights, and return its output."""
    done = run_without_rights([sys.executable, "-c", SHELL, f"%{words}"], env, scene)
    assert done.stdout.strip(), done.stderr
    return done.stdout.strip()


def run_without_rights(
    command: list[str], env: dict[str, str], scene: Scene
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user who may not read other users' files; if root, drop the rights to read them."""
    limits = (
        ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner"] if os.getuid() == 0 else []
    )
    own = {name: str(scene.work / "own" / name) for name in ("NBDATA_RUNTIME_DIR", "IPYTHONDIR")}
    return subprocess.run(
        [*limits, *command], cwd=scene.work, env={**env, **own, "NBDATA_HOST": "inline"}, capture_output=True,
        text=True, timeout=PATIENCE,
    )  # fmt: skip


def test_the_page_is_what_the_tests_give() -> None:
    known = committed()
    text = HEAD
    for title, rows in SECTIONS.items():
        lines = [made.get(row.what) or known.get(row.what, "") for row in rows]
        text += f"\n## {title}\n\n{COLUMNS}" + "".join(f"{line}\n" for line in lines)
    if WRITE:
        PAGE.write_text(text)
    assert PAGE.read_text() == text
