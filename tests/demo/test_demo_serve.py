"""``nbdata demo --serve``: the commands that it prints work, and it leaves nothing behind, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import nbdata
from nbdata.errors import StoreUnavailable
from tests.waiting import PATIENCE, wait_until

NBDATA = Path(sys.executable).with_name("nbdata")


def started(tmp_path: Path, *before: str) -> tuple[subprocess.Popen[str], list[str]]:
    """Start ``nbdata demo --serve`` with a private temporary folder.

    Return the process and the commands that it printed.
    """
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [*before, NBDATA, "demo", "--serve"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert process.stdout is not None
    shown: list[str] = []
    for line in process.stdout:
        shown.append(line)
        if line.startswith("Ctrl-C ends it"):
            return process, shown
    raise AssertionError(process.communicate(timeout=PATIENCE))


@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM", "SIGKILL"])
@pytest.mark.in_ci("SIGTERM")
def test_it_stays_until_it_is_ended_and_takes_everything_along(end: str, tmp_path: Path) -> None:
    process, _ = started(tmp_path)
    with process:
        (folder,) = (tmp_path / "temporary").glob("nbdata-demo-*")
        assert process.poll() is None
        process.send_signal(getattr(signal, end))
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (-signal.SIGKILL if end == "SIGKILL" else 0, "")
        assert (out.strip() == "ended") == (end != "SIGKILL")
        wait_until(lambda: not folder.exists())
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.long
def test_it_ends_on_an_interrupt_in_the_background_of_a_script(tmp_path: Path) -> None:
    """Shells start such a process with SIGINT ignored."""
    process, _ = started(tmp_path, "bash", "-c", 'trap "" INT; exec "$@"', "bash")
    with process:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out.strip()) == (0, "ended")


@pytest.mark.long
def test_its_lines_can_be_pasted(tmp_path: Path) -> None:
    process, shown = started(tmp_path)
    with process:
        text = "".join(shown)
        (folder,) = (tmp_path / "temporary").glob("nbdata-demo-*")
        told = json.loads((folder / "credentials.json").read_text())
        assert not [value for value in told.values() if str(value) in text and len(str(value)) > 12]
        assert (folder / "profile-credentials").stat().st_mode & 0o777 == 0o600
        terminal = text.split("In another terminal:\n")[1].split("In a notebook:\n")[0]
        assert "%pull s3://nbdata-demo/compressed/ demo-volumes" in text.split("In a notebook:\n")[1]
        path = f"{NBDATA.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-ec", terminal], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert len(list((tmp_path / "demo-volumes").iterdir())) == 4
        assert any((tmp_path / "demo-files").iterdir())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)


@pytest.mark.usefixtures("inline")
@pytest.mark.long
def test_in_python_it_lasts_as_long_as_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with nbdata.demo.serve(size=2_000_000) as store, nbdata.demo.serve(size=2_000_000) as other:
        assert store.server.url != other.server.url
        report = nbdata.pull(
            f"{store.url}compressed/", tmp_path / "out", storage_options=store.storage_options(), quiet=True
        )
        assert report.counts == {"fetched": 4}
        assert store.server.secret_key not in store.lines
        assert store.server.secret_key not in repr(store)
        store.server.stop()
        with pytest.raises(StoreUnavailable, match="the embedded server ended"):
            store.wait()
    store.stop()
    assert not list(tmp_path.glob("nbdata-demo-*"))


@pytest.mark.long
@pytest.mark.usefixtures("inline")
def test_what_is_in_a_folder_that_was_named_stays(tmp_path: Path) -> None:
    with nbdata.demo.serve(folder=tmp_path / "kept", size=2_000_000):
        pass
    assert (tmp_path / "kept" / "credentials.json").exists()
