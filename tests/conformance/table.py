"""Generates the page docs/conformance.md: which check runs on which store.

The table comes from the tests themselves. A check is a test with a fixture of stores, and the fixture says on which
ones the check runs. This module gives the reasons for exceptions and for stores that differ; a cell without a reason is
an error. ``python -m tests.conformance.table`` writes the page.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.conformance import test_reading, test_refusals, test_sessions, test_writing
from tests.conformance.conftest import KINDS, PARTS, READ_ONLY, REMOTE, S3

PAGE = Path(__file__).parents[2] / "docs/conformance.md"

STORES = {
    "moto": "s3:// on moto",
    "seaweedfs": "s3:// on SeaweedFS",
    "gs": "gs:// on gcp-storage-emulator",
    "az": "az:// on Azurite",
    "ais": "ais:// on a server of the tests that stands in for AIStore, which was not at hand",
    "ais-s3": "s3:// on the S3 door of that server, with redirects, and a bucket of MD5 checksums",
    "http": "http:// on Python's server, with ranges and ETags",
    "local": "local disk",
    "s3fs": "s3fs, handed in",
    "memory": "memory:// of fsspec",
    "sftp": "sftp:// of fsspec, on AsyncSSH's server",
    "zip": "zip:// of fsspec",
}
_RUNS_OVER = {
    "readable": (*KINDS, *READ_ONLY),
    "place": KINDS,
    "parts_place": PARTS,
    "s3_place": S3,
    "remote": REMOTE,
    "seaweedfs_place": ("seaweedfs",),
}
_READ_ONLY = "only read"
_NO_PARTS = "objects are written in one stream"
_NO_SERVER = "no server, no bucket"
# For each fixture: why it does not include a store.
_NOT: dict[str, dict[str, str]] = {
    "place": dict.fromkeys(READ_ONLY, _READ_ONLY),
    "parts_place": {
        **dict.fromkeys(READ_ONLY, _READ_ONLY),
        **dict.fromkeys(("gs", "local", "s3fs", "memory", "sftp"), _NO_PARTS),
    },
    "remote": {
        "http": "has no buckets; tests/stores/http/test_store.py",
        "sftp": "has no buckets; tests/stores/test_sftp.py",
        **dict.fromkeys(("local", "memory", "zip"), _NO_SERVER),
    },
    "s3_place": {
        **dict.fromkeys(READ_ONLY, _READ_ONLY),
        **dict.fromkeys(("gs", "local", "s3fs", "memory", "sftp"), _NO_PARTS),
        "ais": "its own API lists no unfinished uploads; tests/stores/ais/test_store.py",
        "az": "Azure has no request that lists or gives up uploads; it forgets their blocks after a week",
    },
    "seaweedfs_place": {
        "moto": "moto answers 404 to every key with a line break",
        **dict.fromkeys(
            ("gs", "az", "ais", "ais-s3", "local", "s3fs", "memory", "sftp", *READ_ONLY),
            "deleting in batches, and so XML, is of S3 alone",
        ),
    },
}
# For each test: why it expects something else of a store, or does not run on it.
_DIFFERS: dict[str, dict[str, str]] = {
    "test_a_listing_has_every_key_below_the_prefix_in_key_order": {"seaweedfs": "keeps folders, and lists by folder"},
    "test_a_listing_goes_on_behind_a_key": {"seaweedfs": "keeps folders, and lists by folder"},
    "test_odd_keys_are_kept_as_they_are": dict.fromkeys(
        ("seaweedfs", "s3fs", "az"), "takes a backslash for a slash"
    ),
    "test_a_listing_of_many_pages_is_streamed_and_whole": {
        kind: "checked over S3, whose pages hold 1000" for kind in STORES if kind not in S3
    },
    "test_a_folder_of_many_pages_is_whole": {
        kind: "checked over S3, whose pages hold 1000" for kind in STORES if kind not in S3
    },
    "test_a_change_that_keeps_the_size_is_seen_too": {"sftp": "times are whole seconds: not within one"},
    "test_an_upload_whose_parts_are_gone_cannot_be_finished": {"moto": "fails with status 500"},
    "test_a_missing_bucket_is_named": {
        "seaweedfs": "makes a bucket that is written to", "s3fs": "makes a bucket that is written to; HEAD names none",
        "gs": "the emulator names the bucket in listings alone",
    },
    "test_nobody_listens": {"s3fs": "tries again by itself, for up to 40 seconds"},
}  # fmt: skip


def checks(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield a module's tests that run on stores, each with its fixture of stores."""
    for name, test in vars(module).items():
        if name.startswith("test_") and inspect.isfunction(test):
            fixture = next((f for f in inspect.signature(test).parameters if f in _RUNS_OVER), None)
            if fixture is not None:
                yield name, fixture


def cell(test: str, fixture: str, store: str, notes: list[str]) -> str:
    """Return the table's cell for a test and a store; KeyError if a missing check has no reason."""
    differs = _DIFFERS.get(test, {}).get(store)
    runs = store in _RUNS_OVER[fixture]
    reason = differs or ("" if runs else _NOT[fixture][store])
    if not reason:
        return "yes"
    if reason not in notes:
        notes.append(reason)
    return f"{'yes' if runs else 'no'} [{notes.index(reason) + 1}]"


def page() -> str:
    """Return the whole page."""
    notes: list[str] = []
    lines = [
        "# What is checked of which store",
        "",
        "Made by `python -m tests.conformance.table` from the tests in `tests/conformance`, and compared with them by",
        "each run: *yes* is a test that runs and passes. A number leads to why a check is not made, or how the store",
        "differs in it.",
        "",
        *(f"- **{kind}**: {what}" for kind, what in STORES.items()),
        "",
    ]
    for title, module in (
        ("Reading", test_reading),
        ("Writing", test_writing),
        ("Many requests at a time", test_sessions),
        ("Refusals", test_refusals),
    ):
        lines += [f"## {title}", "", f"| check | {' | '.join(STORES)} |", f"|---|{'---|' * len(STORES)}"]
        for test, fixture in checks(module):
            told = test.removeprefix("test_").replace("_", " ")
            lines.append(f"| {told} | {' | '.join(cell(test, fixture, s, notes) for s in STORES)} |")
        lines.append("")
    lines += ["## Notes", "", *(f"{n}. {note}" for n, note in enumerate(notes, 1)), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
