"""A stranger can neither read from a service nor stop it: another user, and who has no keys."""

from __future__ import annotations

import json
import socket
import stat
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from nbdata.errors import AccessDenied, BadOption
from nbdata.loaders.service import Client, address, client, serve
from nbdata.loaders.service.address import OVER_TCP, Address
from nbdata.version import __version__
from tests.hostile.users import User, anna, reachable
from tests.loaders.service.loaders import Numbers
from tests.loaders.service.test_service import taken
from tests.waiting import PATIENCE

__all__ = ["anna", "reachable"]

# Says hello over a plain socket, and prints what came first: an answer, or the end of the connection.
STRANGER = """
import sys, json, zmq
from zmq.utils.monitor import recv_monitor_message
endpoint, hello, patience = sys.argv[1:]
context = zmq.Context()
dealer = context.socket(zmq.DEALER)
ended = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
monitor = dealer.get_monitor_socket(ended)
dealer.connect(endpoint)
dealer.send(hello.encode())
poller = zmq.Poller()
poller.register(dealer, zmq.POLLIN)
poller.register(monitor, zmq.POLLIN)
found = dict(poller.poll(int(patience)))
print("answered" if dealer in found else "refused" if monitor in found else "silence")
context.destroy(0)
"""


# How a connection to ZeroMQ begins.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)


def hello() -> str:
    return json.dumps(
        {
            "type": "hello", "seq": 1, "version": __version__, "id": "a", "name": "a", "room": 3, "service": "",
            "turn": None, "ended": None, "holds": [], "done": [], "following": None,
        }
    )  # fmt: skip


def came(address: Address, **keys: bytes) -> str:
    """Say hello with these keys; return whether an answer came, or the name of the event that came before."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        for name, key in keys.items():
            setattr(dealer, name, key)
        failed = (
            zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        )
        monitor = dealer.get_monitor_socket(failed | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        dealer.connect(address.endpoint)
        dealer.send(hello().encode())
        poller = zmq.Poller()
        poller.register(dealer, zmq.POLLIN)
        poller.register(monitor, zmq.POLLIN)
        found = dict(poller.poll(int(1000 * PATIENCE)))
        what = "answered" if dealer in found else recv_monitor_message(monitor)["event"].name
        dealer.disable_monitor()
        monitor.close(0)
        return str(what)


def test_files_and_folder_are_closed_to_others() -> None:
    with serve(Numbers(3)) as service:
        path = Path(service.address)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.needs("other users")
def test_another_user_gets_no_answer_even_if_the_socket_is_open_to_all(anna: User) -> None:
    with serve(Numbers(3)) as service:
        sock = Path(service.address).with_suffix(".sock")
        sock.chmod(0o777)
        sock.parent.chmod(0o755)
        sock.parent.parent.chmod(0o755)
        try:
            assert anna.python(STRANGER, f"ipc://{sock}", hello(), int(1000 * PATIENCE)) == "refused\n"
        finally:
            sock.parent.parent.chmod(0o700)
            sock.parent.chmod(0o700)
        assert service.consumers == []
        assert taken(service.address) == [[0, 1, 2]]


@pytest.mark.needs("other users")
def test_the_address_file_of_another_user_is_not_taken(anna: User) -> None:
    with serve(Numbers(3)) as service:
        told = anna.python(
            "import sys\nsys.modules['torch'] = None\nfrom nbdata.loaders.service import Client\n"
            "try: Client(sys.argv[1])\nexcept PermissionError as error: print(error)",
            service.address,
        )
        assert "is not private" in told


def test_who_has_no_keys_is_refused_over_tcp_and_cannot_stop_it() -> None:
    with serve(Numbers(3), listen="tcp://127.0.0.1:0") as service:
        address = Address.read(service.address)
        assert came(address) != "answered"
        public, secret = zmq.curve_keypair()
        stranger = {"curve_publickey": public, "curve_secretkey": secret}
        # The service's own key is in the file, and known to nobody else; but even that is not enough.
        known = {"curve_serverkey": address.service.encode()}
        assert came(address, **stranger, **known) == "HANDSHAKE_FAILED_AUTH"
        assert service.consumers == []
        ours = {"curve_publickey": address.public.encode(), "curve_secretkey": address.secret.encode()}
        assert came(address, **ours, **known) == "answered"
        assert taken(service.address) == [[0, 1, 2]]


def test_a_stranger_over_tcp_cannot_fill_the_memory() -> None:
    with serve(Numbers(3), listen="tcp://127.0.0.1:0") as service:
        port = int(Address.read(service.address).endpoint.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(GREETING + b"\x06" + struct.pack(">Q", 15 << 20))  # a command of a handshake
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                stranger.sendall(bytes(15 << 20))
        assert taken(service.address) == [[0, 1, 2]]
        with (
            Client(service.address) as client,
            pytest.raises(BadOption, match="too long for a loader service"),
        ):
            client.load_state_dict({"of": "x" * OVER_TCP})


def test_who_has_the_port_of_an_ended_service_cannot_fill_the_memory_of_a_consumer(tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    with serve(Numbers(3), listen="tcp://127.0.0.1:0") as service:
        copy.write_bytes(Path(service.address).read_bytes())
        copy.chmod(0o600)
    port = int(Address.read(str(copy)).endpoint.rpartition(":")[2])
    one = Client(str(copy))
    with socket.create_server(("127.0.0.1", port)) as stranger:
        one._connect()
        with stranger.accept()[0] as connection:
            connection.sendall(GREETING + b"\x06" + struct.pack(">Q", 128 << 20))  # a command of a handshake
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                connection.sendall(bytes(127 << 20))
    one._disconnect()


def test_a_value_of_more_than_a_piece_comes_over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (address, client):
        monkeypatch.setattr(module, "PIECE", 8 << 10)
    with serve(Numbers(3), listen="tcp://127.0.0.1:0") as service:
        assert taken(service.address) == [[0, 1, 2]]


def test_keys_are_new_at_each_start_and_in_no_error() -> None:
    secrets = set()
    for _ in range(2):
        with serve(Numbers(3), listen="tcp://localhost:0") as service:
            address = Address.read(service.address)
            secrets |= {address.secret, address.service}
            assert address.endpoint.startswith("tcp://localhost:")
            assert address.secret not in repr(address) + repr(service)
            assert taken(service.address) == [[0, 1, 2]]
            tunnel = address.endpoint.replace("localhost", "127.0.0.1")
            assert taken(service.address, endpoint=tunnel) == [[0, 1, 2]]
    assert len(secrets) == 4


def test_an_address_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with serve(Numbers(3), listen="tcp://127.0.0.1:0") as service:
        copy = tmp_path / "copy.json"
        copy.write_bytes(Path(service.address).read_bytes())
        copy.chmod(0o644)
        with pytest.raises(AccessDenied, match="chmod 600"):
            Client(str(copy))
        copy.chmod(0o600)
        assert taken(str(copy)) == [[0, 1, 2]]
        without = replace(Address.read(service.address), secret="")
        copy.write_text(json.dumps(vars(without)))
        with pytest.raises(BadOption, match="no address file"):
            Client(str(copy))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"endpoint": "tcp://x:1"}', "x" * 5000])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises((BadOption, FileNotFoundError)):
        Client(str(path))


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBDATA_RUNTIME_DIR", str(tmp_path / "run"))
    with serve(Numbers(3)):
        pass
    (tmp_path / "run/services").chmod(0o755)
    with pytest.raises(AccessDenied, match="folder of loader services is not private"):
        serve(Numbers(3))


@pytest.mark.parametrize("message", [b"", b"{", b"[]", b'{"type": "next"}', b'{"type": "hello", "seq": -1}'])
def test_a_message_that_nobody_understands_is_answered_and_harms_nothing(message: bytes) -> None:
    with serve(Numbers(3)) as service:
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.connect(f"ipc://{Path(service.address).with_suffix('.sock')}")
            dealer.send(message)
            answer: dict[str, Any] = json.loads(dealer.recv())
            assert answer["type"] in ("refused", "who")
        assert taken(service.address) == [[0, 1, 2]]
