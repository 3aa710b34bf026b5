"""What the panel runs: only what it may, in the agent, as the line says; and the reports of that."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.client.agents import stop_all
from nbdata.demo.server import EmbeddedServer
from nbdata.report import FINISHED
from nbdata.runtime import endpoints
from nbdata.server.asked import MAY_SET
from nbdata.server.reports import MOST_ROWS
from nbdata.verbs import VERBS
from tests.faults.gate import Gate
from tests.lab import Answer, Lab
from tests.waiting import wait_until

Put = Callable[[dict[str, bytes]], str]


@pytest.fixture(scope="module")
def lab(seaweedfs: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server that knows the store's credentials."""
    with Lab(tmp_path_factory.mktemp("lab"), environment=seaweedfs.environment()) as running:
        yield running


def post(lab: Lab, route: str, /, **body: object) -> Answer:
    return lab.ask(f"nbdata/api/{route}", "POST", body=json.dumps(body).encode())


def run(lab: Lab, /, **body: object) -> dict[str, Any]:
    answer = post(lab, "run", **body)
    assert answer.status == 200, answer
    return dict(answer.json())


def report(lab: Lab, run_id: str, query: str = "") -> dict[str, Any]:
    """Return the report of what ends by itself."""

    def over() -> dict[str, Any] | None:
        answer = lab.ask(f"nbdata/api/jobs/{run_id}/report{query}")
        assert answer.status == 200, answer
        found = dict(answer.json())
        return found if found["state"] in FINISHED else None

    return wait_until(over)


def folder_of(lab: Lab, name: str, files: dict[str, int]) -> Path:
    root = lab.root / name
    for path, size in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(os.urandom(size))
    return root


# -- what may be run ------------------------------------------------------------------------------


def test_only_the_verbs_and_options_of_the_table_are_taken(lab: Lab) -> None:
    for path in ("run", "line"):
        for verb in {*VERBS, "probe", "rm"} - MAY_SET.keys():
            refused = post(lab, path, verb=verb, source="/w", target="/x")
            assert (refused.status, f"cannot run '{verb}'" in refused.body) == (400, True)
        for body, why in (
            ({"verb": "cleanup", "source": "/w", "all": True}, "cannot set all of cleanup"),
            (
                {"verb": "du", "place": "/w", "storage_options": {"key": "k"}},
                "cannot set storage_options of du",
            ),
            ({"verb": "du", "place": "/w", "dry_run": True}, "cannot set dry_run of du"),
            ({"verb": "cleanup", "source": "/w", "dry_run": "no"}, "cannot set dry_run of cleanup"),
            ({"verb": "cleanup", "source": "/w", "only_here": True}, "--only-here needs --stored"),
            ({"verb": "cleanup"}, "source"),
            ({"verb": "quota", "path": "/w", "limit": 5}, "limit: 5 is not a text"),
            ({"verb": ["du"]}, "cannot run ['du']"),
            ({}, "cannot run None"),
        ):
            refused = post(lab, path, **body)
            assert (refused.status, why in refused.body) == (400, True), refused
        for bad in (b"[]", b"du"):
            assert lab.ask(f"nbdata/api/{path}", "POST", body=bad).status == 400


def test_the_table_names_options_that_exist() -> None:
    for verb, options in MAY_SET.items():
        assert set(options) <= VERBS[verb].__dataclass_fields__.keys()


def test_the_line_is_what_a_cell_would_say_and_asking_for_it_runs_nothing(lab: Lab) -> None:
    stop_all(now=True)
    for body, line in (
        ({"verb": "du", "place": "/a folder", "depth": 1}, "%du '/a folder'"),
        (
            {"verb": "cleanup", "source": "/w", "stored": True, "only_here": True},
            "%cleanup /w --stored --only-here",
        ),
        (
            {"verb": "cleanup", "source": "/w", "caches": True, "dry_run": True},
            "%cleanup /w --caches --dry-run",
        ),
        ({"verb": "quota", "path": "/w", "limit": "5GB"}, "%quota /w --limit 5GB"),
        ({"verb": "quota", "path": "/w", "limit": "none"}, "%quota /w --limit none"),
    ):
        assert post(lab, "line", **body).json() == {"line": line, "why_no_line": ""}
    odd = post(lab, "line", verb="du", place="/a\nb").json()
    assert odd["line"] == ""
    assert "line break" in odd["why_no_line"]
    for name in ('{os.environ["AWS_SECRET_ACCESS_KEY"]}', "{key}", "$key", "${key}"):
        said = post(lab, "line", verb="pull", source=f"s3://bucket/data/{name}/", target="/w").json()
        assert said["line"] == "", "a cell would send the user's variable to the store"
        assert "a cell takes for a variable" in said["why_no_line"]
    assert endpoints() == []


# -- what runs --------------------------------------------------------------------------------------


def test_du_says_what_fills_a_folder_and_the_rows_begin_with_the_largest(lab: Lab) -> None:
    root = folder_of(lab, "fills", {"small/a": 5_000, "large/b": 50_000, "large/deep/c": 1, "here": 9_000})
    begun = run(lab, verb="du", place=str(root), depth=1)
    assert begun["line"] == f"%du {root}"
    found = report(lab, begun["id"])
    assert (found["state"], found["error"], found["count"]) == ("DONE", "", 3)
    assert [row["path"] for row in found["rows"]] == ["large/", "small/", ""]
    total = found["rows"][-1]
    assert (total["action"], total["detail"]["objects"]) == ("total", 4)
    assert total["detail"]["only_here"] >= 64_000
    assert found["details"]["disk"] == total["detail"]["disk"]
    assert begun["id"] not in lab.jobs()


@pytest.mark.long
def test_of_many_folders_the_largest_come_and_the_number_of_all(lab: Lab) -> None:
    root = folder_of(lab, "many", {f"{n:04}/f": 1 + 8192 * (n == MOST_ROWS) for n in range(MOST_ROWS + 1)})
    found = report(lab, run(lab, verb="du", place=str(root))["id"])
    assert (len(found["rows"]), found["count"]) == (MOST_ROWS, MOST_ROWS + 2)
    assert found["rows"][0]["path"] == f"{MOST_ROWS:04}/"
    assert found["rows"][-1]["action"] == "total"


def test_a_plan_says_what_would_be_freed_and_then_the_job_frees_it(
    lab: Lab, put: Put, s3: EmbeddedServer
) -> None:
    url = put({f"{n}.bin": os.urandom(20_480) for n in range(3)})
    root = folder_of(lab, "free", {"mine": 8_192})
    nbdata.Pull(url, root / "in", storage_options={"endpoint_url": s3.url}).run(quiet=True)
    stored = {"verb": "cleanup", "source": str(root), "stored": True}
    plan = report(lab, run(lab, **stored, dry_run=True)["id"])
    assert (plan["state"], plan["count"]) == ("DONE", 4)
    assert plan["details"]["frees"] == {"own": 0, "stored": 61_440, "only_here": 0}
    assert plan["details"]["stays"] == {"only_here": 8_192, "not_asked": 0}
    assert len(list((root / "in").iterdir())) == 3
    lost = report(lab, run(lab, **stored, only_here=True, dry_run=True)["id"])
    assert (lost["details"]["frees"]["only_here"], lost["count"]) == (8_192, 4)
    assert [row["path"] for row in lost["rows"]] == ["mine"]
    begun = run(lab, **stored)
    job = wait_until(lambda: lab.jobs().get(begun["id"]))
    assert (job["key"], job["verb"], job["here"]) == (begun["key"], "cleanup", True)
    assert job["owner"].startswith("JupyterLab's panel")
    assert report(lab, begun["id"])["details"]["freed"] == 61_440
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["mine"]


@pytest.mark.long
def test_a_plan_that_waits_for_a_store_is_cancelled(
    lab: Lab, put: Put, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = put({"1.bin": os.urandom(20_000)})
    stop_all(now=True)
    monkeypatch.setenv("NBDATA_AGENT_IDLE", "5")
    root = lab.root / "cancelled"
    nbdata.Pull(url, root, storage_options={"endpoint_url": gate.url}).run(quiet=True)
    gate.close()
    begun = run(lab, verb="cleanup", source=str(root), stored=True, dry_run=True)
    gate.wait_until_it_holds()
    assert lab.ask(f"nbdata/api/jobs/{begun['id']}/report").json()["state"] == "PLANNING"
    assert lab.ask(f"nbdata/api/jobs/{begun['id']}/cancel", "POST").status == 200
    assert report(lab, begun["id"]) == {"state": "CANCELLED", "error": ""}
    wait_until(lambda: endpoints() == [])  # an agent that plans does not end


def test_du_of_a_store_that_does_not_answer_is_cancelled(lab: Lab, put: Put, gate: Gate) -> None:
    port = gate.url.rpartition(":")[2]
    gate.close()
    begun = run(lab, verb="du", place=f"http://127.0.0.1:{port}/data/")
    gate.wait_until_it_holds()
    assert lab.ask(f"nbdata/api/jobs/{begun['id']}/cancel", "POST").status == 200
    assert report(lab, begun["id"])["state"] == "CANCELLED"


def test_a_limit_is_set_and_lifted(lab: Lab) -> None:
    def limits() -> list[int]:
        seen = lab.ask("nbdata/api/disks").json()["disks"]
        return [disk["limit"] for disk in seen if disk["path"] == os.path.realpath(lab.root)]

    for limit, expected in (("50MB", [50_000_000]), ("none", [])):
        found = report(lab, run(lab, verb="quota", path=str(lab.root), limit=limit)["id"])
        assert found["state"] == "DONE"
        wait_until(lambda expected=expected: limits() == expected)


# -- reports ----------------------------------------------------------------------------------------


@pytest.fixture
def failed(put: Put, lab: Lab, request: pytest.FixtureRequest) -> str:
    """The id of a pull of 105 objects, all but two of which failed."""
    root = lab.root / request.node.name
    url = put({f"{n:03}": b"x" for n in range(105)})
    for n in range(103):
        (root / f"{n:03}").mkdir(parents=True)
    job = nbdata.Pull(url, root).start()
    with pytest.raises(nbdata.TransferFailed):
        job.wait()
    return job.id


def test_the_failed_files_of_a_job_come_with_their_reasons(lab: Lab, failed: str) -> None:
    found = report(lab, failed, "?action=bad")
    assert (found["state"], found["count"], len(found["rows"])) == ("FAILED", 103, 103)
    assert {row["path"] for row in found["rows"]} == {f"{n:03}" for n in range(103)}
    assert all(row["detail"]["reason"] for row in found["rows"])
    fetched = report(lab, failed, "?action=fetched&action=conflict")
    assert {row["action"] for row in fetched["rows"]} <= {"fetched", "conflict"}
    assert report(lab, failed)["count"] == 105


def test_when_the_agent_has_ended_the_failures_on_record_come(lab: Lab, failed: str) -> None:
    wait_until(lambda: lab.jobs().get(failed, {}).get("state") == "FAILED")
    stop_all(now=True)
    found = report(lab, failed, "?action=bad")
    assert (found["count"], len(found["rows"])) == (103, 10)
    assert all(row["detail"]["reason"] for row in found["rows"])


def test_a_result_whose_agent_has_ended_is_told_with_what_to_do(lab: Lab) -> None:
    begun = run(lab, verb="du", place=str(lab.root))
    assert report(lab, begun["id"])["state"] == "DONE"
    stop_all(now=True)
    lost = lab.ask(f"nbdata/api/jobs/{begun['id']}/report")
    assert lost.status == 404
    assert "its agent has ended" in lost.json()["message"]
    assert lost.json()["remedy"] == "Run it again"
    assert lab.ask("nbdata/api/jobs/ffffffff/report").status == 404


def test_no_secret_is_in_a_report(lab: Lab, tmp_path: Path) -> None:
    source = "http://user:hunter2@127.0.0.1:9/data.bin?X-Amz-Signature=5ec2e7"
    job = nbdata.Pull(source, str(tmp_path / "data")).start()
    wait_until(lambda: job.snapshot().finished)
    text = lab.ask(f"nbdata/api/jobs/{job.id}/report?action=bad").body
    assert "127.0.0.1:9" in text
    assert [secret for secret in ("hunter2", "5ec2e7") if secret in text] == []
