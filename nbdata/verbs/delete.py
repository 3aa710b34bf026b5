"""The verb delete: deletes objects of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nbdata.errors import BadOption
from nbdata.operation import function_of
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.verbs.options import Selecting, Storing

__all__ = ["Delete", "delete"]


@dataclass(frozen=True)
class Delete(Selecting, Storing):
    """Delete removes an object, or all objects below a folder, from a store. It cannot be undone, unless
    the bucket keeps versions: then they stay, and the store hides them.

    Look at ``--dry-run`` first: it lists what would go, with numbers and bytes. Without ``--yes`` nothing
    is deleted: a terminal is asked, and everything else gets an error that says how much it would be.

    What is written below SOURCE while it is deleted may stay or go; an object that is replaced after it
    was listed goes, too. Run the same command again after an interruption. Files of the disk are not for
    delete: use ``cleanup``, which knows what can be fetched again.
    """

    verb: ClassVar[str] = "delete"
    summary: ClassVar[str] = "Delete objects of a store, after a look at the plan."
    examples: ClassVar[tuple[str, ...]] = (
        "delete s3://bucket/results/run-7/ --dry-run",
        "delete s3://bucket/results/run-7/ --yes",
        "delete s3://bucket/logs/ --older-than 30d --include '*.log' --yes",
    )

    source: str = argument(
        "URL of an object or a folder; may contain globs and brace ranges.", metavar="SOURCE"
    )
    yes: bool = option(False, "Delete without a question.", kind="flag", identity=False)

    def check(self) -> None:
        super().check()
        if not is_url(self.source):
            raise BadOption(
                f"delete: {self.source} is a local path",
                expected="a URL",
                remedy="Use cleanup to free a disk, or rm",
            )


delete = function_of(Delete)
