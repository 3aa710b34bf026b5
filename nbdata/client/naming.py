"""Finds the job that a user means by an id, or by the start of one."""

from __future__ import annotations

from collections.abc import Sequence

from nbdata.errors import NotFound
from nbdata.protocols import Job

__all__ = ["named"]


def named(job_id: str, alive: Sequence[Job], over: Sequence[Job]) -> Job:
    """Return the only job that an id means.

    A whole id comes before the start of one, and a job that a process still has before one that is only on record.
    Processes draw their ids by chance, so two may have drawn the same: such an id means no job, because a guess could
    cancel the wrong one. Of past jobs with the same id the newest is meant: nothing can be done to either.

    Parameters
    ----------
    job_id : str
        An id, or the start of one.
    alive : sequence of Job
        The jobs of this process and of the agents that run.
    over : sequence of Job
        The jobs on record whose agents are gone, oldest first.

    Raises
    ------
    NotFound
        If it means no job, or several.
    """
    newest = list({job.id: job for job in over}.values())
    for jobs in (alive, newest):
        if same := [job for job in jobs if job.id == job_id]:
            return _only(same, job_id)
    for jobs in (alive, newest):
        if job_id and (same := [job for job in jobs if job.id.startswith(job_id)]):
            return _only(same, job_id)
    return _only([], job_id)


def _only(jobs: Sequence[Job], job_id: str) -> Job:
    if len(jobs) == 1:
        return jobs[0]
    raise NotFound(
        f"several jobs begin with {job_id!r}" if jobs else f"there is no job {job_id!r}",
        remedy="transfers lists the jobs and their ids",
    )
