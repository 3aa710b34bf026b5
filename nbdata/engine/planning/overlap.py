"""Checks local sources against the target: whether a job would write over what it reads."""

from __future__ import annotations

import os

from nbdata.errors import BadOption
from nbdata.paths import is_inside
from nbdata.stores.local import LocalStore
from nbdata.transfer.sources import Found

__all__ = ["refuse_overlap"]


def refuse_overlap(source: Found, target: str, *, name: str = "", whole: bool, mirror: bool) -> None:
    """BadOption if a job would write over its source, read its own output, or delete what it reads.

    Otherwise files that existed before would count as staged by nbdata, and so could be deleted.

    Parameters
    ----------
    target : str
        The local folder to write to.
    name : str
        The name of a single file there; '' for its own name.
    whole : bool
        Whether all below the source is selected, and not only matches of a glob.
    mirror : bool
        Whether files that the source lacks are deleted.
    """
    if not isinstance(source.location.store, LocalStore):
        return
    here, there = os.path.realpath(f"/{source.location.key}"), os.path.realpath(target)
    if source.single is not None:
        there = os.path.join(there, name or os.path.basename(source.single.key))
    if _same(here, there):
        raise BadOption("source and target are the same", path=target, remedy="Name another target")
    if source.single is not None:
        return
    if whole and is_inside(there, here):
        raise BadOption(
            "the target lies in the source: each run would copy the output of the last one",
            path=target,
            remedy="Name a target beside the source",
        )
    if mirror and is_inside(here, there):
        raise BadOption(
            "--delete would delete the source, which lies in the target",
            path=target,
            remedy="Name a target beside the source, or leave out --delete",
        )


def _same(here: str, there: str) -> bool:
    """True if both are the same file by any name: links, including hard ones, and mounts."""
    try:
        return os.path.samefile(here, there)
    except OSError:  # the target does not exist yet
        return here == there
