"""Which other disks are recommended if there is too little room."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import nbdata
from nbdata.space import elsewhere
from nbdata.space.elsewhere import disks_instead, named
from nbdata.space.ledger import Ledger
from nbdata.space.limits import Disk, disk_of, writable_disks
from tests.agent.rig import tmpfs

GB = 10**9


def _disk(path: str, free: int, device: int, **more: bool) -> Disk:
    return Disk(path, 100 * GB, 100 * GB - free, free, None, device, **more)


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Disk]:
    """The disk of the target, two others, and memory, which has the most room."""
    device = os.stat(tmp_path).st_dev
    found = [
        _disk("/dev/shm", 60 * GB, 7, in_memory=True),
        _disk("/", 50 * GB, 8),
        _disk("/small", 2 * GB, 9),
        _disk(str(tmp_path), 5 * GB, device),
    ]
    monkeypatch.setattr(elsewhere, "writable_disks", lambda: found)
    return found


def test_other_disks_are_recommended_before_memory_and_the_own_disk_never(
    disks: list[Disk], tmp_path: Path
) -> None:
    target = f"{tmp_path}/deep/out"
    assert [d.path for d in disks_instead(target, GB, 0)] == ["/", "/small"]
    assert [d.path for d in disks_instead(target, 3 * GB, 0)] == ["/"]
    only = disks_instead(target, 55 * GB, 0)
    assert [named(d) for d in only] == ["/dev/shm (in memory, 60.0 GB free)"]
    assert disks_instead(target, 61 * GB, 0) == []


def test_a_limited_folder_is_no_help_and_its_disk_only_outside_of_it(
    disks: list[Disk], tmp_path: Path
) -> None:
    target, root = f"{tmp_path}/deep/out", str(tmp_path)
    assert [d.path for d in disks_instead(target, GB, 0, limited=f"{root}/deep")] == ["/", "/small", root]
    assert [d.path for d in disks_instead(target, GB, 0, limited=root)] == ["/", "/small"]
    del disks[0:3]
    assert disks_instead(target, GB, 0, limited=root) == []
    (own,) = disks_instead(target, GB, 0, limited=f"{root}/deep")
    assert named(own, limited=f"{root}/deep") == f"{root} (5.0 GB free, outside {root}/deep)"


def test_a_disk_without_inodes_is_no_help(disks: list[Disk], tmp_path: Path) -> None:
    disks[1] = replace(disks[1], inodes_free=3)
    assert [d.path for d in disks_instead(str(tmp_path), GB, 5)] == ["/small"]


@pytest.mark.needs("mounts")
def test_memory_is_known_from_disks_and_a_mount_below_another_has_its_own(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "outer", size="20m") as outer, tmpfs(outer / "inner", size="40m") as inner:
        found = {disk.path: disk for disk in writable_disks()}
        assert found[str(outer)].in_memory
        assert found[str(inner)].in_memory
        assert not disk_of("/")[0].in_memory
        assert {disk.path for disk in disks_instead(str(inner), 1 << 20, 0)} & {
            str(outer),
            str(inner),
        } == set()
        here = disk_of(str(tmp_path))[0].device
        if any(disk.device == here for disk in found.values()):  # only if the test may write to the root
            assert here in [disk.device for disk in disks_instead(str(inner), 1 << 20, 0)]
        # A mount over the outer one hides both.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(outer)], check=True)
        inner.mkdir()
        try:
            found = {disk.path: disk for disk in writable_disks()}
            assert str(inner) not in found
            assert found[str(outer)].size == 30 << 20
        finally:
            subprocess.run(["umount", str(outer)], check=True)


@pytest.mark.needs("mounts")
def test_the_refusal_by_a_limit_names_no_place_inside_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tmpfs(tmp_path / "disk", size="40m") as disk:
        limited = {str(disk): (10 << 20, "%quota --limit")}
        with pytest.raises(nbdata.NotEnoughSpace) as caught:
            Ledger().reserve(f"{disk}/out", 20 << 20, 1, limited)
        assert str(disk) not in caught.value.details["disks"]
        assert f"on {disk} (" not in str(caught.value)
        monkeypatch.setattr(elsewhere, "writable_disks", lambda: [_disk("/m", GB, 7, in_memory=True)])
        with pytest.raises(
            nbdata.NotEnoughSpace, match=r"It would fit only on /m \(in memory, 1\.0 GB free\)"
        ):
            Ledger().reserve(f"{disk}/out", 20 << 20, 1, limited)


@pytest.mark.needs("mounts")
@pytest.mark.parametrize(
    ("operation", "ways"),
    [
        (nbdata.Pull("s3://b/d/", "out"), "Or take less with --max-bytes or --include"),
        (
            nbdata.UntarVolumes("s3://b/d/", "out"),
            "Or take less with --members, or name a URL as TARGET, which needs no disk",
        ),
    ],
)
def test_the_refusal_names_a_way_on_a_machine_with_one_disk(
    operation: nbdata.Operation, ways: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "writable_disks", lambda: [_disk("/m", GB, 7)])
    with tmpfs(tmp_path / "disk", size="10m") as disk, pytest.raises(nbdata.NotEnoughSpace) as caught:
        Ledger().reserve(f"{disk}/out", 20 << 20, 1, {}, less=operation.with_less)
    assert str(caught.value).endswith(f"It would fit on /m (1.0 GB free). {ways}")
