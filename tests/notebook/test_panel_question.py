"""The question that the panel asks a kernel: what it answers, and that it leaves no trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel import Kernel
from tests.waiting import PATIENCE

SOURCE = Path(__file__).parents[2] / "labextension/src/diagnosis.ts"


def asked(kernel: Kernel) -> str:
    """Ask as the panel does, and return the answer."""
    question = SOURCE.read_text().partition("QUESTION = `")[2].partition("`;")[0]
    sent = kernel.client.execute(
        "", silent=True, store_history=False, user_expressions={"nbdata": question}, allow_stdin=False
    )
    while True:
        reply = kernel.client.get_shell_msg(timeout=PATIENCE)
        if reply["parent_header"]["msg_id"] == sent:
            found = reply["content"]["user_expressions"]["nbdata"]
            assert found["status"] == "ok", found
            return str(found["data"]["text/plain"])


@pytest.fixture
def bare(tmp_path: Path) -> Kernel:
    """A kernel that has not loaded nbdata."""
    return Kernel(tmp_path)


def test_a_kernel_says_whether_nbdata_is_there_and_loaded(bare: Kernel, tmp_path: Path) -> None:
    with bare as kernel:
        assert asked(kernel).startswith("'installed ")
        kernel.run("import importlib, sys, sysconfig; path, finders = sys.path[:], sys.meta_path[:]")
        kernel.run(
            "own = [p for p in path if p.startswith(sysconfig.get_path('stdlib')) and 'site-' not in p]"
        )
        (tmp_path / "nbdata").mkdir()  # a folder of data is no package
        kernel.run(f"sys.path[:] = [{str(tmp_path)!r}, *own]")
        kernel.run("sys.meta_path[:] = [importlib.machinery.PathFinder]")
        kernel.run("importlib.invalidate_caches()")
        assert asked(kernel) == "'missing '"
        kernel.run("sys.path[:], sys.meta_path[:] = path, finders; importlib.invalidate_caches()")
        kernel.run("import nbdata; nbdata.__version__ = '0.0.9'")
        assert asked(kernel) == "'imported 0.0.9'"
        kernel.run("%load_ext nbdata")
        assert asked(kernel) == "'loaded 0.0.9'"


def test_the_question_leaves_no_trace_and_imports_no_nbdata(bare: Kernel) -> None:
    with bare as kernel:
        kernel.run("import sys; before = set(dir()); 6 * 7")
        asked(kernel)
        said = kernel.run("print(sorted(set(dir()) - before), _, len(In), 'nbdata' in sys.modules)")
        assert said.text == "['_1', '_i2', 'before'] 42 3 False\n"  # what the two cells themselves leave
