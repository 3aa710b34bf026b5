"""The panel while a kernel is busy, and after the kernel has ended."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.notebook import Notebook
from tests.lab import Lab
from tests.slow import SlowProxy

Shoot = Callable[[Page, str], None]
Put = Callable[[dict[str, bytes]], str]

SPIN = """
open("spinning", "w").write("yes\\n")
while True:
    pass
"""


def begin(url: str, target: Path, said: str) -> str:
    """Return a cell that starts a transfer and writes the job's id and the kernel's process id to a file."""
    environment = {n: v for n, v in os.environ.items() if n.startswith("AWS_")}
    return f"""
import os
os.environ.update({json.dumps(environment)})
%load_ext nbdata
%pull {url} {target} -b -q -o job
open("{said}", "w").write(f"{{job.id}} {{os.getpid()}}\\n")
"""


def objects(count: int) -> dict[str, bytes]:
    """Create objects that take two seconds each over the slow line."""
    return {f"part-{n:02}.bin": os.urandom(1_000_000) for n in range(count)}


def test_cancel_works_at_once_while_a_cell_spins_in_plain_python(
    context: BrowserContext, lab: Lab, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    (lab.root / "spinning").unlink(missing_ok=True)
    slow.pace(500_000)
    with Notebook(
        context, lab, "busy", begin(put(objects(80)), tmp_path / "data", "busy.txt"), SPIN
    ) as notebook:
        panel, job_id = notebook.panel, notebook.said("busy.txt").split()[0]
        notebook.said("spinning")
        panel.wait_for_growth(job_id)
        shoot(panel.page, "busy-cell")
        panel.button(job_id, "Cancel").click()
        expect(panel.job(job_id)).to_contain_text("Cancelled")
        kernels = lab.ask("api/kernels").json()
        assert [kernel["execution_state"] for kernel in kernels] == ["busy"]


def test_a_transfer_goes_on_and_is_shown_when_its_kernel_is_killed(
    context: BrowserContext, lab: Lab, slow: SlowProxy, put: Put, tmp_path: Path, shoot: Shoot
) -> None:
    slow.pace(500_000)
    with Notebook(
        context, lab, "killed", begin(put(objects(24)), tmp_path / "data", "killed.txt")
    ) as notebook:
        panel, (job_id, pid) = notebook.panel, notebook.said("killed.txt").split()
        expect(panel.running(job_id)).to_be_visible()
        os.kill(int(pid), signal.SIGKILL)
        panel.wait_for_growth(job_id)
        shoot(panel.page, "kernel-killed")
        slow.pace(40_000_000)
        expect(panel.job(job_id)).to_contain_text("Done")
    assert len(list((tmp_path / "data").iterdir())) == 24
