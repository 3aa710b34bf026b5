"""pack: files that another line has made stay as they are, unless --overwrite says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.engine.pack import own_files
from nbdata.errors import BadOption, NbdataError
from nbdata.transfer.index import Index, Record
from tests.engine.pack.test_pack import there

__all__ = ["there"]

Put = Callable[[dict[str, bytes]], str]
_SAMPLES = {
    f"in/{number}.{name}": f"{number} {name}".encode() for number in range(4) for name in ("jpg", "cls")
}
# Target, options and one name that is made, for each kind of files.
KINDS = {
    "shards": ("x-%02d.tar", {"shard_count": 2}, "x-01.tar"),
    "ffrecord": ("x.ffr/", {"shard_count": 2}, "x.ffr/PART_00001.ffr"),
    "one ffrecord": ("x.ffr", {}, "x.ffr"),
    "files": ("", {"format": "files"}, "2.jpg"),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any], str]:
    return KINDS[request.param]


@pytest.mark.in_ci("ffrecord-disk", "files-store", "one ffrecord-store", "shards-disk")
@pytest.mark.parametrize("local", [False, True], ids=["store", "disk"])
def test_what_somebody_else_has_put_there_is_not_replaced_unless_the_line_says_so(
    kind: Any, put: Put, there: Any, tmp_path: Path, inline: None, *, local: bool
) -> None:
    target, options, name = kind
    url = put(_SAMPLES)
    out = f"{tmp_path}/" if local else f"{url}out/"
    if local:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"theirs")
    else:
        put({f"out/{name}": b"theirs"})

    def found() -> dict[str, bytes]:
        if not local:
            return there("out/")
        files = (path for path in tmp_path.rglob("*") if path.is_file())
        return {str(path.relative_to(tmp_path)): path.read_bytes() for path in files}

    before = found()
    line = nbdata.Pack(f"{url}in/", out + target, **options)
    said = rf"^{name.rpartition('/')[2]} is there, and this command has not made it: .*--overwrite always to replace it"
    with pytest.raises(BadOption, match=said):
        line.plan()
    with pytest.raises(BadOption, match=said):
        line.run(quiet=True)
    assert found() == before == {name: b"theirs"}
    assert replace(line, overwrite="always").run(quiet=True).ok
    assert found()[name] != b"theirs"
    assert set(line.run(quiet=True).counts) == {"unchanged"}
    put({"in/2.jpg": b"changed"})  # what the line has made gives way to what the source has now
    report = line.run(quiet=True)
    assert report.ok
    assert report.counts["packed"] >= 1


def test_the_index_of_shards_says_that_a_pack_has_made_them(
    put: Put, there: Any, tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine, which has no records of the first run."""
    url = put(_SAMPLES)
    line = nbdata.Pack(f"{url}in/", f"{url}out/x-%02d.tar", shard_count=2)
    line.run(quiet=True)
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "another"))
    assert line.run(quiet=True).counts == {"packed": 2}
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "third"))
    put({"out/x-01.tar": bytes(len(there("out/")["x-01.tar"]))})
    with pytest.raises(BadOption, match=r"x-01\.tar is there, and this command has not made it"):
        line.run(quiet=True)


@pytest.mark.in_ci("ffrecord", "one ffrecord")
def test_after_a_kill_what_had_its_name_and_no_record_yet_is_the_lines_own(
    kind: Any, put: Put, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, options, _ = kind
    url = put(_SAMPLES)
    line, append = nbdata.Pack(f"{url}in/", f"{url}out/{target}", **options), Index.put

    def killed(self: Index, records: Mapping[str, Record | None]) -> None:
        if all(record is not None and not record.tag for record in records.values()):
            append(self, records)

    with monkeypatch.context() as patch:
        patch.setattr(Index, "put", killed)
        assert line.run(quiet=True).ok
    assert line.run(quiet=True).ok
    assert set(line.run(quiet=True).counts) == {"unchanged"}


@pytest.mark.in_ci("ffrecord", "one ffrecord")
def test_a_file_that_got_its_new_content_just_before_a_kill_is_no_conflict(
    kind: Any, put: Put, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, options, _ = kind
    url = put(_SAMPLES)
    line, append = nbdata.Pack(f"{url}in/", f"{url}out/{target}", **options), Index.put
    assert line.run(quiet=True).ok
    put({"in/2.jpg": b"changed"})

    def killed(self: Index, records: Mapping[str, Record | None]) -> None:
        if all(record is not None and not record.tag for record in records.values()):
            append(self, records)

    with monkeypatch.context() as patch:
        patch.setattr(Index, "put", killed)
        assert line.run(quiet=True).ok
    assert line.run(quiet=True).ok
    assert set(line.run(quiet=True).counts) == {"unchanged"}


@pytest.mark.in_ci("archive", "shards")
@pytest.mark.parametrize(
    "kind", [*KINDS.values(), ("x.tar", {"format": "tar"}, "x.tar")], ids=[*KINDS, "archive"]
)
def test_after_a_kill_what_others_have_put_there_since_is_not_replaced(
    kind: Any, put: Put, there: Any, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, options, name = kind
    url, making = put(_SAMPLES), own_files.making
    line = nbdata.Pack(f"{url}in/", f"{url}out/{target}", **options)

    def killed(index: Index, names: list[str]) -> None:
        if any(not name.startswith("\0") for name in names):
            raise NbdataError("killed")
        making(index, names)

    with monkeypatch.context() as patch:
        patch.setattr(own_files, "making", killed)
        with pytest.raises(NbdataError):
            line.run(quiet=True)
    assert there("out/") == {}
    put({f"out/{name}": b"theirs"})
    with pytest.raises(BadOption, match="is there, and this command has not made it"):
        line.run(quiet=True)
    assert there("out/") == {name: b"theirs"}
