"""However a conversion ends, no process of it survives, no split has its final name, and the same command resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.errors import NbdataError
from nbdata.ffrecord import GeneralDataset
from tests.client.converting.data import BYTES, NBDATA, convert, module, tree
from tests.waiting import PATIENCE, wait_until

# The last sample waits until the test opens the gate. The waiting process writes down its own and its parent's pid.
HELD = BYTES.replace("30", "300").replace(
    "return index",
    """import os
        if self.name == "train" and index == 299 and os.path.exists("gate"):
            with open("waiting", "a") as file:
                file.write(f"{os.getpid()} {os.getppid()}\\n")
            open("gate", "rb").read()
        return index""",
)


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def recorded(folder: Path, split: str) -> int:
    """Count the whole parts of an unfinished split that a later run will keep."""
    try:
        return len(json.loads((folder / f"out/.nbdata/converting/{split}.begun").read_text())["parts"])
    except FileNotFoundError:
        return 0


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A conversion that waits in its last file, and its processes."""
    os.mkfifo(tmp_path / "gate")
    process = subprocess.Popen(
        [NBDATA, "convert", str(module(tmp_path, HELD)), "in", "out", "--file-size", "60k", "--workers", "2"],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(
        lambda: (
            (tmp_path / "waiting").exists()
            and recorded(tmp_path, "train") == 4
            and recorded(tmp_path, "val") == 1
        )
    )
    pids = [int(pid) for pid in (tmp_path / "waiting").read_text().split()]
    assert all(map(alive, pids))
    yield process, pids
    if process.poll() is None:
        process.kill()
    for pid in filter(alive, pids):  # if the test has failed
        os.kill(pid, signal.SIGKILL)
    process.communicate()


def continues(folder: Path) -> None:
    """Check that the same command makes only the missing file."""
    (folder / "gate").unlink()
    done = convert(folder / "dataset.py", "in", "out", "--file-size", "60k", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "1 converted, 5 unchanged" in done.stdout
    assert len(GeneralDataset(folder / "out", "train")) == 300
    assert not (folder / "out/.nbdata").exists()


def test_ctrl_c_ends_all_processes_and_the_same_line_continues(
    tmp_path: Path, held: tuple[subprocess.Popen[str], list[int]]
) -> None:
    process, pids = held
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "interrupted; run it again to resume" in told
    assert not any(map(alive, pids))
    assert not (tmp_path / "out/train").exists()
    continues(tmp_path)


def test_a_kill_of_the_command_ends_all_processes_and_the_same_line_continues(
    tmp_path: Path, held: tuple[subprocess.Popen[str], list[int]]
) -> None:
    process, pids = held
    process.kill()
    process.wait(PATIENCE)
    wait_until(lambda: not any(map(alive, pids)))
    assert not (tmp_path / "out/train").exists()
    assert not (tmp_path / "out/val").exists()
    continues(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("which", ["the worker", "its parent"])
def test_a_kill_of_one_process_is_an_error_that_ends_all(
    tmp_path: Path, held: tuple[subprocess.Popen[str], list[int]], which: str
) -> None:
    process, pids = held
    os.kill(pids[which == "its parent"], signal.SIGKILL)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    if which == "the worker":
        assert "wrote PART_00004.ffr of split 'train' was ended by signal 9" in told
    else:
        assert "the process that converts was ended by signal 9" in told
    assert not any(map(alive, pids))
    assert not (tmp_path / "out/train").exists()
    continues(tmp_path)


def test_two_conversions_into_one_folder_do_not_meet(
    tmp_path: Path, held: tuple[subprocess.Popen[str], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbdata.client.converting.conversion._PATIENCE", 0.0)
    with pytest.raises(NbdataError, match="another job works there"):
        nbdata.convert(module(tmp_path, BYTES, "other.py"), tmp_path / "in", tmp_path / "out", quiet=True)
    with (tmp_path / "gate").open("wb"):
        pass
    assert held[0].wait(PATIENCE) == 0
    assert len(GeneralDataset(tmp_path / "out", "train")) == 300


@pytest.mark.in_ci(1)
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("os._exit(3)", r"wrote PART_000\d\d.ffr of split 'val' ended with status 3"),
        ("os._exit(0)", r"wrote PART_000\d\d.ffr of split 'val' ended with status 0"),
        (
            "multiprocessing.util.Finalize(None, os._exit, args=(5,), exitpriority=1)",
            "status 5 after its last file",
        ),
    ],
)
def test_a_worker_that_ends_by_itself_is_an_error(tmp_path: Path, how: str, told: str) -> None:
    ends = f"""import multiprocessing.util, os
        if self.name == "val" and index == 109:
            {how}
        return index"""
    text = BYTES.replace("return index", ends).replace("10)", "110)")
    with pytest.raises(NbdataError, match=told):
        nbdata.convert(module(tmp_path, text), tmp_path / "in", tmp_path / "out", file_size="4k", quiet=True)
    assert not [name for name in tree(tmp_path / "out") if not name.startswith(".nbdata/")]


@pytest.mark.long
def test_what_another_conversion_left_unfinished_is_not_taken_for_this_one(
    tmp_path: Path, held: tuple[subprocess.Popen[str], list[int]]
) -> None:
    held[0].send_signal(signal.SIGINT)
    held[0].communicate(timeout=PATIENCE)
    other = module(tmp_path, HELD.replace('b"."', 'b"-"'))
    (tmp_path / "gate").unlink()
    report = nbdata.convert(other, tmp_path / "in", tmp_path / "out", file_size="60k", quiet=True)
    assert report.counts == {"converted": 6}
    assert all(one.endswith(b"-") for one in GeneralDataset(tmp_path / "out", "train")[list(range(300))])


@pytest.mark.long
def test_cleanup_removes_what_an_interrupted_conversion_left(
    tmp_path: Path, held: tuple[subprocess.Popen[str], list[int]]
) -> None:
    held[0].send_signal(signal.SIGINT)
    held[0].communicate(timeout=PATIENCE)
    assert tree(tmp_path / "out/.nbdata")
    nbdata.cleanup(tmp_path, quiet=True)
    assert not (tmp_path / "out/.nbdata").exists()
