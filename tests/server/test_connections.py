"""Connections of the panel: kept only if the store answers, and no key in any reply."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbdata.demo.server import EmbeddedServer
from nbdata.server.starts import configured
from tests.lab import Answer, Lab
from tests.stores.servers import each, serving, status

Put = Callable[[dict[str, bytes]], str]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server without credentials of a store, and with a state folder of its own."""
    folder = tmp_path_factory.mktemp("lab")
    nothing = dict.fromkeys(
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_PROFILE"), ""
    )
    with Lab(folder, environment={**nothing, "NBDATA_STATE_DIR": str(folder / "state")}) as running:
        yield running


def post(lab: Lab, route: str, /, **body: object) -> Answer:
    return lab.ask(f"nbdata/api/{route}", "POST", body=json.dumps(body).encode())


def s3(server: EmbeddedServer, /, **more: str) -> dict[str, str]:
    known = server.environment()
    keys = {"key": known["AWS_ACCESS_KEY_ID"], "secret": known["AWS_SECRET_ACCESS_KEY"]}
    return {"endpoint_url": known["AWS_ENDPOINT_URL"], **keys, **more}


def names(lab: Lab) -> list[str]:
    return [one["name"] for one in lab.ask("nbdata/api/connections").json()["kept"]]


def test_a_connection_is_kept_used_and_removed(lab: Lab, seaweedfs: EmbeddedServer, put: Put) -> None:
    url = put({"d/a.txt": b"12345"})
    options = s3(seaweedfs, region="", token="")
    kept = post(lab, "connections/keep", name="demo", kind="s3", place=url, options=options)
    assert (kept.status, kept.json()) == (200, {"count": 1})
    answer = lab.ask("nbdata/api/connections")
    assert answer.json()["kept"] == [
        {
            "name": "demo",
            "kind": "s3",
            "place": url,
            "endpoint": options["endpoint_url"],
            "anonymous": False,
        }
    ]
    assert options["secret"] not in answer.body
    assert options["key"] not in answer.body
    assert post(lab, "stores/list", place=f"{url}d/").status != 200
    listed = post(lab, "stores/list", place=f"{url}d/", connection="demo")
    assert [one["name"] for one in listed.json()["entries"]] == ["a.txt"]
    assert post(lab, "stores/preview", place=f"{url}d/a.txt", connection="demo").json()["text"] == "12345"
    pull = {"verb": "pull", "source": f"{url}d/", "target": "/w", "connection": "demo"}
    assert post(lab, "line", **pull).json()["line"] == f"%pull {url}d/ /w --option connection=demo"
    assert post(lab, "connections/forget", name="demo").status == 200
    assert names(lab) == []
    assert post(lab, "connections/forget", name="demo").status == 404
    gone = post(lab, "stores/list", place=url, connection="demo")
    assert (gone.status, "no connection 'demo'" in gone.body) == (404, True)


def test_a_wrong_key_a_server_that_is_down_and_no_bucket_are_said_and_not_kept(
    lab: Lab, seaweedfs: EmbeddedServer, put: Put
) -> None:
    url = put({"a": b"1"})
    secret = "hunter2hunter2hunter2"
    with serving(each(lambda _: status(403))) as port:
        forbidding = s3(seaweedfs, endpoint_url=f"http://127.0.0.1:{port}", secret=secret)
        refused = post(lab, "connections/keep", name="a", kind="s3", place="s3://bucket/", options=forbidding)
    assert refused.status == 409, refused
    down = s3(seaweedfs, endpoint_url="http://127.0.0.1:9", secret=secret)
    answers = [
        refused,
        post(lab, "connections/keep", name="a", kind="s3", place=url, options=s3(seaweedfs, secret=secret)),
        post(lab, "connections/keep", name="a", kind="s3", place=url, options=down),
        post(lab, "connections/keep", name="a", kind="s3", place="s3://none-there/", options=s3(seaweedfs)),
    ]
    for answer in answers:
        assert answer.status in (404, 409, 503), answer
        assert answer.json()["message"]
        assert secret not in answer.body
    assert names(lab) == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "this is no connection"),
        ({"name": "a", "kind": "s3", "place": "s3://b/"}, "this is no connection"),
        ({"name": "a", "kind": "s3", "place": "s3://b/", "options": []}, "this is no connection"),
        ({"name": "a b", "kind": "s3", "place": "s3://b/", "options": {}}, "is no name"),
        ({"name": "a", "kind": "file", "place": "/etc", "options": {}}, "no kind"),
        ({"name": "a", "kind": "s3", "place": "s3://b/", "options": {}}, "has no endpoint"),
        (
            {"name": "a", "kind": "http", "place": "http://h/", "options": {"headers": {"a": "b"}}},
            "no headers",
        ),
    ],
)
def test_what_makes_no_connection_is_refused(lab: Lab, body: dict[str, Any], why: str) -> None:
    answer = post(lab, "connections/keep", **body)
    assert (answer.status, why in answer.body) == (400, True), answer


def test_only_verbs_that_reach_a_store_take_a_connection(lab: Lab) -> None:
    for body in (
        {"verb": "quota", "path": "/w", "limit": "none", "connection": "a"},
        {"verb": "pull", "source": "s3://b/", "target": "/w", "target_connection": "a"},
        {"verb": "pull", "source": "s3://b/", "target": "/w", "connection": {"key": "k"}},
        {"verb": "pull", "source": "s3://b/", "target": "/w", "storage_options": {"connection": "a"}},
    ):
        assert post(lab, "line", **body).status == 400


def test_logins_of_other_programs_are_named_and_no_key_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rclone, google, azure = tmp_path / "rclone.conf", tmp_path / "gcloud", tmp_path / "azure"
    rclone.write_text("[work]\ntype = s3\nsecret_access_key = hunter2\n[cold]\ntype = b2\nkey = hunter2\n")
    (google / "configurations").mkdir(parents=True)
    (google / "configurations" / "config_default").write_text("[core]\naccount = hunter2\n")
    (google / "application_default_credentials.json").write_text('{"refresh_token": "hunter2"}')
    azure.mkdir()
    (azure / "azureProfile.json").write_text("hunter2")
    monkeypatch.setenv("RCLONE_CONFIG", str(rclone))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(google))
    monkeypatch.setenv("AZURE_CONFIG_DIR", str(azure))
    found = configured()
    assert {
        "rclone remote work",
        "rclone remote cold",
        "gcloud configuration default",
        "Google's application default credentials",
        "Azure login",
    } <= set(found)
    assert "hunter2" not in "".join(found)
    rclone.write_text("# Encrypted rclone configuration File\n\nRCLONE_ENCRYPT_V0:\nhunter2\n")
    assert not [name for name in configured() if name.startswith("rclone")]
