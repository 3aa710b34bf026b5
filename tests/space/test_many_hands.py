"""Many processes reserve, grow, write, return and die; together they never hold more room than there is."""

from __future__ import annotations

import json
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from nbdata.errors import NotEnoughSpace
from nbdata.space import ledger as module
from nbdata.space.holders import dead_holders
from nbdata.space.ledger import Ledger, Reservation
from tests.waiting import wait_until

MB = 10**6
LIMIT = 10 * MB


class Hand:
    """A process that executes orders on a ledger, one after the other."""

    def __init__(self, folder: str, limited: dict[str, tuple[int, str]]) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._orders)
            os.close(self._answers)
            try:
                _obey(folder, limited, orders, answers)
            finally:
                os._exit(0)
        os.close(orders)
        os.close(answers)

    def do(self, *order: Any) -> bool:
        """Send an order; return True if it could be executed."""
        os.write(self._orders, json.dumps(order).encode() + b"\n")
        return os.read(self._answers, 1) == b"y"

    def end(self, *, how: int = signal.SIGKILL) -> None:
        os.kill(self.pid, how)
        os.waitpid(self.pid, 0)
        os.close(self._orders)
        os.close(self._answers)


def _obey(folder: str, limited: dict[str, tuple[int, str]], orders: int, answers: int) -> None:
    root, ledger, held = next(iter(limited)), Ledger(folder), dict[str, Reservation]()
    with open(orders, encoding="utf-8") as lines:
        for line in lines:
            what, name, size = json.loads(line)
            done = b"y"
            try:
                if what == "reserve":
                    held[name] = ledger.reserve(f"{root}/{name}", size, 1, limited)
                elif what == "grow":
                    held[name].grow(size)
                elif what == "land":
                    held[name].note_written(size)
                else:
                    held.pop(name).__exit__()
            except NotEnoughSpace:
                done = b"n"
            os.write(answers, done)


class Board:
    """Numbers in memory that all processes share."""

    def __init__(self, count: int) -> None:
        self._map, self._count = mmap.mmap(-1, 8 * count), count

    def set(self, number: int, size: int) -> None:
        struct.pack_into("q", self._map, 8 * number, size)

    def of(self, number: int) -> int:
        return int(struct.unpack_from("q", self._map, 8 * number)[0])

    def total(self) -> int:
        return sum(struct.unpack_from(f"{self._count}q", self._map))


on_disk = Board(1)


class ManyHands(RuleBasedStateMachine):
    """Three processes, with a model of their reservations and of the disk."""

    jobs = Bundle("jobs")

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="nbl-")
        self.root = os.path.join(self.folder, "data")
        os.mkdir(self.root)
        os.mkdir(os.path.join(self.folder, "run"))
        self.limited = {self.root: (LIMIT, "%quota --limit")}
        self.ledger = Ledger(os.path.join(self.folder, "run"))
        self.hands = [self._hand() for _ in range(3)]
        self.held: list[dict[str, list[int]]] = [{}, {}, {}]
        self.number = 0
        self._use(0)

    def _hand(self) -> Hand:
        return Hand(os.path.join(self.folder, "run"), self.limited)

    def _use(self, size: int) -> None:
        self.used = size
        on_disk.set(0, size)

    def _free(self) -> int:
        reserved = sum(max(0, planned - landed) for own in self.held for planned, landed in own.values())
        return max(0, LIMIT - self.used - reserved)

    @rule(target=jobs, hand=st.integers(0, 2), size=st.integers(0, 7 * MB))
    def reserve(self, hand: int, size: int) -> tuple[int, str]:
        self.number += 1
        name, fits = f"job{self.number}", size <= self._free()
        assert self.hands[hand].do("reserve", name, size) == fits
        if fits:
            self.held[hand][name] = [size, 0]
        return hand, name

    @rule(job=jobs, size=st.integers(1, 3 * MB))
    def grow(self, job: tuple[int, str], size: int) -> None:
        own = self.held[job[0]].get(job[1])
        if own is not None:
            fits = size <= self._free()
            assert self.hands[job[0]].do("grow", job[1], size) == fits
            own[0] += size * fits

    @rule(job=jobs, share=st.floats(0, 1))
    def land(self, job: tuple[int, str], share: float) -> None:
        """Write some of the planned bytes, never more than planned."""
        own = self.held[job[0]].get(job[1])
        if own is not None:
            size = int((own[0] - own[1]) * share)
            self._use(self.used + size)
            assert self.hands[job[0]].do("land", job[1], size)
            own[1] += size

    @rule(job=consumes(jobs))
    def give_back(self, job: tuple[int, str]) -> None:
        own = self.held[job[0]].pop(job[1], None)
        if own is not None:
            if own[1] < own[0]:  # unfinished files are removed, and the folder is counted again
                self._use(self.used - own[1])
            assert self.hands[job[0]].do("end", job[1], 0)

    @rule(hand=st.integers(0, 2))
    def die(self, hand: int) -> None:
        self.hands[hand].end()
        self._use(self.used - sum(landed for _, landed in self.held[hand].values()))
        self.held[hand] = {}
        self.hands[hand] = self._hand()

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "hands"):
            room = self.ledger.room(self.root, self.limited)[0]
            assert (room.free, room.used) == (self._free(), self.used)

    def teardown(self) -> None:
        if hasattr(self, "hands"):
            for hand in self.hands:
                hand.end()
            assert self.ledger.room(self.root, self.limited)[0].reserved == 0
            dead_holders(os.path.join(self.folder, "run"))
            assert not list(Path(self.folder, "run").glob("holder-*"))
            shutil.rmtree(self.folder)


@pytest.mark.long
def test_the_ledger_agrees_with_a_model_whatever_three_processes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    monkeypatch.setattr(module, "_NOTE_EVERY", 0.0)
    monkeypatch.setattr(module, "used_below", lambda _folder: on_disk.total())
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        ManyHands,
        settings=settings(max_examples=8, stateful_step_count=20, deadline=None, derandomize=True),
    )


def _at_random(folder: str, root: str, board: Board, hand: int, turns: int) -> int:
    """Reserve and return at random; return how often all processes together held more than the limit."""
    dice, wrong, taken = random.Random(hand), 0, 0
    ledger, limited = Ledger(folder), {root: (LIMIT, "%quota --limit")}
    for _ in range(turns):
        size = dice.randrange(1, 6 * MB)
        try:
            with ledger.reserve(root, size, 1, limited) as reservation:
                taken += 1
                board.set(hand, size)
                for _ in range(dice.randrange(3)):
                    try:
                        reservation.grow(MB)
                        size += MB
                        board.set(hand, size)
                    except NotEnoughSpace:
                        pass
                    wrong += board.total() > LIMIT
                wrong += board.total() > LIMIT
                board.set(hand, 0)  # before the reservation is returned
        except NotEnoughSpace:
            pass
    return wrong if taken else 100


def test_processes_at_random_never_hold_more_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "used_below", lambda _folder: 0)
    folder, root, board = str(tmp_path / "run"), str(tmp_path / "data"), Board(6)
    os.mkdir(folder)
    os.mkdir(root)
    pids = []
    for hand in range(6):
        pid = os.fork()
        if pid == 0:
            code = 101
            try:
                code = min(_at_random(folder, root, board, hand, 60 if hand > 1 else 10**6), 99)
            finally:
                os._exit(code)
        pids.append(pid)
    for hand in (0, 1):  # these two are killed halfway
        wait_until(lambda hand=hand: board.of(hand))  # type: ignore[misc]
        os.kill(pids[hand], signal.SIGSTOP)
        os.waitpid(pids[hand], os.WUNTRACED)
        board.set(hand, 0)  # its reservation is free from here on
        os.kill(pids[hand], signal.SIGKILL)
    ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert [end for end in ends if end not in (0, -signal.SIGKILL)] == []
    ledger = Ledger(folder)
    assert ledger.room(root, {root: (LIMIT, "x")})[0].free == LIMIT
    assert json.loads(Path(folder, "ledger.json").read_text())["entries"] == {}


@pytest.fixture
def container(
    tmp_path: Path, namespaces: None
) -> Iterator[tuple[subprocess.Popen[str], Ledger, dict[str, tuple[int, str]]]]:
    """Start a process that holds 6 MB, as process 1 of its own pid name space on a host of the same name."""
    folder, root = str(tmp_path / "run"), str(tmp_path / "data")
    os.mkdir(folder)
    os.mkdir(root)
    limited = {root: (LIMIT, "%quota --limit")}
    code = (
        "import os, signal\nfrom nbdata.space.ledger import Ledger\n"
        f"held = Ledger({folder!r}).reserve({root!r}, 6_000_000, 1, {limited!r})\n"
        "print(os.getpid(), os.uname().nodename, flush=True)\nsignal.pause()"
    )
    command = [
        "unshare",
        "--pid",
        "--uts",
        "--fork",
        "--mount-proc",
        "--kill-child",
        sys.executable,
        "-c",
        code,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, Ledger(folder), limited
        finally:
            process.kill()


def test_two_containers_with_one_host_name_and_the_same_pids_see_what_each_holds(
    container: tuple[subprocess.Popen[str], Ledger, dict[str, tuple[int, str]]],
) -> None:
    process, ledger, limited = container
    root = next(iter(limited))
    assert process.stdout is not None
    assert process.stdout.readline().split() == ["1", os.uname().nodename]
    with pytest.raises(NotEnoughSpace, match="reserved by other jobs"):
        ledger.reserve(root, 6 * MB, 1, limited)
    process.kill()
    process.wait()
    wait_until(
        lambda: not ledger.room(root, limited)[0].reserved
    )  # the name space ends with its first process
    ledger.reserve(root, 6 * MB, 1, limited).__exit__()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{torn",
        "[]",
        "5",
        '{"entries": []}',
        '{"entries": {"a": {}}, "scans": {}}',
        '{"entries": {}, "scans": 5}',
    ],
)
def test_an_invalid_ledger_is_started_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "ledger.json").write_text(text)
    ledger, limited = Ledger(str(tmp_path)), {str(tmp_path): (LIMIT, "x")}
    with ledger.reserve(str(tmp_path), MB, 1, limited) as held:
        (tmp_path / "ledger.json").write_text(text)
        held.grow(MB)
        held.note_written(MB)
    assert ledger.room(str(tmp_path), limited)[0].reserved == 0
