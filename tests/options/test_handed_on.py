"""Options that an operation hands on to another verb arrive there, and one place alone applies the filters."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import nbdata
from nbdata.client.reading.cached import cache_of
from nbdata.errors import BadOption
from nbdata.option import options_of
from nbdata.verbs.options import Connecting, Decompressing, Filtering, HoldingSamples, Verifying
from nbdata.verbs.pack import Pack
from nbdata.verbs.samples import SampleSource
from nbdata.verbs.shards import Shards

PACKAGE = Path(nbdata.__file__).parent
GIVEN = {"storage_options": {"key": "x"}, "concurrency": 3, "verify": "md5"}
FILTERS = {"include": ("*.jpg",), "exclude": ("no*",), "newer_than": "2026-11-20", "older_than": "2026-11-21"}
# The filters of these are of another kind: members of an archive, globs by themselves. And `verbs` declares them.
_OTHERS = ("verbs", "engine/unpack", "archives", "globs")


def test_what_packs_and_lists_shards_reads_samples_with_its_own_options() -> None:
    pack = Pack("s3://b/x/", "s3://b/y/", **GIVEN, **FILTERS)
    assert pack.samples().options_in(Verifying, Connecting, Filtering) == {**GIVEN, **FILTERS, "fs": None}
    limits = {"max_window": 256 << 20, "max_sample": 5}
    mapped = Pack("s3://b/x/", "s3://b/y/", map=dict, **limits)
    assert mapped.samples().options_in(HoldingSamples) == limits
    assert Shards("ls", "s3://b/x.tar", max_window="256MiB").samples().options_in(Decompressing) == {
        "max_window": 256 << 20
    }
    shards = Shards("verify", "s3://b/x.tar", **GIVEN)
    assert shards.samples().options_in(Verifying, Connecting) == {**GIVEN, "fs": None}


def test_a_cache_of_samples_reads_with_the_options_of_the_samples() -> None:
    samples = SampleSource("s3://b/x/", cache="1GB", **GIVEN)
    assert cache_of(samples, "s3://b/x/").options_in(Verifying, Connecting) == {**GIVEN, "fs": None}


def test_one_class_alone_applies_the_filters() -> None:
    """A second place would not know a filter that is added."""
    names = options_of(Filtering).keys()
    texts = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    readers = {
        path
        for path, text in texts.items()
        if not path.startswith(_OTHERS) and any(f".{name}" in text for name in names)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in names
    }
    assert readers == {"transfer/selection.py"}


def test_what_several_processes_or_runs_share_takes_dates_and_no_durations() -> None:
    for make in (lambda **o: SampleSource("d", **o), lambda **o: Pack("d", "out/x.tar", format="tar", **o)):
        make(newer_than="2026-11-20")
        for name in ("newer_than", "older_than"):
            with pytest.raises(BadOption, match=r"7d ago is another moment with each start.*Write 20\d\d-"):
                make(**{name: "7d"})
