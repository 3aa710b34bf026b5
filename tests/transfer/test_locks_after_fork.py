"""A lock on a target goes with the job that took it, not with a child that was forked meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from nbdata.transfer.locks import TargetLock


def test_a_forked_child_does_not_hold_the_target_of_a_parent_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import os, time\nfrom nbdata.transfer.locks import TargetLock\n"
        f"lock = TargetLock({str(tmp_path)!r}, 'the parent')\nassert lock.acquire() is None\n"
        "if os.fork() == 0: print(os.getpid(), flush=True); os.close(1)\n"
        "time.sleep(100)\nos._exit(0)"
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
            os.kill(child, 0)  # it lives
            assert lock.acquire() is None
        finally:
            os.kill(child, signal.SIGKILL)
            lock.release()
