"""Many open files: how many a mount takes, and how much memory its process uses for them."""

from __future__ import annotations

import contextlib
import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.files.mounted.open_files import MOST
from nbdata.space.mounts import Note
from tests.conftest import client_of

pytestmark = [pytest.mark.needs("mount"), pytest.mark.long]

# Files of the mount, and the bytes of each: beyond what is held whole, and what is read ahead adds up to gigabytes.
FILES, SIZE = 500, 3_000_000
# What the issue allows the mount's process.
ALLOWED = 200 << 20


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Let this process have more descriptors than a mount takes, if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + 1000
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (OSError, ValueError):
        pytest.fail(f"it needs {wanted:,} descriptors, and this process may have {hard:,}")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, max(hard, wanted)))


def _status(process: int, name: str) -> int:
    """Return a size that the kernel tells of a process, in bytes."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(text.split(f"\n{name}:")[1].split()[0]) << 10


def _process(folder: str) -> int:
    (note,) = [one for one in Note.all() if one.folder == folder]
    return note.process


def test_ten_thousand_files_are_open_at_a_time(
    many_descriptors: None, bucket: str, s3: EmbeddedServer, tmp_path: Path
) -> None:
    client = client_of(s3)
    for number in range(50):
        client.put_object(Bucket=bucket, Key=f"d/{number:02}", Body=b"%02d" % number * 100)
    client.close()
    with nbdata.mount(f"s3://{bucket}/d", str(tmp_path / "m")) as mount, contextlib.ExitStack() as stack:
        files = list[int]()
        for number in range(MOST):
            files.append(os.open(f"{mount.folder}/{number % 50:02}", os.O_RDONLY))
            stack.callback(os.close, files[-1])
        with pytest.raises(OSError, match="Too many open files"):
            os.open(f"{mount.folder}/00", os.O_RDONLY)
        for number in random.Random(2).sample(range(MOST), 500):
            assert os.pread(files[number], 1000, 0) == b"%02d" % (number % 50) * 100
        print(f"{len(files):,} open files: {_status(_process(mount.folder), 'VmHWM') >> 20} MiB at most")
        stack.close()  # and then there is room again
        assert Path(mount.folder, "07").read_bytes() == b"07" * 100


@pytest.mark.xfail(
    reason="each file that is read forward has a thread that fetches, and keeps its memory", strict=False
)
def test_five_hundred_open_files_that_are_read_in_turn_take_little_memory(
    bucket: str, s3: EmbeddedServer, tmp_path: Path
) -> None:
    client, data = client_of(s3), random.Random(5).randbytes(SIZE)
    for number in range(FILES):
        client.put_object(Bucket=bucket, Key=f"d/{number:03}", Body=data)
    client.close()
    with nbdata.mount(f"s3://{bucket}/d", str(tmp_path / "m")) as mount, contextlib.ExitStack() as stack:
        process = _process(mount.folder)
        before = _status(process, "VmHWM")
        files = [
            stack.enter_context(open(f"{mount.folder}/{number:03}", "rb", buffering=0))
            for number in range(FILES)
        ]
        opened = _status(process, "VmHWM")
        for start in range(0, SIZE, 1 << 20):
            for file in files:
                assert file.read(1 << 20) == data[start : start + (1 << 20)]
        most = _status(process, "VmHWM")
        print(
            f"MiB at most: {before >> 20} before, {opened >> 20} with {FILES} open, {most >> 20} once all were read"
        )
        assert most <= ALLOWED
