"""Waiting for a file descriptor."""

from __future__ import annotations

import fcntl
import os
import resource
import socket

import pytest

from nbdata.ready import is_ready


def test_a_process_with_many_open_files_can_wait() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2048:
        pytest.skip("the process may not have that many files")
    reads, writes = os.pipe()
    high = fcntl.fcntl(reads, fcntl.F_DUPFD_CLOEXEC, 1500)
    try:
        assert not is_ready(high, 0)
        os.write(writes, b"1")
        assert is_ready(high, 0)
    finally:
        for fd in (reads, writes, high):
            os.close(fd)


def test_the_end_of_a_connection_counts() -> None:
    one, other = socket.socketpair()
    with one:
        assert not is_ready(one, 0)
        other.close()
        assert is_ready(one, 0)
