"""Compares pull with a model: after random changes of source and disk between pulls, each file must be as expected.

A hypothesis state machine changes objects and files at random, and pulls with and without options from a real server.
For each name the model knows the last pulled content, and whether another program changed the file since. It knows no
times, indexes or ETags.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import nbdata

Put = Callable[[dict[str, bytes]], str]

NAMES = st.sampled_from(["a", "d/b"])
CONTENTS = st.sampled_from([b"1", b"2", b"two"])
EDITED = "overwritten (edited here)"


class Pulling(RuleBasedStateMachine):
    """The state machine; set the class attributes `url` and `change` before it runs."""

    put: Put
    delete: Callable[[list[str]], None]

    def __init__(self) -> None:
        super().__init__()
        self.prefix = secrets.token_hex(4)
        self.folder = Path(tempfile.mkdtemp())
        self.source: dict[str, bytes] = {}
        self.local: dict[str, bytes] = {}
        self.moved: dict[str, bytes] = {}  # content last pulled, or found equal
        self.touched: set[str] = set()  # files that another program wrote since

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(name=NAMES, data=CONTENTS)
    def change_source(self, name: str, data: bytes) -> None:
        self.url = type(self).put({f"{self.prefix}/{name}": data}) + self.prefix + "/"
        self.source[name] = data

    @precondition(lambda self: len(self.source) > 1)
    @rule(name=NAMES)
    def delete_from_source(self, name: str) -> None:
        if self.source.pop(name, None) is not None:
            type(self).delete([f"{self.prefix}/{name}"])

    @rule(name=NAMES, data=CONTENTS)
    def change_file(self, name: str, data: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(1, len(self.touched) + 2))  # years ago, like an extracted file
        self.local[name] = data
        self.touched.add(name)

    @rule(name=NAMES)
    def delete_file(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)
        self.local.pop(name, None)
        self.touched.discard(name)

    def expected(self, overwrite: str) -> dict[str, int]:
        """Update the model as a pull should change the folder, and return the counts that the pull should report."""
        counts: dict[str, int] = {}
        for name, data in self.source.items():
            outcome = self._one(name, data, overwrite)
            counts[outcome] = counts.get(outcome, 0) + 1
            if outcome in ("fetched", EDITED, "unchanged"):
                self.local[name] = self.moved[name] = data
                self.touched.discard(name)
        return counts

    def _one(self, name: str, data: bytes, overwrite: str) -> str:
        if name not in self.local:
            return "fetched"
        edited = name in self.moved and name in self.touched
        if overwrite == "always":
            return EDITED if edited else "fetched"
        if overwrite == "never":
            return "skipped"
        known, same_source = name in self.moved, self.moved.get(name) == data
        if self.local[name] == data:
            return "unchanged"
        if known and name in self.touched and not same_source:
            return "conflict"
        return EDITED if edited else "fetched"

    @precondition(lambda self: self.source)
    @rule(overwrite=st.sampled_from(["changed", "changed", "changed", "always", "never"]))
    def pull(self, overwrite: str) -> None:
        plan = nbdata.pull(self.url, self.folder, overwrite=overwrite, dry_run=True)
        before = self._files()
        assert sum(count for count, _ in plan.actions.values()) == len(self.source)
        assert self._files() == before, "a plan changes nothing"
        counts = self.expected(overwrite)
        report = nbdata.pull(self.url, self.folder, overwrite=overwrite, on_error="report", quiet=True)
        assert {name: count for name, count in report.counts.items() if count} == counts
        assert report.ok == ("conflict" not in counts)

    @precondition(lambda self: self.source)
    @rule()
    def mirror(self) -> None:
        counts = self.expected("changed")
        extra = self.local.keys() - self.source.keys()
        if "conflict" not in counts:
            for name in extra:
                del self.local[name]
                self.moved.pop(name, None)
                self.touched.discard(name)
            if extra:
                counts["deleted"] = len(extra)
        report = nbdata.pull(self.url, self.folder, delete=True, force=True, on_error="report", quiet=True)
        assert {name: count for name, count in report.counts.items() if count} == counts

    def _files(self) -> dict[str, bytes]:
        found = self.folder.rglob("*")
        return {str(p.relative_to(self.folder)): p.read_bytes() for p in found if p.is_file()}

    @invariant()
    def every_file_is_what_it_should_be(self) -> None:
        assert self._files() == self.local


@pytest.mark.usefixtures("inline", "unsynced")
def test_every_file_is_what_the_model_says(put: Put, bucket: str) -> None:
    from nbdata.operation import Context
    from nbdata.stores.resolve import open_place

    store = open_place(f"s3://{bucket}/", Context("/", env=dict(os.environ))).store
    machine = type("Machine", (Pulling,), {"put": staticmethod(put), "delete": staticmethod(store.delete)})
    checks = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=30,
            stateful_step_count=20,
            derandomize=True,
            deadline=None,
            suppress_health_check=checks,
        ),
    )
