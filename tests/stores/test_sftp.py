"""sftp:// against a real SSH server: transfers, trusted hosts, and messages of failures."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import asyncssh
import paramiko
import pytest

import nbdata
from nbdata.connections import Connection, keep
from nbdata.operation import Context
from nbdata.runtime import state_folder
from nbdata.stores.resolve import open_place
from nbdata.stores.sftp import _close_all, sftp_files
from tests.ports import free_port
from tests.stores.servers import serving
from tests.stores.ssh_server import PASSWORD, USER, SshServer
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("inline")
OPTIONS = {"password": PASSWORD}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without keys and known hosts."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    (tmp_path / "served").mkdir()
    with SshServer(tmp_path / "served") as running:
        yield running


def below(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_connection_names_the_user_and_the_password_of_a_server(
    tree: Path, tmp_path: Path, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "state"))
    url = server.url.replace(f"{USER}@", "")
    keep(state_folder(), Connection("lab", "sftp", url, {"username": USER, "password": PASSWORD}))
    through = {"storage_options": {"connection": "lab"}, "quiet": True}
    nbdata.push(tree, f"{url}there/", **through)
    report = nbdata.pull(f"{url}there/", tmp_path / "back", **through)
    assert below(tmp_path / "back") == below(tree)
    assert PASSWORD not in str(report)


def test_a_folder_goes_there_and_back_and_is_checked(tree: Path, tmp_path: Path, server: SshServer) -> None:
    (tree / "which?one#1%41.txt").write_bytes(b"odd")
    url = f"{server.url}data/set/"
    pushed = nbdata.push(tree, url, storage_options=OPTIONS, quiet=True)
    assert pushed.counts == {"sent": 6}
    assert "could not be verified" in pushed.notes[0]
    assert below(server.folder / "data/set") == below(tree)
    back = tmp_path / "back"
    assert nbdata.pull(url, back, storage_options=OPTIONS, quiet=True).counts == {"fetched": 6}
    assert below(back) == below(tree)
    assert nbdata.pull(url, back, storage_options=OPTIONS, quiet=True).counts == {"unchanged": 6}
    assert nbdata.push(tree, url, storage_options=OPTIONS, quiet=True).counts == {"unchanged": 6}
    nbdata.md5check(tree, write=True, quiet=True)
    nbdata.push(tree / "MD5SUMS", url, storage_options=OPTIONS, quiet=True)
    assert nbdata.md5check(url, storage_options=OPTIONS, quiet=True).counts == {"ok": 6}
    (server.folder / "data/set/a.txt").write_bytes(b"ALPHA\n")
    with pytest.raises(nbdata.TransferFailed, match=r"a\.txt: the md5 differs"):
        nbdata.md5check(url, storage_options=OPTIONS, quiet=True)
    nbdata.push(tree, url, storage_options=OPTIONS, overwrite="always", delete=True, force=True, quiet=True)
    assert below(server.folder / "data/set") == below(tree)


@pytest.mark.long
def test_a_big_file_comes_whole_though_it_comes_in_parts(tmp_path: Path, server: SshServer) -> None:
    data = os.urandom(34 << 20)
    (server.folder / "big").write_bytes(data)
    nbdata.pull(f"{server.url}big", tmp_path / "big", storage_options=OPTIONS, quiet=True)
    assert (tmp_path / "big").read_bytes() == data


@pytest.mark.long
def test_many_at_once_get_each_their_own_bytes_also_where_channels_are_few(tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    for n in range(80):
        (served / f"{n}").write_bytes(f"{n} ".encode() * 30_000)
    with SshServer(served, channels=4) as server:
        report = nbdata.pull(server.url, tmp_path / "out", storage_options=OPTIONS, quiet=True)
        assert report.counts == {"fetched": 80}
        assert len(server.connections) > 1
    assert below(tmp_path / "out") == below(served)


@pytest.mark.long
def test_connections_end_with_their_file_system(home: Path, server: SshServer) -> None:
    def transports() -> set[int]:
        gc.collect()
        return {id(t) for t in threading.enumerate() if isinstance(t, paramiko.Transport) and t.is_active()}

    before = transports()
    files = sftp_files(
        server.url, {"host": "127.0.0.1", "port": server.port, "username": USER, **OPTIONS}, str(home)
    )
    assert files.ls("/") is not None
    assert len(transports() - before) == 1
    del files
    wait_until(lambda: transports() <= before)  # the thread ends by itself once the socket is closed


def test_connections_also_end_if_the_collector_runs_in_their_own_thread() -> None:
    """The collector may run in the connection's own thread, for example while that thread handles a message.

    Then this thread may hold a lock that closing a client waits for. The same holds in a forked child.
    """
    near, far = socket.socketpair()
    client, transport = paramiko.SSHClient(), paramiko.Transport(near)
    client._transport, transport.active = transport, True

    def collect() -> None:
        with transport._channels._lock:
            _close_all([client])

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert far.recv(1) == b""
    far.close()


def test_threads_that_make_the_same_folders_do_not_fail_one_another(home: Path, server: SshServer) -> None:
    files = sftp_files(
        server.url, {"host": "127.0.0.1", "port": server.port, "username": USER, **OPTIONS}, str(home)
    )
    with ThreadPoolExecutor(8) as pool:
        for turn in range(10):
            list(pool.map(lambda n, t=turn: files.makedirs(f"/{t}/a/b/{n % 2}", exist_ok=True), range(8)))  # type: ignore[misc]
    assert sorted(p.name for p in (server.folder / "9/a/b").iterdir()) == ["0", "1"]
    with pytest.raises(FileExistsError):
        files.makedirs("/9/a")


def test_of_links_on_the_server_only_those_to_files_are_taken_and_no_pipes(
    tmp_path: Path, server: SshServer
) -> None:
    (server.folder / "d").mkdir()
    (server.folder / "d/x").write_bytes(b"1")
    for name, to in {"link": "d/x", "folder": "d", "broken": "no"}.items():
        (server.folder / name).symlink_to(to)
    os.mkfifo(server.folder / "pipe")
    nbdata.pull(server.url, tmp_path / "out", storage_options=OPTIONS, quiet=True)
    assert below(tmp_path / "out") == {"d/x": b"1", "link": b"1"}


def test_a_key_and_a_password_of_the_url_open_it_too(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served/x").write_bytes(b"1")
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(tmp_path / "key"))
    with SshServer(tmp_path / "served", user_key=key) as server:
        options = {"key_filename": str(tmp_path / "key")}
        nbdata.pull(f"{server.url}x", tmp_path / "a", storage_options=options, quiet=True)
        url = f"sftp://{USER}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/x"
        report = nbdata.pull(url, tmp_path / "b", quiet=True)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"1"
    assert report.source == f"sftp://127.0.0.1:{server.port}/x"


def test_a_wrong_password_is_refused_and_not_shown(tmp_path: Path, server: SshServer) -> None:
    with pytest.raises(nbdata.AccessDenied, match="refuses the user") as caught:
        nbdata.pull(server.url, tmp_path / "out", storage_options={"password": "wr0ng-password"})
    assert "--option password=env:NAME" in str(caught.value)
    assert "wr0ng-password" not in str(caught.value)


def test_what_is_not_there_is_not_found(tmp_path: Path, server: SshServer) -> None:
    for place in ("nothing", "nothing/", "no*"):
        with pytest.raises(nbdata.NotFound):
            nbdata.pull(server.url + place, tmp_path / "out", storage_options=OPTIONS)
    with pytest.raises(nbdata.BadOption, match="names no host"):
        nbdata.pull("sftp:///x", tmp_path / "out")
    with pytest.raises(nbdata.BadOption, match="do not fit sftp"):
        nbdata.pull(server.url, tmp_path / "out", storage_options={**OPTIONS, "pasword": "x"})


def test_an_unreachable_and_a_silent_host_are_reported(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(nbdata.StoreUnavailable, match="no server listens there"):
        nbdata.pull(f"sftp://{USER}@127.0.0.1:{port}/x", tmp_path / "out", storage_options=OPTIONS)

    def silent(connection: socket.socket) -> None:
        while connection.recv(4096):
            pass

    with serving(silent) as port, pytest.raises(nbdata.StoreUnavailable, match="speaks no SSH"):
        nbdata.pull(
            f"sftp://{USER}@127.0.0.1:{port}/x",
            tmp_path / "out",
            storage_options={**OPTIONS, "banner_timeout": 0.5},
        )


def test_without_a_key_and_a_password_it_says_so(
    tmp_path: Path, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(
        nbdata.AccessDenied, match=r"neither a key nor a password .* --option password=env:NAME"
    ):
        nbdata.pull(f"{server.url}x", tmp_path / "out")


def test_a_server_with_another_key_than_it_had_gets_no_password(
    tmp_path: Path, home: Path, server: SshServer
) -> None:
    (server.folder / "x").write_bytes(b"1")
    careful = {**OPTIONS, "host_key_policy": "reject"}
    with pytest.raises(nbdata.AccessDenied, match="the server's key is unknown"):
        nbdata.pull(f"{server.url}x", tmp_path / "out", storage_options=careful)
    server.known_hosts(home)
    nbdata.pull(f"{server.url}x", tmp_path / "out", storage_options=careful, quiet=True)
    server.known_hosts(home, asyncssh.generate_private_key("ssh-ed25519"))
    with pytest.raises(nbdata.AccessDenied, match="not the one that it was"):
        nbdata.pull(f"{server.url}x", tmp_path / "out", storage_options=OPTIONS)


def test_a_connection_that_broke_is_made_anew(server: SshServer) -> None:
    (server.folder / "x").write_bytes(b"1")
    env = {"HOME": os.environ["HOME"]}
    store = open_place(server.url, Context("/", env=env, storage_options=OPTIONS)).store
    assert [info.key for info in store.list("")] == ["x"]
    server.drop()

    def read() -> bytes:  # retries as the engine does
        with contextlib.suppress(nbdata.StoreUnavailable):
            return store.read_bytes("x")
        return b""

    assert wait_until(read) == b"1"


def test_without_paramiko_it_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['paramiko'] = None\n"
        "from nbdata.cli import main; sys.exit(main(['pull', 'sftp://u@h/x', 'out']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert "sftp:// needs a package that is not installed. pip install paramiko" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_empty(
    tmp_path: Path, server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server.folder / "d/sub").mkdir(parents=True)
    for name in ("a", "sub/b"):
        (server.folder / "d" / name).write_text(name)
    pull = functools.partial(
        nbdata.pull, f"{server.url}d/", tmp_path / "out", storage_options=OPTIONS, quiet=True, delete=True
    )
    assert pull().counts == {"fetched": 2}
    listed = asyncssh.SFTPServer.scandir

    def scandir(files: asyncssh.SFTPServer, path: bytes) -> object:
        if path.endswith(b"/sub"):
            raise asyncssh.SFTPPermissionDenied("no")
        return listed(files, path)

    monkeypatch.setattr(asyncssh.SFTPServer, "scandir", scandir)
    with pytest.raises(nbdata.errors.AccessDenied):
        pull()
    assert below(tmp_path / "out") == {"a": b"a", "sub/b": b"sub/b"}
