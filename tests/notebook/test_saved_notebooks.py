"""Saved notebooks, read without a kernel, show the true result of each transfer."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from nbdata.client.remote import AgentHost
from tests.faults.gate import Gate
from tests.kernel import Kernel, Page, kernel_manager
from tests.waiting import PATIENCE, wait_until

Put = Callable[[dict[str, bytes]], str]


class Saved:
    """A notebook that was run, perhaps disturbed, and then saved."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def run(
        cls,
        folder: Path,
        *cells: str,
        when: Callable[[Any], bool] = bool,
        then: Callable[[int], None] | None = None,
    ) -> Saved:
        """Run all cells as ``jupyter execute`` does; call `then` once `when` is true."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        manager = kernel_manager()
        client = NotebookClient(notebook, km=manager, timeout=PATIENCE, allow_errors=True)
        done, over = threading.Event(), threading.Event()

        def disturb() -> None:
            if then is not None:
                wait_until(lambda: over.is_set() or when(notebook.cells))
                if not over.is_set():
                    then(manager.provisioner.pid)
                    done.set()

        disturber = threading.Thread(target=disturb, daemon=True)
        disturber.start()
        client.execute(cwd=str(folder), cleanup_kc=True)
        over.set()
        disturber.join()
        assert then is None or done.is_set(), "what was waited for never was"
        return cls._save(folder, notebook)

    @classmethod
    def of(cls, folder: Path, page: Page, *cells: str) -> Saved:
        """Return a notebook of what a page shows below some cells, even if its kernel is dead."""
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
        """Return the saved bundles below a cell."""
        notebook = nbformat.read(self._path, as_version=4)
        return [output["data"] for output in notebook.cells[cell].outputs if "data" in output]

    def pages(self) -> list[str]:
        """Return each cell's output as ``nbconvert --to html`` shows it, without tags."""
        shown = []
        for cell in nbformat.read(self._path, as_version=4).cells:
            page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
            body = page[page.index("<body") :]
            assert "Loading widget" not in body
            shown.append(re.sub(r"\s+", " ", unescape(re.sub("<[^>]*>", " ", body))))
        return shown


def moved(cell: int) -> Callable[[Any], bool]:
    """Return a condition: the panel below that cell shows that files arrived."""
    return lambda cells: re.search(r" [1-9]\d*/\d+ files", str(cells[cell].outputs)) is not None


@pytest.fixture
def url(put: Put) -> str:
    """The URL of 60 objects of 400 kB. When 8 MB have passed with four at a time, sixteen are complete."""
    return put({f"data/{n:02d}": os.urandom(400_000) for n in range(60)}) + "data/"


def test_finished_failed_and_interrupted_transfers_show_their_true_end(
    put: Put, url: str, gate: Gate, tmp_path: Path
) -> None:
    def interrupt(kernel: int) -> None:
        os.kill(kernel, signal.SIGINT)
        wait_until(
            lambda: (
                [job.state for job in AgentHost().jobs() if job.target.endswith("stopped")] == ["CANCELLED"]
            )
        )
        gate.open()
        (tmp_path / "over").touch()

    gate.close(after=8_000_000)
    good = put({"good/a": b"1", "good/b": b"22"}) + "good/"
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x").write_bytes(b"1")
    (tmp_path / "bad" / "x.md5").write_text("00000000000000000000000000000000  x\n")
    notebook = Saved.run(
        tmp_path,
        "%load_ext nbdata",
        f"%pull {good} good",
        "%md5check bad",
        f"%pull {url} stopped --concurrency 4",
        # A kernel that ends right after an interrupt counts as restarted, and its job continues. So this cell waits.
        "import os, time\nwhile not os.path.exists('over'): time.sleep(0.02)",
        f"j = %pull {good} again -b",
        "_ = j.wait()",
        "j",
        when=moved(3),
        then=interrupt,
    )
    _, finished, failed, interrupted, _, _, _, background = notebook.pages()
    assert "2 fetched; 3 B in" in finished
    assert failed.count("the md5 differs (expected 00000000") == failed.count("does not match") == 1
    assert re.search(r"interrupted · \d+% +· .* of 24\.0 MB · \d+/60 files", interrupted)
    assert "what was done is kept; run it again to resume" in interrupted
    assert "running" not in interrupted
    assert " left" not in interrupted
    assert "2 fetched; 3 B in" in background
    for cell in (1, 2, 3, 7):
        for bundle in notebook.bundles(cell):
            assert set(bundle) == {"text/plain", "text/html"}


def test_a_notebook_whose_kernel_was_killed_says_when_it_was_so_and_what_to_do(
    url: str, kernel: Kernel, gate: Gate, tmp_path: Path
) -> None:
    kernel.run(f"import os; os.environ['AWS_ENDPOINT_URL'] = {gate.url!r}")
    gate.close(after=8_000_000)
    cell = kernel.start(f"%pull {url} killed --concurrency 4")
    kernel.until(lambda: re.search(r"[1-9]\d*/60 files", kernel.page.texts(cell)) is not None)
    kernel.manager.signal_kernel(signal.SIGKILL)
    notebook = Saved.of(tmp_path, kernel.page, cell)
    (bundle,) = notebook.bundles(0)
    assert set(bundle) == {"text/plain", "text/html"}
    for shown in (notebook.pages()[0], bundle["text/plain"]):
        assert re.search(r"\d+%.*running", shown)
        assert re.search(r"as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown)
        assert re.search(r"[1-9]\d*/60 files", shown)
        assert "run it again to resume, also if this display stops updating" in shown
    job = AgentHost().jobs()[-1]
    assert not job.finished, "what it says is true: the same command attaches"
    AgentHost().job(job.id).cancel()


@pytest.mark.long
def test_a_background_job_that_outlives_the_notebook_is_dated_and_named(
    url: str, gate: Gate, tmp_path: Path
) -> None:
    gate.close(after=8_000_000)
    notebook = Saved.run(
        tmp_path,
        "%load_ext nbdata",
        f"%pull {url} outlives -b",
        "import os, time\nwhile not os.path.exists('shown'): time.sleep(0.02)",
        "%transfers",
        when=lambda cells: re.search(r"[,·] running", str(cells[1].outputs)) is not None,
        then=lambda _kernel: (tmp_path / "shown").touch(),
    )
    job = AgentHost().jobs()[-1]
    bundle, *others = notebook.bundles(1)
    assert re.search(r"\d+%.*running.*as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", bundle["text/html"])
    assert f"job {job.id} continues without this notebook" in bundle["text/html"]
    assert not [
        value for other in others for name, value in other.items() if name.startswith("text/") and value
    ]
    assert "as of " in notebook.pages()[3]
    AgentHost().job(job.id).cancel()
