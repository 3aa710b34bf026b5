"""Notebooks that were saved, and are read without a kernel: each transfer's end is there, and it is the true one."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from nbdata.client.remote import AgentHost
from tests.kernel import Kernel, Page
from tests.slow import SlowProxy

Put = Callable[[dict[str, bytes]], str]


class Saved:
    """A notebook that was run, perhaps disturbed, and saved as it then was."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def run(cls, folder: Path, *cells: str, interrupt: Callable[[Any], bool] | None = None) -> Saved:
        """Run all cells as ``jupyter execute`` does; interrupt the kernel once something is true of the cells."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        manager = KernelManager()
        client = NotebookClient(notebook, km=manager, timeout=120, allow_errors=True)
        done = threading.Event()

        def disturb() -> None:
            end = time.monotonic() + 60
            while interrupt is not None and not done.is_set() and time.monotonic() < end:
                if interrupt(notebook.cells):
                    done.set()
                    os.kill(manager.provisioner.pid, signal.SIGINT)
                time.sleep(0.02)

        disturber = threading.Thread(target=disturb, daemon=True)
        disturber.start()
        client.execute(cwd=str(folder), cleanup_kc=True)
        assert interrupt is None or done.is_set(), "it was never interrupted"
        done.set()
        disturber.join()
        return cls._save(folder, notebook)

    @classmethod
    def of(cls, folder: Path, page: Page, *cells: str) -> Saved:
        """What a page shows below some cells, whatever became of its kernel."""
        notebook = nbformat.v4.new_notebook()
        for cell in cells:
            outputs = [nbformat.v4.new_output("display_data", data=bundle) for bundle in page.of(cell)]
            notebook.cells.append(nbformat.v4.new_code_cell("", outputs=outputs))
        return cls._save(folder, notebook)

    @classmethod
    def _save(cls, folder: Path, notebook: Any) -> Saved:
        nbformat.write(notebook, folder / "saved.ipynb")
        return cls(folder / "saved.ipynb")

    def bundles(self, cell: int) -> list[dict[str, Any]]:
        """What was saved below a cell."""
        notebook = nbformat.read(self._path, as_version=4)
        return [output["data"] for output in notebook.cells[cell].outputs if "data" in output]

    def pages(self) -> list[str]:
        """Each cell's output as ``nbconvert --to html`` shows it, without tags."""
        shown = []
        for cell in nbformat.read(self._path, as_version=4).cells:
            page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
            body = page[page.index("<body") :]
            assert "Loading widget" not in body
            shown.append(re.sub(r"\s+", " ", unescape(re.sub("<[^>]*>", " ", body))))
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
    notebook = Saved.run(
        tmp_path,
        "%load_ext nbdata",
        f"%pull {good} good",
        "%md5check bad",
        f"%pull {url} stopped",
        f"j = %pull {good} again -b",
        "_ = j.wait()",
        "j",
        interrupt=moved(3),
    )
    _, finished, failed, interrupted, _, _, background = notebook.pages()
    assert "2 fetched; 3 B in" in finished
    assert "FAILED" in failed
    assert re.search(r"what is not ok path expected got why mismatch x 0{16}… c4ca4238a0b92382…", failed)
    assert re.search(r"at \d\d:\d\d:\d\d: +interrupted +· \d+% · .* of 24\.0 MB · \d+/60 files", interrupted)
    assert "what was done is kept, and the same line continues" in interrupted
    assert "running" not in interrupted
    assert " left" not in interrupted
    assert "2 fetched; 3 B in" in background
    for cell in (1, 2, 3, 6):
        for bundle in notebook.bundles(cell):
            assert set(bundle) == {"text/plain", "text/html"}


def test_a_notebook_whose_kernel_was_killed_says_when_it_was_so_and_what_to_do(
    url: str, kernel: Kernel, slow: SlowProxy, tmp_path: Path
) -> None:
    kernel.run(f"import os; os.environ['AWS_ENDPOINT_URL'] = {slow.url!r}")
    cell = kernel.start(f"%pull {url} killed")
    kernel.until(lambda: re.search(r"[1-9]\d*/60 files", kernel.page.texts(cell)) is not None)
    kernel.manager.signal_kernel(signal.SIGKILL)
    notebook = Saved.of(tmp_path, kernel.page, cell)
    (bundle,) = notebook.bundles(0)
    assert set(bundle) == {"text/plain", "text/html"}
    for shown in (notebook.pages()[0], bundle["text/plain"]):
        assert re.search(r"at \d\d:\d\d:\d\d: +running", shown)
        assert re.search(r"\d{4}-\d\d-\d\d", shown)
        assert re.search(r"[1-9]\d*/60 files", shown)
        assert "the same line continues, also if this no longer moves" in shown
    job = AgentHost().jobs()[-1]
    assert not job.finished, "what it says is true: the same line attaches"
    AgentHost().job(job.id).cancel()


def test_a_background_job_that_outlives_the_notebook_is_dated_and_named(
    url: str, slow: SlowProxy, tmp_path: Path
) -> None:
    notebook = Saved.run(tmp_path, "%load_ext nbdata", f"%pull {url} outlives -b", "%transfers")
    job = AgentHost().jobs()[-1]
    bundle, *others = notebook.bundles(1)
    assert re.search(r"at \d\d:\d\d:\d\d: running", bundle["text/html"].replace("<b>", ""))
    assert f"job {job.id} goes on without this notebook" in bundle["text/html"]
    assert not [
        value for other in others for name, value in other.items() if name.startswith("text/") and value
    ]
    assert "as of " in notebook.pages()[2]
    AgentHost().job(job.id).cancel()
