"""A mounted folder shows what is in the store to programs that know files only, and ends cleanly."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.space.mounts import Note, is_mounted
from tests.faults.proxy import BODY, Fault, FaultProxy
from tests.files.mounted.conftest import Scene
from tests.waiting import wait_until

pytestmark = pytest.mark.needs("mount")


def _ran(*words: str | Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _read_on(file: FileIO, only: bytes = b"") -> None:
    while data := file.read(1 << 20):
        assert not only or set(data) == set(only)


def _is_bare(folder: Path) -> bool:
    try:
        return os.listdir(folder) == []
    except OSError:  # it is just being unmounted
        return False


def _about(scene: Scene) -> str:
    return (scene.folder / ".nbdata-mount").read_text()


@pytest.mark.long
def test_programs_find_and_copy_what_is_in_the_store(scene: Scene, tmp_path: Path) -> None:
    _ran("cp", "-r", scene.folder, tmp_path / "copy")
    (tmp_path / "copy/.nbdata-mount").unlink()
    assert _ran("diff", "-r", tmp_path / "copy", scene.disk) == ""
    names = _ran("find", scene.folder, "-type", "f", "-printf", "%P %s\n").splitlines()
    expected = _ran("find", scene.disk, "-type", "f", "-printf", "%P %s\n").splitlines()
    assert sorted(n for n in names if not n.startswith(".nbdata-mount")) == sorted(expected)
    assert "2" in _about(scene).split("small files fetched ahead: ")[1][:3]  # of some 300
    packed = subprocess.run(
        ["tar", "cf", "-", "-C", scene.folder, "many"], capture_output=True, check=True
    ).stdout
    listed = subprocess.run(["tar", "tf", "-"], input=packed, capture_output=True, check=True).stdout
    assert len(listed.splitlines()) == 301


@pytest.mark.long
def test_files_are_read_only_and_the_users(scene: Scene) -> None:
    status = (scene.folder / "big.bin").stat()
    assert status.st_mode & 0o777 == 0o444
    assert (status.st_uid, status.st_size) == (os.getuid(), 9_000_001)
    assert abs(status.st_mtime - (scene.disk / "big.bin").stat().st_mtime) < 3600
    for act in (
        lambda: (scene.folder / "new").write_text("x"),
        (scene.folder / "empty").unlink,
        (scene.folder / "new").mkdir,
        lambda: os.rename(scene.folder / "empty", scene.folder / "e"),
    ):
        with pytest.raises(OSError, match="Read-only"):
            act()
    with pytest.raises(FileNotFoundError):
        (scene.folder / "none").read_bytes()
    with pytest.raises(NotADirectoryError):
        (scene.folder / "empty/below").read_bytes()


@pytest.mark.long
def test_reads_anywhere_give_what_a_local_copy_gives(scene: Scene) -> None:
    data = (scene.disk / "big.bin").read_bytes()

    def read(seed: int) -> None:
        chance = random.Random(seed)
        with open(scene.folder / "big.bin", "rb", buffering=0) as file:
            for _ in range(60):
                at, size = chance.randrange(len(data) + 10), chance.choice((1, 100, 4096, 65_536, 700_000))
                file.seek(at)
                found = b""
                while len(found) < size and (more := file.read(size - len(found))):
                    found += more
                assert found == data[at : at + size]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))
    with (
        open(scene.folder / "big.bin", "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        assert mapped[5_000_000:5_000_100] == data[5_000_000:5_000_100]
        assert mapped[:] == data
    done = subprocess.run(
        ["dd", f"if={scene.folder}/big.bin", "bs=1M", "iflag=direct"], capture_output=True, check=True
    )
    assert done.stdout == data


def test_an_extension_in_c_that_holds_the_interpreter_reads_from_it(scene: Scene) -> None:
    import ctypes

    c = ctypes.PyDLL(None)  # unlike CDLL, it keeps the lock of the interpreter
    c.fopen.restype = ctypes.c_void_p
    c.fopen.argtypes = c.fread.argtypes = None
    file = c.fopen(os.fsencode(scene.folder / "deep/er/st/ünï [x].txt"), b"rb")
    buffer = ctypes.create_string_buffer(100)
    assert c.fread(buffer, 1, 100, ctypes.c_void_p(file)) == 4
    assert buffer.value == b"deep"
    c.fclose(ctypes.c_void_p(file))


@pytest.mark.long
def test_a_file_that_is_replaced_is_never_a_mix(bucket: str, tmp_path: Path) -> None:
    files = nbdata.filesystem(f"s3://{bucket}")
    files.pipe_file(f"{bucket}/data/f", b"a" * 4_000_000)
    with nbdata.mount(f"s3://{bucket}/data", str(tmp_path / "m")) as mount:
        path = Path(mount.folder, "f")
        with open(path, "rb", buffering=0) as file:
            assert file.read(1000) == b"a" * 1000
            files.pipe_file(f"{bucket}/data/f", b"b" * 5_000_000)
            with pytest.raises(OSError, match="Input/output error"):
                _read_on(file, b"a")
        with open(path, "rb", buffering=0) as file:  # opened anew it is the new one, and all of it
            whole = b"".join(iter(lambda: file.read(1 << 20), b""))
        assert whole == b"b" * 5_000_000
        about = Path(mount.folder, ".nbdata-mount").read_text()
        assert "errors: " in about
        assert "SourceChanged" in about


def test_wrong_bytes_are_an_error_and_not_data(s3: EmbeddedServer, bucket: str, tmp_path: Path) -> None:
    files = nbdata.filesystem(f"s3://{bucket}")
    data = os.urandom(3_000_000)
    files.pipe_file(f"{bucket}/data/f", data)
    with FaultProxy(s3.url) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        with nbdata.mount(f"s3://{bucket}/data", str(tmp_path / "m")) as mount:
            path = Path(mount.folder, "f")
            proxy.begin(
                lambda request, before: Fault("flip", BODY, 0.4) if request.start and not before else None
            )
            with pytest.raises(OSError, match="Input/output error"):
                path.read_bytes()
            proxy.begin()
            assert path.read_bytes() == data
        with nbdata.mount(f"s3://{bucket}/data", str(tmp_path / "m"), verify="none") as mount:
            proxy.begin(
                lambda request, before: Fault("flip", BODY, 0.4) if request.start and not before else None
            )
            found = Path(mount.folder, "f").read_bytes()
            assert len(found) == len(data)
            assert found != data


@pytest.mark.long
def test_keys_that_are_no_names_are_counted_and_named(
    moto: EmbeddedServer, moto_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    files = nbdata.filesystem(f"s3://{moto_bucket}")
    for key in ("fine.txt", "n" * 256, "both", "both/in.txt"):
        files.pipe_file(f"{moto_bucket}/odd/{key}", b"x")
    with nbdata.mount(f"s3://{moto_bucket}/odd", str(tmp_path / "m")) as mount:
        assert sorted(os.listdir(mount.folder)) == [".nbdata-mount", "both", "fine.txt"]
        assert os.listdir(Path(mount.folder, "both")) == ["in.txt"]
        about = Path(mount.folder, ".nbdata-mount").read_text()
        assert "do not show: 2\n" in about
        assert f"odd/{'n' * 256}" in about
    files.rm(f"{moto_bucket}/odd", recursive=True)


@pytest.mark.long
def test_a_mount_in_use_stays_and_says_who_holds_it(own_scene: Scene) -> None:
    with open(own_scene.folder / "big.bin", "rb"):
        with pytest.raises(NbdataError, match=rf"it is in use: .*process {os.getpid()}.* has .*/big\.bin"):
            own_scene.mount.unmount()
        assert (own_scene.folder / "empty").exists()
    own_scene.mount.unmount()
    assert os.listdir(own_scene.mount.folder) == []
    own_scene.mount.unmount()


def test_a_mount_ends_with_the_process_that_made_it(scene: Scene, tmp_path: Path) -> None:
    lines = (
        "import nbdata, os, sys\n"
        f"mount = nbdata.mount({scene.url!r}, {str(tmp_path / 'other')!r}, keep={{keep}})\n"
        "print(len(os.listdir(mount.folder)), flush=True)\n"
        "sys.stdin.read()"
    )
    for keep in (False, True):
        child = subprocess.Popen(
            [sys.executable, "-c", lines.format(keep=keep)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "5\n"
        child.kill()
        child.wait()
        child.stdout.close()
        child.stdin.close()
        if keep:
            assert len(os.listdir(tmp_path / "other")) == 5
            nbdata.unmount(str(tmp_path / "other"))
        wait_until(lambda: _is_bare(tmp_path / "other"))


def test_a_killed_mount_is_an_error_at_once_and_is_released_by_the_next(own_scene: Scene) -> None:
    (note,) = [one for one in Note.all() if one.folder == own_scene.mount.folder]
    file = open(own_scene.folder / "big.bin", "rb", buffering=0)  # noqa: SIM115  its end fails, too
    file.read(10)
    os.kill(note.process, signal.SIGKILL)
    wait_until(lambda: not note.lives)
    with pytest.raises(OSError, match=r"not connected|Input/output error|aborted"):
        _read_on(file)
    with contextlib.suppress(OSError):
        file.close()
    assert own_scene.mount.folder not in repr(nbdata.mount().tables)
    with nbdata.mount(own_scene.url, own_scene.mount.folder) as again:
        assert (Path(again.folder) / "empty").exists()
        assert [own_scene.url, again.folder] in [row[:2] for row in nbdata.mount().tables[0]["rows"]]


@pytest.mark.long
def test_cleanup_releases_a_mount_whose_process_was_killed(own_scene: Scene, tmp_path: Path) -> None:
    (note,) = [one for one in Note.all() if one.folder == own_scene.mount.folder]
    with nbdata.mount(own_scene.url, str(tmp_path / "lives")) as other:
        os.kill(note.process, signal.SIGKILL)
        wait_until(lambda: not note.lives)
        assert nbdata.cleanup(str(tmp_path), dry_run=True) is not None
        assert is_mounted(note.folder)
        report = nbdata.cleanup(str(tmp_path), quiet=True)
        assert report.counts["dead mounts"] == 1
        assert not is_mounted(note.folder)
        assert os.listdir(note.folder) == []
        assert (Path(other.folder) / "empty").exists()
        assert other.folder in repr(nbdata.mount().tables)


@pytest.mark.long
def test_many_threads_read_many_files(scene: Scene) -> None:
    def read(number: int) -> bool:
        name = f"many/{number % 300:04}.bin"
        return (scene.folder / name).read_bytes() == (scene.disk / name).read_bytes()

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(read, random.Random(1).sample(range(600), 400)))
    assert threading.active_count() < 50


@pytest.mark.long
def test_what_is_wrong_is_said(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/f").write_text("x")
    with pytest.raises(NotFound, match="no such folder"):
        nbdata.mount(scene.url + "-none", str(tmp_path / "m"))
    with pytest.raises(BadOption, match="this is a file"):
        nbdata.mount(scene.url, str(tmp_path / "full/f"))
    with pytest.raises(BadOption, match="not empty"):
        nbdata.mount(scene.url, str(tmp_path / "full"))
    with pytest.raises(BadOption, match="mounted there already"):
        nbdata.mount(scene.url, scene.mount.folder)
    with pytest.raises(BadOption, match="FOLDER is missing"):
        nbdata.mount(scene.url)
    with pytest.raises(NbdataError, match="the file system is read-only"):
        nbdata.mount(scene.url, f"{scene.mount.folder}/inside")
    with pytest.raises(BadOption, match="not a count"):
        nbdata.mount(scene.url, str(tmp_path / "m"), max_age="soon")
    with pytest.raises(NotFound, match="has mounted nothing there"):
        nbdata.unmount(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["full", "m"]


@pytest.mark.long
def test_a_file_is_read_through_the_cache_on_the_disk(scene: Scene, tmp_path: Path) -> None:
    with nbdata.mount(scene.url, str(tmp_path / "m"), cache="50MB", cache_dir=str(tmp_path)) as mount:
        for _ in range(2):
            assert Path(mount.folder, "big.bin").read_bytes() == (scene.disk / "big.bin").read_bytes()
    held = sum(path.stat().st_size for path in (tmp_path / ".nbdata").rglob("*") if path.is_file())
    assert held > 9_000_000
