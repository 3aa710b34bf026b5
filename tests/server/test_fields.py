"""The fields of a job: what the panel reads is what the server sends."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from nbdata.disk import disk_error
from nbdata.errors import NbdataError, NotFound
from nbdata.report import Snapshot
from nbdata.server.shown import shown
from nbdata.space.ledger import Room, not_enough
from nbdata.space.limits import Domain

MODEL = Path(__file__).parents[2] / "labextension/src/model.ts"


def test_the_server_sends_every_field_that_the_panel_reads() -> None:
    """A missing one would be 0 or empty in the panel, and nothing else would fail."""
    function = MODEL.read_text().partition("function parseJob(")[2].partition("\n}\n")[0]
    read = set(re.findall(r"\bjob\.(\w+)", function))
    assert "files_total" in read
    assert read <= shown(Snapshot("1", "pull"), "/", True).keys()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/work/train.ipynb", "train.ipynb"),
        ("/work/a b/train.ipynb", "a b/train.ipynb"),
        ("", None),
        ("/elsewhere/train.ipynb", None),
        ("/work/../etc/train.ipynb", None),
        ("/work/.hidden/train.ipynb", None),
    ],
)
def test_a_notebook_is_told_only_where_jupyterlab_can_open_it(path: str, told: str | None) -> None:
    assert shown(Snapshot("1", "pull", notebook=path), "/work", True)["notebook"] == told


def test_only_verbs_that_take_a_limit_can_be_limited() -> None:
    limited = [verb for verb in ("pull", "push", "ls", "samples", "probe", "odd") if _can_limit(verb)]
    assert limited == ["pull", "push"]


def test_a_job_that_failed_for_lack_of_space_says_where(tmp_path: Path) -> None:
    disk = Domain("/mnt/disk", 7, 10, "free on the disk")
    limit = Domain("/work/small", None, 10, "%quota --limit")

    def where(error: NbdataError, state: str = "FAILED") -> object:
        return shown(Snapshot("1", "pull", state=state, error=error.to_dict()), "/work", True)["lacks"]

    def full(domain: Domain) -> NbdataError:
        return not_enough(str(tmp_path), 11, 1, Room(domain, 0, 0, 10, None, 0))

    assert where(full(limit)) == {"folder": "/work/small", "limited": True}
    assert where(full(disk)) == {"folder": "/mnt/disk", "limited": False}
    became_full = disk_error(OSError(errno.ENOSPC, "full"), str(tmp_path))
    assert where(became_full) == {"folder": str(tmp_path), "limited": False}
    assert where(NotFound("no such bucket", path="/work")) is None
    assert where(full(disk), "CANCELLED") is None


def _can_limit(verb: str) -> bool:
    return bool(shown(Snapshot("1", verb), "/", True)["can_limit"])
