"""The verb transfers: the jobs of all kernels and terminals."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import Operation, argument, function_of, option, slots
from nbdata.report import Report, Snapshot

__all__ = ["JobList", "Transfers", "transfers"]


class JobList(list[Snapshot]):
    """Snapshots of jobs; shows itself as a small table."""

    def __repr__(self) -> str:
        return "\n".join(s.line for s in self) or "no transfers"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{escape(s.line)}</td></tr>" for s in self)
        return f"<table>{rows}</table>" if self else "no transfers"


@dataclass(frozen=True)
class Transfers(Operation):
    """Running, finished and resumable jobs, from whichever kernel or terminal they were started."""

    verb: ClassVar[str] = "transfers"
    summary: ClassVar[str] = "Show the transfers of all kernels and terminals, and stop them."
    examples: ClassVar[tuple[str, ...]] = ("transfers", "transfers 3f2a --cancel", "transfers 3f2a --wait")
    query: ClassVar[bool] = True

    job: str | None = argument("Id of one job. Default: all.", default=None, kind="text", metavar="JOB")
    pause: bool = option(False, "Stop moving bytes until --resume.", kind="flag")
    resume: bool = option(False, "Go on after --pause.", kind="flag")
    cancel: bool = option(False, "End it, resumable.", kind="flag")
    wait: bool = option(False, "Show its progress and wait for its end.", kind="flag")

    def check(self) -> None:
        chosen = [name for name in ("pause", "resume", "cancel", "wait") if getattr(self, name)]
        if len(chosen) > 1:
            raise BadOption(f"--{chosen[0]} and --{chosen[1]} exclude each other", remedy="Choose one")
        if chosen and self.job is None:
            raise BadOption(f"--{chosen[0]} needs a JOB", remedy="transfers without options lists their ids")

    def run(self, *, quiet: bool = False) -> JobList | Report:
        """Do what the options say; returns the jobs, or with ``wait`` the Report."""
        host = slots.host()
        if self.job is None:
            return JobList(host.jobs())
        job = host.job(self.job)
        if self.wait:
            return slots.display().follow(job, quiet=quiet)
        for action in ("pause", "resume", "cancel"):
            if getattr(self, action):
                getattr(job, action)()
        return JobList([job.snapshot()])


transfers = function_of(Transfers)
