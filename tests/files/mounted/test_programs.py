"""Programs and libraries that open files by themselves find in a mount what they find on the disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import multiprocessing
import os
import random
import sqlite3
import subprocess
import termios
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbdata.demo.server import EmbeddedServer
from tests.files.mounted.conftest import Scene, scene_of

pytestmark = pytest.mark.needs("mount")

CLASSES = ("cat", "dog")
PICTURES = 40


def fill(disk: Path) -> None:
    """Make a checkout, pictures in folders of their classes, a database, an archive and an array."""
    chance = random.Random(11)
    (disk / "checkout/src/deep").mkdir(parents=True)
    for number in range(40):
        (disk / f"checkout/src/{number}.py").write_text(f"value = {number}\n" * chance.randrange(1, 500))
    (disk / "checkout/src/deep/ünï [x].txt").write_text("deep")
    (disk / "checkout/empty").touch()
    _git(disk / "checkout", "init", "-q")
    for number in range(3):
        (disk / "checkout/README").write_text(f"{number}\n")
        _git(disk / "checkout", "add", "-A")
        _git(disk / "checkout", "commit", "-q", "-m", f"Number {number}")
    _ran("find", disk, "-type", "d", "-empty", "-delete")  # a store has no empty folders
    for name in CLASSES:
        (disk / "pictures" / name).mkdir(parents=True)
        for number in range(PICTURES // len(CLASSES)):
            (disk / f"pictures/{name}/{number:03}.png").write_bytes(_picture(chance))
    with contextlib.closing(sqlite3.connect(disk / "rows.db")) as database, database:
        database.execute("create table rows (number integer primary key, name text)")
        database.executemany("insert into rows values (?, ?)", ((n, f"row {n}" * 9) for n in range(20_000)))
    with zipfile.ZipFile(disk / "members.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for number in range(50):
            packed.writestr(f"d/{number}.txt", f"member {number}\n" * 2000)
    (disk / "array.bin").write_bytes(chance.randbytes(6 << 20))


def _picture(chance: random.Random) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.frombytes("RGB", (24, 16), chance.randbytes(24 * 16 * 3)).save(buffer, "png")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def shown(environment: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A mount of these files."""
    yield from scene_of(environment, tmp_path_factory.mktemp("programs"), fill)


def _ran(*words: str | Path, **options: Any) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _git(folder: Path, *words: str) -> str:
    """Run git as a user whose settings are of no effect, in a folder that it does not write to unasked."""
    said = ["-c", "user.name=N", "-c", "user.email=n@example.org", "-c", f"safe.directory={folder}"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    return _ran("git", *said, "-C", folder, *words, env=environment)


@pytest.mark.long
def test_programs_list_and_compare_as_on_the_disk(shown: Scene, tmp_path: Path) -> None:
    for words in (("ls", "-R"), ("find", ".", "-type", "f", "-size", "+100k"), ("du", "-ab", "rows.db")):
        there, here = (sorted(_ran(*words, cwd=place).splitlines()) for place in (shown.folder, shown.disk))
        assert there == here
    sums = _ran("find", ".", "-type", "f", "-exec", "md5sum", "{}", "+", cwd=shown.disk)
    (tmp_path / "sums").write_text(sums)
    checked = _ran("md5sum", "-c", tmp_path / "sums", cwd=shown.folder).splitlines()
    assert len(checked) == len(sums.splitlines())
    assert all(line.endswith(": OK") for line in checked)
    assert _ran("diff", "-r", "-x", ".nbdata-mount", shown.folder, shown.disk) == ""


@pytest.mark.needs("rsync")
def test_rsync_finds_nothing_to_copy(shown: Scene) -> None:
    words = ("rsync", "-rni", "--checksum", "--delete", "--exclude=.nbdata-mount", "--exclude=.git")
    changes = _ran(*words, f"{shown.disk}/", f"{shown.folder}/").splitlines()
    assert changes == []
    changes = _ran(*words, f"{shown.folder}/", f"{shown.disk}/").splitlines()
    assert changes == []


@pytest.mark.needs("git")
def test_git_reads_a_checkout(shown: Scene) -> None:
    folder = shown.folder / "checkout"
    assert _git(folder, "status", "--porcelain") == ""
    assert [line.split(" ", 1)[1] for line in _git(folder, "log", "--oneline").splitlines()] == [
        "Number 2",
        "Number 1",
        "Number 0",
    ]
    assert _git(folder, "show", "HEAD~1:README") == "1\n"
    assert _git(folder, "fsck", "--full", "--no-dangling") == ""
    assert _git(folder, "grep", "-c", "value = 7$", "--", "src/7.py").startswith("src/7.py:")


@pytest.mark.long
def test_tar_and_cp_copy_all_of_it(shown: Scene, tmp_path: Path) -> None:
    packed = subprocess.run(
        ["tar", "cf", "-", "-C", shown.folder, "checkout"], capture_output=True, check=True
    )
    (tmp_path / "there").mkdir()
    subprocess.run(["tar", "xf", "-", "-C", tmp_path / "there"], input=packed.stdout, check=True)
    assert _ran("diff", "-r", tmp_path / "there/checkout", shown.disk / "checkout") == ""
    _ran("cp", "-a", shown.folder / "pictures", tmp_path / "copy")
    assert _ran("diff", "-r", tmp_path / "copy", shown.disk / "pictures") == ""


def test_databases_and_archives_are_read_in_their_middle(shown: Scene) -> None:
    for how in ("immutable=1", "mode=ro"):  # the second one takes locks
        with contextlib.closing(sqlite3.connect(f"file:{shown.folder}/rows.db?{how}", uri=True)) as database:
            found = database.execute("select name from rows where number = 17000").fetchall()
            assert found == [("row 17000" * 9,)]
            assert database.execute("select count(*), sum(number) from rows").fetchone() == (
                20_000,
                199_990_000,
            )
            assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    with zipfile.ZipFile(shown.folder / "members.zip") as packed:
        assert packed.read("d/31.txt") == b"member 31\n" * 2000
        assert packed.testzip() is None


def test_arrays_and_pictures_are_read(shown: Scene) -> None:
    import numpy as np
    from PIL import Image

    expected = np.fromfile(shown.disk / "array.bin", dtype="uint32")
    mapped = np.memmap(shown.folder / "array.bin", dtype="uint32", mode="r")
    assert (mapped[1_000_000:1_000_100] == expected[1_000_000:1_000_100]).all()
    assert (np.fromfile(shown.folder / "array.bin", dtype="uint32") == expected).all()
    changed = np.memmap(shown.folder / "array.bin", dtype="uint32", mode="c")
    changed[5] = 1  # a page of its own; the file stays
    assert (mapped == expected).all()
    del mapped, changed
    for name in CLASSES:
        there, here = (place / f"pictures/{name}/007.png" for place in (shown.folder, shown.disk))
        with Image.open(there) as picture, Image.open(here) as same:
            assert picture.tobytes() == same.tobytes()


def _error(act: Callable[[], object]) -> int:
    try:
        act()
    except OSError as error:
        return error.errno or -1
    return 0


def test_what_a_mount_lacks_is_refused_at_once(shown: Scene, tmp_path: Path) -> None:
    path = shown.folder / "array.bin"
    assert _error(lambda: os.listxattr(path)) == errno.EOPNOTSUPP
    assert _error(lambda: os.getxattr(path, "user.x")) == errno.EOPNOTSUPP
    assert _error(lambda: os.setxattr(path, "user.x", b"")) == errno.EROFS
    assert _error(lambda: os.truncate(path, 1)) == _error(lambda: os.utime(path)) == errno.EROFS
    assert not os.access(path, os.W_OK)
    assert not os.access(path, os.X_OK)
    disk = os.statvfs(path)
    assert (disk.f_bavail, disk.f_namemax) == (0, 255)
    with open(path, "rb", buffering=0) as file, open(tmp_path / "copy", "wb") as copy:
        assert _error(lambda: fcntl.ioctl(file, termios.TIOCGWINSZ, bytes(8))) == errno.ENOTTY
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert os.lseek(file.fileno(), 10, os.SEEK_DATA) == 10
        assert os.lseek(file.fileno(), 10, os.SEEK_HOLE) == 6 << 20
        assert os.sendfile(copy.fileno(), file.fileno(), 4000, 500) == 500
        far = _error(lambda: os.copy_file_range(file.fileno(), copy.fileno(), 500, offset_src=4500))
        assert far == errno.EXDEV  # then programs copy by themselves
    assert (tmp_path / "copy").read_bytes() == (shown.disk / "array.bin").read_bytes()[4000:4500]


class Pictures:
    """A dataset as torchvision's ImageFolder: a picture and the number of the folder that it is in."""

    def __init__(self, folder: Path) -> None:
        self.found = [
            (Path(where, name), number)
            for number, label in enumerate(
                sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
            )
            for where, _, names in sorted(os.walk(folder / label, followlinks=True))
            for name in sorted(names)
        ]

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        import numpy as np
        import torch
        from PIL import Image

        path, label = self.found[number]
        with open(path, "rb") as file:
            return torch.from_numpy(np.array(Image.open(file).convert("RGB"))), label


@pytest.mark.long
@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_workers_of_a_loader_read_pictures(shown: Scene, start: str) -> None:
    import torch
    from torch.utils.data import DataLoader

    there, here = Pictures(shown.folder / "pictures"), Pictures(shown.disk / "pictures")
    expected = {(bytes(picture.numpy()), label) for picture, label in (here[n] for n in range(PICTURES))}
    assert len(expected) == PICTURES
    context = multiprocessing.get_context(start)
    loader = DataLoader(there, batch_size=5, shuffle=True, num_workers=2, multiprocessing_context=context)  # type: ignore[arg-type]
    torch.manual_seed(1)
    for _ in range(2):
        found = {
            (bytes(p.numpy()), int(n))
            for pictures, labels in loader
            for p, n in zip(pictures, labels, strict=True)
        }
        assert found == expected
