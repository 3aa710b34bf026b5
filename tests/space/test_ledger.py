"""The ledger: no job may use what another job has reserved, whichever process dies or forks."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata.errors import NotEnoughSpace
from nbdata.lock_files import file_lock, held
from nbdata.space import ledger as module
from nbdata.space.holders import dead_holders
from nbdata.space.ledger import Ledger
from nbdata.space.limits import disk_of
from tests.waiting import PATIENCE

MB = 10**6


class Books:
    """A private ledger, and a limited folder."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = str(tmp_path / "run")
        os.mkdir(self.folder)
        self.root = str(tmp_path / "data")
        os.mkdir(self.root)
        self.ledger = Ledger(self.folder)
        self.limited = {self.root: (10 * MB, "%quota --limit")}

    def free(self, path: str = "", *, fresh: bool = False) -> int:
        return self.ledger.room(path or self.root, self.limited, fresh=fresh)[0].free

    def reserve(self, needed: int, *, inodes: int = 1, path: str = "", **options: Any) -> module.Reservation:
        return self.ledger.reserve(path or f"{self.root}/new", needed, inodes, self.limited, **options)

    def elsewhere(self, code: str, *, wait: bool = True) -> subprocess.Popen[str]:
        """Run code in another process with the same ledger, named `books` there."""
        script = (
            "import sys, os, signal, time\nfrom nbdata.space.ledger import Ledger\n"
            f"ledger, limited = Ledger({self.folder!r}), {self.limited!r}\n"
            f"def reserve(n): return ledger.reserve({self.root!r}, n, 1, limited)\n" + code
        )
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        if wait:
            process.communicate()
        return process


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


@pytest.fixture
def holding(books: Books) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a reservation of 6 MB."""
    process = books.elsewhere(
        "held = reserve(6_000_000)\nprint('held', flush=True)\nsignal.pause()", wait=False
    )
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_what_is_reserved_is_not_free_until_it_is_given_back(books: Books) -> None:
    before = books.free()
    with books.reserve(6 * MB):
        assert books.free() == before - 6 * MB
        with pytest.raises(NotEnoughSpace):
            books.reserve(6 * MB)
        with books.reserve(3 * MB):
            assert books.free() == before - 9 * MB
    assert books.free() == before


def test_what_another_process_reserved_is_not_free(books: Books, holding: subprocess.Popen[str]) -> None:
    with pytest.raises(NotEnoughSpace) as caught:
        books.reserve(6 * MB)
    assert "reserved by other jobs" in str(caught.value)
    books.reserve(3 * MB).__exit__()


def test_the_claims_of_a_process_end_with_it_however_it_ends(
    books: Books, holding: subprocess.Popen[str]
) -> None:
    before = books.free()
    holding.send_signal(signal.SIGKILL)
    holding.wait()
    assert books.free() == before + 6 * MB
    assert [name for name in os.listdir(books.folder) if name.startswith("holder-")] == []


def test_a_child_of_a_fork_does_not_keep_its_parents_claims(books: Books) -> None:
    """Loader workers live long. If their parent is killed, they must not keep its claims."""
    code = (
        "held = reserve(6_000_000)\n"
        "if os.fork() == 0: print(os.getpid(), flush=True); os.close(1)\n"
        "signal.pause()\nos._exit(0)"
    )
    parent = books.elsewhere(code, wait=False)
    assert parent.stdout is not None
    with parent, parent.stdout:
        child = int(parent.stdout.readline())
        before = books.free()
        parent.kill()
        parent.wait()
        try:
            os.kill(child, 0)  # fails unless it is alive
            assert books.free() == before + 6 * MB
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_folder_that_was_deleted_breaks_no_job_and_is_made_again(books: Books) -> None:
    """People make room with ``rm -rf /tmp/*``."""
    with books.reserve(2 * MB) as reserved:
        shutil.rmtree(books.folder)
        reserved._noted -= 60
        reserved.note_written(MB, 1)
        books.ledger.freed(books.root)
    os.mkdir(books.folder)
    with books.reserve(3 * MB):
        told = f"print(ledger.room({books.root!r}, limited)[0].reserved)"
        other = books.elsewhere(told, wait=False)
        assert other.communicate()[0].strip() == str(3 * MB)


def test_a_child_of_a_fork_makes_claims_of_its_own(books: Books) -> None:
    with books.reserve(2 * MB):
        before = books.free()

        def work() -> bool:
            if books.free() != before:
                return False
            with books.reserve(3 * MB):
                return books.free() == before - 3 * MB

        assert in_child(work)
        assert books.free() == before


def test_a_fork_while_the_books_are_open_locks_nobody_out(books: Books) -> None:
    lock = file_lock(os.path.join(books.folder, "ledger.lock"))
    lock.acquire()
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        lock.release()
        done = threading.Event()
        threading.Thread(target=lambda: (books.free(), done.set()), daemon=True).start()
        assert done.wait(PATIENCE)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_released_lock_is_free_although_a_copy_of_it_is_open(tmp_path: Path) -> None:
    """An example is a forked child that has not closed its copy yet."""
    lock = file_lock(str(tmp_path / "lock"))
    lock.acquire()
    copy = os.dup(lock._file.fd)
    assert held(lock.path)
    lock.release()
    assert not held(lock.path)
    os.close(copy)


def in_child(work: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_does_not_fit_is_refused_with_all_numbers(books: Books) -> None:
    with pytest.raises(NotEnoughSpace) as caught:
        books.reserve(11 * MB)
    error = caught.value
    assert error.errno == 28
    assert error.details["needed"] == 11 * MB
    assert error.details["limit"] == 10 * MB
    assert error.details["source"] == "%quota --limit"
    assert error.details["free"] == books.free()
    assert books.root in str(error)
    assert "11.0 MB" in str(error)


def test_numbers_that_look_alike_are_told_in_bytes(books: Books) -> None:
    with pytest.raises(NotEnoughSpace, match=r"needs 10,000,001 B, and 10,000,000 B may be used"):
        books.reserve(10 * MB + 1)


def test_room_that_was_made_since_the_last_count_is_found(books: Books) -> None:
    (Path(books.root) / "big").write_bytes(os.urandom(9 * MB))
    assert books.free(fresh=True) < 2 * MB
    os.unlink(f"{books.root}/big")
    with books.reserve(9 * MB):
        pass


def test_what_cannot_fit_may_be_forced(books: Books) -> None:
    with books.reserve(11 * MB, force=True):
        assert books.free() == 0
    with books.reserve(10**18, path=str(Path(books.root).parent), force=True):
        assert books.free() == 0


def test_a_reservation_can_grow_until_it_is_refused(books: Books) -> None:
    with books.reserve(1 * MB) as held:
        before = books.free()
        held.grow(5 * MB)
        assert books.free() == before - 5 * MB
        with pytest.raises(NotEnoughSpace):
            held.grow(5 * MB)
        assert books.free() == before - 5 * MB


def test_what_a_job_reserved_is_free_after_it_although_no_descriptor_was_left_to_say_so(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> bool:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = books.free()
    with monkeypatch.context() as full, books.reserve(4 * MB):
        full.setattr(file_lock, "acquire", refuse)
    assert books.free() == before
    assert not json.loads(Path(books.folder, "ledger.json").read_text())["entries"]


def test_what_is_released_while_the_books_are_written_is_not_forgotten(books: Books) -> None:
    held = books.reserve(4 * MB)
    data = books.ledger._load()
    module._given_back.add((books.folder, held._name))  # by another thread, which could not open them
    books.ledger._save(data)
    assert books.free() == 10 * MB


def test_written_bytes_are_not_counted_twice_when_more_is_claimed(books: Books) -> None:
    with books.reserve(4 * MB) as held:
        with open(f"{books.root}/x", "wb") as file:
            file.write(os.urandom(4 * MB))
        held.note_written(4 * MB)  # too soon after the last update to be written down
        assert books.free(fresh=True) < 3 * MB, "it counts on the disk, and as reserved"
        held.grow(5 * MB, fresh=True)
        assert books.free() < 1 * MB


def test_a_jobs_own_reservation_is_not_reported_as_that_of_others(books: Books) -> None:
    with books.reserve(3 * MB) as held:
        with pytest.raises(NotEnoughSpace) as caught:
            held.grow(900 * MB)
        assert "reserved by other jobs" not in str(caught.value)
        with (
            books.reserve(1 * MB),
            pytest.raises(NotEnoughSpace, match=r"1\.0 MB are reserved by other jobs"),
        ):
            held.grow(900 * MB)


def test_of_nested_limits_the_tightest_decides_and_is_named(books: Books) -> None:
    inner = f"{books.root}/inner"
    os.mkdir(inner)
    books.limited[inner] = (2 * MB, "NBDATA_QUOTA")
    with pytest.raises(NotEnoughSpace) as caught:
        books.reserve(3 * MB, path=f"{inner}/x")
    assert caught.value.details["source"] == "NBDATA_QUOTA"
    assert inner in str(caught.value)
    rooms = books.ledger.room(f"{inner}/x", books.limited)
    assert [room.domain.root for room in rooms[:2]] == [inner, books.root]
    with books.reserve(9 * MB), pytest.raises(NotEnoughSpace) as caught:  # beside the inner folder
        books.reserve(2 * MB - 100_000, path=f"{inner}/x")
    assert caught.value.details["source"] == "%quota --limit"
    with books.reserve(1 * MB, path=inner):
        assert books.free() <= 9 * MB  # a reservation inside counts outside too


def test_what_lands_is_used_and_no_more_reserved(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_NOTE_EVERY", 0.0)
    with books.reserve(6 * MB, inodes=2) as held:
        before = books.ledger.room(books.root, books.limited)[0]
        held.note_written(2 * MB, 1)
        room = books.ledger.room(books.root, books.limited)[0]
        assert (room.reserved, room.used) == (before.reserved - 2 * MB, before.used + 2 * MB)
        assert room.free == before.free
        held.note_written(4 * MB, 1)
    after = books.ledger.room(books.root, books.limited)[0]
    assert (after.reserved, after.used) == (0, before.used + 6 * MB)


def test_written_bytes_are_noted_at_most_twice_a_second(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[int] = []
    monkeypatch.setattr(Ledger, "_change", lambda self, name, written, made: notes.append(written))
    with books.reserve(6 * MB) as held:
        for _ in range(1000):
            held.note_written(1000)
        assert len(notes) <= 1
    assert notes[-1] == 1_000_000  # the last note contains everything


def test_a_count_is_at_most_a_minute_old_and_its_age_is_told(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = books.ledger.room(books.root, books.limited)[0]
    (Path(books.root) / "new").write_bytes(os.urandom(MB))
    assert books.ledger.room(books.root, books.limited)[0].used == first.used
    now = time.time()
    monkeypatch.setattr(module.time, "time", lambda: now + 59)
    assert 58 < books.ledger.room(books.root, books.limited)[0].age < 60
    monkeypatch.setattr(module.time, "time", lambda: now + 61)
    room = books.ledger.room(books.root, books.limited)[0]
    assert room.used >= first.used + MB
    assert room.age < 1
    monkeypatch.setattr(module.time, "time", lambda: now - 1000)  # the clock was set back
    assert books.ledger.room(books.root, books.limited)[0].age < 1


def test_a_ledger_that_is_damaged_is_begun_anew(books: Books) -> None:
    Path(books.folder, "ledger.json").write_text("{torn")
    assert books.free() > 0


def test_files_of_dead_holders_are_removed_and_those_of_the_living_stay(books: Books) -> None:
    Path(books.folder, "holder-0123456789abcdef").touch()
    with books.reserve(MB):
        own = [
            n for n in os.listdir(books.folder) if n.startswith("holder-") and n != "holder-0123456789abcdef"
        ]
        assert dead_holders(books.folder) == 1
        assert [n for n in os.listdir(books.folder) if n.startswith("holder-")] == own
        assert books.ledger.room(books.root, books.limited)[0].reserved == MB


@pytest.fixture
def few_inodes(tmp_path: Path, mounts: None) -> Iterator[str]:
    """A tmpfs of 8 MB with 64 inodes."""
    folder = tmp_path / "tmpfs"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=64", "none", str(folder)], check=True)
    try:
        yield str(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_files_are_counted_as_well_as_bytes(books: Books, few_inodes: str) -> None:
    room = books.ledger.room(few_inodes, {})[0]
    assert room.domain.device is not None
    assert 50 < (room.inodes_free or 0) < 64
    with pytest.raises(NotEnoughSpace) as caught:
        books.ledger.reserve(few_inodes, 1000, 100, {})
    assert "inodes" in str(caught.value)
    assert caught.value.details["inodes"] == 100
    with books.ledger.reserve(few_inodes, 1000, 40, {}), pytest.raises(NotEnoughSpace, match="inodes"):
        books.ledger.reserve(few_inodes, 1000, 40, {})
    with pytest.raises(NotEnoughSpace, match=r"needs 9\.0 MB"):
        books.ledger.reserve(few_inodes, 9 * MB, 1, {})


def test_what_is_reserved_on_one_disk_is_free_on_another(books: Books, few_inodes: str) -> None:
    with books.ledger.reserve(few_inodes, 5 * MB, 1, {}):
        assert books.ledger.room(few_inodes, {})[0].free < 4 * MB
        here = books.ledger.room(books.root, {})[0]
        assert here.reserved == 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(0, 12 * MB)),
        st.tuples(st.just("land"), st.integers(0, 5), st.integers(0, 4 * MB)),
        st.tuples(st.just("grow"), st.integers(0, 5), st.integers(0, 4 * MB)),
        st.tuples(st.just("end"), st.integers(0, 5)),
    ),
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_the_ledger_always_adds_up(
    steps: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No room is granted twice: used plus reserved never exceeds the limit because of a grant."""
    books = Books(tmp_path_factory.mktemp("books"))
    block = disk_of(books.root)[2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_NOTE_EVERY", -1.0)
        used = books.ledger.room(books.root, books.limited)[0].used
        patch.setattr(module, "used_below", lambda folder: used)  # nothing is really written
        planned: dict[module.Reservation, int] = {}
        landed: dict[module.Reservation, int] = {}
        for what, *numbers in steps:
            outstanding = sum(max(0, planned[r] - landed[r]) for r in planned)
            free = max(0, 10 * MB - used - outstanding)
            known = list(planned)
            if what == "reserve":
                if numbers[0] <= free:
                    one = books.reserve(numbers[0])
                    planned[one], landed[one] = numbers[0], 0
                else:
                    with pytest.raises(NotEnoughSpace):
                        books.reserve(numbers[0])
            elif known:
                one = known[numbers[0] % len(known)]
                if what == "land":
                    one.note_written(numbers[1])
                    landed[one] += numbers[1]
                    used += numbers[1]
                elif what == "grow" and numbers[1] <= free:
                    one.grow(numbers[1])
                    planned[one] += numbers[1]
                elif what == "grow":
                    with pytest.raises(NotEnoughSpace):
                        one.grow(numbers[1])
                else:
                    one.__exit__()
                    del planned[one], landed[one]
            room = books.ledger.room(books.root, books.limited)[0]
            assert room.used == used
            assert room.reserved == sum(max(0, planned[r] - landed[r]) for r in planned)
            assert room.free == max(0, 10 * MB - room.used - room.reserved)
        for one in planned:
            one.__exit__()
        data = json.loads(Path(books.folder, "ledger.json").read_text())
        assert data["entries"] == {}
        assert block > 0


def test_what_a_cancelled_job_left_on_the_disk_is_seen_at_once(books: Books) -> None:
    assert books.free() == 10 * MB  # the scan is fresh now
    with books.reserve(5 * MB):
        Path(books.root, "partial").write_bytes(b"x" * 5 * MB)
    assert books.free() <= 5 * MB


def test_what_a_count_saw_of_an_unfinished_file_is_not_used_twice_after_the_job(books: Books) -> None:
    with books.reserve(4 * MB) as job:
        (file := Path(books.root, "a.part")).write_bytes(bytes(3 * MB))
        # Nothing is noted yet: the unfinished file counts twice.
        assert books.free(fresh=True) == pytest.approx(3 * MB, abs=0.1 * MB)
        file.write_bytes(bytes(4 * MB))
        job.note_written(4 * MB, 1)
        job._note()
    assert books.free() == pytest.approx(6 * MB, abs=0.1 * MB)


def test_what_a_killed_job_left_on_the_disk_is_seen_at_once(books: Books) -> None:
    assert books.free() == 10 * MB
    books.elsewhere(
        f"r = reserve({5 * MB}); open({books.root!r} + '/partial', 'wb').write(b'x' * {5 * MB}); os._exit(9)"
    )
    assert books.free() <= 5 * MB


def test_room_that_was_reserved_for_the_same_work_is_passed_on(books: Books) -> None:
    with books.reserve(8 * MB, inodes=5) as whole:
        with pytest.raises(NotEnoughSpace):
            books.reserve(3 * MB)
        with books.reserve(3 * MB, out_of=whole.name), books.reserve(5 * MB, out_of=whole.name):
            assert books.free() == 2 * MB
            with books.reserve(2 * MB, out_of=whole.name):  # nothing is left of it
                assert books.free() == 0
            with pytest.raises(NotEnoughSpace):
                books.reserve(3 * MB, out_of=whole.name)
        assert books.free() == 10 * MB
    assert books.free() == 10 * MB


def test_nothing_is_passed_on_if_there_is_too_little(books: Books) -> None:
    with books.reserve(8 * MB) as whole:
        with pytest.raises(NotEnoughSpace):
            books.reserve(11 * MB, out_of=whole.name)
        assert books.free() == 2 * MB
