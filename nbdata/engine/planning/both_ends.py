"""Splits a run between two stores into one run per end."""

from __future__ import annotations

from dataclasses import replace

from nbdata.engine.job.run import Run
from nbdata.verbs.ends import ends_of

__all__ = ["both_ends"]


def both_ends(run: Run) -> tuple[Run, Run]:
    """Return the runs of the source and the target, each with its storage options, and ``fs=`` where it applies.

    ``--option`` applies to both ends if they have one protocol, or if one is the local disk. For the target,
    ``--target-option`` replaces it.
    """
    context = run.context
    handed = run.bindings.get("fs") or context.filesystem
    ends = ends_of(run.operation.places(), context.storage_options, context.target_options, handed)
    source, target = (
        replace(
            run,
            context=replace(
                context, storage_options=end.options, filesystem=context.filesystem if end.takes_fs else None
            ),
            bindings=run.bindings if end.takes_fs else {},
            end=f"{run.end}{name}/",
        )
        for name, end in zip(("source", "target"), ends, strict=True)
    )
    return source, target
