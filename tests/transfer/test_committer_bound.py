"""The committer limits the bytes on their way to the disk to what may be lost."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from nbdata.engine.runner import Planning
from nbdata.transfer.committer import Committer, PendingFile
from tests.waiting import PATIENCE, wait_until


def test_no_more_bytes_are_on_their_way_than_a_kill_may_lose(tmp_path: Path) -> None:
    go_on, landed = threading.Event(), list[str]()

    def announce(batch: list[PendingFile]) -> None:
        go_on.wait(PATIENCE)  # simulates a slow disk

    with Committer(
        str(tmp_path / "out"),
        Planning(),
        umask=0o022,
        committed=lambda batch: landed.extend(file.path for file in batch),
        announce=announce,
        most=lambda: 100,
    ) as committer:
        begun = list[int]()

        def write() -> None:
            for number in range(5):
                committer.reserve(40)
                begun.append(number)
                final, staging = committer.target.prepare(str(number))
                temporary, written = committer.target.written(
                    staging, memoryview(os.urandom(40)), str(number)
                )
                committer.commit(PendingFile(str(number), temporary, final, 40, written, reserved=40))

        writer = threading.Thread(target=write)
        writer.start()
        wait_until(lambda: len(begun) >= 2)
        assert begun == [0, 1], "two of 40 bytes are on their way, and a third would be too much"
        wait_until(lambda: committer._pressed or len(begun) > 2)
        assert begun == [0, 1]
        go_on.set()
        writer.join(PATIENCE)
        committer.flush()
    assert landed == ["0", "1", "2", "3", "4"]
