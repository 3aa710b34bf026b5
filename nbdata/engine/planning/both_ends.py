"""A run between two stores, as each of them sees it."""

from __future__ import annotations

from dataclasses import replace

from nbdata.engine.job.run import Run
from nbdata.errors import BadOption
from nbdata.paths import is_url

__all__ = ["both_ends"]


def both_ends(run: Run) -> tuple[Run, Run]:
    """This run as each of its ends sees it: with its own storage options, and ``fs=`` where that is meant.

    ``--option`` holds for both ends if they have one protocol, or if one is the local disk, and ``--target-option``
    instead of it for the target.
    """
    op, context = run.operation, run.context
    schemes = [place.partition("://")[0] for place in op.places()]
    alike = schemes[0] == schemes[1] or not is_url(op.places()[0])
    options = [context.storage_options, context.storage_options if alike else {}]
    if context.target_options:
        options[1] = context.target_options
    handed = run.bindings.get("fs") or context.filesystem
    known = _protocols(handed)
    if known and not known & set(schemes):
        raise BadOption(
            f"fs= is a file system for {', '.join(sorted(known))}",
            expected=" or ".join(f"{s}://" for s in schemes),
        )
    ends = []
    for scheme, own in zip(schemes, options, strict=True):
        mine = scheme in known
        ends.append(
            replace(
                run,
                context=replace(
                    context, storage_options=own, filesystem=context.filesystem if mine else None
                ),
                bindings=run.bindings if mine else {},
            )
        )
    return ends[0], ends[1]


def _protocols(filesystem: object) -> set[str]:
    """The protocols of a file system object, or of its description; none if there is none."""
    if filesystem is None:
        return set()
    found = (
        filesystem.get("protocol") if isinstance(filesystem, dict) else getattr(filesystem, "protocol", ())
    )
    return {found} if isinstance(found, str) else set(found or ())
