"""The plans of the panel's dialogs: bounded, ended when the browser leaves, and only of what the panel may name."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.listing import ListServer
from nbdata.client.agents import stop_all
from nbdata.demo.server import EmbeddedServer
from nbdata.runtime import endpoints
from tests.faults.gate import Gate
from tests.lab import Answer, Lab
from tests.waiting import PATIENCE, wait_until

Put = Callable[[dict[str, bytes]], str]


@pytest.fixture(scope="module")
def lab(seaweedfs: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server that knows the store's credentials, and whose administrator bounds the panel."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "data").mkdir()
    with Lab(folder, f"--Nbdata.roots={folder / 'data'}", environment=seaweedfs.environment()) as running:
        yield running


def post(lab: Lab, route: str, /, **body: object) -> Answer:
    return lab.ask(f"nbdata/api/{route}", "POST", body=json.dumps(body).encode())


def data_of(lab: Lab) -> Path:
    return lab.root.parent / "data"


def test_each_dialog_has_a_plan_and_a_line(lab: Lab, put: Put) -> None:
    url = put({"in/a.jpg": b"12345", "in/b.txt": b"1"})
    data = data_of(lab)
    (data / "here").mkdir()
    (data / "here" / "c.bin").write_bytes(b"123")
    moved = {
        "pull": {"source": f"{url}in/", "target": f"{data}/in", "include": ["*.jpg"]},
        "push": {"source": f"{data}/here", "target": f"{url}out/", "verify": "md5"},
        "copy": {"source": f"{url}in/", "target": f"{url}copy/", "exclude": ["*.jpg", "*.png"]},
        "pack": {"source": f"{url}in/", "target": f"{data}/in.tar.gz", "verify": "none"},
        "delete": {"source": f"{url}in/", "yes": True},
        "md5check": {"source": f"{data}/here", "against": f"{url}in/"},
    }
    lines = {
        "pull": f"%pull {url}in/ {data}/in --include '*.jpg'",
        "push": f"%push {data}/here {url}out/ --verify md5",
        "copy": f"%copy {url}in/ {url}copy/ --exclude '*.jpg' --exclude '*.png'",
        "pack": f"%pack {url}in/ {data}/in.tar.gz --verify none",
        "delete": f"%delete {url}in/ --yes",
        "md5check": f"%md5check {data}/here --against {url}in/",
    }
    for verb, options in moved.items():
        assert post(lab, "line", verb=verb, **options).json()["line"] == lines[verb]
    counts = {}
    for verb in ("pull", "push", "copy", "pack", "delete"):
        answer = post(lab, "plan", verb=verb, **moved[verb])
        assert answer.status == 200, answer
        plan = answer.json()
        counts[verb] = sum(count for count, _ in plan["actions"].values())
        assert (plan["state"], len(plan["rows"])) == ("DONE", plan["count"])
    assert counts == {"pull": 1, "push": 1, "copy": 1, "pack": 1, "delete": 2}
    nothing = post(lab, "plan", verb="md5check", **moved["md5check"])
    assert (nothing.status, "verif" in nothing.body or "checksum" in nothing.body) == (404, True), nothing
    through = {"source": f"{url}in/", "target": f"{url}copy/", "connection": "a", "target_connection": "b c"}
    assert post(lab, "line", verb="copy", **through).json()["line"] == (
        f"%copy {url}in/ {url}copy/ --option connection=a --target-option 'connection=b c'"
    )
    assert not (data / "in").exists()


def test_what_the_panel_may_not_name_is_refused_and_no_secret_comes_back(lab: Lab) -> None:
    data, link = data_of(lab), data_of(lab) / "link"
    link.symlink_to("/etc")
    source = {"source": "s3://bucket/a/"}
    for body, why in (
        ({"verb": "pull", **source, "target": "/etc/a"}, "administrator"),
        ({"verb": "pull", **source, "target": f"{link}/a"}, "administrator"),
        ({"verb": "pull", **source, "target": f"{data}/../a"}, "administrator"),
        ({"verb": "pull", **source, "target": str(lab.root)}, "administrator"),
        ({"verb": "pack", **source, "target": "file:///etc/a.tar.gz"}, "administrator"),
        ({"verb": "untar_volumes", **source, "target": "/etc/%06d.tar"}, "administrator"),
        ({"verb": "push", "source": "/etc", "target": "s3://bucket/a/"}, "administrator"),
        ({"verb": "push", "source": f"{data}/*/../../a", "target": "s3://bucket/a/"}, "administrator"),
        ({"verb": "md5check", "source": str(data), "against": "/etc"}, "administrator"),
        ({"verb": "cleanup", "source": str(lab.root)}, "administrator"),
        ({"verb": "quota", "path": "/etc", "limit": "none"}, "administrator"),
        ({"verb": "copy", **source, "target": "zip://a::file:///etc/b"}, "no URL of a store"),
        ({"verb": "copy", **source, "target": "memory://a"}, "no URL of a store"),
        ({"verb": "copy", **source, "target": "sftp://me:hunter22@h/a/"}, "a password or a signature"),
        ({"verb": "pull", "source": ["a", "b"], "target": str(data)}, "one source"),
        ({"verb": "pull", **source, "target": f"{data}/{'a' * 9000}"}, "too long"),
        ({"verb": "pull", **source, "target": str(data), "include": ["a"] * 101}, "too long"),
        ({"verb": "pull", **source, "target": str(data), "delete": True}, "cannot set delete"),
        ({"verb": "push", **source, "target": "s3://b/", "target_connection": "a"}, "cannot set target_con"),
        ({"verb": "quota", "path": str(data), "limit": "none", "connection": "a"}, "cannot set connection"),
        ({"verb": "untar_volumes", "source": str(data), "list": True}, "no URL of a store"),
    ):
        for route in ("line", "run", "plan"):
            refused = post(lab, route, **body)
            assert (refused.status, why in refused.body) == (400, True), (route, body, refused)
            assert "hunter22" not in refused.body
    for route in ("caches/clear", "mounts/unmount"):
        refused = post(lab, route, path=str(lab.root))
        assert (refused.status, "administrator" in refused.body) == (409, True)
    assert "does not plan" in post(lab, "plan", verb="du", place=str(data)).body
    assert post(lab, "plan", verb="delete", **source, count_all=1).status == 400
    assert (
        post(lab, "line", verb="du", place=str(lab.root)).status == 200
    )  # it reads, as the file browser does
    assert post(lab, "line", verb="cleanup", source=f"{data}/a").status == 200


def test_how_far_a_plan_is_has_a_name_that_the_browser_makes_up(lab: Lab) -> None:
    asked = {"verb": "pull", "source": "s3://bucket/a", "target": str(data_of(lab))}
    for odd in ("../a", "A" * 32, "a" * 33, 5, None):
        refused = post(lab, "plan", **asked, watch=odd)
        assert (refused.status, "watch is a name" in refused.body) == (400, True)
    assert lab.ask(f"nbdata/api/plan/{'a' * 32}").status == 404


@pytest.mark.long
def test_a_plan_ends_when_the_browser_leaves(
    put: Put, gate: Gate, seaweedfs: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put({"a": b"1"})
    stop_all(now=True)
    monkeypatch.setenv("NBDATA_AGENT_IDLE", "5")
    environment = {**seaweedfs.environment(), "AWS_ENDPOINT_URL": gate.url}
    with Lab(tmp_path, environment=environment) as behind:
        gate.close()
        body = json.dumps({"verb": "pull", "source": url, "target": str(tmp_path / "a")}).encode()
        connection = socket.create_connection(("127.0.0.1", behind.port), PATIENCE)
        connection.sendall(
            f"POST /nbdata/api/plan HTTP/1.1\r\nHost: 127.0.0.1:{behind.port}\r\n"
            f"Authorization: token {behind.token}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        gate.wait_until_it_holds()
        assert endpoints() != []
        connection.close()
        wait_until(lambda: endpoints() == [])  # an agent that plans does not end
        gate.open()


@pytest.mark.long
def test_a_plan_looks_at_ten_thousand_objects_and_one_more_unless_all_are_counted(tmp_path: Path) -> None:
    with ListServer(25_000) as server:
        environment = {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
        }
        with Lab(tmp_path, environment=environment) as lab:
            asked = {"verb": "pull", "source": "s3://bench/many/", "target": str(lab.root / "a")}
            for more, count in (({}, 10_001), ({"count_all": True}, 25_000)):
                plan = post(lab, "plan", **asked, **more).json()
                assert (plan["moves"]["files"], len(plan["rows"])) == (count, 20)
                assert plan["is_cut"] is (count == 10_001)
    assert os.listdir(lab.root) == []
