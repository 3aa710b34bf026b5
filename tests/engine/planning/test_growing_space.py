"""`GrowingSpace` claims room in steps, and never more than is reserved."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nbdata.engine.job.run import Run
from nbdata.engine.planning.growing_space import GrowingSpace
from nbdata.errors import NotEnoughSpace
from nbdata.space.ledger import Ledger, Reservation
from nbdata.transfer.free_control import FreeControl
from nbdata.verbs.pull import Pull

KB = 1000


class _Disk:
    """A limited folder of which `size` bytes may be used; `room` adds more."""

    def __init__(self, tmp_path: Path, size: int) -> None:
        self.folder, self.size = tmp_path / "limited", size
        self.folder.mkdir()
        self.ledger = Ledger(str(tmp_path / "books"))
        (tmp_path / "books").mkdir()

    def reserve(self) -> Reservation:
        limited = {str(self.folder): (self.size, "a limit of the test")}
        return self.ledger.reserve(str(self.folder), 0, 0, limited)

    def more(self, reservation: Reservation, size: int) -> bool:
        self.size += size
        cast("Any", reservation)._limited = {str(self.folder): (self.size, "a limit of the test")}
        return True


@pytest.mark.parametrize("seed", range(5))
def test_claimed_room_is_reserved_although_it_had_to_be_made_first(seed: int, tmp_path: Path) -> None:
    order, disk = random.Random(seed), _Disk(tmp_path, 1000 * KB)
    with disk.reserve() as reservation:
        run = SimpleNamespace(
            reservation=reservation, operation=Pull("s3://b/", "/out"), control=FreeControl()
        )
        space = GrowingSpace(cast("Run", run), 1, 0)
        left, claimed = 4, 0

        def make_room() -> bool:
            nonlocal left
            left -= 1
            return left >= 0 and disk.more(reservation, 500 * KB)

        space.make_room = make_room
        while left >= 0:
            size = order.randrange(1, 300 * KB)
            try:
                space.claim(size)
            except NotEnoughSpace:
                assert left < 0
            else:
                claimed += size
            assert claimed <= reservation.outstanding[0] <= disk.size
        assert disk.size == 3000 * KB
        assert claimed > disk.size - 300 * KB
