"""Folders that an archive is unpacked into: made, looked at for links, synced, and given their times at the end."""

from __future__ import annotations

import contextlib
import os

from nbdata.archives.member import Member
from nbdata.disk import disk_error, sync_folder
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.errors import UnsafeMember
from nbdata.transfer.index import Record
from nbdata.transfer.target_folder import TargetFolder

__all__ = ["ArchiveFolders"]


class ArchiveFolders:
    """Those of one run.

    Parameters
    ----------
    root : str
        The target folder, absolute.
    target : TargetFolder
        The same, entered before this is.
    results : Results
    made : list of str
        The absolute paths of folders that were not there before; whoever makes one adds it.

    Attributes
    ----------
    staging : dict of str to str
        By folders that were looked at, the folder for temporaries of what goes there.
    """

    def __init__(self, root: str, target: TargetFolder, results: Results, made: list[str]) -> None:
        self._root, self._target, self._results = root, target, results
        self._real_root, self._made = "", made
        self.staging: dict[str, str] = {}
        self._told: dict[str, tuple[int, str]] = {}  # path -> time and tag
        self._unsynced = {""}  # folders whose names may not be on the disk yet

    def enter(self) -> None:
        """Find out where the target really is."""
        self._real_root = os.path.realpath(self._root)

    def remember(self, path: str, mtime_ns: int, tag: str) -> None:
        """An earlier run of the same command has made a folder."""
        self._told[path] = (mtime_ns, tag)

    def prepare(self, parent: str, path: str) -> str:
        """Make the folder that a member is put into; the folder for its temporaries."""
        self.refuse_links(parent, path)
        _, staging = self._target.prepare(path)
        self.staging[parent] = staging
        self._unsynced.add(parent)
        return staging

    def refuse_links(self, folder: str, path: str) -> None:
        """UnsafeMember if a folder is reached through a link; `path` is the member that is for it."""
        real = os.path.realpath(os.path.join(self._root, folder))
        expected = os.path.join(self._real_root, folder)
        if real != expected.rstrip("/"):
            raise UnsafeMember(
                f"member {path!r} would be written through a symbolic link in the target",
                path=os.path.join(self._root, folder), expected=expected, got=real,
                remedy="Remove the link, or unpack into another folder",
            )  # fmt: skip

    def make(self, member: Member, tag: str) -> None:
        """Make the folder of a member, whose time it gets at the end."""
        if member.name not in self._told:
            self.refuse_links(member.name, member.name)
            self._target.prepare(member.name + "/x")
            self._results.add(member.name, Outcome.FOLDER)
            self._unsynced.add(member.name)
        self._told[member.name] = (member.mtime_ns, tag)

    def keep(self) -> None:
        """All that was put into the folders made so far is there, and what is to be remembered of them is recorded."""
        self._made.clear()

    def remove_empty(self) -> None:
        """Remove those that were made since, and in which nothing is: no record tells whose they are."""
        below = self._root.rstrip("/") + "/"
        for folder in reversed(self._made):  # what is in a folder before the folder
            if not folder.startswith(below):  # the target itself
                continue
            expected = os.path.join(self._real_root, folder.removeprefix(below))
            if os.path.realpath(folder) == expected:  # else a link leads there
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def records(self) -> dict[str, Record]:
        """What is to be remembered of them."""
        return {path + "/": Record(tag, 0, 0, mtime_ns, 0) for path, (mtime_ns, tag) in self._told.items()}

    def sync(self) -> None:
        """Make those durable that hold names of folders; a file's own folder was synced when the file landed."""
        above = set[str]()
        for path in self._unsynced:
            while path and (path := os.path.dirname(path)) not in above:
                above.add(path)
        folders = [os.path.join(self._root, path) for path in above]
        if "" in self._unsynced:
            folders.append(os.path.dirname(self._root))
        for folder in folders:
            try:
                sync_folder(folder)
            except PermissionError:
                continue  # the folder around the target may let nobody list it
            except OSError as error:
                raise disk_error(error, folder) from error
        self._unsynced.clear()

    def give_times(self) -> None:
        """Give them the times that the archive says, now that nothing is put into them any more."""
        for path, (mtime_ns, _) in sorted(self._told.items(), reverse=True):
            try:
                os.utime(os.path.join(self._root, path), ns=(mtime_ns, mtime_ns), follow_symlinks=False)
            except OSError as error:
                self._results.fail(path, disk_error(error, path))
