"""What nbdata does when the interpreter ends: objects are closed, the latest first, and threads are waited for."""

from __future__ import annotations

import subprocess
import sys

from tests.waiting import PATIENCE

BEGIN = """
import os, sys, threading, time
from nbdata.ending import Daemon, at_end

class Opened:
    def __init__(self, name):
        self.name, self.told = name, threading.Event()
        at_end(self, Opened.close)
    def close(self):
        print(self.name)
        self.told.set()
"""


def said(program: str, begin: str = BEGIN) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", begin + program],
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert run.stderr == ""
    return run.stdout.split()


def test_what_exists_is_closed_and_the_latest_first() -> None:
    assert said("first, second, gone = map(Opened, ('first', 'second', 'gone')); del gone") == [
        "second",
        "first",
    ]


def test_a_thread_that_was_told_to_end_does_so_before_the_interpreter() -> None:
    program = """
opened = Opened("told")
def work():
    opened.told.wait()
    time.sleep(0.2)  # longer than an interpreter needs to end
    Daemon(lambda: (time.sleep(0.2), print("another")), name="other").start()
Daemon(work, name="work").start()
"""
    assert said(program) == ["told", "another"]


def test_an_object_that_cannot_be_closed_does_not_keep_others_open() -> None:
    program = """
opened = Opened("other")
class Broken:
    pass
broken = Broken()
at_end(broken, lambda _: 1 / 0)
"""
    assert said(program) == ["other"]


def test_a_child_of_a_fork_closes_only_its_own_objects() -> None:
    program = """
parents = Opened("parent's")
sys.stdout.flush()
if not (pid := os.fork()):
    childs = Opened("child's")
else:
    os.waitpid(pid, 0)
"""
    assert said(program) == ["child's", "parent's"]


def test_a_pass_that_a_script_has_left_is_closed_while_its_modules_are_whole() -> None:
    program = """
import atexit
atexit.register(print, "last")  # before nbdata's
from nbdata.client.reading.passing import Pass
def items():
    try:
        yield 1
    finally:
        print("closed")
left = Pass(items(), dict)
next(left)
"""
    assert said(program, begin="") == ["closed", "last"]
