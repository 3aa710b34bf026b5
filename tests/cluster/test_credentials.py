"""Credentials that are sent to the workers: only short-lived ones, over TLS, and where nothing of Dask shows them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import distributed
import pytest

import nbdata
from nbdata.client.context import capture
from nbdata.cluster import credentials, opening, performer
from nbdata.cluster.credentials import Sent, sent_credentials
from nbdata.cluster.opening import Cluster
from nbdata.demo.server import EmbeddedServer
from nbdata.redaction import Hidden
from nbdata.transfer.free_control import FreeControl
from tests.cluster.conftest import Put
from tests.faults.gate import Gate
from tests.waiting import wait_until

KEYS = {"key": "AK", "secret": "hunter2hunter2", "token": "canarycanary"}
TRIPLE = {
    "aws_access_key_id": "AK",
    "aws_secret_access_key": "hunter2hunter2",
    "aws_session_token": "canarycanary",
}
OBJECTS = {f"d{n % 3}/f{n:03}": os.urandom(20_000) for n in range(60)}


def resolved(source: str, target: str = "", **options: Any) -> Sent:
    places = (source, target) if target else (source, "/w/d")
    verb = nbdata.Copy if target else nbdata.Pull
    operation = verb(*places, cluster="tls://127.0.0.1:1", send_credentials=True, **options)
    return sent_credentials(operation, capture(operation), FreeControl())


def sas(days: float) -> str:
    end = datetime.now(timezone.utc) + timedelta(days=days)
    return f"sv=2024&se={end:%Y-%m-%dT%H:%M:%SZ}&sig=hunter2hunter2"


def test_temporary_keys_are_sent_with_the_server_that_they_are_for() -> None:
    sent = resolved(
        "s3://b/d/", storage_options={**KEYS, "endpoint_url": "http://127.0.0.1:9", "region": "r"}
    )
    assert sent.storage_options["client_kwargs"] == TRIPLE
    assert (sent.storage_options["endpoint_url"], sent.storage_options["region"]) == (
        "http://127.0.0.1:9",
        "r",
    )
    assert sent.target_options == {}
    assert sent.renew_at == float("inf")
    assert "canary" not in repr(sent)


def test_each_end_of_a_copy_gets_its_own() -> None:
    sent = resolved(
        "gs://b/d/", "az://c/d/", storage_options={"token": "ya29.hunter2hunter2"},
        target_options={"account_name": "a", "sas_token": sas(1)},
    )  # fmt: skip
    assert sent.storage_options["token"] == "ya29.hunter2hunter2"
    assert sent.target_options["sas_token"].endswith("sig=hunter2hunter2")
    assert sent.expires is not None
    assert time.time() < sent.renew_at < time.time() + 86_400


def test_a_public_bucket_needs_none() -> None:
    sent = resolved("s3://b/d/", storage_options={"anon": True, "endpoint_url": "http://127.0.0.1:9"})
    assert sent.storage_options["anon"] is True
    assert "client_kwargs" not in sent.storage_options


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        ("s3://b/d/", {**KEYS, "token": ""}, "no session token, so they do not end"),
        ("az://c/d/", {"account_name": "a", "account_key": "aHVudGVyMmh1bnRlcjI="}, "account key .* does not end"),
        ("az://c/d/", {"account_name": "a", "sas_token": "sv=1&sig=hunter2hunter2"}, "does not say when it ends"),
        ("az://c/d/", {"account_name": "a", "sas_token": sas(30)}, "more than 36 hours"),
        ("sftp://user@127.0.0.1:9/d/", {"password": "hunter2hunter2"}, "no short-lived credentials for sftp"),
        ("https://127.0.0.1:9/d/", {"token": "hunter2hunter2"}, "no short-lived credentials for https"),
        ("ais://b/d/", {"endpoint_url": "http://127.0.0.1:9"}, "no short-lived credentials for ais"),
        ("s3://b/d/", {**KEYS, "s3_additional_kwargs": {}}, "--option s3_additional_kwargs is not sent"),
        ("s3://b/d/", {**KEYS, "endpoint_url": "http://u:hunter2hunter2@127.0.0.1:9"}, "holds a password|URL"),
    ],
)  # fmt: skip
def test_what_does_not_end_is_refused_and_not_shown(source: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(nbdata.BadOption, match=told) as caught:
        resolved(source, storage_options=options)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "told"),
    [("tcp://127.0.0.1:8786", "has no TLS, so others could read them"), (None, "needs --cluster")],
)
def test_without_tls_nothing_is_sent(cluster: str | None, told: str) -> None:
    with pytest.raises(nbdata.BadOption, match=told):
        nbdata.Copy(
            "s3://a/b/", "s3://c/d/", cluster=cluster, insecure_cluster=bool(cluster), send_credentials=True
        )


@pytest.mark.long
def test_a_worker_without_tls_gets_none(workers: distributed.Client) -> None:
    operation = nbdata.Pull("s3://b/d/", "/w", cluster=workers, send_credentials=True, storage_options=KEYS)
    cluster = Cluster("job", operation, capture(operation), FreeControl())
    cluster.client = workers
    with pytest.raises(nbdata.BadOption, match="a worker has no TLS"):
        cluster.enter(["tcp://127.0.0.1:1", *workers.nthreads()])


def test_newer_credentials_reach_running_parts_and_no_job_that_has_ended() -> None:
    operation = nbdata.Pull("s3://b/d/", "/w/d")

    def told(token: str, *, renews: bool) -> dict[str, Any]:
        context = {"storage_options": {"client_kwargs": {**TRIPLE, "aws_session_token": token}}}
        how = {"whole": False, "alone": True, "renews": renews}
        return performer.enter("job", Hidden({"operation": operation.to_dict(), "context": context, **how}))

    try:
        assert told("first", renews=False) == {}
        running = performer._jobs["job"]
        assert told("second", renews=True) == {}
        for job in (running, performer._jobs["job"]):
            assert job.context.storage_options["client_kwargs"]["aws_session_token"] == "second"
        assert performer._jobs["job"].tasks is running.tasks
        performer.leave("job")
        assert told("third", renews=True) == {}
        assert "job" not in performer._jobs
    finally:
        performer.leave("job")


def test_of_a_workers_own_environment_only_ways_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_PROFILE", "OBS_ENDPOINT", "AIS_AUTHN_TOKEN"):
        monkeypatch.setenv(name, "theirs")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("NBDATA_STALL_TIMEOUT", "5")
    ways = performer._ways()
    assert "theirs" not in ways.values()
    assert (ways["https_proxy"], ways["NBDATA_STALL_TIMEOUT"]) == ("http://127.0.0.1:1", "5")


@pytest.fixture
def strangers(workers: distributed.Client) -> Iterator[distributed.Client]:
    """The workers, with credentials of their own that the store refuses."""
    wrong = {
        "AWS_ACCESS_KEY_ID": "theirs",
        "AWS_SECRET_ACCESS_KEY": "theirstheirs",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }
    before = workers.run(_set, wrong)
    yield workers
    for worker, values in before.items():
        workers.run(_set, values, workers=[worker])


def _set(values: dict[str, str | None]) -> dict[str, str | None]:
    before = {name: os.environ.get(name) for name in values}
    for name, value in values.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    return before


PAGES = (
    *(
        "status",
        "health",
        "metrics",
        "sitemap.json",
        "json/counts.json",
        "json/index.html",
        "info/main/workers.html",
    ),
    *("info/main/tasks.html", "info/logs.html", "info/call-stacks/x", "api/v1/get_workers"),
)


@pytest.mark.long
@pytest.mark.usefixtures("inline")
def test_sent_credentials_serve_the_workers_and_dask_shows_them_nowhere(
    put: Put, s3: EmbeddedServer, gate: Gate, tmp_path: Path, strangers: distributed.Client, monkeypatch: Any
) -> None:
    source, given = put(OBJECTS), s3.storage_options()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", given["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", given["secret"])
    monkeypatch.setattr(credentials, "_AGAIN", 0.1)
    keys = {"aws_access_key_id": given["key"], "aws_secret_access_key": given["secret"]}
    asked: list[Sent] = []

    def ending(*_: Any) -> Sent:
        """Return keys that end at once. This server takes no session tokens."""
        options = {"endpoint_url": gate.url, "region": "us-east-1", "client_kwargs": keys}
        asked.append(Sent(options, {}, time.time()))
        return asked[-1]

    monkeypatch.setattr(opening, "sent_credentials", ending)
    gate.close(after=200_000)
    job = nbdata.Pull(
        source, str(tmp_path / "out"), cluster=strangers, send_credentials=True,
        storage_options={"endpoint_url": gate.url, "region": "us-east-1"},
    ).start()  # fmt: skip
    wait_until(lambda: gate.holds or job.snapshot().finished)
    assert job.snapshot().state == "RUNNING", job.snapshot()
    wait_until(lambda: len(asked) > 2)  # newer ones follow
    strangers.dump_cluster_state(str(tmp_path / "dump"), format="yaml")
    shown = (tmp_path / "dump.yaml").read_text() + json.dumps(
        [strangers.get_scheduler_logs(), strangers.get_worker_logs(), strangers.get_events()], default=str
    )
    ports = [strangers.scheduler_info()["services"]["dashboard"]]
    ports += [one["services"]["dashboard"] for one in strangers.scheduler_info()["workers"].values()]
    for port in ports:
        shown += "".join(page(f"http://127.0.0.1:{port}/{name}") for name in PAGES)
    assert "nbdata-pull-" in shown, "the parts are there"
    assert given["secret"] not in shown
    gate.open()
    assert job.wait().counts == {"fetched": len(OBJECTS)}
    wait_until(lambda: not any(strangers.run(lambda: len(performer._jobs)).values()))


def page(url: str) -> str:
    try:
        with urlopen(url, timeout=30) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        return str(error)
