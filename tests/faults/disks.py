"""The small-disk campaign: commands write to disks with barely enough or too little room, while others fill them.

A run is one command, or two in two processes, on a disk or in a limited folder. A seed chooses the room, 0.3 to 1.5
times the need. In half of the runs another process fills the disk meanwhile, at a byte at which a proxy holds the
transfer. A further process watches the disk's content. A command may end in these ways:

- *right*: everything is there, byte for byte.
- *refused*: the need was known and exceeded the room. Nothing was moved, and the reported numbers are true.
- *filled*: it failed with NotEnoughSpace after it had begun, and no file with a final name is wrong.
- *waited*: it ran in the background, paused for lack of room, and resumed by itself when there was room.

Then room is made. The same command must succeed with correct files and leave nothing in `.nbdata` or in the ledger. A
limited folder must never hold more than its limit plus `spare_of`, and a cache never more than its limit.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbdata
from nbdata.client.stream import make_stream
from nbdata.errors import NbdataError, NotEnoughSpace
from nbdata.operation import Operation
from nbdata.runtime import runtime_folder
from nbdata.transfer.part_records import PART
from nbdata.verbs.cache_stream import CacheStream
from tests.faults.gate import Gate
from tests.faults.goods import Goods, blocks_of, folders_of
from tests.faults.said import Line, error_of, way_of
from tests.faults.scene import differences, files_of
from tests.faults.small_disks import KINDS, UNSEEN, Order, SmallDisk, small_disk, why_not
from tests.watcher import Watcher

__all__ = ["LINES", "NOT_RUN", "WAYS", "Result", "run_all", "spare_of"]

#: The commands to run.
LINES = ("pull", "untar_volumes", "cache_stream", "two pulls")
#: Permitted ends of the first attempt; see the first lines of this file.
WAYS = ("right", "refused", "filled", "waited")
NOT_RUN = "not run"
# Range of the room as a share of the need. In a third of the runs the room is close to the need.
_FEWEST, _MOST = 0.3, 1.5
_CLOSE = 0.98, 1.03
KIB, MIB = 1 << 10, 1 << 20


@dataclass
class Result:
    """The outcome of one run.

    Attributes
    ----------
    room : float
        The room as a share of the need.
    filled : bool
        Whether another process filled the disk during the run.
    ways : list of str
        How each command ended at the first attempt.
    words : list of str
        Each command's error message at the first attempt, if it failed.
    end : str
        '' if all is well, or a description of the bug; or `NOT_RUN` and the reason.
    over : int
        Largest observed excess of a limited folder over its limit, in bytes. Negative if it stayed below the limit.
    samples : int
        Number of measurements of the disk use.
    """

    number: int
    kind: str
    said: str
    room: float
    filled: bool = False
    ways: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    end: str = ""
    over: int | None = None
    samples: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """True if no bug was found."""
        return not self.end or self.end.startswith(NOT_RUN)

    @property
    def line(self) -> str:
        """The outcome as one line of text."""
        over = "" if self.over is None else f", {self.over / KIB:+,.0f} KiB of the limit"
        filled = ", filled by others" if self.filled else ""
        return (
            f"{self.number:4} {self.said} on {self.kind}, {self.room:.2f} of the room{filled}: "
            f"{' and '.join(self.ways) or '–'}{over}, {self.seconds:.1f} s{': ' if self.end else ''}{self.end}"
        )


def spare_of(files: Mapping[str, bytes], block: int) -> int:
    """Return how many bytes beyond a limit writing these files may use, because a plan does not count them.

    These are blocks of folders and of nbdata's own files: `.nbdata`, a marker, and the record of an object in parts.
    """
    return block * (folders_of(files) + 3)


def run_all(goods: Goods, *, seed: int, numbers: Iterable[int], told: Any = print) -> Iterator[Result]:
    """Yield the results of the runs with these numbers; the kinds of disks and the commands alternate."""
    before = {name: os.environ.get(name) for name in ("NBDATA_HOST", *goods.server.environment())}
    try:
        for number in numbers:
            run = _Run(goods, seed, number)
            why = why_not(run.result.kind)
            if why:
                run.result.end = f"{NOT_RUN}: {why}"
            else:
                run.do()
            told(run.result.line)
            yield run.result
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


class _Run:
    """One run of the campaign."""

    def __init__(self, goods: Goods, seed: int, number: int) -> None:
        self._goods = goods
        self._dice = random.Random(f"{seed} disks {number}")
        turn = number // len(KINDS)
        kind, said = KINDS[number % len(KINDS)], LINES[turn % len(LINES)]
        span = _CLOSE if not self._dice.randrange(3) else (_FEWEST, _MOST)
        self.result = Result(number, kind, said, room=round(self._dice.uniform(*span), 3))
        self.result.filled = bool(self._dice.randrange(2))
        self._block = self._dice.choice((1024, 4096)) if kind == "ext4" else 4096

    def do(self) -> None:
        """Perform the run and check the result."""
        result, began = self.result, time.monotonic()
        streams = result.said == "cache_stream"
        names = {"pull": ["tree"], "untar_volumes": ["members"], "two pulls": ["one", "other"]}.get(
            result.said, []
        )
        parts = [getattr(self._goods, name) for name in names]
        self._cache = self._dice.randrange(3 * MIB, 6 * MIB)
        needed = self._cache if streams else sum(blocks_of(files, self._block) for files in parts)
        files = 40 if streams else sum(map(len, parts)) + 10
        order = Order(result.kind, int(needed * result.room), int(files * result.room), self._block)
        moved = sum(len(data) for data in self._moved())
        limit = int(moved * self._dice.uniform(0.1, 0.8)) if result.filled else -1
        with ExitStack() as stack:
            disk = stack.enter_context(small_disk(self._goods.work, order))
            gate = stack.enter_context(Gate(self._goods.server.url, limit=limit))
            os.environ.update(self._goods.server.environment() | {"AWS_ENDPOINT_URL": gate.url})
            if streams:
                self._stream(disk, gate)
            else:
                self._lines(disk, gate, names)
            self._look_behind(disk)
        result.seconds = time.monotonic() - began

    def _moved(self) -> Iterable[bytes]:
        names = {"pull": ["tree"], "untar_volumes": ["volumes"], "cache_stream": ["items"]}
        for name in names.get(self.result.said, ["one", "other"]):
            yield from getattr(self._goods, name).values()

    # -- pull and untar_volumes -------------------------------------------------------------------

    def _lines(self, disk: SmallDisk, gate: Gate, names: list[str]) -> None:
        lines = [self._line(disk, name, number) for number, name in enumerate(names)]
        free = disk.free()
        with self._watched(disk) as watcher, self._other(disk, gate):
            for line in lines:
                line.start()
            for line in lines:
                line.wait()
        spare = sum(spare_of(line.files, self._block) for line in lines)
        self._never_over(disk, watcher, spare)
        self.result.ways = [line.way for line in lines]
        self.result.words = [line.words for line in lines if line.words]
        self._ends(disk, lines, free)
        for line in lines:
            self._nothing_wrong(line)
        disk.make_room()
        for line in lines:
            assert line.job is not None
            if (
                line.way != "waited" or disk.order.kind == "NBDATA_QUOTA"
            ):  # inherited from the process that ran the command
                line.start()
            if (error := error_of(line.job)) is not None:
                self._bad(f"with room, {line.operation.verb} said: {error}")
            self._nothing_wrong(line, whole=True)

    def _line(self, disk: SmallDisk, name: str, number: int) -> Line:
        goods, target, files = self._goods, disk.folder / name, getattr(self._goods, name)
        host = (
            ("agent", "inline")[number]
            if self.result.said == "two pulls"
            else self._dice.choice(("agent", "inline"))
        )
        # Plus the folder for temporary files, its marker, and a record of the parts of each large object.
        parted = sum(len(data) > PART for data in files.values())
        folders = folders_of(files)
        needed = blocks_of(files, self._block) + folders * self._block
        inodes = len(files) + folders + 2 + parted
        operation: Operation = nbdata.Pull(goods.url(name), str(target))
        if name == "members":
            operation = nbdata.UntarVolumes(goods.url("volumes"), str(target))
            size = sum(map(len, goods.volumes.values()))
            needed, inodes = -(-size // self._block) * self._block, 0
        background = self.result.said != "two pulls" and not self._dice.randrange(3)
        return Line(operation, host, target, files, needed, inodes, background)

    def _ends(self, disk: SmallDisk, lines: list[Line], free: tuple[int, int]) -> None:
        """Check that each command was allowed to end as it did, given the free space."""
        sees = self.result.kind not in UNSEEN
        for line in lines:
            if line.way == "waited" and not line.words.startswith("no space"):
                self._bad(f"it pauses for another reason: {line.words}")
            if line.way in ("refused", "filled"):
                self._numbers(disk, line, free)
            fits = line.needed <= free[0] and line.inodes <= free[1]
            if line.operation.verb == "pull" and line.way != "refused" and sees and not fits:
                self._bad("begun although it cannot fit")
        if self.result.filled:
            return
        # `spare` is a reserve for what a file system creates beside the files.
        room, spare = min(free[0], disk.order.room), 2 * MIB
        needs = [blocks_of(line.files, self._block) + spare for line in lines]
        counts = [len(line.files) + folders_of(line.files) + 8 for line in lines]
        done = [line.way == "right" for line in lines]
        # Another command counts bytes twice that are just written, until the writer's ledger entry is updated half a
        # second later.
        if len(lines) * sum(needs) <= room and len(lines) * sum(counts) <= free[1] and not all(done):
            self._bad("there was room, and yet it was not done")
        if sees and max(needs) <= room and max(counts) <= free[1] and not any(done):
            self._bad("there was room for one, and yet none was done")

    def _numbers(self, disk: SmallDisk, line: Line, free: tuple[int, int]) -> None:
        """Check the numbers that a command reported."""
        error = line.error
        if not isinstance(error, NotEnoughSpace):
            self._bad(f"{type(error).__name__}: {error}")
            return
        told = error.details
        if not {"needed", "free", "source"} <= told.keys():
            self._bad(f"an error without its numbers: {error}")
            return
        if line.way == "refused" and line.operation.verb == "pull":
            if (told["needed"], told["inodes"]) != (line.needed, line.inodes):
                self._bad(f"said that it needs {told['needed']:,} in place of {line.needed:,}")
            if told["free"] > free[0]:
                self._bad(f"said that {told['free']:,} are free, and {free[0]:,} were")
        most = blocks_of(line.files, self._block) + folders_of(line.files) * self._block
        now = disk.free()[0] + disk.others + 8 * self._block
        if not 0 <= told["needed"] <= most:
            self._bad(f"said that it needs {told['needed']:,} of {most:,}")
        if self.result.kind not in UNSEEN and told["free"] > now:
            self._bad(f"said that {told['free']:,} are free, and {now:,} are")

    def _nothing_wrong(self, line: Line, *, whole: bool = False) -> None:
        found = files_of(line.target) if line.target.exists() else {}
        for name, how in differences(found, line.files).items():
            self._bad(f"{name}: {how}")
        if (whole or line.way == "right") and (missing := line.files.keys() - found.keys()):
            self._bad(f"{len(missing)} missing, such as {min(missing)}")

    # -- cache_stream -----------------------------------------------------------------------------

    def _stream(self, disk: SmallDisk, gate: Gate) -> None:
        os.environ["NBDATA_HOST"] = self._dice.choice(("agent", "inline"))
        line = CacheStream(
            self._goods.url("items"), by="file", cache_dir=str(disk.folder), max_size=self._cache
        )
        free = disk.free()
        with self._watched(disk) as watcher, self._other(disk, gate):
            error = self._consumed(line)
        self.result.ways = ["right" if error is None else way_of(error, self._goods.work / "nowhere")]
        self.result.words = [] if error is None else [str(error)]
        self._never_over(disk, watcher, 0)
        if watcher.most - disk.others - self._base > self._cache:
            self._bad(f"{watcher.most - disk.others:,} bytes in a cache of {self._cache:,}")
        if error is not None and not isinstance(error, NotEnoughSpace):
            self._bad(f"{type(error).__name__}: {error}")
        if self.result.kind not in UNSEEN and self._cache > free[0] and self.result.ways != ["refused"]:
            self._bad("begun although its cache cannot fit")
        self._look_behind(disk)
        disk.make_room()
        if (error := self._consumed(line)) is not None:
            self._bad(f"with room, the stream said: {error}")

    def _consumed(self, line: CacheStream) -> Exception | None:
        """Read all items of a stream; return the error if it ended early."""
        left = dict(self._goods.items)
        try:
            with make_stream(line, quiet=True) as stream:
                for item in stream:
                    if Path(item.path).read_bytes() != left.pop(item.key):
                        self._bad(f"{item.key} was handed out wrong")
        except (NbdataError, TimeoutError) as error:
            return error
        if left:
            self._bad(f"{len(left)} items were not handed out")
        return None

    # -- every command ----------------------------------------------------------------------------

    @contextmanager
    def _other(self, disk: SmallDisk, gate: Gate) -> Iterator[None]:
        """Let another process fill the disk as soon as the gate holds."""
        leave, over = self._dice.randrange(MIB), threading.Event()

        def fill() -> None:
            while not over.wait(0.005):
                if gate.holds:
                    disk.fill(leave if disk.order.kind != "tmpfs, inodes" else leave % 4)
                    gate.open()
                    return

        other = threading.Thread(target=fill)
        if self.result.filled:
            other.start()
        try:
            yield
        finally:
            over.set()
            if self.result.filled:
                other.join()
                gate.open()

    def _watched(self, disk: SmallDisk) -> Watcher:
        watcher = Watcher(disk.folder, self._goods.work / f"watched-{self.result.number}")
        self._base = disk.folder.stat().st_blocks * 512
        return watcher

    def _never_over(self, disk: SmallDisk, watcher: Watcher, spare: int) -> None:
        self.result.samples = watcher.samples
        if disk.limit is None or not watcher.samples:
            return
        self.result.over = watcher.most - self._base - disk.limit - disk.others
        if self.result.over > spare:
            self._bad(f"{self.result.over:,} bytes over the limit, where {spare:,} may be")

    def _look_behind(self, disk: SmallDisk) -> None:
        """Check that nbdata left nothing of its own on the disk or in the ledger."""
        left = [str(path.relative_to(disk.folder)) for path in disk.folder.rglob(".nbdata*")]
        if left:
            self._bad(f"left behind: {', '.join(left)}")
        books = json.loads(Path(runtime_folder(), "ledger.json").read_text())
        if books["entries"]:
            self._bad(f"left in the books: {books['entries']}")

    def _bad(self, why: str) -> None:
        if why not in self.result.end:
            self.result.end += f"{'; ' if self.result.end else ''}{why}"
