"""The lines for each library in ``docs/files-and-paths.md`` run, in their order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbdata
from nbdata.files import FileSystem
from tests.files.page import blocks
from tests.waiting import PATIENCE

WRITTEN = {
    "t.parquet",
    "t.csv.gz",
    "parts",
    "one.csv",
    "p.parquet",
    "a.zarr",
    "x.zarr",
    "a.npy",
    "model.pt",
    "a.h5",
}


def test_the_lines_for_each_library_run(bucket: str, tmp_path: Path) -> None:
    for block in blocks("Libraries", bucket):
        done = subprocess.run(
            [sys.executable, "-c", block],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"
    files = nbdata.filesystem("s3://")
    assert {name.split("/")[1] for name in files.find(bucket)} >= WRITTEN
    FileSystem.clear_instance_cache()
