"""ls and du of many objects: their memory use, and a listing that breaks halfway."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

import pytest

import nbdata
from benchmarks.listing import Bucket
from nbdata.cli import main
from nbdata.transfer import retry
from tests.engine.test_scale import peak_of
from tests.stores.servers import serving

PLACE = ("s3://b/many/", "--option", "anon=true")


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("line", [("ls", *PLACE, "--recursive", "--json"), ("du", *PLACE, "--json")])
@pytest.mark.in_ci("line1")
def test_four_times_as_many_objects_take_no_more_memory(
    line: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = {}
    for count in (3_000, 3_000, 13_000):  # the first run also loads modules
        with serving(Bucket(count, 10, 0.0).serve) as port, open(tmp_path / "out", "w+") as out:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
            with contextlib.redirect_stdout(out):
                peaks[count] = peak_of(lambda: main(line))
            out.seek(0)
            assert sum(json.loads(row)["kind"] != "total" for row in out) == count // (
                10 if line[0] == "du" else 1
            )
    assert peaks[13_000] < peaks[3_000] + 1_000_000


class Breaking(Bucket):
    """Lists a folder of folders, and refuses the second page once."""

    refused = False

    def page(self, query: dict[str, str]) -> bytes:
        text = super().page(query)
        if "delimiter" not in query:
            return text
        return (
            text.replace(b"<Contents><Key>", b"<CommonPrefixes><Prefix>")
            .replace(b"</Key>", b"/</Prefix></CommonPrefixes><Left>")
            .replace(b"</Contents>", b"</Left>")
        )

    def answer(self, method: str, target: str) -> tuple[int, str, bytes | None]:
        if "continuation-token" in target and not self.refused:
            self.refused = True
            return 503, "", b""
        return super().answer(method, target)


@pytest.mark.usefixtures("inline")
def test_a_listing_that_broke_off_goes_on_behind_its_last_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST", 0.0)
    bucket = Breaking(2_500, 0, 0.0)
    with serving(bucket.serve) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        report = nbdata.ls("s3://b/many/", storage_options={"anon": True}, quiet=True)
    assert bucket.refused
    assert [row.path for row in report.rows] == [f"{bucket.name(n)}/" for n in range(2_500)]
    assert report.retries == 1


@pytest.mark.long
def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    for number in range(3_000):
        (tmp_path / f"{number}{'x' * 60}").touch()
    status = os.system(
        f"cd {tmp_path} && {sys.executable} -m nbdata ls 2>{tmp_path}/err | head -1 >/dev/null"
    )
    assert status == 0
    assert "Traceback" not in (tmp_path / "err").read_text()
