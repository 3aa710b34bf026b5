"""Files of a part: written as temporaries into the job's target and synced, while another process gives the names.

`StagedFiles` takes the place of the Committer in the performer of a part. The coordinator's mark stands for its
temporaries, whose names begin with the coordinator's token. So they go with those of the job, also if the performer was
killed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from nbdata.disk import disk_error, make_durable
from nbdata.guarded_folders import NamedFolders
from nbdata.transfer.committer import PendingFile
from nbdata.transfer.control import Control
from nbdata.transfer.target_folder import TargetFolder

__all__ = ["StagedFile", "StagedFiles"]


class StagedFile(NamedTuple):
    """A complete, verified file on the disk that waits for its final name.

    Attributes
    ----------
    path : str
        Relative to the target.
    name : str
        Its name in the folder for temporaries.
    size : int
    inode, mtime_ns : int
        From its status: only this file may get the name.
    tag : str
        The tag for the index.
    shared : bool
        See `PendingFile`.
    verified : bool
        Whether its bytes were compared with a checksum.
    present : int
        Bytes that an earlier run had fetched.
    """

    path: str
    name: str
    size: int
    inode: int
    mtime_ns: int
    tag: str
    shared: bool
    verified: bool
    present: int


class StagedFiles:
    """Takes complete files of a part. A context manager around the whole part; see `Committer` for its methods.

    Parameters
    ----------
    root : str
        The target folder, which the coordinator has made.
    control : Control
    token : str
        The coordinator's token; see `nbdata.transfer.marks`.
    umask : int
    staged : list of StagedFile
        Filled by `flush`.
    opened : NamedFolders, optional
    """

    def __init__(
        self,
        root: str,
        control: Control,
        *,
        token: str,
        umask: int,
        staged: list[StagedFile],
        opened: NamedFolders | None = None,
    ) -> None:
        self.target = TargetFolder(root, control, umask=umask, opened=opened, part_of=token)
        self._staged, self._lock = staged, threading.Lock()
        self._files: list[PendingFile] = []  # at most the rows of a part

    def __enter__(self) -> StagedFiles:
        self.target.enter()
        return self

    def __exit__(self, *exc: object) -> None:
        if exc[1] is not None:
            self._staged.clear()
        self.target.leave(stay=exc[1] is None)

    def reserve(self, size: int) -> None:
        """Do nothing: a part is small enough to be lost."""

    def release(self, size: int) -> None:
        """Do nothing; see `reserve`."""

    def commit(self, file: PendingFile) -> None:
        """Take over a complete, closed file."""
        with self._lock:
            self._files.append(file)

    def commit_all(self, files: Sequence[PendingFile]) -> None:
        """Take over several files."""
        for file in files:
            self.commit(file)

    def flush(self) -> None:
        """Make all files durable, and hand them over for their names."""
        self.target.check()
        try:
            make_durable([self.target.relative(file.temporary) for file in self._files if not file.synced])
        except OSError as error:
            raise disk_error(error, self.target.root) from error
        self.target.check()
        self._staged += [
            StagedFile(
                file.path,
                file.temporary.rpartition("/")[2],
                file.size,
                file.written.st_ino,
                file.written.st_mtime_ns,
                file.tag,
                file.shared,
                file.of.verified,
                file.of.present,
            )
            for file in self._files
            if not isinstance(file.written, str)
        ]
