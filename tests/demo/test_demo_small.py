"""The demo on a small disk: volumes ten times as large as the disk allows pass from store to store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nbdata.demo.dataset import build_dataset
from nbdata.demo.run import small_job
from nbdata.demo.server import EmbeddedServer
from nbdata.demo.serverstate import emptied
from nbdata.demo.serving import BUCKET
from nbdata.verbs.push import push
from tests.conftest import client_of


@pytest.mark.long
def test_volumes_larger_than_the_disk_are_checked_and_unpacked_in_the_store(
    s3: EmbeddedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_HOST", "inline")
    data = build_dataset(tmp_path / "dataset", size="20MB", name="small")
    s3.create_bucket(BUCKET)
    push(f"{data.folder}/", f"s3://{BUCKET}/", include=("compressed/**", "md5/**"), quiet=True)
    try:
        most = small_job(data, emptied(tmp_path / "work"))
    finally:
        client = client_of(s3)
        client.delete_bucket(Bucket=BUCKET)
        client.close()
    said = capsys.readouterr()
    assert f"{data.members:,} ok" in said.err
    assert "stood on the disk, all of it records" in said.out
    assert most < data.bytes / 10 + 2_000_000  # for the records of a thousand files and a report's rows
    assert os.listdir(tmp_path / "work") == [".made-by-demo"]
