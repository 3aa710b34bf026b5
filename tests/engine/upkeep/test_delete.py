"""delete removes what its plan says from a store, and nothing without ``yes``."""

from __future__ import annotations

import json
import os
import pty
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.upkeep import delete
from nbdata.errors import BadOption, NotFound, TransferFailed
from tests.conftest import client_of
from tests.faults.proxy import BEFORE, Exchange, Fault, FaultProxy
from tests.waiting import PATIENCE

Put = Callable[[dict[str, bytes]], str]

FILES = {"run/a.txt": b"a" * 10, "run/b/c.bin": b"c" * 20, "run/b/d.log": b"", "other/e.txt": b"e"}


@pytest.fixture
def keys(s3: EmbeddedServer, bucket: str) -> Callable[[], list[str]]:
    """Return a function that lists the bucket, by another client."""

    def listed() -> list[str]:
        client = client_of(s3)
        found = client.list_objects_v2(Bucket=bucket).get("Contents", [])
        client.close()
        return sorted(one["Key"] for one in found)

    return listed


def test_nothing_is_deleted_without_yes(put: Put, keys: Callable[[], list[str]]) -> None:
    url = put(FILES)
    plan = nbdata.delete(f"{url}run/", dry_run=True)
    assert plan.actions == {"delete": [3, 30]}
    assert "delete 3 (30 B)" in plan.text()
    with pytest.raises(BadOption, match=r"would delete 3 objects \(30 B\); nothing was deleted.*add --yes"):
        nbdata.delete(f"{url}run/", quiet=True)
    assert keys() == sorted(FILES)


def test_all_below_a_folder_goes_and_nothing_beside_it(put: Put, keys: Callable[[], list[str]]) -> None:
    url = put({**FILES, "run/": b"", "run/empty/": b"", "runs.txt": b"1"})
    report = nbdata.delete(f"{url}run/", yes=True, quiet=True)
    assert report.counts == {"deleted": 3}
    assert "3 objects deleted, 30 B" in report.line
    assert keys() == ["other/e.txt", "runs.txt"]
    with pytest.raises(NotFound):
        nbdata.delete(f"{url}run/", yes=True, quiet=True)


def test_an_object_a_glob_and_a_selection(put: Put, keys: Callable[[], list[str]]) -> None:
    url = put({**FILES, "run/b/": b"", "run/kept/": b""})
    nbdata.delete(f"{url}run/a.txt", yes=True, quiet=True)
    nbdata.delete(f"{url}run/**/*.log", yes=True, quiet=True)
    nbdata.delete(f"{url}run/", include="*.none", yes=True, quiet=True)
    assert nbdata.delete(f"{url}other/", older_than="1d", dry_run=True).actions == {}
    left = [key for key in keys() if not key.endswith("/")]
    assert left == ["other/e.txt", "run/b/c.bin"]
    assert "run/kept/" in keys()  # a part was meant


@pytest.mark.long
def test_thousands_go_with_few_requests(
    s3: EmbeddedServer, bucket: str, put: Put, proxied: FaultProxy
) -> None:
    put({f"many/{number:04}": b"" for number in range(2100)})
    asked = list[Exchange]()
    proxied.begin(lambda request, before: asked.append(request))
    report = nbdata.delete(f"s3://{bucket}/many/", yes=True, quiet=True)
    assert report.counts == {"deleted": 2100}
    assert len([one for one in asked if one.action == "other"]) == 3


@pytest.fixture
def proxied(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> FaultProxy:
    """A proxy in front of the store."""
    with FaultProxy(s3.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


def test_what_the_store_refuses_is_named_and_the_rest_goes(
    bucket: str, put: Put, proxied: FaultProxy, keys: Callable[[], list[str]]
) -> None:
    put(FILES)

    def refuse(request: Exchange, before: int) -> Fault | None:
        at_once = request.action == "other" and not request.key
        return Fault("refuse", BEFORE, status=403) if at_once or request.key == "run/b/c.bin" else None

    proxied.begin(refuse)
    with pytest.raises(TransferFailed) as failed:
        nbdata.delete(f"s3://{bucket}/run/", yes=True, quiet=True)
    assert failed.value.report.counts == {"deleted": 2, "not deleted": 1}
    assert failed.value.report.failures[0][0] == "b/c.bin"
    report = nbdata.delete(f"s3://{bucket}/run/", yes=True, quiet=True, on_error="report")
    assert report.counts == {"not deleted": 1}
    assert keys() == ["other/e.txt", "run/b/c.bin"]


def test_folders_of_stores_that_have_them_go_too(tmp_path: Path) -> None:
    (tmp_path / "d/run/b").mkdir(parents=True)
    (tmp_path / "d/run/b/c").write_text("c")
    (tmp_path / "d/run/a").write_text("a")
    (tmp_path / "d/side").write_text("s")
    files = fsspec.filesystem("dir", path=str(tmp_path / "d"), target_protocol="file")
    nbdata.delete("dir://run/", fs=files, yes=True, quiet=True)
    assert os.listdir(tmp_path / "d") == ["side"]


def test_a_local_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match=r"local path.*cleanup"):
        nbdata.delete(str(tmp_path), yes=True)


def test_the_command_line_asks_in_a_terminal_and_not_in_a_script(
    put: Put, keys: Callable[[], list[str]]
) -> None:
    url = put(FILES)
    words = [sys.executable, "-m", "nbdata", "delete", f"{url}run/"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, "would delete 3 objects" in done.stderr) == (2, True)
    for answer, left in (("n", 4), ("", 4), ("y", 1)):
        ours, theirs = pty.openpty()
        child = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        said = b""
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:  # Linux ends a terminal so
                break
            if not more:
                break
            said += more
        child.wait(PATIENCE)
        os.close(ours)
        assert b"[y/N]" in said
        assert b"delete 3 (30 B)" in said
        assert len(keys()) == left
    told = subprocess.run(
        [*words[:4], f"{url}other/", "--yes", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(told.stdout)["counts"] == {"deleted": 1}


@pytest.mark.parametrize("seed", range(20))
def test_folders_go_once_and_after_all_that_is_in_them(seed: int) -> None:
    chance = random.Random(seed)
    paths = [
        "/".join(["top", *chance.choices(["a", "a b", "a-", "b"], k=chance.randrange(5))]) for _ in range(30)
    ]
    wanted = {"/".join(path.split("/")[:count]) + "/" for path in paths for count in range(1, 9)}
    for top in ("top", ""):
        found = list(delete._with_those_above(set(paths), top))
        assert sorted(found) == sorted(wanted)
        for at, folder in enumerate(found):
            assert not any(one.startswith(folder) for one in found[at + 1 :])
    assert list(delete._with_those_above({"", "x"}, "")) == ["x/"]


def test_deep_folders_take_the_memory_of_their_names() -> None:
    folders = {"top/" + "/".join(f"{number:015}{level:016}" for level in range(250)) for number in range(400)}
    tracemalloc.start()
    try:
        assert sum(1 for _ in delete._with_those_above(folders, "top")) == 400 * 250 + 1
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
