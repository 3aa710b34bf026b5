"""A lock on a target belongs to the job that took it, not to a child that was forked meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nbdata.lock_files import file_lock
from nbdata.transfer.locks import TargetLock

# A process that forks just after one of its threads has opened a lock's file, before this is recorded.
_FORKS = """
import os, sys, threading, time
from nbdata.lock_files import file_lock
from nbdata.transfer.locks import TargetLock
path, wanted = sys.argv[1:]
opened, forked, plain = threading.Event(), threading.Event(), os.open

def slow(name, *rest, **named):
    fd = plain(name, *rest, **named)
    if str(name).endswith(".lock"):
        opened.set()
        forked.wait()
    return fd

os.open = slow
lock = file_lock(path + "/x.lock") if wanted == "file" else TargetLock(path, "the parent")
thread = threading.Thread(target=lock.acquire)
thread.start()
opened.wait()
child = os.fork()
if not child:
    os.write(1, b"%d\\n" % os.getpid())  # it has let go of what it is to let go of
    os.close(1)
    signal.pause()
    os._exit(0)
forked.set()
thread.join()
os.write(1, b"locked\\n")
signal.pause()
"""


def test_a_forked_child_does_not_hold_the_target_of_a_parent_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom nbdata.transfer.locks import TargetLock\n"
        f"lock = TargetLock({str(tmp_path)!r}, 'the parent')\nassert lock.acquire() is None\n"
        "if os.fork() == 0: print(os.getpid(), flush=True); os.close(1)\n"
        "signal.pause()\nos._exit(0)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        child = int(parent.stdout.readline())
        lock = TargetLock(str(tmp_path), "another")
        try:
            assert lock.acquire() == "the parent"
            parent.kill()
            parent.wait()
            os.kill(child, 0)  # fails unless it is alive
            assert lock.acquire() is None
        finally:
            os.kill(child, signal.SIGKILL)
            lock.release()


@pytest.mark.parametrize("wanted", ["file", "target"])
def test_a_child_forked_while_the_lock_was_being_opened_does_not_hold_it(tmp_path: Path, wanted: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _FORKS, str(tmp_path), wanted], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent, parent.stdout:
        said = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        child = int((said - {"locked"}).pop())
        file, target = file_lock(str(tmp_path / "x.lock")), TargetLock(str(tmp_path), "another")

        def take() -> bool:
            return file.acquire(wait=False) if wanted == "file" else target.acquire() is None

        try:
            assert not take()
            parent.kill()
            parent.wait()
            os.kill(child, 0)  # fails unless it is alive
            assert take()
        finally:
            os.kill(child, signal.SIGKILL)
            file.release()
            target.release()
