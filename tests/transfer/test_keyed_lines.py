"""Lines found by key work like a dict, even if keys share a hash, and the index stays small."""

from __future__ import annotations

import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbdata.sealed_lines import format_line, parse_line
from nbdata.transfer import keyed_lines
from nbdata.transfer.index import Index, Record
from nbdata.transfer.keyed_lines import KeyedLines, key_of

NAMES = st.sampled_from(
    ["a", "b", 'quoted"', "back\\slash", 'both\\"', "ünï", "\udc80", "", "a/b", "[]", "c" * 70_000]
)


@pytest.mark.parametrize("hashes", [1, 3, 1 << 60])
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(NAMES, st.booleans()), max_size=30))
def test_lines_are_found_by_their_keys_whichever_share_a_hash(
    hashes: int, steps: list[tuple[str, bool]]
) -> None:
    with tempfile.NamedTemporaryFile() as file, pytest.MonkeyPatch.context() as patched:
        patched.setattr(keyed_lines, "hash", lambda key: len(key) % hashes, raising=False)
        lines, right, at = KeyedLines(), dict[str, int](), 0
        lines.read_from(file.name)
        for number, (name, there) in enumerate(steps):
            line = format_line([name, number] if there else [name])
            file.write(line)
            file.flush()
            lines.take(at, line)
            at += len(line)
            right.pop(name, None)
            if there:
                right[name] = number
        for name in {name for name, _ in steps}:
            found = lines.find(key_of(name))
            assert (found and parse_line(found)) == ([name, right[name]] if name in right else None)
        again = KeyedLines()  # as after a later opening of the file
        again.read_from(file.name)
        for offset, line in again.scan():
            again.take(offset, line)
        for each in (lines, again):
            assert dict(parse_line(line) for line in each.live(at)) == right  # type: ignore[arg-type, misc]
            assert len(each) == len(right)


@pytest.mark.long
def test_an_index_holds_only_where_its_records_are(tmp_path: Path) -> None:
    count = 10_000

    def index() -> Index:
        return Index(str(tmp_path), "source", "target", (1, 2))

    record = Record('etag "d41d8cd98f00b204e9800998ecf8427e"', 100, 100, 1_763_700_000_000_000_000, 7)
    sizes = []
    for run in range(7):  # each run replaces all records
        written = index()
        written.open((1, 2))
        written.put({f"folder/object-{n:07d}": record._replace(ctime_ns=run) for n in range(count)})
        written.close()
        sizes.append(Path(written.path).stat().st_size)
    assert max(sizes) < 4.1 * sizes[0]
    tracemalloc.start()
    try:
        found = index()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.get("folder/object-0001234") == record._replace(ctime_ns=6)
    assert held / count < 130
