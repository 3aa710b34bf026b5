"""The command line: exit statuses, signals, the background, and lists from standard input."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nbdata import Pull
from nbdata.client import kept_lists
from nbdata.client.remote import AgentHost
from tests.faults.gate import Gate
from tests.waiting import PATIENCE, wait_until

NBDATA = str(Path(sys.executable).with_name("nbdata"))
Put = Callable[[dict[str, bytes]], str]


def nbdata(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([NBDATA, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)


def test_success_has_status_0_and_the_result_is_on_stdout(tree: Path, tmp_path: Path) -> None:
    run = nbdata("pull", tree, tmp_path / "out")
    assert (run.returncode, run.stderr) == (0, "")
    assert "5 fetched" in run.stdout


def in_a_deleted_folder(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a working folder that was deleted."""
    folder.mkdir()
    command = ["sh", "-c", 'cd "$1" && rmdir "$1" && shift && exec "$@"', "sh", folder, NBDATA, *words]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.long
def test_a_working_folder_that_was_deleted_is_no_matter_to_whole_paths(
    tree: Path, tmp_path: Path, put: Put
) -> None:
    url = put({"d/a.txt": b"a"}) + "d/"
    nbdata("agent", "stop", "--now")  # so that an agent starts from there
    run = in_a_deleted_folder(tmp_path / "gone", "pull", tree, tmp_path / "out")
    assert (run.returncode, run.stderr) == (0, "")
    assert "5 fetched" in run.stdout
    run = in_a_deleted_folder(tmp_path / "gone", "pull", url, tmp_path / "more")
    assert (run.returncode, run.stderr) == (0, "")
    run = in_a_deleted_folder(tmp_path / "gone", "pull", "/none/such", tmp_path / "out")
    assert run.stderr == (
        "nbdata: no such object or folder: /none/such. Check the spelling, and upper and lower case\n"
    )


@pytest.mark.in_ci(1)
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("pull", "data", "/w/data"), "source: 'data'"),
        (("pull", "s3://bucket/data/"), "target: './data'"),
        (("cache_stream", "s3://bucket/data/", "-n"), "cache-dir: '.'"),
        (("pull", "/w/data", "/w/copy", "--files-from", "list"), "files-from: 'list'"),
    ],
)
def test_a_relative_path_in_a_working_folder_that_was_deleted_is_told(
    words: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    run = in_a_deleted_folder(tmp_path / "gone", *words)
    assert run.returncode == 2
    assert run.stderr == (
        f"nbdata: {told} is relative to the working folder, which is gone. "
        "Change to a folder that is there, or write the whole path\n"
    )


def test_python_runs_it_as_a_module(tree: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nbdata", "pull", tree, tmp_path / "out", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    assert json.loads(run.stdout)["counts"] == {"fetched": 5}
    wrong = subprocess.run([*command[:3], "pul"], capture_output=True, timeout=PATIENCE, cwd=tmp_path)
    assert wrong.returncode == 2


def test_json_is_one_report_on_stdout(tree: Path, tmp_path: Path) -> None:
    run = nbdata("pull", tree, tmp_path / "out", "--json")
    assert json.loads(run.stdout)["counts"] == {"fetched": 5}


def test_a_failure_has_status_1_and_json_still_has_the_report(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "a.txt").mkdir(parents=True)
    run = nbdata("pull", tree, tmp_path / "out", "--json")
    assert run.returncode == 1
    assert json.loads(run.stdout)["counts"] == {"conflict": 1, "fetched": 4}
    assert "a folder with this name exists" in run.stderr


def test_wrong_use_has_status_2_and_advice(tmp_path: Path) -> None:
    run = nbdata("pull", "s3://b/x", tmp_path, "--dry-rum")
    assert run.returncode == 2
    assert "Did you mean --dry-run?" in run.stderr
    assert nbdata("pul").returncode == 2
    assert "SOURCE is missing" in nbdata("pull").stderr
    assert "Put a path with spaces in quotes, and a glob" in nbdata("pull", "a", "b", "c").stderr
    assert "is not a size" in nbdata("pull", "a", "b", "--max-bytes", "5X").stderr


def test_on_error_report_ends_without_an_exception(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "a.txt").mkdir(parents=True)
    run = nbdata("pull", tree, tmp_path / "out", "--on-error", "report")
    assert run.returncode == 1
    assert "1 conflict, 4 fetched" in run.stdout


def test_every_verb_explains_itself() -> None:
    for verb in (
        "pull",
        "push",
        "md5check",
        "untar_volumes",
        "quota",
        "transfers",
        "cleanup",
        "agent",
        "demo",
    ):
        run = nbdata(verb, "--help")
        assert run.returncode == 0
        assert f"usage: nbdata {verb}" in run.stdout


# 16 MB of objects. At a limit of 4 MB with four transfers at a time, at least six are complete.
OBJECTS = {f"d/{n:02d}": os.urandom(400_000) for n in range(40)}
FOUR = ("--concurrency", "4")


def interrupted(gate: Gate, url: str, out: Path, signum: int) -> subprocess.CompletedProcess[str]:
    """Run a pull whose transfer stops halfway, send it a signal there, and check that it ends without the rest."""
    gate.close(after=4_000_000)
    process = subprocess.Popen(
        [NBDATA, "pull", url, str(out), *FOUR], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    gate.wait_until_it_holds()
    wait_until(lambda: any(out.glob("[0-9]*")))
    process.send_signal(signum)
    stdout, stderr = process.communicate(timeout=PATIENCE)
    assert gate.holds, "it did not wait for the rest"
    return subprocess.CompletedProcess([], process.returncode, stdout, stderr)


def test_ctrl_c_and_sigterm_cancel_and_the_same_line_continues(put: Put, gate: Gate, tmp_path: Path) -> None:
    url = put(OBJECTS) + "d/"
    for signum in (signal.SIGINT, signal.SIGTERM):
        run = interrupted(gate, url, tmp_path / f"out{signum}", signum)
        gate.open()
        assert run.returncode == 130
        assert "run it again to resume" in run.stderr
        assert AgentHost().jobs()[-1].state == "CANCELLED"
    run = nbdata("pull", url, tmp_path / "out2")
    assert run.returncode == 0


_EARLY = """
import signal, sys
from nbdata import cli
from nbdata.client.connection import Connection
from nbdata.client.remote import AgentHost

def answered(self, message, **rest):
    answer = ask(self, message, **rest)
    if message["do"] == "submit":
        signal.raise_signal(getattr(signal, name))
    return answer

def submitted(self, operation, **rest):
    job = submit(self, operation, **rest)
    signal.raise_signal(getattr(signal, name))
    return job

name, moment = sys.argv.pop(1), sys.argv.pop(1)
ask, submit = Connection.ask, AgentHost.submit
if moment == "answered":
    Connection.ask = answered
else:
    AgentHost.submit = submitted
sys.exit(cli.main())
"""


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("moment", ["answered", "submitted"])
@pytest.mark.parametrize("signum", ["SIGINT", "SIGTERM"])
def test_a_ctrl_c_before_a_job_is_shown_cancels_it_too(
    put: Put, gate: Gate, tmp_path: Path, signum: str, moment: str
) -> None:
    url = put(OBJECTS) + "d/"
    gate.close(after=1_000_000)
    run = subprocess.run(
        [sys.executable, "-c", _EARLY, signum, moment, "pull", url, tmp_path / "out"],
        capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 130
    assert "run it again to resume" in run.stderr
    assert AgentHost().jobs()[-1].state == "CANCELLED"


_WATCHING = """
import sys
import tarfile
from nbdata import cli
from nbdata.client.remote import AgentJob

def watched(self):
    for snapshot in watch(self):
        print("watching", flush=True)
        yield snapshot

watch, AgentJob.watch = AgentJob.watch, watched
sys.exit(cli.main())
"""


@pytest.mark.long
def test_ctrl_c_in_a_watching_process_only_detaches(put: Put, gate: Gate, tmp_path: Path) -> None:
    url, out = put(OBJECTS) + "d/", tmp_path / "out"
    gate.close(after=1_000_000)
    job = AgentHost().job(json.loads(nbdata("pull", url, out, "-b", "--json").stdout)["id"])
    for words in (["transfers", job.id, "--wait"], ["pull", url, str(out)]):
        command = [sys.executable, "-c", _WATCHING, *words]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )  # elsewhere a source tree would count as another build
        assert process.stdout is not None
        assert process.stdout.readline() == "watching\n", process.communicate()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert f"detached: job {job.id} continues" in stderr
        assert not job.snapshot().finished
    gate.open()
    assert job.wait(PATIENCE).counts == {"fetched": 40}


@pytest.mark.long
def test_a_rate_limit_stays_when_the_command_is_repeated_without_it(
    put: Put, s3: object, tmp_path: Path
) -> None:
    url = put(OBJECTS) + "d/"
    job = Pull(url, tmp_path / "out", max_rate=1_000_000).start()
    assert Pull(url, tmp_path / "out").start().id == job.id
    wait_until(lambda: job.snapshot().bytes > 4_000_000)
    seen = job.snapshot()
    assert seen.bytes <= (seen.seconds + 2) * 1_000_000  # a busy machine only makes it less
    job.cancel()


@pytest.mark.long
def test_the_command_line_shows_why_a_job_waits(put: Put, gate: Gate, tmp_path: Path) -> None:
    url = put(OBJECTS) + "d/"
    gate.close(after=1_000_000)
    first = json.loads(nbdata("pull", url, tmp_path / "out", "-b", "--json").stdout)["id"]
    second = subprocess.Popen(
        [NBDATA, "pull", url, tmp_path / "out", "--exclude", "0*"], stderr=subprocess.PIPE, text=True
    )
    assert second.stderr is not None
    assert any(f"waits for {first}, which works on the same target" in line for line in second.stderr)
    gate.open()
    second.communicate(timeout=PATIENCE)
    assert second.returncode == 0


def test_a_hang_up_ends_the_terminal_but_not_the_job(put: Put, gate: Gate, tmp_path: Path) -> None:
    run = interrupted(gate, put(OBJECTS) + "d/", tmp_path / "out", signal.SIGHUP)
    assert run.returncode == -signal.SIGHUP
    job = AgentHost().job(AgentHost().jobs()[-1].id)
    assert not job.snapshot().finished
    gate.open()
    assert job.wait().counts == {"fetched": 40}


def test_background_returns_at_once_and_transfers_waits_for_it(put: Put, gate: Gate, tmp_path: Path) -> None:
    url = put({f"d/{n}": os.urandom(400_000) for n in range(10)}) + "d/"
    gate.close(after=1_000_000)
    run = nbdata("pull", url, tmp_path / "out", "-b", "--json")
    job = json.loads(run.stdout)["id"]
    assert job in nbdata("transfers").stdout
    gate.open()
    assert nbdata("transfers", job, "--wait").returncode == 0
    assert len(list((tmp_path / "out").iterdir())) == 10


def test_a_background_job_without_an_agent_runs_here_and_its_failure_is_shown(tmp_path: Path) -> None:
    run = nbdata("pull", "memory://none/", tmp_path / "out", "-b")
    assert run.returncode == 1
    assert "memory://none" in run.stderr
    assert "The agent runs it" not in run.stdout


def test_no_secret_is_in_any_output_or_process_list(put: Put, tmp_path: Path) -> None:
    url = put({"d/a": b"1"})
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    runs = [
        nbdata(
            "pull",
            url,
            tmp_path / "a",
            "--option",
            "secret=env:AWS_SECRET_ACCESS_KEY",
            "--option",
            "key=nobody",
        ),
        nbdata("pull", url, tmp_path / "b", "--option", f"secret={secret}x"),
        nbdata("transfers", "--json"),
        nbdata("agent", "log"),
    ]
    for run in runs:
        assert secret not in run.stdout + run.stderr
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert secret.encode() not in process.read_bytes()
        except OSError:
            continue


@pytest.mark.long
def test_a_list_of_files_may_come_by_a_pipe(tree: Path, tmp_path: Path) -> None:
    line = [NBDATA, "pull", tree, tmp_path / "out", "--json", "--files-from"]
    sent = subprocess.run([*line, "-"], input=b"a.txt\n./b/c.bin\n", capture_output=True, timeout=PATIENCE)
    assert json.loads(sent.stdout)["counts"] == {"fetched": 2}
    again = json.loads(
        subprocess.run(
            [*line, "-"], input=b"a.txt\n./b/c.bin\n", capture_output=True, timeout=PATIENCE
        ).stdout
    )
    assert again["counts"] == {"unchanged": 2}
    kept = list(Path(os.environ["NBDATA_STATE_DIR"], "lists").iterdir())
    assert len(kept) == 1, "the same list, once"
    assert kept[0].stat().st_mode & 0o777 == 0o600
    reading, writing = os.pipe()
    os.write(writing, b"b/c.bin\n")
    os.close(writing)
    third = [*line[:-1], f"--files-from=/dev/fd/{reading}", "--overwrite", "always"]
    given = subprocess.run(third, capture_output=True, timeout=PATIENCE, pass_fds=[reading])
    os.close(reading)
    assert json.loads(given.stdout)["files"] == 1, given.stderr


@pytest.mark.long
def test_a_list_from_a_pipe_is_described_as_such(tree: Path, tmp_path: Path) -> None:
    line = [NBDATA, "pull", tree, tmp_path / "out", "--files-from"]
    sent = subprocess.run(
        [*line, "-"], input="a.txt\nnone\n", capture_output=True, text=True, timeout=PATIENCE
    )
    told = (
        "nbdata: --files-from names what the source does not have: 'none': {}. Paths are relative to SOURCE, "
    )
    assert (sent.returncode, sent.stderr) == (1, f"{told.format('standard input')}one a line\n")
    command = shlex.join(map(str, line))
    piped = subprocess.run(
        ["bash", "-c", f"{command} <(echo none)"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (piped.returncode, piped.stderr) == (1, f"{told.format('the pipe')}one a line\n")


@pytest.mark.long
def test_standard_input_is_read_from_where_it_stands(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a header\na.txt\n")
    with open(tmp_path / "list", "rb", buffering=0) as sent:
        sent.seek(len("a header\n"))
        line = [NBDATA, "pull", tree, tmp_path / "out", "--json", "--files-from", "-"]
        run = subprocess.run(line, stdin=sent, capture_output=True, timeout=PATIENCE)
    assert json.loads(run.stdout)["counts"] == {"fetched": 1}, run.stderr
    ours, theirs = socket.socketpair()
    ours.sendall(b"b/c.bin\n")
    ours.shutdown(socket.SHUT_WR)
    with ours, theirs:
        run = subprocess.run(line, stdin=theirs, capture_output=True, timeout=PATIENCE)
    assert json.loads(run.stdout)["counts"] == {"fetched": 1}, run.stderr


def test_file_lists_are_kept_for_days_for_waiting_jobs_but_not_forever(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept(text: bytes, days_ago: float) -> Path:
        reading, writing = os.pipe()
        os.write(writing, text)
        os.close(writing)
        operation = kept_lists.keep_list(Pull(tree, tmp_path / "out", files_from=f"/dev/fd/{reading}"))
        os.close(reading)
        made = Path(operation.files_from or "")
        assert made.read_bytes() == text
        os.utime(made, (then := time.time() - days_ago * 86400, then))
        return made

    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "state"))
    many = [kept(b"%d" % number, days_ago=20) for number in range(150)]
    old, torn = kept(b"old", days_ago=31), tmp_path / "state" / "lists" / "0123456789abcdef.new"
    torn.write_bytes(b"")
    os.utime(torn, (0, 0))
    kept(b"new", days_ago=0)
    assert all(one.exists() for one in many)
    assert not old.exists()
    assert not torn.exists()
    monkeypatch.setattr(kept_lists, "_ENOUGH", 50)
    kept(b"newest", days_ago=0)
    assert 10 < sum(one.exists() for one in many) < 50
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


@pytest.mark.long
def test_the_log_tells_of_jobs(tree: Path, tmp_path: Path) -> None:
    nbdata("pull", tree, tmp_path / "out")
    jobs = json.loads(nbdata("transfers", "--json").stdout)
    job = next(job["id"] for job in jobs if str(tmp_path) in job["target"])
    told = [line for line in nbdata("agent", "log").stdout.splitlines() if f" job {job}," in line]
    assert len(told) == 2
    assert "begun by" in told[0]
    assert "done; files: 5" in told[1]


@pytest.mark.long
def test_a_stream_whose_command_fails_is_reported_as_abandoned(tree: Path, tmp_path: Path) -> None:
    run = nbdata("cache_stream", tree, "--by", "file", "--cache-dir", tmp_path / "cache", "--run", "false")
    assert run.returncode == 1
    jobs = json.loads(nbdata("transfers", "--json").stdout)
    (job,) = [job for job in jobs if job["source"] == str(tree)]
    assert (job["state"], job["reason"]) == ("CANCELLED", "its loop has ended")


@pytest.mark.long
def test_a_plan_that_does_not_fit_or_selects_nothing_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    (source / "a.md5").write_bytes(bytes(50_000))
    monkeypatch.setenv("NBDATA_QUOTA", f"20kB:{out}")
    done = nbdata("pull", f"{source}/", out, "-n")
    assert (done.returncode, "DOES NOT FIT" in done.stdout) == (1, True)
    assert nbdata("pull", f"{source}/", out, "-n", "--json").returncode == 1
    told = "nothing was selected by --include of 1 object: a.md5"
    for words in (["-n"], []):
        done = nbdata("pull", f"{source}/", out, "--include", "*.md4", *words)
        assert done.returncode == 1
        assert told in done.stdout + done.stderr
    monkeypatch.delenv("NBDATA_QUOTA")
    assert nbdata("pull", f"{source}/", out, "-n").returncode == 0


# Runs before Python's other imports: the import of one module reports its start and never ends.
_HELD_IMPORT = """
import os, sys, time

class Held:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["HELD_MODULE"]:
            open(os.environ["HELD_FILE"], "w").close()
            time.sleep(600)

sys.meta_path.insert(0, Held())
"""


@pytest.mark.in_ci("*-script-2", "nbdata.cli-module-15", 1)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", [[NBDATA], [sys.executable, "-m", "nbdata"]], ids=["script", "module"])
@pytest.mark.parametrize("module", ["nbdata.errors", "nbdata.cli", "nbdata.client.agents"])
def test_a_ctrl_c_while_python_imports_the_command_ends_it_without_a_word(
    module: str, command: list[str], signum: int, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_HELD_IMPORT)
    held = tmp_path / "held"
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "HELD_MODULE": module, "HELD_FILE": str(held)}
    with subprocess.Popen(
        [*command, "agent", "status"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        wait_until(lambda: held.exists() or process.poll() is not None)
        assert process.poll() is None
        process.send_signal(signum)
        assert (*process.communicate(timeout=PATIENCE), process.returncode) == ("", "", 130)


def test_a_program_that_imports_nbdata_keeps_its_own_ctrl_c(tmp_path: Path) -> None:
    code = (
        "import signal; import nbdata; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    (tmp_path / "program.py").write_text(code)
    for command in ([sys.executable, "-c", code], [sys.executable, tmp_path / "program.py", "-m", "nbdata"]):
        assert subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE).stdout == "True\n"
