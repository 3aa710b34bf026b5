"""Reads at random places, in all ways that a program may read, give what a local copy gives (after fsx).

A failure names the seed and the last operations.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.files.mounted.conftest import Scene

pytestmark = pytest.mark.needs("mount")

_PAGE = 4096
_DESCRIPTORS = 6
_SIZES = (1, 7, 100, 4095, 4096, 4097, 65_536, 131_072, 300_000, 2_000_000)
# Large reads are rare, so that the number of operations says how many places were tried.
_WEIGHTS = (6, 6, 6, 4, 4, 4, 3, 2, 1, 0.1)


class Reader:
    """Reads one file in random ways, and compares with what it must be.

    Parameters
    ----------
    path : Path
    data : bytes
        What the file holds.
    seed : int
    """

    def __init__(self, path: Path, data: bytes, seed: int) -> None:
        self._path, self._data = path, data
        self._chance = random.Random(seed)
        self._seed, self._done = seed, deque[str](maxlen=20)
        self._files = [self._opened() for _ in range(_DESCRIPTORS)]
        self._places = [0] * _DESCRIPTORS  # the offset of each descriptor
        self._way: dict[Callable[[], None], float] = {
            self._read: 40,
            self._pread: 40,
            self._forward: 10,
            self._seek: 10,
            self._map: 4,
            self._reopen: 2,
            self._direct: 2,
            self._advise: 2,
            self._forget: 0.15,
        }

    def run(self, count: int) -> None:
        """Do so many operations."""
        ways = self._chance.choices([*self._way], [*self._way.values()], k=count)
        try:
            for way in ways:
                way()
        finally:
            for file in self._files:
                os.close(file)

    def _opened(self, flags: int = 0) -> int:
        return os.open(self._path, os.O_RDONLY | flags)

    def _draw(self) -> tuple[int, int, int]:
        """Return a descriptor, an offset, also beyond the end, and a size."""
        (size,) = self._chance.choices(_SIZES, _WEIGHTS)
        near = self._chance.random()
        end = len(self._data)
        at = (
            self._chance.randrange(end + _PAGE)
            if near < 0.8
            else max(0, end - self._chance.randrange(3 * size))
        )
        return self._chance.randrange(_DESCRIPTORS), at, size

    def _same(self, found: bytes, at: int, size: int, way: str) -> None:
        self._done.append(f"{way} {size} at {at}")
        if found != self._data[at : at + size]:
            raise AssertionError(f"seed {self._seed}: wrong or short after {'; '.join(self._done)}")

    def _read(self) -> None:
        number, at, size = self._draw()
        os.lseek(self._files[number], at, os.SEEK_SET)
        self._same(os.read(self._files[number], size), at, size, f"read {number}")
        self._places[number] = min(at + size, max(at, len(self._data)))

    def _pread(self) -> None:
        number, at, size = self._draw()
        self._same(os.pread(self._files[number], size, at), at, size, f"pread {number}")

    def _forward(self) -> None:
        number, _, size = self._draw()
        at = self._places[number]
        for _ in range(self._chance.randrange(1, 6)):
            self._same(os.read(self._files[number], size), at, size, f"read on {number}")
            at = min(at + size, max(at, len(self._data)))
        self._places[number] = at

    def _seek(self) -> None:
        number, at, _ = self._draw()
        assert os.lseek(self._files[number], at - len(self._data), os.SEEK_END) == at
        self._places[number] = at

    def _map(self) -> None:
        number, at, size = self._draw()
        at = min(at, len(self._data) - 1)
        start = at - at % mmap.ALLOCATIONGRANULARITY
        length = min(at + size, len(self._data)) - start
        with mmap.mmap(self._files[number], length, access=mmap.ACCESS_READ, offset=start) as mapped:
            self._same(mapped[at - start :], at, start + length - at, f"mmap {number}")

    def _direct(self) -> None:
        _, at, size = self._draw()
        at, size = at - at % _PAGE, max(_PAGE, size - size % _PAGE)
        file = self._opened(os.O_DIRECT)
        try:
            with mmap.mmap(-1, size) as buffer:  # direct reads want an address of a page
                count = os.preadv(file, [buffer], at)
                self._same(buffer[:count], at, size, "direct")
        finally:
            os.close(file)

    def _advise(self) -> None:
        number, at, size = self._draw()
        advice = self._chance.choice((os.POSIX_FADV_WILLNEED, os.POSIX_FADV_RANDOM, os.POSIX_FADV_SEQUENTIAL))
        os.posix_fadvise(self._files[number], at, size, advice)

    def _forget(self) -> None:
        """Have the kernel drop what it holds of the file, so that it asks the mount again."""
        os.posix_fadvise(self._files[0], 0, 0, os.POSIX_FADV_DONTNEED)

    def _reopen(self) -> None:
        number = self._chance.randrange(_DESCRIPTORS)
        os.close(self._files[number])
        self._files[number] = self._opened()
        self._places[number] = 0


def _run(scene: Scene, name: str, seed: int, count: int) -> None:
    print(f"seed {seed}: {count:,} operations on {name}")
    Reader(scene.folder / name, (scene.disk / name).read_bytes(), seed).run(count)


@pytest.mark.long
@pytest.mark.timeout(3600)  # the larger count takes ten minutes on a busy machine
@pytest.mark.in_ci("2000")
@pytest.mark.parametrize("count", [2000, 100_000])
def test_random_operations_give_what_a_local_copy_gives(scene: Scene, count: int) -> None:
    _run(scene, "big.bin", random.SystemRandom().randrange(10**6), count)
    _run(scene, "many/0007.bin", random.SystemRandom().randrange(10**6), count // 10)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_random_operations_with_known_seeds(scene: Scene, seed: int) -> None:
    _run(scene, "big.bin", seed, 3000)


@pytest.mark.in_ci("one")
@pytest.mark.parametrize("descriptors", ["one", "many"])
def test_sixteen_threads_read_at_a_time(scene: Scene, descriptors: str) -> None:
    data, path = (scene.disk / "big.bin").read_bytes(), scene.folder / "big.bin"

    def read(file: int, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(40 if descriptors == "one" else 150):
            at, size = chance.randrange(len(data)), chance.choice(_SIZES[:-1])
            assert os.pread(file, size, at) == data[at : at + size], (seed, at, size)

    with contextlib.ExitStack() as stack, ThreadPoolExecutor(16) as pool:
        files = [os.open(path, os.O_RDONLY) for _ in range(16 if descriptors == "many" else 1)]
        for file in files:
            stack.callback(os.close, file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)  # so that the kernel asks again
        list(pool.map(read, files * (16 // len(files)), range(16)))


@pytest.mark.long
def test_sixteen_threads_read_one_file_with_steps_of_their_own(scene: Scene) -> None:
    data, path = (scene.disk / "big.bin").read_bytes(), scene.folder / "big.bin"

    def copied(step: int) -> bool:
        with open(path, "rb", buffering=0) as file:
            return b"".join(iter(lambda: file.read(step), b"")) == data

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(copied, [10_000 * number for number in range(1, 33)]))
