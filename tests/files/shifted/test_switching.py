"""Shift goes on and off, nested and crossed, for threads, asyncio and new processes, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import copy
import glob
import importlib
import io
import multiprocessing
import os
import pathlib
import pickle
import posixpath
import shutil
import signal
import subprocess
import sys
import threading
import types
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption
from nbdata.files.shifted import active
from nbdata.files.shifted.places import target
from nbdata.files.shifted.replacing import REFUSED, REPLACED
from tests.waiting import PATIENCE


def _held() -> dict[str, Any]:
    """Return what modules and classes hold under the names that are replaced."""
    held = {f"{one.holder.__name__}.{one.name}": vars(one.holder)[one.name] for one in REPLACED}
    held |= {f"os.{name}": getattr(os, name) for name in REFUSED if hasattr(os, name)}
    held |= {
        "io.open": io.open,
        "shutil.copy": shutil.copy,
        "os.makedirs": os.makedirs,
        "glob.glob": glob.glob,
    }
    for cls in (pathlib.Path, pathlib.PurePath):
        held |= {f"{cls.__name__}.{name}": value for name, value in vars(cls).items()}
    return held


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(one[name] is other[name] for name in one)


def _exists(url: str) -> bool:
    return os.path.exists(url)


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _opened(path: str, mode: str = "r") -> None:
    with open(path, mode):
        pass


def test_off_restores_all_of_pythons_functions(unshifted: str) -> None:
    before = _held()
    shifted = nbdata.shift()
    assert builtins.open is not before["builtins.open"]
    assert io.open is builtins.open
    shifted.off()
    assert _same(_held(), before)
    shifted.off()
    assert _same(_held(), before)


def test_uses_nest_and_cross(unshifted: str) -> None:
    before = _held()
    with nbdata.shift() as one:
        with nbdata.shift():
            assert not os.path.exists(unshifted)
        assert not os.path.exists(unshifted)
        two = nbdata.shift()
    assert not one.is_on
    os.makedirs(unshifted)  # the second one is still on
    assert os.path.isdir(unshifted)
    two.off()
    assert _same(_held(), before)


def test_an_exception_in_the_with_block_turns_it_off(unshifted: str) -> None:
    before = _held()
    with pytest.raises(KeyError), nbdata.shift():
        raise KeyError
    assert _same(_held(), before)


def test_names_that_were_imported_before_are_replaced_and_restored(unshifted: str, tmp_path: Path) -> None:
    module = types.ModuleType("imported_before")
    exec(
        "from glob import glob\nfrom os.path import exists, join\nfrom os import listdir\nkept = open",
        vars(module),
    )
    before = dict(vars(module))
    sys.modules[module.__name__] = module
    try:
        with nbdata.shift():
            os.makedirs(f"{unshifted}/in")
            assert module.exists(unshifted)
            assert module.listdir(unshifted) == ["in"]
            assert module.glob(f"{unshifted}/*") == [f"{unshifted}/in"]
            with module.kept(f"{unshifted}/f", "w") as file:
                file.write("x")
        assert dict(vars(module)) == before
        assert module.kept is open
    finally:
        del sys.modules[module.__name__]


def test_a_module_that_is_imported_meanwhile_gets_pythons_functions_back(
    unshifted: str, tmp_path: Path
) -> None:
    (tmp_path / "imported_meanwhile.py").write_text("from os import listdir\nfrom os.path import exists\n")
    sys.path.insert(0, str(tmp_path))
    try:
        with nbdata.shift():
            module = importlib.import_module("imported_meanwhile")
            assert module.exists(unshifted) is False
        assert module.listdir is os.listdir
        assert module.exists is os.path.exists
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("imported_meanwhile", None)


def test_a_function_that_another_program_replaced_meanwhile_stays(
    unshifted: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shifted = nbdata.shift()
    ours = builtins.open
    calls = []

    def theirs(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return ours(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "open", theirs)
        shifted.off()
        assert builtins.open is theirs
        (tmp_path / "f").write_text("x")
        with open(tmp_path / "f") as file:
            assert file.read() == "x"
        with pytest.raises(FileNotFoundError):
            _opened(f"{unshifted}/f")
        assert calls
    builtins.open = io.open


def test_it_is_only_for_the_places_that_are_named(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = folder.rpartition("/")[0]
    for one in list(active):
        one.off()
    monkeypatch.chdir(tmp_path)
    with nbdata.shift(f"{bucket}/in"):
        assert not os.path.exists(f"{bucket}/in/none")
        with pytest.raises(FileNotFoundError, match="No such file"):  # Python's own words
            _opened(f"{bucket}/inside/file")
    with nbdata.shift("gs"), pytest.raises(FileNotFoundError, match="No such file"):
        _opened(f"{bucket}/in/file")


def test_the_latest_use_that_is_for_a_url_decides_the_options(
    unshifted: str, seaweedfs: EmbeddedServer
) -> None:
    bucket = unshifted.split("/")[2]
    with contextlib.suppress(BadOption):  # another test may have made it
        seaweedfs.create_bucket(bucket)
    with nbdata.shift(), nbdata.shift(unshifted, storage_options=seaweedfs.storage_options()):
        for url in (f"{unshifted}/f", f"{unshifted}-beside"):
            with open(url, "w") as file:
                file.write("x")
    with nbdata.shift():
        assert not os.path.exists(f"{unshifted}/f")
        assert os.path.exists(f"{unshifted}-beside")


def test_options_go_to_no_server_that_is_not_named() -> None:
    with pytest.raises(BadOption, match="would go to every web server"):
        nbdata.shift("https", storage_options={"token": "x"})
    with pytest.raises(BadOption, match="would go to every server"):
        nbdata.shift("s3", "sftp", storage_options={"password": "x"})
    with nbdata.shift(storage_options={"password": "x"}):
        for url in ("sftp://host/f", "https://host/f", "webdav://host/f"):
            assert (found := target(url)) is not None
            assert found.options == {}
    with nbdata.shift("sftp://host/in", storage_options={"password": "x"}):
        assert (found := target("sftp://host/in/f")) is not None
        assert found.options == {"password": "x"}
        assert target("sftp://host.elsewhere/in/f") is None
    with pytest.raises(BadOption, match="no protocol of a store"):
        nbdata.shift("s4")
    with pytest.raises(BadOption, match="'auto' or 'none'"):
        nbdata.shift(verify="md5")
    assert not active


def test_functions_are_pickled_by_their_names_and_equal_to_pythons(folder: str) -> None:
    shifted = os.listdir
    assert pickle.loads(pickle.dumps(os.listdir)) is shifted
    assert copy.copy(open) is open
    data = pickle.dumps((open, os.listdir, os.path.join, shutil.copytree, os.stat))
    lines = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()))"
    told = subprocess.run([sys.executable, "-c", lines], input=data, capture_output=True, check=True)
    assert b"built-in function listdir" in told.stdout
    assert os.stat in os.supports_follow_symlinks
    assert os.unlink in os.supports_dir_fd
    assert os.scandir in os.supports_fd
    assert shutil.rmtree.avoids_symlink_attacks is True

    class Holder:
        remove = os.unlink

    with pytest.raises(FileNotFoundError):
        Holder().remove("/nonexistent")  # type: ignore[misc,call-arg,arg-type]  # a builtin of C does not become a method


def test_threads_and_asyncio_use_it(folder: str) -> None:
    def write(number: int) -> str:
        with open(f"{folder}/{number}", "w") as file:
            file.write(str(number))
        return _read(f"{folder}/{number}")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(write, range(32))) == [str(number) for number in range(32)]

    async def read() -> list[str]:
        return await asyncio.gather(*(asyncio.to_thread(_read, f"{folder}/{n}") for n in range(8)))

    assert asyncio.run(read()) == [str(number) for number in range(8)]
    assert sorted(os.listdir(folder), key=int) == [str(number) for number in range(32)]


def test_switching_in_many_threads_ends_off(unshifted: str) -> None:
    before = _held()
    together = threading.Barrier(4)

    def switch(_: int) -> None:
        together.wait()
        for _ in range(5):
            with nbdata.shift():
                assert not os.path.exists(unshifted)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(switch, range(4)))
    assert _same(_held(), before)


@pytest.mark.long
def test_a_forked_child_has_it_and_a_spawned_one_by_an_initializer(folder: str) -> None:
    os.makedirs(f"{folder}/in")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        assert pool.submit(_exists, f"{folder}/in").result()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        assert not pool.submit(_exists, f"{folder}/in").result()
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=nbdata.shift) as pool:
        assert pool.submit(_exists, f"{folder}/in").result()


def test_what_a_store_has_not_is_an_error_that_says_so(folder: str) -> None:
    with open(f"{folder}/f", "w") as file:
        file.write("x")
    for act in (
        lambda: os.chmod(f"{folder}/f", 0o600),
        lambda: os.open(f"{folder}/f", os.O_RDONLY),
        lambda: os.symlink("f", f"{folder}/l"),
        lambda: os.utime(f"{folder}/f"),
    ):
        with pytest.raises(OSError, match="a store has nothing like os"):
            act()
    with pytest.raises(BadOption, match="mode"):
        _opened(f"{folder}/f", "r+")
    with pytest.raises(io.UnsupportedOperation, match="mode"):
        _opened(f"{folder}/f", "w+")


def test_zipfile_writes_an_archive_and_does_not_lose_one_that_it_would_append_to(folder: str) -> None:
    with zipfile.ZipFile(f"{folder}/z.zip", "w") as archive:
        archive.writestr("one", "1")
    with pytest.raises(BadOption, match="would change a part"):
        zipfile.ZipFile(f"{folder}/z.zip", "a")
    with zipfile.ZipFile(f"{folder}/z.zip") as archive:
        assert archive.namelist() == ["one"]
    with pytest.raises(io.UnsupportedOperation), pytest.warns(UserWarning, match="was not written"):
        zipfile.ZipFile(f"{folder}/new.zip", "a")
    assert os.listdir(folder) == ["z.zip"]


def test_posixpath_itself_is_replaced(folder: str) -> None:
    assert posixpath.join("/x", folder) == folder


def test_a_member_of_an_archive_does_not_lead_into_a_bucket(folder: str, tmp_path: Path) -> None:
    with open(f"{folder}/f", "w") as file:
        file.write("precious")
    path = folder.removeprefix("s3://")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr(f"s3://{path}/f", "evil")
    with zipfile.ZipFile(tmp_path / "z.zip") as archive:
        archive.extractall(tmp_path / "out")
    assert _read(f"{folder}/f") == "precious"
    assert (tmp_path / f"out/s3:/{path}/f").read_text() == "evil"
    assert os.path.join(tmp_path, f"s3:/{path}/f") == f"{tmp_path}/s3:/{path}/f"


def test_a_folder_named_like_a_protocol_is_not_taken_for_a_store(
    unshifted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unshifted.removeprefix("s3://")
    monkeypatch.chdir(tmp_path)
    os.makedirs(f"{unshifted}/in")  # without a shift: a folder of the disk
    Path(f"s3:/{path}/in/f").write_text("of the disk")
    with nbdata.shift():
        with open(f"{unshifted}/in/f", "w") as file:
            file.write("of the store")
        for top, _, files in os.walk("s3:"):
            for name in files:
                os.remove(os.path.join(top, name))
        assert not os.path.lexists(f"s3:/{path}/in/f")
        assert _read(f"{unshifted}/in/f") == "of the store"
        with open(f"s3:/{path}/in/f", "w") as file:
            file.write("of the disk")
        assert glob.glob("**/f", recursive=True) == [f"s3:/{path}/in/f"]
        with pytest.raises(BadOption, match=r"may mean s3://.* as well as a file in the folder 's3:'"):
            list(map(Path.unlink, Path().rglob("f")))
        assert str(Path(unshifted)) == f"s3:/{path}"  # a text never raises
        assert _read(f"{unshifted}/in/f") == "of the store"
        shutil.rmtree("s3:")
        assert Path(unshifted, "in/f").read_text() == "of the store"


def test_a_mock_at_the_time_of_the_first_shift_does_not_keep_later_ones_out(unshifted: str) -> None:
    lines = """
import os
from unittest import mock
import nbdata
real = os.listdir
with mock.patch("os.listdir", lambda path: ["mocked"]):
    with nbdata.shift():
        assert os.listdir("/") == ["mocked"]
with nbdata.shift():
    os.makedirs(f"{URL}/in")
    assert os.listdir(URL) == ["in"]
assert os.listdir is real
"""
    subprocess.run([sys.executable, "-c", f"URL = {unshifted!r}{lines}"], check=True)


def test_a_child_of_a_fork_while_another_thread_switches_can_switch(unshifted: str) -> None:
    switch = importlib.import_module("nbdata.files.shifted.shift")
    locked, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with switch._lock:
            locked.set()
            go_on.wait(0.2)  # the fork waits for it

    holding = threading.Thread(target=hold)
    holding.start()
    locked.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))  # ends it, where it waits for ever
        with nbdata.shift():
            os._exit(0)
    go_on.set()
    holding.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.long
def test_a_log_is_written_and_a_file_that_stays_open_is_warned_of_at_the_end(unshifted: str) -> None:
    lines = (
        "import logging, json, sys\n"
        "import nbdata\n"
        "nbdata.shift()\n"
        f"logging.basicConfig(filename='{unshifted}/log.txt', level='INFO')\n"
        "logging.info('hello')\n"
        f"json.dump([1], open('{unshifted}/dropped.json', 'w'))\n"
        f"left = open('{unshifted}/left.txt', 'w')\n"
        "left.write('x')\n"
    )
    ran = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    for name in ("dropped.json", "left.txt"):
        assert f"{name} was never closed, so it was not written" in ran.stderr
    assert "log.txt" not in ran.stderr
    with nbdata.shift():
        assert os.listdir(unshifted) == ["log.txt"]
        assert _read(f"{unshifted}/log.txt") == "INFO:root:hello\n"


def test_options_that_make_no_sense_are_not_taken_for_a_missing_file(unshifted: str) -> None:
    with nbdata.shift(storage_options={"key": "without a secret"}):
        for ask in (os.path.exists, os.path.isfile, os.path.isdir):
            with pytest.raises(BadOption, match="belong together"):
                ask(unshifted)
