"""Faults of mounts that a review found: mixed versions, bytes that were never compared, mounts that nobody ends."""

from __future__ import annotations

import errno
import json
import mmap
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nbdata
from nbdata.agent import log
from nbdata.client.launch import spawn
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, NbdataError, StoreUnavailable
from nbdata.files.mounted import device, folders, process, serving, wire
from nbdata.files.mounted.calls import Calls
from nbdata.files.mounted.open_files import OpenFiles
from nbdata.space.mountpoints import Mountpoint
from nbdata.space.mounts import Note, is_mounted, release
from nbdata.stores.base import ObjectInfo
from tests.faults.proxy import BODY, Fault, FaultProxy
from tests.files.mounted.conftest import Scene
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.needs("fuse")


def _read_on(file: FileIO, seen: bytearray) -> None:
    while data := file.read(1 << 18):
        seen += data


def _none_is_open(folder: str) -> None:
    """Wait until the mount has heard of every close: the kernel tells it after the program was answered."""
    wait_until(lambda: "open files: 0\n" in Path(folder, ".nbdata-mount").read_text())


def _order(url: str, folder: Path, *, keep: bool = False) -> dict[str, Any]:
    return {
        "url": url,
        "folder": str(folder),
        "options": {},
        "verify": "auto",
        "max_age": 60.0,
        "archive": False,
        "cache": None,
        "cache_dir": ".",
        "keep": keep,
        "allow_other": False,
        "remedy": "",
    }


# -- versions ----------------------------------------------------------------------------------


def test_an_open_file_shows_no_bytes_of_the_version_that_replaced_it(bucket: str, tmp_path: Path) -> None:
    files = nbdata.filesystem(f"s3://{bucket}")
    files.pipe_file(f"{bucket}/data/f", b"a" * 4_000_000)
    with nbdata.mount(f"s3://{bucket}/data", str(tmp_path / "m")) as mount:
        path = Path(mount.folder, "f")
        with open(path, "rb", buffering=0) as old:
            assert old.read(1000) == b"a" * 1000
            files.pipe_file(f"{bucket}/data/f", b"b" * 4_100_000)
            with (
                open(path, "rb") as new,  # another program maps the new one, and reads it
                mmap.mmap(new.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            ):
                assert mapped[:] == b"b" * 4_100_000
            for _ in range(2):
                assert path.read_bytes() == b"b" * 4_100_000
            assert os.fstat(old.fileno()).st_size == 4_000_000
            seen = bytearray()
            with pytest.raises(OSError, match="Input/output error"):
                _read_on(old, seen)
            assert set(seen) <= set(b"a")
        assert path.stat().st_size == 4_100_000


def test_what_one_program_read_in_part_is_compared_when_another_reads_all(
    s3: EmbeddedServer, bucket: str, tmp_path: Path
) -> None:
    files = nbdata.filesystem(f"s3://{bucket}")
    data = os.urandom(3_000_000)
    files.pipe_file(f"{bucket}/data/f", data)
    with FaultProxy(s3.url) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        with nbdata.mount(f"s3://{bucket}/data", str(tmp_path / "m")) as mount:
            path = Path(mount.folder, "f")
            proxy.begin(
                lambda request, before: Fault("flip", BODY, 0.1) if request.start and not before else None
            )
            with open(path, "rb", buffering=0) as file:
                wrong = b"".join(file.read(1 << 19) for _ in range(3))
            assert wrong != data[: len(wrong)]
            proxy.begin()
            _none_is_open(mount.folder)
            assert path.read_bytes() == data
            _none_is_open(mount.folder)
            with open(path, "rb", buffering=0) as file:
                tally, seen = proxy.begin(), bytearray()
                _read_on(file, seen)
            assert seen == data
            assert not tally.down  # all of it was compared, so the kernel keeps it


# -- listings ----------------------------------------------------------------------------------


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Folders by prefix: functions that yield their entries."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(folders, "listing_of_folder", lambda control, store, prefix: found[prefix]())
    return found


def _folders(max_age: float = 1e6, store: Any = None) -> folders.Folders:
    return folders.Folders(SimpleNamespace(prefix="", control=None, store=store), max_age)  # type: ignore[arg-type]


def test_a_listing_that_fails_is_no_shorter_folder_for_those_who_waited_for_it(
    listing: dict[str, Any],
) -> None:
    asked, go = threading.Event(), threading.Event()

    def entries() -> Iterator[ObjectInfo]:
        yield ObjectInfo("a", 1)
        asked.set()
        assert go.wait(PATIENCE)
        raise StoreUnavailable("it broke off")

    listing[""] = entries
    found = _folders()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(found.names, "")
        assert asked.wait(PATIENCE)
        folder = found._folder("")
        second = pool.submit(lambda: found._read("", folder, 10) if folder.lock.acquire() else None)
        go.set()
        for one in (first, second):
            with pytest.raises(StoreUnavailable, match="it broke off"):
                one.result()
    listing[""] = lambda: iter([ObjectInfo("a", 1), ObjectInfo("b", 1)])
    assert list(found.names("")) == ["a", "b"]


def test_names_that_do_not_show_are_counted_once(listing: dict[str, Any]) -> None:
    store = SimpleNamespace(head=lambda key: ObjectInfo(key, 1, "e"))
    keys = [f"{number:05}" for number in range(3000)]
    listing[""] = lambda: iter([*(ObjectInfo(key, 1, "e") for key in keys), ObjectInfo("x" * 256, 1)])
    for key in keys:
        listing[f"{key}/"] = lambda: iter(())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folders, "retrying", lambda control, do: do())
        found = _folders(store=store)
        assert found.find(keys[2500]) is not None  # asked for by itself, and listed later
        assert len(found.names("")) == 3000
        assert (found.odd.count, found.odd.some) == (1, ["x" * 256])
        again = _folders(max_age=0.0)
        again.names("")
        again.names("")
        assert again.odd.count == 1


def test_listings_that_fail_do_not_count_for_ever(
    listing: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_REMEMBERED", 750_000)

    def fails() -> Iterator[ObjectInfo]:
        yield from (ObjectInfo(f"bad/{number}", 1) for number in range(1000))
        raise StoreUnavailable("it broke off")

    listing["bad/"] = fails
    for name in "ab":
        listing[f"{name}/"] = lambda name=name: iter([ObjectInfo(f"{name}/f", 1)])
    found = _folders()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            found.names("bad")
    for name in "abab":
        assert list(found.names(name)) == ["f"]
    assert found.listings == 3 + 2


def test_folders_without_names_count_too(listing: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_REMEMBERED", 100_000)
    found = _folders()
    for number in range(200):
        listing[f"{number}{'x' * 1000}/"] = lambda: iter(())
        assert found.names(f"{number}{'x' * 1000}") == {}
    assert len(found._known) < 20
    assert found.names(f"199{'x' * 1000}") == {}
    assert found.listings == 200  # the latest is remembered


def test_a_version_keeps_its_number_and_another_gets_another(listing: dict[str, Any]) -> None:
    etags = iter("112")
    listing[""] = lambda: iter([ObjectInfo("f", 1, next(etags)), ObjectInfo("d/", -1)])
    found = _folders(max_age=0.0)
    numbers = []
    for _ in range(3):
        names = found.names("")
        numbers.append([found.inode(name, names[name]) for name in ("f", "d")])
    assert numbers[0] == numbers[1]
    assert numbers[2][0] not in numbers[0]
    assert numbers[2][1] == numbers[0][1]
    assert found.inode("", None) == wire.ROOT


def test_an_object_with_the_name_of_the_text_does_not_show_twice(bucket: str, tmp_path: Path) -> None:
    files = nbdata.filesystem(f"s3://{bucket}")
    for name in (".nbdata-mount", "f"):
        files.pipe_file(f"{bucket}/data/{name}", b"x")
    with nbdata.mount(f"s3://{bucket}/data", str(tmp_path / "m")) as mount:
        assert sorted(os.listdir(mount.folder)) == [".nbdata-mount", "f"]
        assert "do not show: 1\n" in Path(mount.folder, ".nbdata-mount").read_text()


# -- what the kernel is told -------------------------------------------------------------------


def test_a_name_makes_no_lines_in_the_text_and_the_log(
    listing: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a\x1b]0;owned\x07\nstore: answers\u202e"

    def fails() -> Iterator[ObjectInfo]:
        yield from ()
        raise StoreUnavailable("it broke off")

    listing[""] = lambda: iter([ObjectInfo(f"{name}/", -1), ObjectInfo(f"{name}//b", 1)])
    listing[f"{name}/"] = fails
    found = _folders(store=SimpleNamespace(notes=list))
    files = OpenFiles(SimpleNamespace(prefix=""), found, "none")  # type: ignore[arg-type]
    calls = Calls("s3://b", found, files, 60, log.say)
    look_up = wire.Request(wire.LOOKUP, 1, wire.ROOT, memoryview(name.encode() + b"\0"))
    entry: Any = calls.answer(look_up)
    (number,) = struct.unpack_from("=Q", entry[0])
    assert calls.answer(wire.Request(wire.OPENDIR, 2, number, memoryview(bytes(8)))) == errno.EIO
    files.ahead.close()
    told, logged = calls._about().decode(), capsys.readouterr().err
    assert "errors: 1; the latest: " in told
    assert "keys that are no names of files, and do not show: 1\n" in told
    for text in (told, logged):
        assert "it broke off" in text
        assert r"a\x1b]0;owned\x07\nstore: answers\u202e" in text
        assert all(line.isprintable() for line in text.split("\n"))
    assert len(logged.splitlines()) == 1


def test_times_and_sizes_that_no_file_has_do_not_hide_a_folder() -> None:
    for size, moment in ((1, -1), (1 << 70, 1 << 62), (-5, 0)):
        told = wire.entry(wire.Attributes(2, 0o100444, size, moment, (0, 0)), 1.0)
        assert len(told) == 128


def test_each_request_gets_an_answer_that_the_kernel_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        answers: list[Any] = [socket.EAI_NONAME, 4000, [b"x"]]
        server = serving.Server(theirs.fileno(), lambda _: answers.pop(0), lambda: None, lambda _: None)

        def refuse(fd: int, parts: Any) -> int:
            raise OSError(errno.EINVAL, "Invalid argument")

        monkeypatch.setattr(serving.os, "writev", refuse)
        for number in range(3):
            server._serve(memoryview(wire.REQUEST.pack(40, wire.READ, number, 2, 0, 0, 0, 0, 0)))
            assert ours.recv(100) == wire.reply(number, 0, errno.EIO)


def test_a_server_without_threads_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "begin", lambda *_, **__: False)
    with pytest.raises(NbdataError, match="no more threads"):
        serving.Server(-1, lambda _: None, lambda: None, lambda _: None).run()


# -- how it begins and ends --------------------------------------------------------------------


@pytest.mark.in_ci("forked")
@pytest.mark.parametrize("ends", ["stays", "forked"])
def test_a_mount_lives_as_long_as_the_process_that_made_it(scene: Scene, tmp_path: Path, ends: str) -> None:
    """Also if nobody keeps the result; and no longer, although a child of a fork lives on."""
    folder = tmp_path / "other"
    lines = (
        f"import gc, nbdata, os, sys, time\nnbdata.mount({scene.url!r}, {str(folder)!r})\ngc.collect()\n"
        "child = 0\n"
        f"if {ends == 'forked'}:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        os.close(1)\n"
        "        time.sleep(600)\n"
        "        os._exit(0)\n"
        "print(child, flush=True)\n"
        "sys.stdin.read()\n"
        f"print(len(os.listdir({str(folder)!r})), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", lines], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as script:
        assert script.stdin is not None
        assert script.stdout is not None
        child = int(script.stdout.readline())
        (note,) = [one for one in Note.all() if one.folder == str(folder)]
        try:
            if ends == "forked":
                script.kill()
            else:
                script.stdin.close()
                assert script.stdout.read() == "5\n"
            wait_until(lambda: not is_mounted(str(folder)))
        finally:
            if child:
                os.kill(child, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(note.log))  # nobody else removes what belongs to it
    assert [name for name in os.listdir(os.path.dirname(note.path)) if note.name in name] == []


def test_a_mount_that_is_to_stay_ends_if_nobody_waits_for_it_any_more(scene: Scene, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    note = Note.of(secrets.token_hex(8))
    ours, theirs = socket.socketpair()
    with theirs:
        spawn("nbdata.files.mounted.process", note.name, note.log, os.environ, theirs.fileno())
    with ours:
        ours.sendall(json.dumps(_order(scene.url, folder, keep=True)).encode() + b"\n")
    try:
        wait_until(lambda: not os.path.exists(note.log))
        assert not is_mounted(str(folder))
    finally:
        if is_mounted(str(folder)):
            nbdata.unmount(str(folder))


def test_a_mount_is_noted_before_it_is_made_and_none_is_made_above_another(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.signal, "signal", lambda *_: None)
    noted = list[str]()

    def fails(source: str, point: Mountpoint, *, allow_other: bool) -> int:
        noted.extend(one.folder for one in Note.all())
        raise NbdataError("not here", path=point.path)

    monkeypatch.setattr(device, "mount", fails)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for folder, expected in ((tmp_path, "not here"), (scene.folder, "mounted there already")):
            note = Note(secrets.token_hex(8), scene.url, str(folder), 0.0, os.getpid())
            with pytest.raises(NbdataError, match=expected):
                process._serve(note, _order(scene.url, folder), theirs)
            note.remove()
    assert str(tmp_path) in noted
    assert len([one for one in Note.all() if one.folder == scene.mount.folder]) == 1


def test_a_mount_without_a_note_is_unmounted_by_name(own_scene: Scene) -> None:
    (note,) = [one for one in Note.all() if one.folder == own_scene.mount.folder]
    os.unlink(note.path)
    nbdata.unmount(own_scene.mount.folder)
    assert not is_mounted(own_scene.mount.folder)


def test_nothing_is_mounted_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "way").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    try:
        with (
            pytest.raises(NbdataError, match=r"could not be mounted .*a link on the way"),
            Mountpoint(str(tmp_path / "link")) as point,
        ):
            device.mount("x", point, allow_other=False)
        with pytest.raises(NbdataError, match="a link on the way"):
            Mountpoint(str(tmp_path / "way/there"))
    finally:
        if is_mounted(str(tmp_path / "there")):
            release(str(tmp_path / "there"))


def test_a_mount_that_does_not_answer_holds_up_nobody_who_asks_for_it(scene: Scene, tmp_path: Path) -> None:
    with nbdata.mount(scene.url, str(tmp_path / "m"), max_age=0) as mount:
        (note,) = [one for one in Note.all() if one.folder == mount.folder]
        os.kill(note.process, signal.SIGSTOP)
        try:
            for words in (["mount"], ["mount", scene.url, mount.folder]):
                done = subprocess.run(
                    [sys.executable, "-m", "nbdata", *words],
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                assert mount.folder in done.stdout or "mounted there already" in done.stderr
        finally:
            os.kill(note.process, signal.SIGCONT)
        with pytest.raises(BadOption, match="mounted there already"):
            nbdata.mount(scene.url, mount.folder)
