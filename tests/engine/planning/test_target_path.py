"""A target that cannot be written to is refused before the start, whatever the verb."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.errors import AccessDenied, BadOption, NotFound
from tests.agent.rig import tmpfs

VERBS: dict[str, Callable[[Path, str], Any]] = {
    "pull": lambda source, target: nbdata.pull(source, target, quiet=True),
    "push": lambda source, target: nbdata.push(source, target, quiet=True),
    "untar_volumes": lambda source, target: nbdata.untar_volumes(source.parent / "a.tar", target, quiet=True),
    "untar to shards": lambda source, target: nbdata.untar_volumes(
        source.parent / "a.tar", f"{target}/x-%d.tar", quiet=True
    ),
    "pack": lambda source, target: nbdata.pack(source, f"{target}/", quiet=True),
    "pack to files": lambda source, target: nbdata.pack(source, f"{target}/", format="files", quiet=True),
    "pack to an archive": lambda source, target: nbdata.pack(source, f"{target}/x.tar.gz", quiet=True),
    "cache_stream": lambda source, target: list(
        nbdata.cache_stream(source, by="file", cache_dir=target, quiet=True)
    ),
}


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_a_target_that_is_a_file_is_refused(verb: str, below: bool, tmp_path: Path, inline: None) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "1.jpg").write_bytes(b"1")
    (tmp_path / "file").write_bytes(b"mine")
    with tarfile.open(tmp_path / "a.tar", "w") as made:
        made.add(source / "1.jpg", "1.jpg")
    what = "a file stands in the target's path" if below else "the target is a file"
    with pytest.raises(BadOption, match=f"{what}: {tmp_path}/file .expected a folder"):
        VERBS[verb](source, str(tmp_path / "file" / "below" if below else tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b"mine"


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_a_link_to_nothing_as_target_is_told_as_such(
    verb: str, below: bool, tmp_path: Path, inline: None
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "1.jpg").write_bytes(b"1")
    (tmp_path / "lost").symlink_to("nowhere")
    with tarfile.open(tmp_path / "a.tar", "w") as made:
        made.add(source / "1.jpg", "1.jpg")
    with pytest.raises(BadOption, match=f"a link .*{tmp_path}/lost .got nowhere"):
        VERBS[verb](source, str(tmp_path / "lost" / "below" if below else tmp_path / "lost"))


def test_a_source_that_is_a_link_to_nothing_is_told_as_such(tmp_path: Path, inline: None) -> None:
    (tmp_path / "lost").symlink_to("nowhere")
    with pytest.raises(NotFound, match="the source is a link whose target does not exist"):
        nbdata.push(tmp_path / "lost", "memory://x/", quiet=True)


@pytest.mark.needs("mounts")
@pytest.mark.parametrize("verb", ["pull", "push", "untar_volumes", "pack"])
def test_a_plan_for_a_read_only_disk_fails_like_the_command(verb: str, tmp_path: Path, inline: None) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "1.jpg").write_bytes(b"1" * 5000)
    with tarfile.open(tmp_path / "a.tar", "w") as made:
        made.add(source / "1.jpg", "1.jpg")
    with tmpfs(tmp_path / "disk", size="1m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        place = source if verb != "untar_volumes" else tmp_path / "a.tar"
        for dry_run in (True, False):
            with pytest.raises(AccessDenied, match="the file system is read-only"):
                getattr(nbdata, verb)(place, f"{disk}/out/", dry_run=dry_run, quiet=True)


def test_a_plan_to_unpack_into_a_bucket_that_does_not_exist_fails(
    tmp_path: Path, s3: object, inline: None
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as made:
        made.add(Path(__file__), "1.jpg")
    with pytest.raises(NotFound, match="there is no such bucket"):
        nbdata.untar_volumes(tmp_path / "a.tar", "s3://nobucket/x/", dry_run=True)


def test_a_plan_names_its_conflicts_and_what_to_do(tmp_path: Path, inline: None) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for number in range(25):
        (source / f"{number:02}").write_bytes(b"1")
    nbdata.pull(source, target, quiet=True)
    for number in range(25):
        (source / f"{number:02}").write_bytes(b"theirs")
        (target / f"{number:02}").write_bytes(b"mine")
    told = nbdata.pull(source, target, dry_run=True).text()
    assert "conflict 00: changed on both sides since it was pulled; --overwrite always replaces it" in told
    assert told.count("\n  conflict ") == 20
    assert "… and 5 more" in told
