"""The same calls on a folder of the disk and on a folder of a bucket give the same, errors included."""

from __future__ import annotations

import glob
import io
import json
import os
import pickle
import secrets
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.files import FileSystem

_FILES = {
    "a.txt": b"one",
    "b.bin": bytes(range(256)) * 2000,
    "deep/c.txt": b"three",
    "deep/er/d.txt": b"",
    "deep/er/.hidden": b"h",
    "other/x/c.txt": b"four",
    "other/with space.txt": b"five",
    "other/[odd].txt": b"six",
    "ünï/ç.txt": b"seven",
}


def _make(root: str) -> None:
    for path, data in _FILES.items():
        os.makedirs(os.path.dirname(f"{root}/{path}"), exist_ok=True)
        with open(f"{root}/{path}", "wb") as file:
            file.write(data)


def _told(error: BaseException) -> str:
    number = getattr(error, "errno", None)
    kind = next(
        (
            c.__name__
            for c in type(error).__mro__
            if c.__module__ in ("builtins", "shutil") and c is not OSError
        ),
        "OSError",
    )
    return f"{kind} {number}"


def _run(act: Callable[[str], Any], root: str) -> Any:
    try:
        found = act(root)
    except Exception as error:
        return _told(error)
    if hasattr(found, "__next__"):
        found = list(found)
    return _plain(found, root)


def _plain(value: Any, root: str) -> Any:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return value.replace(root, "ROOT")
    if isinstance(value, dict):
        return {_plain(key, root): _plain(one, root) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one, root) for one in value]
    return value


def _read(path: str, mode: str = "r") -> Any:
    with open(path, mode) as file:
        return file.read()


def _named(path: str) -> Any:
    found = []
    for mode in ("r", "rb", "w", "wb", "a"):
        with open(path, mode) as file:
            found.append((file.name, getattr(file, "mode", "")))
    return found


def _zip_of_folders(root: str) -> Any:
    with zipfile.ZipFile(f"{root}/z.zip", "w") as archive:
        for path in sorted(Path(root, "deep").rglob("*")):
            archive.write(path, path.relative_to(root))
    with zipfile.ZipFile(f"{root}/z.zip") as archive:
        return archive.namelist()


def _path_read(path: str) -> Any:
    with Path(path).open("rb") as file:
        return file.read()


def _tree(root: str) -> Any:
    return sorted((top, sorted(folders), sorted(files)) for top, folders, files in os.walk(root))


def _entries(path: str) -> Any:
    with os.scandir(path) as entries:
        return sorted(
            (e.name, e.path, e.is_dir(), e.is_file(), e.is_symlink(), -1 if e.is_dir() else e.stat().st_size)
            for e in entries
        )


def _written(root: str, mode: str) -> Any:
    with open(f"{root}/made.txt", mode) as file:
        file.write("more" if "b" not in mode else b"more")
    with open(f"{root}/made.txt") as file:
        return file.read()


def _pruned(root: str) -> Any:
    seen = []
    for top, folders, files in os.walk(root):
        folders[:] = sorted(one for one in folders if one != "er")
        seen.append((top, list(folders), sorted(files)))
    return seen


def _zipped(root: str) -> Any:
    with zipfile.ZipFile(f"{root}/z.zip", "w") as archive:
        archive.writestr("m.txt", "in it")
    with zipfile.ZipFile(f"{root}/z.zip") as archive:
        return archive.namelist(), archive.read("m.txt")


def _tarred(root: str) -> Any:
    with tarfile.open(f"{root}/t.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("m")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
    with tarfile.open(f"{root}/t.tar.gz") as archive:
        return archive.getnames()


def _dumped(root: str) -> Any:
    with open(f"{root}/j.json", "w") as file:
        json.dump({"a": [1, 2]}, file)
    with open(f"{root}/p.pkl", "wb") as file:
        pickle.dump({"b": 3}, file)
    with open(f"{root}/j.json") as one, open(f"{root}/p.pkl", "rb") as two:
        return json.load(one), pickle.load(two)


_GLOBS = (
    *(
        "*",
        "*.txt",
        "*/*.txt",
        "*/c.txt",
        "deep/*",
        "deep/er/*",
        "deep/er/.*",
        "**/*.txt",
        "**",
        "**/",
        "*/",
        "?.txt",
    ),
    *("[ab].*", "other/[[]odd].txt", "nothing*", "a.txt", "none.txt", "*/*/c.txt", "ünï/*", "deep/**/d.txt"),
)

_ACTS: dict[str, Callable[[str], Any]] = {
    "listdir": lambda r: sorted(os.listdir(r)),
    "listdir of a folder": lambda r: sorted(os.listdir(f"{r}/deep/er/")),
    "listdir of a file": lambda r: os.listdir(f"{r}/a.txt"),
    "listdir of nothing": lambda r: os.listdir(f"{r}/none"),
    "scandir": _entries,
    "scandir of nothing": lambda r: os.scandir(f"{r}/none"),
    "scandir of a file": lambda r: os.scandir(f"{r}/a.txt"),
    "walk": _tree,
    "walk pruned": _pruned,
    "walk from below": lambda r: [sorted(x[2]) for x in os.walk(f"{r}/deep", topdown=False)],
    "walk of nothing": lambda r: list(os.walk(f"{r}/none")),
    "walk of a file": lambda r: list(os.walk(f"{r}/a.txt")),
    "sizes": lambda r: [os.path.getsize(f"{r}/{p}") for p in _FILES],
    "mode": lambda r: [os.stat(f"{r}/{p}").st_mode & 0o170000 for p in ("a.txt", "deep", "deep/er")],
    "stat of nothing": lambda r: os.stat(f"{r}/none"),
    "times": lambda r: os.path.getmtime(f"{r}/a.txt") > 1.7e9,
    "exists": lambda r: [os.path.exists(f"{r}/{p}") for p in ("a.txt", "deep", "none", "deep/none", "")],
    "isfile": lambda r: [os.path.isfile(f"{r}/{p}") for p in ("a.txt", "deep", "none")],
    "isdir": lambda r: [os.path.isdir(f"{r}/{p}") for p in ("a.txt", "deep", "none", "deep/er/")],
    "islink": lambda r: [os.path.islink(f"{r}/{p}") for p in ("a.txt", "none")],
    "samefile": lambda r: [os.path.samefile(f"{r}/a.txt", f"{r}/{p}") for p in ("a.txt", "b.bin")],
    "access": lambda r: [os.access(f"{r}/{p}", os.R_OK) for p in ("a.txt", "deep", "none")],
    "read": lambda r: _read(f"{r}/b.bin", "rb") == _FILES["b.bin"],
    "read nothing": lambda r: _read(f"{r}/none"),
    "read a folder": lambda r: _read(f"{r}/deep"),
    "write": lambda r: _written(r, "w"),
    "write on a folder": lambda r: _read(f"{r}/deep", "w"),
    "name and mode": lambda r: _named(f"{r}/a.txt"),
    "zip of folders": _zip_of_folders,
    "write x": lambda r: _written(r, "x"),
    "write x again": lambda r: _read(f"{r}/a.txt", "x"),
    "append": lambda r: (_written(r, "w"), _written(r, "a")),
    "append bytes": lambda r: (_written(r, "w"), _written(r, "ab")),
    "zip": _zipped,
    "tar": _tarred,
    "json and pickle": _dumped,
    "mkdir": lambda r: (os.mkdir(f"{r}/new"), os.listdir(f"{r}/new"), os.path.isdir(f"{r}/new")),
    "mkdir there": lambda r: os.mkdir(f"{r}/deep"),
    "mkdir on a file": lambda r: os.mkdir(f"{r}/a.txt"),
    "mkdir without parent": lambda r: os.mkdir(f"{r}/no/new"),
    "mkdir below a file": lambda r: os.mkdir(f"{r}/a.txt/new"),
    "makedirs": lambda r: (os.makedirs(f"{r}/n/e/w"), _tree(r)),
    "makedirs again": lambda r: os.makedirs(f"{r}/deep/er"),
    "makedirs exist_ok": lambda r: os.makedirs(f"{r}/deep/er", exist_ok=True),
    "makedirs on a file": lambda r: os.makedirs(f"{r}/a.txt", exist_ok=True),
    "remove": lambda r: (os.remove(f"{r}/a.txt"), _tree(r)),
    "remove nothing": lambda r: os.remove(f"{r}/none"),
    "unlink": lambda r: (os.unlink(f"{r}/deep/c.txt"), _tree(r)),
    "rmdir": lambda r: (os.mkdir(f"{r}/new"), os.rmdir(f"{r}/new"), _tree(r)),
    "rmdir full": lambda r: os.rmdir(f"{r}/deep"),
    "rmdir of a file": lambda r: os.rmdir(f"{r}/a.txt"),
    "empty and rmdir": lambda r: (
        [os.remove(f"{r}/other/x/{n}") for n in os.listdir(f"{r}/other/x")],
        os.rmdir(f"{r}/other/x"),
        _tree(r),
    ),
    "rename": lambda r: (os.rename(f"{r}/a.txt", f"{r}/z.txt"), _tree(r), _read(f"{r}/z.txt")),
    "rename over": lambda r: (os.rename(f"{r}/a.txt", f"{r}/b.bin"), _read(f"{r}/b.bin")),
    "rename nothing": lambda r: os.rename(f"{r}/none", f"{r}/z"),
    "rename a folder": lambda r: (os.rename(f"{r}/deep", f"{r}/moved"), _tree(r)),
    "rename over a full folder": lambda r: os.rename(f"{r}/deep", f"{r}/other"),
    "rename over an empty folder": lambda r: (
        os.mkdir(f"{r}/e"),
        os.rename(f"{r}/deep", f"{r}/e"),
        _tree(r),
    ),
    "rename a folder over a file": lambda r: os.rename(f"{r}/deep", f"{r}/a.txt"),
    "rename a file over a folder": lambda r: os.rename(f"{r}/a.txt", f"{r}/deep"),
    "rename into itself": lambda r: os.rename(f"{r}/deep", f"{r}/deep/er/in"),
    "rename to itself": lambda r: (os.rename(f"{r}/a.txt", f"{r}/a.txt"), _tree(r)),
    "replace": lambda r: (os.replace(f"{r}/a.txt", f"{r}/deep/c.txt"), _tree(r)),
    "copy": lambda r: (shutil.copy(f"{r}/a.txt", f"{r}/deep"), shutil.copy(f"{r}/a.txt", f"{r}/q"), _tree(r)),
    "copyfile on a folder": lambda r: shutil.copyfile(f"{r}/a.txt", f"{r}/deep"),
    "copyfile of a folder": lambda r: shutil.copyfile(f"{r}/deep", f"{r}/q"),
    "copyfile of nothing": lambda r: shutil.copyfile(f"{r}/none", f"{r}/q"),
    "copyfile to itself": lambda r: shutil.copyfile(f"{r}/a.txt", f"{r}/a.txt"),
    "copytree": lambda r: (shutil.copytree(f"{r}/deep", f"{r}/new"), _tree(r)),
    "copytree there": lambda r: shutil.copytree(f"{r}/deep", f"{r}/other"),
    "copytree of nothing": lambda r: shutil.copytree(f"{r}/none", f"{r}/new"),
    "copytree of a file": lambda r: shutil.copytree(f"{r}/a.txt", f"{r}/new"),
    "copytree into": lambda r: (shutil.copytree(f"{r}/deep", f"{r}/other", dirs_exist_ok=True), _tree(r)),
    "copytree ignoring": lambda r: (
        shutil.copytree(r, f"{r}-2", ignore=shutil.ignore_patterns("*.txt", "ünï")),
        _tree(f"{r}-2"),
    ),
    "move": lambda r: (shutil.move(f"{r}/a.txt", f"{r}/deep"), shutil.move(f"{r}/deep", f"{r}/m"), _tree(r)),
    "paths that are not resolved": lambda r: [
        _read(f"{r}/deep/../other/./x//c.txt"),
        *(shutil.copy(f"{r}/a.txt", f"{r}{name}") for name in ("//deep//new.txt", "/deep/../new.txt")),
        (os.path.exists(f"{r}/deep/.."), os.listdir(f"{r}/deep//er/../er/.")),
        os.remove(f"{r}/other/../b.bin"),
        shutil.rmtree(f"{r}/deep/../other"),
        os.path.split(f"{r}/deep/../new.txt"),
        str(Path(f"{r}/deep/../new.txt")),
        _tree(r),
    ],
    "names with colons": lambda r: [
        os.makedirs(f"{r}/s3:/x:"),
        os.rename(f"{r}/a.txt", f"{r}/s3:/x:/a:"),
        shutil.copytree(f"{r}/s3:", f"{r}/copy:"),
        _tree(r),
        _tree(f"{r}/copy:/"),
    ],
    "a slash after a file": lambda r: [
        *(_run(lambda r, a=act: a(f"{r}/a.txt/"), r) for act in (os.stat, os.remove, os.listdir, _read)),
        *(act(f"{r}/a.txt/") for act in (os.path.exists, os.path.isfile, os.path.isdir)),
        os.access(f"{r}/a.txt/", os.R_OK),
        _run(lambda r: os.rename(f"{r}/a.txt/", f"{r}/z"), r),
        _run(lambda r: os.rename(f"{r}/a.txt", f"{r}/z/"), r),
        _tree(r),
    ],
    "a slash after a new file": lambda r: [_run(lambda r, m=mode: _read(f"{r}/n/", m), r) for mode in "rwa"],
    "move onto": lambda r: shutil.move(f"{r}/deep/c.txt", f"{r}/other/x"),
    "rmtree": lambda r: (shutil.rmtree(f"{r}/deep"), _tree(r)),
    "rmtree of nothing": lambda r: shutil.rmtree(f"{r}/none"),
    "rmtree of a file": lambda r: shutil.rmtree(f"{r}/a.txt"),
    "rmtree ignoring": lambda r: shutil.rmtree(f"{r}/none", ignore_errors=True),
    "Path": lambda r: [Path(r, "deep").name, Path(r, "a.txt").suffix, Path(r, "deep/er").parent, Path(r)],
    "Path texts": lambda r: (Path(f"{r}/t.txt").write_text("é"), Path(f"{r}/t.txt").read_text()),
    "Path iterdir": lambda r: sorted(map(str, Path(r).iterdir())),
    "Path glob": lambda r: sorted(map(str, Path(r).glob("*/*.txt"))),
    "Path rglob": lambda r: sorted(map(str, Path(r).rglob("*.txt"))),
    "Path is": lambda r: [
        (p.exists(), p.is_dir(), p.is_file()) for p in map(Path(r).joinpath, ("a.txt", "deep", "no"))
    ],
    "Path mkdir": lambda r: (Path(f"{r}/n/e/w").mkdir(parents=True, exist_ok=True), _tree(r)),
    "Path mkdir there": lambda r: Path(f"{r}/deep").mkdir(),
    "Path touch": lambda r: (
        Path(f"{r}/new").touch(),
        Path(f"{r}/a.txt").touch(),
        _tree(r),
        _read(f"{r}/a.txt"),
    ),
    "Path touch there": lambda r: Path(f"{r}/a.txt").touch(exist_ok=False),
    "Path unlink": lambda r: (Path(f"{r}/no").unlink(missing_ok=True), Path(f"{r}/a.txt").unlink(), _tree(r)),
    "Path rename": lambda r: (Path(f"{r}/a.txt").rename(f"{r}/z.txt"), _tree(r)),
    "Path stat": lambda r: Path(f"{r}/b.bin").stat().st_size,
    "Path absolute": lambda r: [Path(r).is_absolute(), Path(r).absolute(), Path(r, "a.txt").resolve()],
    "Path relative_to": lambda r: Path(f"{r}/deep/er").relative_to(r),
    "Path samefile": lambda r: Path(f"{r}/a.txt").samefile(f"{r}/a.txt"),
    "Path open": lambda r: _path_read(f"{r}/a.txt"),
    "join": lambda r: [os.path.join(r, "a", "b"), os.path.join("/x", r, "a"), os.path.join(r, "/y")],
    "split": lambda r: [
        os.path.split(f"{r}/a/b"),
        os.path.split(f"{r}/a/"),
        os.path.dirname(f"{r}/a"),
        os.path.basename(f"{r}/a"),
    ],
    "normpath": lambda r: [
        os.path.normpath(f"{r}/./a/../b//c/"),
        os.path.abspath(f"{r}/a/.."),
        os.path.realpath(f"{r}/a"),
    ],
    "relpath": lambda r: [os.path.relpath(f"{r}/a/b", r), os.path.relpath(r, f"{r}/a/b"), os.path.isabs(r)],
    "commonpath": lambda r: os.path.commonpath([f"{r}/a/b", f"{r}/a/c"]),
    "splitext": lambda r: os.path.splitext(f"{r}/a.tar.gz"),
    **{
        f"glob {pattern}": (lambda r, p=pattern: sorted(glob.glob(f"{r}/{p}", recursive=True)))
        for pattern in _GLOBS
    },  # type: ignore[misc]
    "glob below root_dir": lambda r: sorted(glob.glob("**/*.txt", root_dir=r, recursive=True)),
    "iglob": lambda r: sorted(glob.iglob(f"{r}/*/*")),
}


class Pair:
    """The same tree on the disk and in a bucket; made anew once an act has changed it."""

    def __init__(self, bucket: str, folder: Path) -> None:
        self._bucket, self._folder, self._count = bucket, folder, 0
        self.roots = ("", "")
        self.changed = True

    def anew(self) -> tuple[str, str]:
        """Return both roots, with the tree as it was at first."""
        if self.changed:
            self._count += 1
            name = f"{secrets.token_hex(4)}-{self._count}"
            self.roots = f"{self._folder}/{name}", f"{self._bucket}/{name}"
            for root in self.roots:
                _make(root)
        self.changed = True
        return self.roots

    def look(self) -> None:
        """Notice whether the tree is still as it was."""
        disk = Path(self.roots[0])
        found = {str(path.relative_to(disk)): path.read_bytes() for path in disk.rglob("*") if path.is_file()}
        others = [path for path in disk.parent.iterdir() if path != disk]
        folders = sum(path.is_dir() for path in disk.rglob("*"))
        self.changed = (
            found != _FILES or folders != 5 or bool([p for p in others if p.name.startswith(disk.name)])
        )


@pytest.fixture(scope="module")
def pair(moto: EmbeddedServer, moto_bucket: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in moto.environment().items():
            patch.setenv(name, value)
        with nbdata.shift():
            yield Pair(f"s3://{moto_bucket}", tmp_path_factory.mktemp("disk"))
    FileSystem.clear_instance_cache()


@pytest.mark.in_ci(43)
@pytest.mark.parametrize("act", _ACTS)
def test_a_bucket_gives_what_the_disk_gives(act: str, pair: Pair) -> None:
    disk, bucket = pair.anew()
    expected, found = _run(_ACTS[act], disk), _run(_ACTS[act], bucket)
    assert found == expected
    pair.look()
