"""A short, fixed part of the small-disk campaign; `make faults` runs it completely."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbdata.client.agents import stop_all
from nbdata.demo.server import EmbeddedServer
from tests.faults.disks import run_all
from tests.faults.goods import Goods
from tests.faults.small_disks import KINDS, Order, small_disk, why_not
from tests.faults.tables import disk_tables

SEED = 1
# One run for each kind of disk in CI, and for each command. In some runs another process fills the disk.
NUMBERS = (1, 2, 4, 11, 16, 19, 30)


@pytest.fixture
def goods(seaweedfs: EmbeddedServer, tmp_path: Path) -> Iterator[Goods]:
    stop_all(now=True)
    made = Goods(seaweedfs, tmp_path / "goods", seed=SEED)
    yield made
    made.close()
    stop_all(now=True)


def test_a_disk_with_too_little_room_is_never_overfilled_and_the_same_line_completes(goods: Goods) -> None:
    results = list(run_all(goods, seed=SEED, numbers=NUMBERS))
    print(disk_tables(results))
    assert [result.line for result in results if not result.good] == []
    ways = {way for result in results for way in result.ways}
    assert ways >= {"right", "refused"}
    # If another process fills the disk, the command pauses or fails; that depends on its progress.
    assert ways & {"filled", "waited"}


def test_what_is_not_run_is_in_the_table_with_the_reason(
    goods: Goods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    why_not.cache_clear()
    try:
        results = list(run_all(goods, seed=SEED, numbers=range(3)))
    finally:
        why_not.cache_clear()
    assert [result.end for result in results] == [
        f"not run: there is no {name}" for name in ("mount", "mount", "mkfs.ext4")
    ]
    assert all(result.end in disk_tables(results) for result in results)


NEEDS = {"tmpfs": "mounts", "tmpfs, inodes": "mounts", "ext4": "ext4", "btrfs, qgroup": "btrfs"}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.needs(NEEDS[kind])] if kind in NEEDS else []) for kind in KINDS],
)
def test_a_small_disk_is_gone_whatever_happens_on_it(kind: str, tmp_path: Path) -> None:
    disk = small_disk(tmp_path, Order(kind, 8 << 20, 100))
    (disk.__enter__().folder / "x").touch()
    assert not disk.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    assert not list(tmp_path.iterdir())
    assert "NBDATA_QUOTA" not in os.environ


def test_a_user_other_than_root_mounts_small_disks_in_a_name_space(tmp_path: Path) -> None:
    """If the system allows no user name space, the reason is given."""
    assert shutil.which("unshare")
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from tests.faults.small_disks import KINDS, why_not\n"
        "import json; print(json.dumps([why_not(kind) for kind in KINDS]))"
    )
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    if told.returncode:
        assert "unshare" in told.stderr
        return
    found = dict(zip(KINDS, json.loads(told.stdout), strict=True))
    assert found["tmpfs"] == found["tmpfs, inodes"] == found["%quota"] == ""
    assert found["ext4"]
