"""Make the folders that an archive is unpacked into, refuse links, sync them, and set their times at the end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from nbdata.archives.member import Member
from nbdata.disk import disk_error, sync_folder
from nbdata.engine.job.outcomes import Outcome
from nbdata.engine.job.results import Results
from nbdata.errors import UnsafeMember
from nbdata.guarded_folders import TargetLost
from nbdata.transfer.index import Record
from nbdata.transfer.target_folder import TargetFolder

__all__ = ["ArchiveFolders"]


class ArchiveFolders:
    """The folders of one run.

    Parameters
    ----------
    root : str
        The target folder, absolute.
    target : TargetFolder
        The same folder; it is entered before this object.
    results : Results
    made : list of str
        The absolute paths of folders made by this run; callers that make one add it.
    claim : callable
        Called with the number of folders that a member has made.

    Attributes
    ----------
    staging : dict of str to str
        Maps each checked folder to the folder for temporaries of its files.
    """

    def __init__(
        self,
        root: str,
        target: TargetFolder,
        results: Results,
        made: list[str],
        claim: Callable[[int], None],
    ) -> None:
        self._root, self._target, self._results = root, target, results
        self._real_root, self._made, self._claim = "", made, claim
        self._claimed = 0  # how many of `made` were told to `claim`
        self.staging: dict[str, str] = {}
        self._times: dict[str, tuple[int, str]] = {}  # path -> time and tag of its member
        self._unsynced = {""}  # folders whose entries may not be durable yet

    def enter(self) -> None:
        """Resolve the real path of the target."""
        self._real_root = os.path.realpath(self._root)

    def remember(self, path: str, mtime_ns: int, tag: str) -> None:
        """Note a folder that an earlier run of the same command made."""
        self._times[path] = (mtime_ns, tag)

    def prepare(self, parent: str, path: str) -> str:
        """Make the parent folder of a member; return the folder for its temporary."""
        self.refuse_links(parent, path)
        _, staging = self._target.prepare(path)
        self.staging[parent] = staging
        self._unsynced.add(parent)
        self._claim_made()
        return staging

    def _claim_made(self) -> None:
        new, self._claimed = len(self._made) - self._claimed, len(self._made)
        if new:
            self._claim(new)

    def refuse_links(self, folder: str, path: str) -> None:
        """Raise UnsafeMember if a folder is reached through a link; `path` is the member that goes there."""
        real = os.path.realpath(os.path.join(self._root, folder))
        expected = os.path.join(self._real_root, folder)
        if real != expected.rstrip("/"):
            raise UnsafeMember(
                f"member {path!r} would be written through a symbolic link in the target",
                path=os.path.join(self._root, folder),
                expected=expected,
                got=real,
                remedy="Remove the link, or unpack into another folder",
            )

    def make(self, member: Member, tag: str) -> None:
        """Make the folder of a member; its time is set at the end."""
        if member.name not in self._times:
            self.refuse_links(member.name, member.name)
            self._target.prepare(member.name + "/x")
            self._results.add(member.name, Outcome.FOLDER)
            self._unsynced.add(member.name)
            self._claim_made()
        self._times[member.name] = (member.mtime_ns, tag)

    def keep(self) -> None:
        """Keep the folders made so far: their content is complete, and they are recorded."""
        self._made.clear()
        self._claimed = 0

    def remove_empty(self) -> None:
        """Remove empty folders made since the last `keep`: no record tells whose they are."""
        below = self._root.rstrip("/") + "/"
        for folder in reversed(self._made):  # children before parents
            if folder.startswith(below):  # else the target itself
                with contextlib.suppress(OSError, UnsafeMember, TargetLost):  # not empty, or behind a link
                    self._target.folders.rmdir(folder)

    def records(self) -> dict[str, Record]:
        """The records of the folders."""
        return {path + "/": Record(tag, 0, 0, mtime_ns, 0) for path, (mtime_ns, tag) in self._times.items()}

    def sync(self) -> None:
        """Make the entries of new folders durable; the folder of a file was synced when the file was committed."""
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
                continue  # the parent of the target may not be readable
            except OSError as error:
                raise disk_error(error, folder) from error
        self._unsynced.clear()

    def give_times(self) -> None:
        """Set the times from the archive, now that nothing more is put into the folders."""
        for path, (mtime_ns, _) in sorted(self._times.items(), reverse=True):
            try:
                self._target.folders.set_time(os.path.join(self._root, path), mtime_ns)
            except UnsafeMember:  # a folder above it was replaced by a link, which may lead anywhere
                continue
            except OSError as error:
                self._results.fail(path, disk_error(error, path))
