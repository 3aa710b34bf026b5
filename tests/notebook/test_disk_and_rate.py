"""Cells of a real kernel that limit a job, look what fills the disk, and free it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from nbdata.client.remote import AgentHost
from nbdata.history import past_jobs
from nbdata.runtime import state_folder
from tests.kernel import Kernel
from tests.waiting import wait_until

Put = Callable[[dict[str, bytes]], str]


def test_a_cell_lifts_the_limit_of_a_job_that_runs(kernel: Kernel, put: Put) -> None:
    url = put({"d/a": os.urandom(6_000_000)}) + "d/"
    assert kernel.run(f"job = %pull {url} out -b --max-rate 10KB\nname = job.id").error is None  # ten minutes
    shown = kernel.run("%transfers $name --max-rate 1MB/s")
    assert shown.error is None
    assert "(limit 1.0 MB/s)" in shown.displays[-1]
    assert kernel.run("print(job.max_rate)").text.strip() == "1000000"
    assert "too little" in str(kernel.run("job.max_rate = 3").error)
    out = kernel.run("%transfers $name --max-rate 0\nprint(job.max_rate, job.wait().bytes)")
    assert out.text.strip().endswith("None 6000000")


def test_cells_say_what_fills_a_folder_and_free_it(kernel: Kernel, put: Put, tmp_path: Path) -> None:
    url = put({f"d/{name}": os.urandom(50_000) for name in ("a", "b")}) + "d/"
    kernel.run(f"%pull {url} data/in -q")
    job = AgentHost().jobs()[-1].id
    wait_until(lambda: job in {past.snapshot.id for past in past_jobs(state_folder())})
    kernel.run("open('data/mine', 'wb').write(bytes(9000))")
    filled = kernel.run("%du data").displays[-1]
    for word in ("known", "only here", "in/", "total"):
        assert word in filled
    plan = kernel.run("%cleanup data --stored -n")
    assert "106.5 kB can be fetched again; 12.3 kB only here stay" in plan.text + "".join(plan.displays)
    folder = Path(kernel.run("import os; print(os.path.abspath('data'))").text.strip())
    assert (folder / "in/a").exists()
    freed = kernel.run("%cleanup data --stored")
    assert "2 deleted, 1 kept; 106.5 kB freed" in "".join(freed.displays)
    assert [p.name for p in folder.iterdir()] == ["mine"]
