"""The verbs mount and unmount: a folder of a store as a folder of the disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import Operation, function_of, slots
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.protocols import Job
from nbdata.report import Plan
from nbdata.verbs.options import Verifying

__all__ = ["Mount", "Unmount", "mount", "unmount"]


@dataclass(frozen=True)
class Mount(Verifying):
    """Mount shows a folder of a store as a folder of the disk, for programs that open files by themselves:
    h5py, cv2, ffmpeg, ls. It is read only. A file that is read from its beginning to its end is compared
    with its checksum in the store. Without SOURCE, mount lists the mounts.

    The mount is a process of its own. From a cell or a script, it ends with the kernel or the script, unless
    --keep is given; from a terminal, it stays until ``nbdata unmount``. The file .nbdata-mount in the folder
    says how it goes.
    """

    verb: ClassVar[str] = "mount"
    summary: ClassVar[str] = "Show a folder of a store as a folder of the disk, read only."
    examples: ClassVar[tuple[str, ...]] = (
        "mount s3://bucket/data data",
        "mount s3://bucket/train-000.tar data --archive",
        "mount",
        "unmount data",
    )

    source: str | None = argument("URL of a folder.", default=None, metavar="URL")
    target: str | None = argument(
        "Local folder, which is empty; it is made if it is not there.", default=None, metavar="FOLDER"
    )
    storage_options: dict[str, Any] | None = option(
        None,
        "Storage options by their fsspec names (key, secret, endpoint_url, anon, profile …). The value env:NAME is "
        "read from the environment variable NAME; connection=NAME gives those of a connection that JupyterLab's panel "
        "keeps. Repeatable.",
        kind="pairs",
        binding=True,
        identity=False,
    )
    max_age: int = option(
        60,
        "Remember listings for so many seconds. Other programs may change the store meanwhile; a file that is opened "
        "is always the present version.",
        kind="count",
        metavar="SECONDS",
    )
    archive: bool = option(
        False,
        "URL is a zip or a tar: show its members as files. A tar is read through once for that, and must not be "
        "compressed.",
        kind="flag",
    )
    cache: int | None = option(
        None,
        "Keep what is read on the disk, in blocks of at most SIZE together. It is found again by the next mount, "
        "shared by all mounts with this DIR, and read also when the store does not answer.",
        kind="size",
        metavar="SIZE",
    )
    cache_dir: str = option(".", "Folder for the cache.", kind="path", metavar="DIR")
    keep: bool = option(
        False,
        "Keep the mount after the kernel or script that made it has ended.",
        kind="flag",
        identity=False,
    )
    allow_other: bool = option(
        False, "Let other users of this machine read it; the system may refuse that.", kind="flag"
    )

    def check(self) -> None:
        super().check()
        if self.source is not None and not is_url(self.source):
            raise BadOption(
                f"mount: {self.source} is a local path", expected="the URL of a folder in a store"
            )
        if self.archive and self.cache is not None:
            raise BadOption("mount: --cache keeps no members of archives", remedy="Leave --cache out")
        if self.source is not None and self.target is None:
            raise BadOption("mount: FOLDER is missing", remedy=f"Write mount {self.source} FOLDER")
        if self.target is not None and is_url(self.target):
            raise BadOption(f"mount: {self.target} is a URL", expected="a local folder")

    def local_target(self) -> str | None:
        return self.target

    def plan(self) -> Plan:
        raise BadOption("mount has no plan: it moves nothing", remedy="Leave --dry-run out")

    def start(self) -> Job:
        raise BadOption(
            "mount returns at once; the mount is a process of its own", remedy="Leave --background out"
        )

    def run(self, *, quiet: bool = False) -> Any:
        """Mount, and return the mount; without a source return the list of mounts."""
        return slots.mount(self, quiet)


@dataclass(frozen=True)
class Unmount(Operation):
    """Unmount ends a mount. If files in it are open, it says which process holds them, and the mount stays."""

    verb: ClassVar[str] = "unmount"
    summary: ClassVar[str] = "End a mount."
    examples: ClassVar[tuple[str, ...]] = ("unmount data",)

    target: str = argument("Folder that is mounted.", metavar="FOLDER")

    def check(self) -> None:
        if is_url(self.target):
            raise BadOption(f"unmount: {self.target} is a URL", expected="the folder that it is mounted at")

    def plan(self) -> Plan:
        raise BadOption("unmount has no plan", remedy="Leave --dry-run out")

    def start(self) -> Job:
        raise BadOption("unmount is done at once", remedy="Leave --background out")

    def run(self, *, quiet: bool = False) -> Any:
        """End the mount."""
        return slots.mount(self, quiet)


mount = function_of(Mount)
unmount = function_of(Unmount)
