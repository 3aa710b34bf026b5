"""A forked child has none of its parent's jobs, because it has none of their threads."""

from __future__ import annotations

import os

import pytest

from nbdata.client.inline import inline_host
from nbdata.verbs.probe import Probe
from tests.waiting import PATIENCE, wait_until


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_attach_to_a_job_of_its_parent() -> None:
    line = Probe(items=10, delay=100, tag="fork")
    job = inline_host().submit(line, background=True)
    wait_until(
        lambda: job.snapshot().state == "RUNNING"
    )  # forking during an import is a problem of Python itself
    child = os.fork()
    if child == 0:
        try:
            inline_host().submit(line, background=True).wait(PATIENCE)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    job.wait(PATIENCE)
