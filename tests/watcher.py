"""A separate process that repeatedly measures the disk use below a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

# A walk is not a snapshot. A file deleted after the walk passed it and a file created ahead of it would be counted
# together, although they never existed together. So a sample counts only if all files that it saw still exist.
_CODE = """
import os, sys
top, most, samples = sys.argv[1], 0, 0
print("watching", flush=True)
while os.getppid() == int(sys.argv[2]):
    seen = {}
    for folder, _, names in os.walk(top):
        for path in [folder, *(os.path.join(folder, name) for name in names)]:
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                continue
            seen[path] = (found.st_ino, found.st_blocks * 512)
    try:
        whole = all(os.lstat(path).st_ino == inode for path, (inode, _) in seen.items())
    except FileNotFoundError:
        continue
    if whole and seen:
        samples += 1
        most = max(most, sum(size for _, size in seen.values()))
        with open(sys.argv[3] + ".new", "w") as out:
            out.write(f"{samples} {most}")
        os.replace(sys.argv[3] + ".new", sys.argv[3])
"""


class Watcher:
    """Measures the bytes on the disk below `folder` as often as possible, while the context is open.

    Attributes
    ----------
    samples, most : int
        The number of valid samples, and the largest number of bytes in one of them. Set when the context closes.
    """

    def __init__(self, folder: Path, notes: Path) -> None:
        self._folder, self._notes = folder, notes
        self.samples = self.most = 0

    def __enter__(self) -> Watcher:
        command = [sys.executable, "-c", _CODE, str(self._folder), str(os.getpid()), str(self._notes)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"watching\n"
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        if self._notes.exists():
            self.samples, self.most = map(int, self._notes.read_text().split())
