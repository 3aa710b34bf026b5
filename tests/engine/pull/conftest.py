"""Fixtures of the pull tests: parts that are small, and a disk that need not be synced."""

from __future__ import annotations

import os

import pytest

from nbdata import disk
from nbdata.engine.pull import perform, plan
from nbdata.transfer import part_records

#: Bytes of a part with the fixture `small_parts`.
SMALL_PART = 1 << 20


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a pull fetch objects of more than `SMALL_PART` in parts, so that a test needs no hundred megabytes."""
    monkeypatch.setattr(part_records, "PART", SMALL_PART)
    for module in (perform, plan):
        monkeypatch.setattr(module, "BIG", SMALL_PART + 1)


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no disk, for a test of many small pulls that asks nothing about the loss of a machine."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    monkeypatch.setattr(disk, "syncfs", lambda fd: 0)
