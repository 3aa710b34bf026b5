"""A mount whose process is killed, or whose store breaks, gives the right bytes or an error, and never hangs."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.space.mounts import Note
from tests.faults.gate import Gate
from tests.faults.proxy import BEFORE, BODY, Exchange, Fault, FaultProxy
from tests.faults.seeded import Seeded
from tests.waiting import AT_ONCE, PATIENCE

pytestmark = pytest.mark.needs("mount")
Put = Callable[[dict[str, bytes]], str]
# Whole files up to 256 KiB are compared before their first byte is given, larger ones with their last.
SIZES = (0, 1, 3000, 200_000, 262_145, 1_000_000, 3_000_000)


# -- the mount's process is killed -----------------------------------------------------------------

_READS = """
import mmap, os, sys
how, path = sys.argv[1:]
file = os.open(path, os.O_RDONLY)
print("open", flush=True)
sys.stdin.readline()
try:
    if how == "map":
        with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as mapped:
            sum(mapped[at] for at in range(0, len(mapped), 4096))
    else:
        while os.read(file, 1 << 20):
            pass
except OSError as error:
    print(type(error).__name__, flush=True)
    sys.exit(7)
"""


def _reader(how: str, path: str) -> subprocess.Popen[str]:
    """Start a program that has opened a file, and reads it once it gets a line."""
    words = [sys.executable, "-c", _READS, how, path]
    started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "open\n"
    return started


def test_readers_get_an_error_at_once_when_the_mount_is_killed(gate: Gate, put: Put, tmp_path: Path) -> None:
    url = put({"p/large": os.urandom(8 << 20)})
    with nbdata.mount(f"{url}p", str(tmp_path / "m")) as mount:
        (note,) = [one for one in Note.all() if one.folder == mount.folder]
        os.stat(f"{mount.folder}/large")
        readers = [_reader(how, f"{mount.folder}/large") for how in ("read", "read", "read", "map")]
        gate.close(after=600_000)
        for reader in readers:
            assert reader.stdin is not None
            reader.stdin.write("go\n")
            reader.stdin.flush()
        gate.wait_until_it_holds()
        os.kill(note.process, signal.SIGKILL)
        ended = [reader.wait(AT_ONCE) for reader in readers]
        for reader in readers:
            reader.__exit__(None, None, None)
        assert ended == [7, 7, 7, -signal.SIGBUS]
        gate.open()
    assert os.listdir(tmp_path / "m") == []  # released by the end of the with block


# -- the store breaks ------------------------------------------------------------------------------


def _tree(seed: int) -> dict[str, bytes]:
    chance = random.Random(seed)
    return {f"t/{'abc'[n % 3]}/{n:02}": chance.randbytes(SIZES[n % len(SIZES)]) for n in range(42)}


def _run(*words: str | Path, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE,
        env={**os.environ, "LC_ALL": "C"},
        cwd=options.get("cwd"),
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_programs_copy_the_right_bytes_or_say_what_failed(
    proxy: FaultProxy, put: Put, tmp_path: Path, seed: int
) -> None:
    tree = _tree(seed)
    url = put(tree)
    (tmp_path / "wanted").mkdir()
    for key, data in tree.items():
        path = tmp_path / "wanted" / key[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    sums = _run("sh", "-c", "find . -type f -exec md5sum {} +", cwd=str(tmp_path / "wanted")).stdout
    (tmp_path / "sums").write_text(sums)
    chance = random.Random(f"mount {seed}")
    with nbdata.mount(f"{url}t", str(tmp_path / "m"), max_age=chance.choice(["0", "60"])) as mount:
        tally = proxy.begin(Seeded(f"mount {seed}", doomed=("", "t/a/06", "t/b/13")[seed % 3]))
        copied = _run("cp", "-r", f"{mount.folder}/.", tmp_path / "copy")
        checked = _run("md5sum", "-c", tmp_path / "sums", cwd=mount.folder)
        faults = len(tally.faults)
        proxy.begin()
        for key, data in tree.items():
            path = tmp_path / "copy" / key[2:]
            right = path.exists() and path.read_bytes() == data
            assert right or key[2:] in copied.stderr or f"{key[2:3]}'" in copied.stderr, (key, copied.stderr)
        wrong = [
            line
            for line in checked.stdout.splitlines()
            if not line.endswith((": OK", ": FAILED open or read"))
        ]
        assert wrong == [], (seed, faults)
        if copied.returncode or checked.returncode:
            assert faults
        again = _run("md5sum", "--quiet", "-c", tmp_path / "sums", cwd=mount.folder)
        assert (again.returncode, again.stdout) == (0, ""), again


def _flips(request: Exchange, before: int) -> Fault | None:
    return Fault("flip", BODY, 0.3) if request.download and not before else None


def _rest(file: io.FileIO) -> bytes:
    """Read a file to its end."""
    return b"".join(iter(lambda: file.read(1 << 17), b""))


def _whole(path: Path) -> bytes | None:
    """Read a file from its beginning to its end; None if that fails."""
    try:
        with open(path, "rb", buffering=0) as file:
            return _rest(file)
    except OSError:
        return None


def test_wrong_bytes_that_were_read_in_part_do_not_come_back(
    proxy: FaultProxy, put: Put, tmp_path: Path
) -> None:
    data = os.urandom(4 << 20)
    url = put({"p/f": data})
    with nbdata.mount(f"{url}p", str(tmp_path / "m")) as mount:
        path = Path(mount.folder, "f")
        proxy.begin(_flips)
        with open(path, "rb", buffering=0) as file:  # as a program that looks at the start of a file
            assert file.read(1 << 19) != data[: 1 << 19]
        proxy.begin()
        assert _whole(path) in (data, None)


def test_what_two_programs_read_of_one_file_is_compared_together(
    proxy: FaultProxy, put: Put, tmp_path: Path
) -> None:
    data = os.urandom(4 << 20)
    url = put({"p/f": data})
    with nbdata.mount(f"{url}p", str(tmp_path / "m")) as mount:
        path = Path(mount.folder, "f")
        with open(path, "rb", buffering=0) as one, open(path, "rb", buffering=0) as other:
            proxy.begin(_flips)
            wrong = one.read(1 << 20)
            assert wrong != data[: 1 << 20]
            proxy.begin()
            for file in (other, one):  # the second gets what the kernel holds of the first one's reading
                with pytest.raises(OSError, match="Input/output"):
                    _rest(file)
        assert _whole(path) == data


def test_who_opens_later_does_not_get_what_is_compared_with_nothing(
    proxy: FaultProxy, put: Put, tmp_path: Path
) -> None:
    data = os.urandom(40 << 20)
    url = put({"p/f": data})
    with nbdata.mount(f"{url}p", str(tmp_path / "m")) as mount:
        path = Path(mount.folder, "f")
        with open(path, "rb", buffering=0) as one:
            assert os.pread(one.fileno(), 5 << 20, 2 << 20) == data[2 << 20 : 7 << 20]  # too much to be held
            with open(path, "rb", buffering=0) as other:
                assert other.read(4096) == data[:4096]
                proxy.begin(_flips)
                assert os.pread(one.fileno(), 3 << 20, 30 << 20) != data[30 << 20 : 33 << 20]
                proxy.begin()
                assert _whole(path) in (data, None)


@pytest.mark.long
def test_wrong_bytes_are_an_error_for_each_of_several_readers(
    proxy: FaultProxy, put: Put, tmp_path: Path
) -> None:
    data = os.urandom(6 << 20)
    url = put({"p/f": data})
    with nbdata.mount(f"{url}p", str(tmp_path / "m")) as mount, ThreadPoolExecutor(3) as pool:
        proxy.begin(_flips)
        found = list(pool.map(_whole, [Path(mount.folder, "f")] * 3))
        assert all(one in (data, None) for one in found)
        proxy.begin()
        assert _whole(Path(mount.folder, "f")) in (data, None)


@pytest.mark.long
@pytest.mark.parametrize("how", ["holds", "refuses", "is gone"])
def test_a_store_that_does_not_answer_is_an_error_in_the_end_and_works_again(
    s3: EmbeddedServer, put: Put, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = os.urandom(5_000_000), os.urandom(1000)
    url = put({"p/large": large, "p/d/small": small, "p/other": small})
    monkeypatch.setenv("NBDATA_STALL_TIMEOUT", "1")
    with FaultProxy(s3.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        with nbdata.mount(f"{url}p", str(tmp_path / "m"), max_age=0) as mount:
            top = Path(mount.folder)
            kind = {"holds": "stall", "refuses": "refuse", "is gone": "drop"}[how]
            with open(top / "large", "rb", buffering=0) as file:
                assert file.read(1000) == large[:1000]
                proxy.begin(lambda request, before: Fault(kind, BEFORE))
                with ThreadPoolExecutor(4) as pool:
                    asked = [
                        pool.submit(_whole, top / "large"),
                        pool.submit(_whole, top / "other"),
                        pool.submit(os.listdir, top / "d"),
                        pool.submit(os.pread, file.fileno(), 1000, 4_000_000),
                    ]
                    assert asked[0].result(PATIENCE) is asked[1].result(PATIENCE) is None
                    for one in asked[2:]:
                        with pytest.raises(OSError, match="Input/output error"):
                            one.result(PATIENCE)
                proxy.begin()
                assert os.pread(file.fileno(), 1000, 4_000_000) == large[4_000_000:4_001_000]
            assert _whole(top / "large") == large
            assert os.listdir(top / "d") == ["small"]
            assert (top / "d/small").read_bytes() == small
