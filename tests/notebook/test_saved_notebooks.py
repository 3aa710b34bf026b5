"""Notebooks that were saved, and are read without a kernel: the end of each transfer is there, and it is the true one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbconvert import HTMLExporter

from nbdata.client.remote import AgentHost
from tests.slow import SlowProxy

Put = Callable[[dict[str, bytes]], str]


class Saved:
    """A notebook that is run as by ``jupyter execute``, may be disturbed, and is saved as it then is."""

    def __init__(self, folder: Path, *cells: str) -> None:
        self._path = folder / "saved.ipynb"
        self._folder = folder
        self._notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        self._manager = KernelManager()

    def run(self, *, when: Callable[[Any], bool] | None = None, send: int = 0) -> None:
        """Run all cells; once `when` is true of the cells, send the kernel a signal."""
        client = NotebookClient(self._notebook, km=self._manager, timeout=120, allow_errors=True)
        disturber = threading.Thread(target=self._disturb, args=(when, send), daemon=True)
        if when is not None:
            disturber.start()
        try:
            client.execute(cwd=str(self._folder), cleanup_kc=True)
        except DeadKernelError:
            assert send == signal.SIGKILL
        finally:
            nbformat.write(self._notebook, self._path)
        if when is not None:
            disturber.join(1)
            assert not disturber.is_alive(), "it was never disturbed"

    def _disturb(self, when: Callable[[Any], bool], send: int) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if when(self._notebook.cells):
                # To the process itself, as a notebook whose kernel is lost does not know of it before.
                os.kill(self._manager.provisioner.pid, send)
                return
            time.sleep(0.02)

    def bundles(self, cell: int) -> list[dict[str, Any]]:
        """What was saved below a cell."""
        notebook = nbformat.read(self._path, as_version=4)
        return [output["data"] for output in notebook.cells[cell].outputs if "data" in output]

    def pages(self) -> list[str]:
        """Each cell's output as ``nbconvert --to html`` shows it, without tags."""
        cells = nbformat.read(self._path, as_version=4).cells
        shown = []
        for cell in cells:
            page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
            body = page[page.index("<body") :]
            assert "Loading widget" not in body
            assert "widget-view" not in body
            shown.append(re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", body)))
        return shown


def moved(cell: int) -> Callable[[Any], bool]:
    """Whether a panel below that cell shows that files arrived."""
    return lambda cells: re.search(r" [1-9]\d*/\d+ files", str(cells[cell].outputs)) is not None


@pytest.fixture
def url(put: Put) -> str:
    """60 objects of 400 kB: six seconds on the slow line."""
    return put({f"data/{n:02d}": os.urandom(400_000) for n in range(60)}) + "data/"


@pytest.mark.usefixtures("slow")
def test_finished_failed_and_interrupted_transfers_show_their_true_end(
    put: Put, url: str, tmp_path: Path
) -> None:
    good = put({"good/a": b"1", "good/b": b"22"}) + "good/"
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x").write_bytes(b"1")
    (tmp_path / "bad" / "x.md5").write_text("00000000000000000000000000000000  x\n")
    notebook = Saved(
        tmp_path,
        "%load_ext nbdata",
        f"%pull {good} good",
        "%md5check bad",
        f"%pull {url} stopped",
        f"%pull {good} again -b",
    )
    notebook.run(when=moved(3), send=signal.SIGINT)
    _, finished, failed, interrupted, background = notebook.pages()
    assert "2 fetched; 3 B in" in finished
    assert "FAILED" in failed
    assert re.search(r"failures object reason x expected 0000", failed)
    assert re.search(r"at \d\d:\d\d:\d\d: interrupted · \d+% · .* of 24\.0 MB · \d+/60 files", interrupted)
    assert "what was done is kept, and the same line continues" in interrupted
    assert "running" not in interrupted
    assert " left" not in interrupted
    assert "2 fetched; 3 B in" in background
    for cell in (1, 2, 3, 4):
        for bundle in notebook.bundles(cell):
            assert set(bundle) == {"text/plain", "text/html"}


def test_a_notebook_whose_kernel_was_killed_says_when_it_was_so_and_what_to_do(
    url: str, slow: SlowProxy, tmp_path: Path
) -> None:
    notebook = Saved(tmp_path, "%load_ext nbdata", f"%pull {url} killed")
    notebook.run(when=moved(1), send=signal.SIGKILL)
    (bundle,) = notebook.bundles(1)
    for shown in (notebook.pages()[1], bundle["text/plain"]):
        assert re.search(r"at \d\d:\d\d:\d\d: running", shown)
        assert re.search(r"\d{4}-\d\d-\d\d", shown)
        assert re.search(r"[1-9]\d*/60 files", shown)
        assert "the same line continues, also if this no longer moves" in shown
    job = AgentHost().jobs()[-1]
    assert not job.finished, "what it says is true: the same line attaches"
    AgentHost().job(job.id).cancel()


def test_a_background_job_that_outlives_the_notebook_is_dated_and_named(
    url: str, slow: SlowProxy, tmp_path: Path
) -> None:
    notebook = Saved(tmp_path, "%load_ext nbdata", f"%pull {url} outlives -b", "%transfers")
    notebook.run()
    job = AgentHost().jobs()[-1]
    bundle, *others = notebook.bundles(1)
    assert re.search(r"at \d\d:\d\d:\d\d: running", bundle["text/html"].replace("<b>", ""))
    assert f"job {job.id} goes on without this notebook" in bundle["text/html"]
    assert not [
        value for other in others for name, value in other.items() if name.startswith("text/") and value
    ]
    assert "as of " in notebook.pages()[2]
    AgentHost().job(job.id).cancel()


def test_the_installed_nbconvert_makes_the_same_page(put: Put, tmp_path: Path) -> None:
    import subprocess
    import sys

    url = put({"d/a": b"1"}) + "d/"
    notebook = Saved(tmp_path, "%load_ext nbdata", f"%pull {url} here -b")
    notebook.run()
    assert shutil.which("jupyter")
    subprocess.run(
        [sys.executable, "-m", "nbconvert", "--to", "html", "saved.ipynb"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    assert "1 fetched" in (tmp_path / "saved.html").read_text()
