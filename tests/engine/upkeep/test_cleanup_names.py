"""Only names that nbdata gives are its own: a user's files with such a place or suffix are left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import nbdata

pytestmark = pytest.mark.usefixtures("inline", "state")


@pytest.mark.parametrize("everything", [False, True])
def test_a_folder_of_the_user_that_somebody_called_nbdata_is_left_alone(
    tmp_path: Path, everything: bool
) -> None:
    """Who may write in the folder above may rename it."""
    results = tmp_path / "lab/.nbdata"
    names = (
        "results.csv", "abc.part", "0123456789ab", "ABCDEFABCDEF0", "0123456789abcdef0123456789.part", "cache-x/model",
        "kept-0123/model", "cache-0123456789abcdefs/model", "kept-0123456789abcdef.locked", "0123456789abx", "run/0/x",
    )  # fmt: skip
    for name in names:
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_text(name)
    (results / "link").symlink_to("results.csv")
    (results / "empty").mkdir()
    (results / "0123456789ab1").write_text("a temporary")
    (tmp_path / "lab/notes.nbdata-partial").write_text("notes")
    (tmp_path / "lab/.0123.nbdata-partial").write_text("notes")
    for file in tmp_path.glob("lab/*.nbdata-partial"):
        os.utime(file, (0, 0))
    report = nbdata.cleanup(tmp_path / "lab", all=everything, quiet=True)
    assert report.counts == {"removed": 1}
    assert len([path for path in (tmp_path / "lab").rglob("*") if not path.is_dir()]) == len(names) + 3
    assert (results / "empty").is_dir()
    (note,) = report.notes
    assert note.startswith(
        "left alone: 15 files with the place or suffix of nbdata's, which it did not make: "
    )
    assert note.endswith("/lab/.nbdata/0123456789ab")


def test_a_cache_begins_beside_a_folder_of_the_user_with_a_name_like_that_of_a_cache(
    tmp_path: Path, tree: Path
) -> None:
    model = tmp_path / "disk/.nbdata/cache-of-models/model"
    model.parent.mkdir(parents=True)
    model.write_text("model")
    with nbdata.cache_stream(str(tree), by="file", cache_dir=str(tmp_path / "disk"), quiet=True) as stream:
        assert list(stream)
    assert model.read_text() == "model"
