"""A kernel is killed in the middle of a large object, then the agent: the same cell fetches only what is missing.

``NBDATA_TEST_BIG`` is the size of the object in bytes; the default is 192 MiB.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import nbdata
from nbdata.client.launch import connect
from nbdata.client.remote import AgentHost
from nbdata.demo.server import EmbeddedServer
from nbdata.transfer.part_records import NOTED
from nbdata.transfer.worker_pool import FIRST
from tests.faults.gate import Gate
from tests.kernel import Kernel
from tests.waiting import wait_until

SIZE = int(os.environ.get("NBDATA_TEST_BIG", str(192 << 20)))


def test_what_a_killed_kernel_and_a_killed_agent_had_fetched_is_not_fetched_again(
    kernel: Kernel, bucket: str, s3: EmbeddedServer, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    with whole.open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
    nbdata.push(whole, f"s3://{bucket}/big", quiet=True)
    with Gate(s3.url, limit=SIZE // 4) as line:
        setting, cell = (
            f"import os; os.environ['AWS_ENDPOINT_URL'] = {line.url!r}",
            f"r = %pull s3://{bucket}/big here/",
        )
        kernel.run(setting)
        kernel.start(cell)
        line.wait_until_it_holds()
        kernel.manager.signal_kernel(signal.SIGKILL)
        line.close(after=SIZE // 4 + (2 << 20))
        job = AgentHost().job(AgentHost().jobs()[-1].id)
        wait_until(lambda: job.snapshot().bytes > SIZE // 2)  # has read everything that arrived
        with connect() as connection:
            agent = int(connection.ask({"do": "hello"})["pid"])
        os.kill(agent, signal.SIGKILL)
        wait_until(lambda: all(job.finished for job in AgentHost().jobs()))
        before = line.answered
        line.open()
        assert SIZE // 2 <= before < SIZE
        kernel.restart(now=True)
        kernel.run(setting)
        out = kernel.run(f"%load_ext nbdata\n{cell}\nprint(r.present)")
        assert out.error is None
        present, again = int(out.text.split()[-1]), line.answered - before
    assert again < SIZE - present + (2 << 20), "the line carries what was missing, and no more"
    # Bytes that a connection received after its last record are lost, and so are bytes on their way to it.
    assert SIZE - before <= again < SIZE - before + FIRST * (NOTED + (2 << 20))
    assert "were there already" in out.displays[-1]
    with whole.open("rb") as one, (tmp_path / "here" / "big").open("rb") as other:
        while block := one.read(1 << 20):
            assert other.read(1 << 20) == block
    assert not (tmp_path / "here" / ".nbdata").exists()
