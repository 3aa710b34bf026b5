"""A file in the place of a target folder is a wrong use, whatever the verb."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.errors import BadOption

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
