"""Volumes written by GNU tar's `--multi-volume` are joined without the header that each volume repeats."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nbdata.archives.multi_volume import HEAD
from nbdata.archives.whole import begins_archive
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.unpack.targets import unpacking
from nbdata.errors import BadArchive, MissingVolume
from tests.engine.unpack.test_untar_to_store import sent, stored
from tests.engine.unpack.test_unzip import files_of
from tests.engine.unpack.unpacking import untar

pytestmark = pytest.mark.usefixtures("inline")

SOURCE = random.Random(6)
FILES = {
    f"f{number}": SOURCE.randbytes(size) for number, size in enumerate([70_000, 3_000, 0, 45_000, 20_480])
}
FILES["a" * 98 + "/" + "b" * 90] = SOURCE.randbytes(50_000)


@pytest.fixture
def pack(tmp_path: Path) -> Callable[..., list[Path]]:
    def make(*options: str, names: str = "a.tar{}", files: dict[str, bytes] = FILES) -> list[Path]:
        for name, data in files.items():
            (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "in" / name).write_bytes(data)
        folder = tmp_path / "v"
        folder.mkdir()
        paths = [folder / names.format("" if number == 1 else f"-{number}") for number in range(1, 60)]
        volumes = [f"--file={path}" for path in paths]
        command = ["tar", "-cM", "-L20", *options, *volumes, *sorted(files)]
        subprocess.run(command, cwd=tmp_path / "in", check=True)
        return [path for path in paths if path.exists()]

    return make


@pytest.mark.parametrize("form", ["gnu", "oldgnu", "posix", "gnu --label=it"])
def test_all_formats_and_labels_are_joined(
    form: str, pack: Callable[..., list[Path]], tmp_path: Path
) -> None:
    assert len(pack(*f"--format={form}".split())) > 8
    report = untar(tmp_path / "v", tmp_path / "out")
    assert files_of(tmp_path / "out") == FILES
    assert report.ok
    assert untar(tmp_path / "v", tmp_path / "out").counts == {"unchanged": len(FILES)}


def test_listed_volumes_may_have_any_name(pack: Callable[..., list[Path]], tmp_path: Path) -> None:
    volumes = pack("--format=gnu", names="x{}.vol")
    untar([str(path) for path in volumes], tmp_path / "out")
    assert files_of(tmp_path / "out") == FILES


def test_a_volume_that_is_missing_is_named(pack: Callable[..., list[Path]], tmp_path: Path) -> None:
    pack("--format=gnu")[3].unlink()
    with pytest.raises(MissingVolume, match=r"a\.tar-4"):
        untar(tmp_path / "v", tmp_path / "out")


def test_a_later_volume_by_itself_is_told_as_such(pack: Callable[..., list[Path]], tmp_path: Path) -> None:
    volumes = pack("--format=gnu")
    with pytest.raises(BadArchive, match="begins in another volume"):
        untar([str(volumes[1])], tmp_path / "out")


@pytest.mark.usefixtures("small_steps")
def test_a_set_in_a_store_goes_on_where_it_was(
    pack: Callable[..., list[Path]], bucket: str, s3: EmbeddedServer, put: Callable[..., str]
) -> None:
    assert unpacking.EVERY == 100_000
    files = {f"f{n:03}": random.Random(n).randbytes(30_000) for n in range(18)}
    url = put({f"v/{path.name}": path.read_bytes() for path in pack("--format=posix", files=files)})
    sent(14, f"{url}v/", f"{url}out/")
    report = untar(f"{url}v/", f"{url}out/", delete_volumes=True)
    assert report.details["resumed_at"] > 100_000
    assert stored(s3, bucket, "out/") == files
    assert not stored(s3, bucket, "v/")


@pytest.mark.parametrize("names", ["a.tar.{}", "a-{}"])
@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_zeros_in_the_files_make_no_volume_an_archive(
    names: str, form: str, pack: Callable[..., list[Path]], tmp_path: Path
) -> None:
    zeros = {f"z{number}": bytes(50_000) for number in range(3)}
    volumes = pack(f"--format={form}", files=zeros)
    assert begins_archive(volumes[0].read_bytes()[:HEAD])
    assert not begins_archive(volumes[1].read_bytes()[:HEAD])
    for number, path in enumerate(volumes, 1):
        path.rename(path.with_name(names.format(number)))
    untar(tmp_path / "v", tmp_path / "out")
    assert files_of(tmp_path / "out") == zeros
