"""Limits: who sets them, which one applies where, and what counts below a folder."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import threading
from pathlib import Path

import pytest

from nbdata.errors import BadOption
from nbdata.space import limits
from nbdata.space.limits import (
    disk_of,
    domains,
    limited_folders,
    round_up,
    set_limit,
    used_below,
    writable_disks,
)
from tests.waiting import wait_until


def test_a_limit_is_kept_and_can_be_changed_and_removed(tmp_path: Path) -> None:
    state, folder = str(tmp_path / "state"), str(tmp_path / "data")
    set_limit(state, folder + "/", 5_000)
    assert limited_folders(state, {}) == {folder: (5_000, "%quota --limit")}
    set_limit(state, folder, 7_000)
    assert limited_folders(state, {}) == {folder: (7_000, "%quota --limit")}
    set_limit(state, folder, None)
    assert limited_folders(state, {}) == {}
    with pytest.raises(BadOption, match="no limit"):
        set_limit(state, folder, None)
    assert os.listdir(state) == ["limits.json"]


def test_a_limit_is_on_the_folder_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    set_limit(str(tmp_path / "state"), str(tmp_path / "link"), 1_000)
    limited = limited_folders(str(tmp_path / "state"), {})
    assert list(limited) == [str(tmp_path / "real")]
    for way in ("real", "link"):
        assert [d.root for d in domains(str(tmp_path / way / "new"), limited)][1:] == [str(tmp_path / "real")]


def _set_many(state: str, name: str) -> None:
    for number in range(10):
        set_limit(state, f"/nonexistent/{name}{number}", 1)


def test_limits_that_two_processes_set_at_once_are_all_kept(tmp_path: Path) -> None:
    state = str(tmp_path)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_set_many, args=(state, name)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(limited_folders(state, {})) == 30


def test_the_environment_sets_a_limit_from_outside(tmp_path: Path) -> None:
    state, home = str(tmp_path / "state"), str(tmp_path / "home")
    assert limited_folders(state, {"NBDATA_QUOTA": "5GB", "HOME": home}) == {
        home: (5 * 10**9, "NBDATA_QUOTA")
    }
    assert limited_folders(state, {"NBDATA_QUOTA": f"5g:{tmp_path}/x/", "HOME": home}) == {
        f"{tmp_path}/x": (5 * 2**30, "NBDATA_QUOTA")
    }
    assert list(limited_folders(state, {"NBDATA_QUOTA": "1k:sub", "HOME": home})) == [f"{home}/sub"]
    with pytest.raises(BadOption, match="NBDATA_QUOTA"):
        limited_folders(state, {"NBDATA_QUOTA": "much", "HOME": home})


@pytest.mark.parametrize(
    ("kept", "outside", "source"), [(1_000, "2000", "%quota --limit"), (2_000, "1000", "NBDATA_QUOTA")]
)
def test_of_two_limits_on_one_folder_the_smaller_holds(
    tmp_path: Path, kept: int, outside: str, source: str
) -> None:
    set_limit(str(tmp_path), "/data", kept)
    assert limited_folders(str(tmp_path), {"NBDATA_QUOTA": f"{outside}:/data"}) == {"/data": (1_000, source)}


def test_a_file_of_limits_that_is_damaged_is_none(tmp_path: Path) -> None:
    (tmp_path / "limits.json").write_text("{torn")
    assert limited_folders(str(tmp_path), {}) == {}
    (tmp_path / "limits.json").write_text(json.dumps([1]))
    assert limited_folders(str(tmp_path), {}) == {}


def test_every_limited_folder_around_a_path_holds_and_none_beside_it(tmp_path: Path) -> None:
    limited = {f"{tmp_path}{below}": (1, "x") for below in ("", "/a", "/a/b", "/ab", "/a/b/c/d")}
    found = domains(f"{tmp_path}/a/b/c", limited)
    assert found[0].device == os.stat(tmp_path).st_dev
    assert [d.root for d in found[1:]] == [str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"]


def test_usage_counts_blocks_of_every_file_and_hard_links_once(tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/big").write_bytes(os.urandom(100_000))
    (root / "small").write_bytes(b"x")
    once = used_below(str(root))
    block = disk_of(str(root))[2]
    assert once >= 100_000 + block
    os.link(root / "deep/er/big", root / "again")
    os.link(root / "deep/er/big", root / "deep/and again")
    (root / "soft").symlink_to(root / "deep/er/big")
    assert once <= used_below(str(root)) <= once + 3 * block  # folders may have grown
    with open(root / "sparse", "wb") as file:
        file.truncate(10**9)
    assert used_below(str(root)) < once + 10**6


def test_usage_of_what_vanishes_meanwhile_is_still_found(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / "stays").write_bytes(bytes(50_000))
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            for n in range(20):
                (root / f"f{n}").mkdir(exist_ok=True)
                (root / f"f{n}/x").write_bytes(b"x")
            for n in range(20):
                (root / f"f{n}/x").unlink()
                (root / f"f{n}").rmdir()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        # The count must not fail, nor lose files that stay because others vanish beside them.
        assert all(used_below(str(root)) >= 50_000 for _ in range(200))
    finally:
        stop.set()
        thread.join()
    assert used_below(str(root / "missing")) == 0


@pytest.mark.parametrize(("size", "rounded"), [(0, 0), (1, 4096), (4096, 4096), (4097, 8192), (-1, 0)])
def test_sizes_are_rounded_up_to_blocks(size: int, rounded: int) -> None:
    assert round_up(size, 4096) == rounded


def test_the_disk_of_a_folder_that_is_not_there_is_that_of_the_nearest_above(tmp_path: Path) -> None:
    disk, device, block = disk_of(str(tmp_path / "no/such/folder"))
    assert disk.path == str(tmp_path)
    assert device == os.stat(tmp_path).st_dev
    assert block > 0
    assert 0 < disk.free <= disk.size


def test_a_disk_has_the_figures_of_df(tmp_path: Path) -> None:
    def agreed() -> bool:
        """Compare with df; other programs write to the disk, so it may change between two looks."""
        told = subprocess.run(
            ["df", "--block-size=1", "--output=size,used,avail", tmp_path],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        disk, _, _ = disk_of(str(tmp_path))
        return [disk.size, disk.used, disk.free] == [int(word) for word in told.stdout.split()[-3:]]

    wait_until(agreed)


def test_writable_disks_are_each_named_once_and_hold_users_files() -> None:
    found = writable_disks()
    devices = [os.stat(disk.path).st_dev for disk in found]
    assert len(devices) == len(set(devices))
    assert all(os.access(disk.path, os.W_OK) and disk.size for disk in found)
    assert [disk.free for disk in found] == sorted((disk.free for disk in found), reverse=True)
    assert not any(disk.path.startswith(("/sys/", "/proc/")) for disk in found)


@pytest.mark.parametrize("name", ["données x", os.fsdecode(b"donn\xe9es x")], ids=["UTF-8", "other bytes"])
def test_a_disk_whose_mount_point_has_any_name_is_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    mounts = tmp_path / "mounts"
    mounts.write_bytes(os.fsencode(f"disk {tmp_path / name.replace(' ', chr(92) + '040')} ext4 rw 0 0\n"))
    real = open
    monkeypatch.setattr(
        limits, "open", lambda path, **how: real(mounts if "mounts" in path else path, **how), raising=False
    )
    assert [disk.path for disk in writable_disks()] == [str(tmp_path / name)]
