"""GNU tar, bsdtar, unzip, 7-Zip and nbdata restore what nbdata packs."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from tests.archives.corpus.content import CONTENT
from tests.archives.corpus.test_corpus import packed_content
from tests.engine.pack.archives import run, tree_of

__all__ = ["packed_content"]

pytestmark = pytest.mark.usefixtures("inline")

_Unpack = Callable[[Path, Path], object]


def _gnu(*options: str) -> _Unpack:
    return lambda archive, target: run("tar", *options, "-xf", archive, "-C", target)


def _bsd(archive: Path, target: Path) -> None:
    run("bsdtar", "-xf", archive, "-C", target)


def _unzip(archive: Path, target: Path) -> None:
    run("unzip", "-q", "-o", archive, "-d", target)
    run("zip", "-T", archive)


def _seven(archive: Path, target: Path) -> None:
    run("7zz", "x", "-y", "-snld20", archive, f"-o{target}")


def _nbdata(archive: Path, target: Path) -> None:
    nbdata.untar_volumes([str(archive)], target, quiet=True)


_READERS: list[tuple[str, str, tuple[str, ...], _Unpack]] = [
    *(("GNU tar", form, (), _gnu(*options)) for form, options in (("tar", ()), ("tar.gz", ("-z",)))),
    ("GNU tar", "tar.zst", ("zstd",), _gnu("--zstd")),
    *(("bsdtar", form, ("bsdtar",), _bsd) for form in ("tar", "tar.gz", "tar.zst", "zip")),
    *(("7-Zip", form, ("7zz",), _seven) for form in ("tar", "zip")),
    ("unzip", "zip", ("unzip", "zip"), _unzip),
    *(("nbdata", form, (), _nbdata) for form in ("tar", "tar.gz", "tar.zst", "zip")),
]
# Trees with names or times that a program cannot restore.
_NOT = {
    ("unzip", "zip"): {"names", "times"},
    ("7-Zip", "zip"): {"names", "times"},
    ("7-Zip", "tar"): {"names", "times", "links"},
    ("bsdtar", "zip"): {"names", "times"},
    ("nbdata", "zip"): {"names"},
}


@pytest.mark.in_ci(
    "7-Zip tar long",
    "7-Zip tar sparse",
    "7-Zip zip long",
    "7-Zip zip sparse",
    "GNU tar tar long",
    "GNU tar tar plain",
    "GNU tar tar times",
    "GNU tar tar.gz long",
    "GNU tar tar.gz plain",
    "GNU tar tar.gz times",
    "GNU tar tar.zst long",
    "GNU tar tar.zst plain",
    "GNU tar tar.zst times",
    "bsdtar tar long",
    "bsdtar tar plain",
    "bsdtar tar times",
    "bsdtar tar.gz long",
    "bsdtar tar.gz plain",
    "bsdtar tar.gz times",
    "bsdtar tar.zst long",
    "bsdtar tar.zst plain",
    "bsdtar tar.zst times",
    "bsdtar zip long",
    "bsdtar zip sparse",
    "nbdata tar long",
    "nbdata tar plain",
    "nbdata tar times",
    "nbdata tar.gz long",
    "nbdata tar.gz plain",
    "nbdata tar.gz times",
    "nbdata tar.zst long",
    "nbdata tar.zst plain",
    "nbdata tar.zst times",
    "nbdata zip long",
    "nbdata zip sparse",
    "unzip zip links",
    "unzip zip plain",
    12,
)
@pytest.mark.parametrize(
    ("form", "unpack", "tree"),
    [
        pytest.param(form, unpack, tree, id=f"{name} {form} {tree}", marks=pytest.mark.needs(*needs))
        for name, form, needs, unpack in _READERS
        for tree in CONTENT
        if tree not in _NOT.get((name, form), ())
    ],
)
def test_an_archive_of_ours_is_unpacked_as_it_was(
    form: str, unpack: _Unpack, tree: str, packed_content: Path, tmp_path: Path
) -> None:
    archive = tmp_path / f"x.{form}"
    nbdata.pack(packed_content / tree, archive, format=form, quiet=True)
    (tmp_path / "out").mkdir()
    unpack(archive, tmp_path / "out")
    wanted, got = tree_of(packed_content / tree), tree_of(tmp_path / "out")
    if form == "zip" and tree == "times":  # its time field has 32 bits
        wanted.pop("in 2300"), got.pop("in 2300")
    if unpack is _bsd:  # it composes letters and accents
        wanted, got = (
            {unicodedata.normalize("NFC", name): one for name, one in found.items()}
            for found in (wanted, got)
        )
    assert got == wanted


@pytest.mark.parametrize("form", ["tar", "tar.gz", "tar.zst", "zip"])
@pytest.mark.needs("bsdtar")
def test_joined_volumes_are_read_from_a_pipe(form: str, packed_content: Path, tmp_path: Path) -> None:
    nbdata.pack(
        packed_content / "plain", tmp_path / f"x.{form}", format=form, volume_size="128KiB", quiet=True
    )
    volumes = sorted(tmp_path.glob(f"x.{form}.*"))
    assert len(volumes) > 2
    (tmp_path / "out").mkdir()
    run("bsdtar", "-xf", "-", "-C", tmp_path / "out", data=b"".join(path.read_bytes() for path in volumes))
    assert tree_of(tmp_path / "out").keys() == tree_of(packed_content / "plain").keys()
    nbdata.untar_volumes(f"{volumes[0]}", tmp_path / "again", quiet=True)
    assert tree_of(tmp_path / "again") == tree_of(packed_content / "plain")
