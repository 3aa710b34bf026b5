"""A run between two stores, as each of them sees it."""

from __future__ import annotations

from dataclasses import replace

from nbdata.engine.job.run import Run
from nbdata.verbs.ends import ends_of

__all__ = ["both_ends"]


def both_ends(run: Run) -> tuple[Run, Run]:
    """This run as each of its ends sees it: with its own storage options, and ``fs=`` where that is meant.

    ``--option`` holds for both ends if they have one protocol, or if one is the local disk, and ``--target-option``
    instead of it for the target.
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
        )
        for end in ends
    )
    return source, target
