"""No secret leaks: each verb runs, succeeding and failing, with secrets wherever a user can put one.

Then every byte is searched: outputs, saved notebooks, verbose tracebacks, the server's responses and log, runtime and
state folders, targets, and the process list.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.kernel import Kernel, kernel_manager
from tests.lab import Lab
from tests.secrets.scene import LINES, OURS, STREAMS, Line, ProcessList, Scene, agents
from tests.waiting import PATIENCE, wait_until

NBDATA = str(Path(sys.executable).with_name("nbdata"))
Put = Callable[[dict[str, bytes]], str]

# A user's module that provides the secrets, so no cell contains one.
PRIVATE = """
import json, os
names = json.loads(os.environ["SCENE"])
def __getattr__(name):
    if name not in names:
        raise AttributeError(name)
    return names[name]
"""
PYTHON = [
    "nbdata.pull(private.password_refused, 'p/')",
    "nbdata.pull(private.signed_refused, 'p/')",
    "nbdata.pull(private.with_keys, 'p/')",
    "nbdata.pull('s3://nowhere/x', private.signed)",
    "nbdata.pull('s3://nowhere/x', 'p', storage_options=private.options)",
    "nbdata.pull('s3://nowhere/x', 'p', storage_options=private.options, ofer=1)",
    "nbdata.md5check(private.signed, storage_options={**private.options, 'wrong': 1})",
    "nbdata.untar_volumes([private.password_refused], 'p')",
    "nbdata.copy(private.password_refused, 's3://nowhere/x')",
    "nbdata.cache_stream(private.signed_refused, by='file')",
    "nbdata.pull('http://127.0.0.1:9/x', 'p/', fs=private.fs)",
    "nbdata.pull(private.password_gone, 'p/', fs=private.fs)",
    "print(nbdata.Pull(private.signed, 'p', storage_options=private.options))",
    "print(nbdata.Pull(private.signed, 'p/').plan(), list(nbdata.Pull(private.signed, 'p/').plan().rows))",
    "print(list(nbdata.samples(private.password, cache='1MB', cache_dir='k').stream()), nbdata.quota('.').details)",
    "print(list(nbdata.samples(private.signed, cache='1MB', cache_dir='k').stream()), nbdata.quota('.').details)",
    "job = nbdata.Pull(private.signed, 'p/').start(); report = job.wait()",
    "print(job, job.snapshot(), report, report.to_dict(), list(report.rows))",
    "nbdata.Pull(private.password_refused, 'p/').start().wait()",
]
FS = """
import fsspec
options = {"key": names["bad_key"], "secret": names["bad_secret"], "token": names["bad_token"]}
headers = {"Authorization": "Bearer " + names["bad_token"]}
fs = fsspec.filesystem("http", client_kwargs={"headers": headers})
"""


@pytest.fixture
def scene(
    s3: EmbeddedServer, bucket: str, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    put({"d/a": b"1", "d/b": b"22"})
    work = tmp_path / "work"
    work.mkdir()
    with Scene(work, s3, bucket) as made:
        for name, value in made.variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("IPYTHONDIR", str(work / "ipython"))
        monkeypatch.chdir(work)
        with ProcessList(made) as processes:
            yield made
        assert processes.looks
        # Users may type secrets into their own commands. The agent and its child processes must not show any.
        assert [line for line in processes.seen if f"{NBDATA} " not in line] == []


def nothing_is_left(scene: Scene) -> None:
    """Check that no secret is in nbdata's folders, the working folder or the agent's environment."""
    runtime = os.environ["NBDATA_RUNTIME_DIR"]
    assert any(Path(runtime).rglob("*.log"))
    assert Path(os.environ["NBDATA_STATE_DIR"], "jobs.log").stat().st_size, "the history is looked at too"
    assert scene.found_below(runtime, os.environ["NBDATA_STATE_DIR"], ".") == []
    running = list(agents(runtime))
    assert running
    for process in running:
        assert scene.found_in((process / "environ").read_bytes()) == []


def notebook(cells: list[str], scene: Scene) -> tuple[list[list[str]], str]:
    """Run cells as a user does and save them.

    Return the names of the errors below each cell, and the saved notebook.
    """
    Path("private.py").write_text(PRIVATE + FS)
    bad = {name.lower(): value for name, value in scene.variables.items() if name.startswith("BAD_")}
    os.environ["SCENE"] = json.dumps(scene.names | bad)
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    try:
        client = NotebookClient(made, km=kernel_manager(), timeout=PATIENCE, allow_errors=True)
        client.execute(cwd=".", cleanup_kc=True)
    finally:
        del os.environ["SCENE"]
    text = nbformat.writes(made)
    html, _ = HTMLExporter().from_notebook_node(made)
    errors = [[out.ename for out in cell.outputs if out.output_type == "error"] for cell in made.cells]
    return errors, text + html


@pytest.mark.timeout(300)
def test_no_secret_is_in_a_saved_notebook(scene: Scene) -> None:
    lines = [*LINES, *STREAMS]
    names = "import private\nfrom private import names\nglobals().update(names)"
    cells = ["%load_ext nbdata", names]
    cells += [
        f"for item in get_ipython().run_line_magic{tuple(s.words.split(' ', 1))}: pass" for s in STREAMS
    ]
    magics = [f"%{line.words}" for line in LINES]
    errors, saved = notebook([*cells[:2], *magics, *cells[2:]], scene)
    assert errors[:2] == [[], []]
    wrong = [(line, e) for line, e in zip(lines, errors[2:], strict=True) if bool(e) == line.good]
    assert wrong == []
    assert scene.found_in(saved) == []
    nothing_is_left(scene)


@pytest.mark.timeout(300)
@pytest.mark.in_ci("text")
@pytest.mark.parametrize("face", [[], ["--json"]], ids=["text", "json"])
def test_no_secret_is_in_a_terminal(scene: Scene, face: list[str]) -> None:
    def run(line: Line) -> None:
        more = ["--run", "true"] if line.words.startswith("cache_stream") else []
        words = [word.format(**scene.names) for word in line.words.split()] + more
        done = subprocess.run([NBDATA, *words, *face], capture_output=True, timeout=PATIENCE)
        assert (done.returncode == 0) is line.good, (line, done.stderr)
        assert scene.found_in(done.stdout) == []
        assert scene.found_in(done.stderr) == []

    for line in [*LINES, *STREAMS]:
        if line.words != "push tree {bucket}/p/ --delete-source":
            run(line)
    log = subprocess.run([NBDATA, "agent", "log", "-n", "1000"], capture_output=True, timeout=PATIENCE)
    assert b"agent" in log.stdout
    assert scene.found_in(log.stdout) == []
    nothing_is_left(scene)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("host", ["agent", "inline"])
def test_no_secret_is_in_a_verbose_traceback(scene: Scene, host: str) -> None:
    cells = [f"%env NBDATA_HOST={host}", "%xmode Verbose", "import nbdata, private", *PYTHON]
    errors, saved = notebook(cells, scene)
    told = dict(zip(PYTHON, errors[3:], strict=True))
    assert [code for code, e in told.items() if bool(e) == code.startswith(("print", "job"))] == []
    assert scene.found_in(saved) == []
    if host == "agent":
        nothing_is_left(scene)


@pytest.mark.long
def test_no_secret_is_in_what_the_jupyter_server_says(scene: Scene, tmp_path: Path) -> None:
    with Lab(tmp_path) as lab:
        jobs = [
            nbdata.Pull(scene.names[name], "lab/").start()
            for name in ("password_refused", "signed", "password_gone")
        ]
        wait_until(lambda: all(job.snapshot().finished for job in jobs))
        with contextlib.suppress(nbdata.NbdataError):
            jobs[0].wait()
        replies = [lab.ask("nbdata/api/jobs").body, lab.ask("nbdata/api/disks").body]
        replies.append(lab.ask(f"nbdata/api/jobs/{jobs[0].id}/cancel", "POST").body)
    assert all(job.id in replies[0] for job in jobs)
    for text in (*replies, lab.log.read_text()):
        assert scene.found_in(text) == []
    nothing_is_left(scene)


@pytest.mark.long
def test_a_user_who_types_a_secret_is_told_a_safer_way(scene: Scene, kernel: Kernel) -> None:
    words = f"{scene.names['bucket']}/d/ w -n --option key=me --option secret={scene.variables['BAD_SECRET']}"
    done = subprocess.run([NBDATA, "pull", *words.split()], capture_output=True, text=True, timeout=PATIENCE)
    said = kernel.run(f"%pull {words}")
    assert "list of processes; --option secret=env:NAME takes it from the environment" in done.stderr
    assert "saved with this cell; --option secret=env:NAME takes it from the environment" in said.text
    assert scene.found_in(f"{done.stderr}{said}") == []
    told = subprocess.run(
        [NBDATA, "pull", *f"a b -n {OURS}".split()], capture_output=True, text=True, timeout=PATIENCE
    )
    assert "takes it from the environment" not in told.stderr
    kernel.run("import os; name = {'of': 'BAD_SECRET'}; secret = os.environ[name['of']]")
    for pair in ("secret={secret}", "'secret=$secret'", "secret={name['of']}", "{secret}=x"):
        assert (
            "is saved with this cell" not in kernel.run(f"%pull a w -n --option key=me --option {pair}").text
        )
    assert "is saved with this cell" in kernel.run("%pull a w -n --option 'secret=half-{secret}'").text


def test_the_search_finds_what_is_there(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text(f"a{scene.variables['BAD_SECRET']}b")
    assert [shown for _, shown in scene.found_below(tmp_path / "out")] == [["BAD_SECRET"]]
    assert scene.found_in(scene.names["signed"]) == ["signature", "session"]
