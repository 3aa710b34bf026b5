"""Importing nbdata is cheap: it takes little time and loads no heavy modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = (
    "obstore",
    "opendal",
    "botocore",
    "s3fs",
    "fsspec",
    "ipywidgets",
    "torch",
    "IPython",
    "tqdm",
    "asyncio",
    "ssl",
)


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    ).stdout


def test_import_loads_nothing_heavy() -> None:
    assert run(f"import sys, nbdata; print([m for m in {HEAVY} if m in sys.modules])").strip() == "[]"


def test_import_takes_less_than_a_few_modules_of_python_itself() -> None:
    def seconds(modules: str) -> float:
        # CPU time, because wall time depends on other programs.
        code = f"import time; t = time.process_time(); import {modules}; print(time.process_time() - t)"
        return min(float(run(code)) for _ in range(5))

    # When measured, the two were about equal.
    assert seconds("nbdata") < 3 * seconds("asyncio, email.message, http.client, unittest")


def test_a_pull_through_the_agent_loads_neither_botocore_nor_a_store(tmp_path: Path) -> None:
    code = (
        f"import sys, nbdata, pathlib; d = {str(tmp_path / 'd')!r};"
        "pathlib.Path(d).mkdir(); pathlib.Path(d, 'a').touch();"
        "nbdata.pull(d + '/', d + '-out', quiet=True);"
        "print([m for m in ('botocore', 'nbdata.engine.jobs', 'nbdata.stores.s3', 'IPython') if m in sys.modules])"
    )
    assert run(code).strip() == "[]"
