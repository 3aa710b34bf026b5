"""The routes of the Jupyter server extension: who may use them, and what they return."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket
from tornado.web import RequestHandler

import nbdata
from nbdata.client.agents import stop_all
from nbdata.client.connection import Connection
from nbdata.runtime import endpoint, endpoints
from nbdata.server.routes import routes
from nbdata.verbs.probe import Probe
from tests.agent.rig import tmpfs
from tests.faults.gate import Gate
from tests.lab import Lab
from tests.waiting import PATIENCE, wait_until

ROUTES = {
    "nbdata/api/jobs": ["GET"],
    "nbdata/api/jobs/([0-9a-f]{1,32})/(pause|resume|cancel|again)": ["POST"],
    "nbdata/api/jobs/([0-9a-f]{1,32})/limit": ["POST"],
    "nbdata/api/jobs/([0-9a-f]{1,32})/report": ["GET"],
    "nbdata/api/jobs/finished/clear": ["POST"],
    "nbdata/api/run": ["POST"],
    "nbdata/api/line": ["POST"],
    "nbdata/api/plan": ["POST"],
    "nbdata/api/plan/([0-9a-f]{1,32})": ["GET"],
    "nbdata/api/disks": ["GET"],
    "nbdata/api/caches/clear": ["POST"],
    "nbdata/api/mounts/unmount": ["POST"],
    "nbdata/api/stores/list": ["POST"],
    "nbdata/api/stores/preview": ["POST"],
    "nbdata/api/stores/media/([0-9a-f]{1,64})": ["GET"],
    "nbdata/api/stores/starts": ["GET"],
    "nbdata/api/connections": ["GET"],
    "nbdata/api/connections/keep": ["POST"],
    "nbdata/api/connections/forget": ["POST"],
    "nbdata/api/live": ["GET"],
}
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

Put = Callable[[dict[str, bytes]], str]


@contextlib.contextmanager
def live(lab: Lab) -> Iterator[Callable[[], dict[str, Any]]]:
    """Connect to the live feed; yields a function that returns its next message."""
    where = f"{lab.url.replace('http', 'ws')}/nbdata/api/live?token={lab.token}"
    connection = websocket.create_connection(where, timeout=PATIENCE)
    try:
        yield lambda: json.loads(connection.recv())
    finally:
        connection.close()


def probe(tag: str, items: int = 1000) -> Any:
    return Probe(items=items, delay=20, tag=tag).start()


# -- access ---------------------------------------------------------------------------------------


def test_the_list_of_routes_is_complete() -> None:
    known: Any = None
    assert [path for path, _, _ in routes("/", known, known, known, known)] == [f"/{path}" for path in ROUTES]


def answered() -> list[tuple[str, str]]:
    """Return an address of each route with each method that it answers, as the code has them."""
    known: Any = None
    return [
        (re.sub(r"\(([^()]*)\)", lambda group: _example(group[1]), path).lstrip("/"), method)
        for path, handler, _ in routes("/", known, known, known, known)
        for method in METHODS
        if getattr(handler, method.lower()) is not getattr(RequestHandler, method.lower())
    ]


def _example(group: str) -> str:
    return "abcd" if "[" in group else group.partition("|")[0]


@pytest.fixture(scope="module")
def forbidding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server whose administrator allows its users everything but nbdata."""
    folder = tmp_path_factory.mktemp("forbidding")
    (folder / "forbids.py").write_text(
        "from jupyter_server.auth.authorizer import Authorizer\n"
        "class Forbids(Authorizer):\n"
        "    def is_authorized(self, handler, user, action, resource):\n"
        "        return resource != 'nbdata'\n"
    )
    with Lab(folder, "--ServerApp.authorizer_class=forbids.Forbids") as running:
        yield running


def test_every_route_is_authenticated_authorised_and_refuses_pages_of_others(
    lab: Lab, forbidding: Lab
) -> None:
    cookie = login(lab)
    assert len(answered()) >= len(ROUTES)
    for path, method in answered():
        asked = {"path": path, "method": method, "headers": UPGRADE if path.endswith("live") else {}}
        assert lab.ask(**asked, token=False).status in (401, 403), asked
        assert forbidding.ask(**asked).status == 403, asked
        # A browser sends the cookie along with what a page of another origin asks, but that page cannot read the token.
        asked["headers"] = {**asked["headers"], "Cookie": cookie}
        if method == "GET":  # test_the_feed_refuses_a_page_of_another_origin has the websocket
            headers = {**asked["headers"], "Origin": "http://evil.example"}
            is_feed = path.endswith("live")
            assert is_feed or lab.ask(path, headers=headers, token=False).status in (403, 404), asked
        else:
            refused = lab.ask(**asked, token=False)
            assert (refused.status, "_xsrf" in refused.body) == (403, True), (asked, refused)


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("method", METHODS)
def test_every_route_refuses_requests_without_a_token(lab: Lab, path: str, method: str) -> None:
    said = re.sub(r"\(\[0-9a-f\][^)]*\)", "abcd", path).replace("(pause|resume|cancel|again)", "cancel")
    answer = lab.ask(said, method, token=False, headers=UPGRADE if path.endswith("live") else None)
    assert answer.status in ((401, 403) if method in ROUTES[path] else (401, 403, 405))
    assert '"jobs"' not in answer.body
    assert '"disks"' not in answer.body


def test_a_request_with_only_a_cookie_changes_nothing(lab: Lab) -> None:
    job = probe("no xsrf")
    wait_until(lambda: job.id in lab.jobs())
    cookie = login(lab)
    assert (
        lab.ask("nbdata/api/jobs", token=False, headers={"Cookie": cookie, "Referer": lab.url}).status == 200
    )
    refused = lab.ask(f"nbdata/api/jobs/{job.id}/cancel", "POST", token=False, headers={"Cookie": cookie})
    assert refused.status == 403
    assert "_xsrf" in refused.body
    assert not job.snapshot().finished
    token = re.search("_xsrf=([^;]+)", cookie)
    assert token is not None
    headers = {"Cookie": cookie, "X-XSRFToken": token[1]}
    assert lab.ask(f"nbdata/api/jobs/{job.id}/cancel", "POST", token=False, headers=headers).status == 200
    wait_until(lambda: job.snapshot().finished)


def login(lab: Lab) -> str:
    """Return the cookies of a browser that has opened JupyterLab."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=PATIENCE)
    jar: dict[str, str] = {}
    for path in (f"/lab?token={lab.token}", "/lab"):
        connection.request("GET", path, headers={"Cookie": "; ".join(f"{n}={v}" for n, v in jar.items())})
        reply = connection.getresponse()
        reply.read()
        for name, value in reply.getheaders():
            if name.lower() == "set-cookie":
                key, _, rest = value.partition("=")
                jar[key] = rest.split(";")[0]
    connection.close()
    return "; ".join(f"{n}={v}" for n, v in jar.items())


def test_the_feed_refuses_a_page_of_another_origin(lab: Lab) -> None:
    where = f"{lab.url.replace('http', 'ws')}/nbdata/api/live"
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        websocket.create_connection(where, timeout=PATIENCE, origin="http://evil.example", cookie=login(lab))
    assert refused.value.status_code == 403


# -- responses ------------------------------------------------------------------------------------


def test_without_an_agent_there_are_no_jobs_and_none_is_started(lab: Lab) -> None:
    stop_all(now=True)
    with live(lab) as message:
        assert message()["problem"] == ""
        answer = lab.ask("nbdata/api/jobs").json()
        assert answer["problem"] == ""
        assert not any(job["state"] == "RUNNING" for job in answer["jobs"])
        assert lab.ask("nbdata/api/disks").status == 200
    assert endpoints() == []


def test_a_job_can_be_paused_resumed_and_cancelled(lab: Lab) -> None:
    job = probe("buttons")
    wait_until(lambda: lab.jobs().get(job.id, {}).get("state") == "RUNNING")
    for action, state in (("pause", "PAUSED"), ("resume", "RUNNING"), ("cancel", "CANCELLED")):
        assert lab.ask(f"nbdata/api/jobs/{job.id}/{action}", "POST").status == 200
        wait_until(lambda state=state: lab.jobs()[job.id]["state"] == state)
    assert job.snapshot().state == "CANCELLED"


def test_a_limit_is_set_and_lifted_while_a_job_runs(lab: Lab, put: Put, gate: Gate, tmp_path: Path) -> None:
    url = put({"a": bytes(400_000)})
    gate.close(after=100_000)
    job = nbdata.Pull(url, str(tmp_path / "out")).start()
    gate.wait_until_it_holds()
    for said, rate in (("2MB/s", 2_000_000), (None, None), ("3000kB", 3_000_000), ("0", None)):
        answer = lab.ask(
            f"nbdata/api/jobs/{job.id}/limit", "POST", body=json.dumps({"max_rate": said}).encode()
        )
        assert answer.status == 200
        wait_until(lambda rate=rate: lab.jobs()[job.id]["max_rate"] == rate)
    for wrong in ({}, {"max_rate": ""}, {"max_rate": True}, {"max_rate": 5_000_000}, [5]):
        assert (
            lab.ask(f"nbdata/api/jobs/{job.id}/limit", "POST", body=json.dumps(wrong).encode()).status == 400
        )
    for odd, reason in (("5", "too little"), ("fast", "not a size"), ("-5MB", "not a size")):
        refused = lab.ask(
            f"nbdata/api/jobs/{job.id}/limit", "POST", body=json.dumps({"max_rate": odd}).encode()
        )
        assert refused.status == 409
        assert reason in refused.json()["message"]
    assert lab.jobs()[job.id]["can_limit"]
    gate.open()
    job.wait()


def test_a_job_that_was_cancelled_is_begun_again_with_what_it_had(
    lab: Lab, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put({"a": b"12345"})
    secret = {"key": os.environ["AWS_ACCESS_KEY_ID"], "secret": os.environ["AWS_SECRET_ACCESS_KEY"]}
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    job = nbdata.Pull(url, str(tmp_path / "out"), storage_options=secret).start()
    job.wait()
    refused = lab.ask(f"nbdata/api/jobs/{job.id}/again", "POST")
    assert refused.status == 409
    assert "nothing to run again" in refused.json()["message"]
    (tmp_path / "out" / "a").unlink()
    (tmp_path / "out" / "a").mkdir()
    failing = nbdata.Pull(url, str(tmp_path / "out"), storage_options=secret).start()
    with pytest.raises(nbdata.TransferFailed):
        failing.wait()
    (tmp_path / "out" / "a").rmdir()
    assert lab.ask(f"nbdata/api/jobs/{failing.id}/again", "POST").status == 200
    wait_until((tmp_path / "out" / "a").is_file)
    assert (tmp_path / "out" / "a").read_bytes() == b"12345"


def test_a_job_whose_agent_is_gone_cannot_be_begun_again_without_its_credentials(lab: Lab) -> None:
    job = probe("gone again")
    job.cancel()
    wait_until(lambda: job.snapshot().finished)
    stop_all(now=True)
    answer = lab.ask(f"nbdata/api/jobs/{job.id}/again", "POST")
    assert answer.status == 404
    assert "Run its command in a notebook" in answer.json()["remedy"]


def test_finished_jobs_can_be_cleared_from_all_panels_and_transfers_still_knows_them(lab: Lab) -> None:
    over, running = probe("cleared", items=1), probe("not cleared")
    over.wait()
    wait_until(lambda: {over.id, running.id} <= lab.jobs().keys())
    assert lab.ask("nbdata/api/jobs/finished/clear", "POST").status == 200
    assert lab.jobs().keys() == {running.id}
    later = probe("later", items=1)
    later.wait()
    wait_until(lambda: lab.jobs().keys() == {running.id, later.id})
    assert over.id in {job.id for job in nbdata.transfers(all=True)}
    running.cancel()


def test_a_job_that_is_not_there_is_told_in_words(lab: Lab) -> None:
    answer = lab.ask("nbdata/api/jobs/ffffffff/cancel", "POST")
    assert answer.status == 404
    assert "no job 'ffffffff'" in answer.json()["message"]


def test_the_beginning_of_an_id_is_not_enough(lab: Lab) -> None:
    job = probe("prefix")
    assert lab.ask(f"nbdata/api/jobs/{job.id[:3]}/cancel", "POST").status == 404
    assert not job.snapshot().finished
    job.cancel()


def test_the_feed_says_first_everything_then_what_changed_at_most_four_times_a_second(lab: Lab) -> None:
    over = probe("over", items=1)
    over.wait()
    job = probe("feed")
    with live(lab) as message:
        assert {over.id, job.id} <= {shown["id"] for shown in message()["jobs"]}
        began = time.monotonic()
        for _ in range(12):
            assert [shown["id"] for shown in message()["jobs"]] == [job.id]
        assert time.monotonic() - began >= (12 - 2) / 4
        job.cancel()
        wait_until(lambda: any(shown["state"] == "CANCELLED" for shown in message()["jobs"]))


def test_only_a_cache_is_cleared_and_no_other_folder(lab: Lab, tmp_path: Path, tree: Path) -> None:
    nbdata.pull(f"{tree}/", tmp_path / "data", quiet=True)
    looks_like = tmp_path / ".nbdata" / "kept-0123456789abcdef"
    looks_like.mkdir(parents=True)
    for path in (tmp_path / "data", looks_like, tmp_path / "none"):
        answer = lab.ask("nbdata/api/caches/clear", "POST", body=json.dumps({"path": str(path)}).encode())
        assert (answer.status, "no longer exists" in answer.body) == (404, True)
    for body in (b"{}", b"[]", b'{"path": 5}', b"path"):
        assert lab.ask("nbdata/api/caches/clear", "POST", body=body).status == 400
    assert (tmp_path / "data" / "a.txt").exists()
    assert looks_like.exists()


def test_only_a_mount_of_nbdata_is_unmounted(lab: Lab, tmp_path: Path) -> None:
    for path in (str(tmp_path), "/", "/proc"):
        answer = lab.ask("nbdata/api/mounts/unmount", "POST", body=json.dumps({"path": path}).encode())
        assert (answer.status, "has mounted nothing there" in answer.body) == (404, True)
    assert lab.ask("nbdata/api/mounts/unmount", "POST", body=b"{}").status == 400


def test_browsers_that_leave_make_room_for_others(lab: Lab) -> None:
    job = probe("leave")
    for _ in range(3):  # in total more watchers than are allowed at a time
        with contextlib.ExitStack() as stack:
            watchers = [wait_until(lambda: admitted(lab, stack)) for _ in range(60)]
            for message in watchers:
                message()
    job.cancel()


def admitted(lab: Lab, stack: contextlib.ExitStack) -> Callable[[], dict[str, Any]] | None:
    """Return a watcher that lasts as long as `stack`; None if there are too many."""
    try:
        return stack.enter_context(live(lab))
    except websocket.WebSocketBadStatusException:
        return None


def test_the_jobs_of_a_killed_agent_are_shown_as_interrupted(lab: Lab) -> None:
    job = probe("killed")
    with live(lab) as message:
        assert job.id in {shown["id"] for shown in message()["jobs"]}
        with Connection(endpoint()) as connection:
            pid = connection.ask({"do": "hello"})["pid"]
        os.kill(pid, 9)
        wait_until(lambda: any(shown["state"] == "INTERRUPTED" for shown in message()["jobs"]))
    shown = lab.jobs()[job.id]
    assert "interrupted: its agent ended" in shown["error"]
    assert lab.ask(f"nbdata/api/jobs/{job.id}/cancel", "POST").status in (404, 503)


def test_what_an_agent_did_is_still_shown_when_it_has_ended(lab: Lab) -> None:
    job = probe("remembered", items=1)
    job.wait()
    wait_until(lambda: lab.jobs().get(job.id, {}).get("state") == "DONE")
    stop_all(now=True)
    assert lab.jobs()[job.id]["state"] == "DONE"


def test_no_secret_of_a_url_is_in_any_answer(lab: Lab, tmp_path: Path) -> None:
    source = "http://user:hunter2@127.0.0.1:9/data.bin?X-Amz-Signature=5ec2e7"
    job = nbdata.Pull(source, str(tmp_path / "data")).start()
    with live(lab) as message:
        texts = [json.dumps(message())]
    wait_until(lambda: lab.jobs().get(job.id, {}).get("state") == "FAILED")
    texts += [lab.ask("nbdata/api/jobs").body, lab.log.read_text()]
    assert job.id in texts[1]
    assert "127.0.0.1:9/data.bin" in texts[1]
    for text in texts:
        for secret in ("hunter2", "5ec2e7"):
            assert secret not in text
            assert urllib.parse.quote(secret) not in text


def test_a_job_of_another_environment_and_build_is_seen_and_can_be_cancelled(
    lab: Lab, tmp_path: Path
) -> None:
    shutil.copytree(Path(nbdata.__file__).parent, tmp_path / "nbdata")
    venv.create(tmp_path / "other", symlinks=True)
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *libraries])}
    say = "from nbdata.verbs.probe import Probe; print(Probe(items=1000, delay=20, tag='other').start().id)"
    command = [str(tmp_path / "other" / "bin" / "python"), "-c", say]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    job_id = done.stdout.strip()
    wait_until(lambda: lab.jobs().get(job_id, {}).get("state") == "RUNNING")
    assert lab.ask(f"nbdata/api/jobs/{job_id}/cancel", "POST").status == 200
    wait_until(lambda: lab.jobs()[job_id]["state"] == "CANCELLED")
    environments = {where.name.partition("-")[0] for where in endpoints()}
    assert environments - {endpoint().name.partition("-")[0]}


# -- disks ----------------------------------------------------------------------------------------


def test_disks_name_limit_source_and_what_is_used_reserved_and_free(lab: Lab, gate: Gate, put: Put) -> None:
    nbdata.quota(str(lab.root), limit="50MB", quiet=True)
    (lab.root / "used.bin").write_bytes(bytes(1_000_000))
    try:
        gate.close(after=5_000_000)
        job = nbdata.Pull(put({"a.bin": os.urandom(20_000_000)}), str(lab.root / "data")).start()
        limit, disk = wait_until(lambda: reserved(lab))
        job.cancel()
        assert limit["source"] == "%quota --limit"
        assert limit["limit"] == 50_000_000
        assert limit["path"] == os.path.realpath(lab.root)
        assert limit["reserved"] <= 20_100_000
        assert limit["free"] == 50_000_000 - limit["used"] - limit["reserved"]
        assert disk["source"] == "the disk"
        assert disk["limit"] >= disk["used"]
        assert disk["free"] <= disk["limit"] - disk["used"] - limit["reserved"]
    finally:
        nbdata.quota(str(lab.root), limit="none", quiet=True)


@pytest.mark.long
def test_the_disk_of_a_running_or_failed_job_is_shown_openly_and_fills(
    lab: Lab, gate: Gate, put: Put, tmp_path: Path, mounts: None
) -> None:
    def seen(disk: Path) -> dict[str, Any]:
        found = lab.ask("nbdata/api/disks").json()["disks"]
        return next((one for one in found if one["path"] == str(disk)), {})

    url = put({f"{n:02}.bin": os.urandom(1_000_000) for n in range(20)})
    with tmpfs(tmp_path / "disk", size="40m") as disk, live(lab):
        wait_until(lambda: seen(disk).get("here") is False)
        gate.close(after=5_000_000)
        job = nbdata.Pull(url, str(disk / "data"), concurrency=2).start()
        before = wait_until(lambda: (one := seen(disk))["reserved"] and one)
        assert before["here"]
        gate.close(after=6_000_000)
        wait_until(lambda: seen(disk)["used"] > before["used"])
        job.cancel()
        wait_until(lambda: not seen(disk)["here"])
        (disk / "full" / "00.bin").mkdir(parents=True)
        gate.open()
        nbdata.Pull(f"{url}00.bin", str(disk / "full")).start()
        wait_until(lambda: seen(disk)["here"])
        assert lab.ask("nbdata/api/jobs/finished/clear", "POST").status == 200
        wait_until(lambda: not seen(disk)["here"])


def reserved(lab: Lab) -> list[dict[str, Any]] | None:
    """Return the limit and the disk of JupyterLab's root once both have reserved space."""
    here = [disk for disk in lab.ask("nbdata/api/disks").json()["disks"] if disk["here"]]
    return here[:2] if all(disk["reserved"] for disk in here[:2]) else None


# -- the server's idle shutdown ----------------------------------------------------------------------


def test_a_running_job_keeps_the_server_awake_and_looking_does_not(lab: Lab) -> None:
    def last_activity() -> str:
        return str(lab.ask("api/status?no_track_activity=1").json()["last_activity"])

    with live(lab) as message:
        message()
        wait_until(lambda: not any(j["state"] == "RUNNING" for j in lab.jobs().values()))
        before = last_activity()
        lab.jobs()
        lab.ask("nbdata/api/disks")
        assert last_activity() == before
        job = probe("awake")
        wait_until(lambda: last_activity() > before)
        job.pause()
        wait_until(lambda: lab.jobs()[job.id]["state"] == "PAUSED")
        job.cancel()
        wait_until(lambda: lab.jobs()[job.id]["state"] == "CANCELLED")


def test_looking_does_not_keep_an_agent_alive(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_all(now=True)
    monkeypatch.setenv("NBDATA_AGENT_IDLE", "2")
    probe("idle", items=1).wait()
    with live(lab) as message:
        message()
        wait_until(lambda: endpoints() == [])


@pytest.mark.long
def test_a_feed_without_news_says_that_it_is_alive(lab: Lab) -> None:
    stop_all(now=True)
    with live(lab) as message:
        version = message()["version"]
        nothing = {"jobs": [], "gone": [], "problem": "", "version": version}
        wait_until(lambda: message() == nothing)
