"""Real kernels: busy, interrupted, restarted, killed and forked ones."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import statistics
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.client.remote import AgentHost
from nbdata.engine.queries import complete
from nbdata.notebook import background
from nbdata.stores.credentials import asked
from nbdata.stores.http import pools
from nbdata.threads import ForkLock
from tests.faults.gate import Gate
from tests.kernel import Kernel
from tests.waiting import PATIENCE, wait_until

Put = Callable[[dict[str, bytes]], str]


def only_job() -> str:
    """Return the state of the newest job."""
    return AgentHost().jobs()[-1].state


def begun(kernel: Kernel, gate: Gate, code: str, folder: Path) -> str:
    """Run a cell that pulls to ``out``; return once the gate holds and some objects are complete."""
    gate.close(after=8_000_000)
    cell = kernel.start(code)
    gate.wait_until_it_holds()
    wait_until(lambda: len(list((folder / "out").glob("[0-9]*"))) > 1)
    return cell


@pytest.fixture
def url(put: Put) -> str:
    """The URL of 60 objects of 400 kB. When 8 MB have passed with four at a time, sixteen are complete."""
    return put({f"data/{n:02d}": os.urandom(400_000) for n in range(60)}) + "data/"


def test_the_magic_shows_one_true_line_and_returns_the_report(kernel: Kernel, put: Put) -> None:
    url = put({"d/a": b"1", "d/b": b"22"})
    out = kernel.run(f"r = %pull {url}d/ here -o report\nprint(r.counts, report is r)")
    assert out.error is None
    assert "{'fetched': 2} True" in out.text
    assert out.displays[-1].startswith(f"pull {url}d/ → ")
    assert "2 fetched; 3 B in" in out.displays[-1]
    assert len(kernel.run(f"%pull {url}d/ here").displays) == 1, "the report must not be shown twice"


def test_a_mistake_is_told_in_one_line(kernel: Kernel) -> None:
    out = kernel.run("%pull s3://x/y z --exlude a")
    assert out.error == "BadOption: %pull: unknown option --exlude. Did you mean --exclude?"
    assert "no such object" in str(kernel.run("%nbdata ls\tnowhere").error), "a tab ends the verb, too"


def test_names_are_expanded_and_brace_patterns_are_not(kernel: Kernel, put: Put) -> None:
    url = put({f"d/{n}": b"x" for n in ("a", "b", "c")})
    out = kernel.run(
        f"where = {url!r}\n%pull {{where}}d/{{a,b}} got_{{a,b}} -q\nimport os; print(sorted(os.listdir('got_{{a,b}}')))"
    )
    assert "['a', 'b']" in out.text, (out.error, out.displays)


def test_every_magic_has_its_manual(kernel: Kernel) -> None:
    for verb in ("pull", "push", "md5check", "untar_volumes", "quota", "transfers", "cleanup"):
        out = kernel.run(f"print(get_ipython().find_line_magic({verb!r}).__doc__)")
        assert f"usage: %{verb}" in out.text
        assert "examples:" in out.text


def test_the_stop_button_stops_what_waits_for_the_store_and_the_line_continues(
    kernel: Kernel, url: str, gate: Gate, tmp_path: Path
) -> None:
    kernel.run(f"import os; os.environ['AWS_ENDPOINT_URL'] = {gate.url!r}")
    cell = begun(kernel, gate, f"%pull {url} out --concurrency 4", tmp_path)
    kernel.manager.interrupt_kernel()
    out = kernel.collect(cell)
    assert out.error == "Cancelled: pull was interrupted. See above what is kept and how to go on"
    assert out.displays[-1].count("again to resume") == 1
    wait_until(lambda: only_job() == "CANCELLED", why=only_job)
    assert gate.holds, "it did not wait for the rest"
    asked, passed = gate.asked, gate.passed
    gate.open()
    wait_until(lambda: not gate._sizes)
    assert (gate.asked, gate.passed - passed < 4 * 400_000) == (asked, True), (
        "it goes on although it was stopped"
    )
    again = kernel.run(f"%pull {url} out")
    assert again.error is None
    assert "unchanged" in again.displays[-1]


@pytest.mark.parametrize("how", ["restart", "restart now", "slow restart", "kill", "shutdown"])
@pytest.mark.in_ci("kill")
def test_a_job_outlives_its_kernel_and_the_same_line_attaches(
    how: str, kernel: Kernel, url: str, gate: Gate, tmp_path: Path
) -> None:
    setting = f"import os; os.environ['AWS_ENDPOINT_URL'] = {gate.url!r}"
    kernel.run(setting)
    if how == "slow restart":  # as on a busy machine: Jupyter ends the kernel after half of its patience
        kernel.run("import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])")
        kernel.run("import atexit, time; atexit.register(time.sleep, 4)")
    begun(kernel, gate, f"%pull {url} out --concurrency 4", tmp_path)
    if how == "kill":
        kernel.manager.signal_kernel(9)
        kernel.restart(now=True)
    elif how == "shutdown":
        kernel.client.stop_channels()
        kernel.manager.shutdown_kernel(now=False)
        kernel.__enter__()
    else:
        kernel.restart(now=how == "restart now")
    kernel.run("%load_ext nbdata")
    kernel.run(setting)
    cell = kernel.start(f"%pull {url} out --concurrency 4")
    kernel.until(lambda: "attached to job" in kernel.page.texts(cell))
    gate.open()
    out = kernel.collect(cell)
    assert out.error is None
    assert "60 fetched" in out.displays[-1], "the job went on, so this is its whole report"
    assert len(list((tmp_path / "out").iterdir())) == 60


@pytest.mark.long
def test_a_busy_kernel_slows_a_pull_little_and_cancel_works_meanwhile(
    kernel: Kernel, put: Put, tmp_path: Path
) -> None:
    """In a thread of the kernel, the same pull took 13 to 33 times as long."""
    url = put({f"d/{n:03d}": bytes(10_000) for n in range(600)}) + "d/"
    code = f"""
import nbdata, time
def pull(busy):
    job = nbdata.Pull({url!r}, f"out{{time.monotonic_ns()}}").start()
    if busy:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for _ in range(200_000): pass
            if job.snapshot().finished: break
    else:
        job.wait()
    return job.snapshot().seconds
pull(False)
print([(pull(False), pull(True)) for _ in range(5)])
"""
    out = kernel.run(code)
    assert out.error is None, out.error
    rounds = eval(out.text.splitlines()[-1])
    ratio = statistics.median(busy for _, busy in rounds) / statistics.median(idle for idle, _ in rounds)
    assert ratio < 6, rounds  # all runs of a round meet the same conditions


def test_cancel_from_outside_needs_neither_the_kernel_nor_the_store_while_the_cell_spins(
    kernel: Kernel, url: str, gate: Gate, tmp_path: Path
) -> None:
    kernel.run(f"import os; os.environ['AWS_ENDPOINT_URL'] = {gate.url!r}")
    cell = begun(kernel, gate, f"j = %pull {url} out -b --concurrency 4\nwhile True: pass", tmp_path)
    job = AgentHost().job(AgentHost().jobs()[-1].id)
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait()
    assert gate.holds
    kernel.manager.interrupt_kernel()
    kernel.collect(cell)


def ended(child: int, stacks: Path) -> int:
    """Return the exit status of a forked child; if it hangs, fail and show its stack."""
    found = (0, 0)

    def over() -> bool:
        nonlocal found
        found = os.waitpid(child, os.WNOHANG)
        return found != (0, 0)

    def end_it() -> str:
        os.kill(child, 9)
        os.waitpid(child, 0)
        return f"the child hangs:\n{stacks.read_text()}"

    wait_until(over, why=end_it)
    return os.waitstatus_to_exitcode(found[1])


def forked(work: Callable[[], bool], stacks: Path) -> int:
    """Fork a child that runs `work`; it exits with 0 if `work` returns true, and writes its stack if it hangs."""
    stacks.touch()
    child = os.fork()
    if not child:
        status = 1
        try:
            with stacks.open("w") as file:
                faulthandler.dump_traceback_later(PATIENCE / 2, file=file)
                status = 0 if work() else 2
        finally:
            os._exit(status)
    return child


@pytest.mark.parametrize("host", ["agent", "inline"])
def test_a_process_that_pulled_can_fork_and_its_child_can_pull(
    host: str, put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DataLoader's worker does this; clients written in Rust hang here."""
    monkeypatch.setenv("NBDATA_HOST", host)
    url, stacks = put({"d/a": b"1"}), tmp_path / "stacks"
    nbdata.pull(url, tmp_path / "parent", quiet=True)
    child = forked(lambda: nbdata.pull(url, tmp_path / "child", quiet=True).files == 1, stacks)
    assert ended(child, stacks) == 0
    assert (tmp_path / "child" / "d" / "a").read_bytes() == b"1"
    assert nbdata.pull(url, tmp_path / "parent", quiet=True).counts == {"unchanged": 1}


def test_no_lock_that_a_thread_holds_during_a_fork_holds_the_child(tmp_path: Path) -> None:
    """The child has no thread that could release the lock."""
    stacks = tmp_path / "stacks"
    locks = {
        (module, name): value
        for module in [module for name, module in sys.modules.items() if name.startswith("nbdata.")]
        for name, value in vars(module).items()
        if isinstance(value, (type(threading.Lock()), threading.Semaphore, ForkLock))
    }
    assert {nbdata.redaction, complete, background, asked, pools} <= {module for module, _ in locks}

    def free() -> bool:
        taken = [f"{m.__name__}.{name}" for m, name in locks if not getattr(m, name).acquire(blocking=False)]
        stacks.write_text(" ".join(taken))
        return not taken

    with contextlib.ExitStack() as held:
        for lock in locks.values():
            while lock.acquire(blocking=False):
                held.callback(lock.release)
        child = forked(free, stacks)
        assert ended(child, stacks) == 0, f"still held: {stacks.read_text()}"
