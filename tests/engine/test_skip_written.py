"""--skip-written: files that were written and then moved away count as done, and no other files do."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.client.agents import stop_all
from nbdata.client.launch import connect
from nbdata.demo.server import EmbeddedServer
from nbdata.lock_files import held
from nbdata.report import Report
from nbdata.runtime import endpoint
from nbdata.transfer.index import Index, written_below
from tests.conftest import client_of
from tests.engine.unpack.checkpointing import COMPRESS, COUNT, Entry, cut, entries, interrupted, packed
from tests.engine.unpack.unpacking import archive, look, pack, untar
from tests.faults.gate import Gate
from tests.waiting import PATIENCE, wait_until

MB = 1 << 20
NBDATA = str(Path(sys.executable).with_name("nbdata"))


@pytest.fixture
def small(tmp_path: Path, mounts: None) -> Iterator[Path]:
    """A disk of 12 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def heavy(tmp_path: Path, name: str) -> tuple[Path, dict[str, bytes]]:
    """Create volumes of 40 MB and return their content: incompressible files, some with a second name far behind."""
    source = random.Random(7)
    content = {f"d{n % 4}/f{n:02}": source.randbytes(1_000_000 + n) for n in range(40)}
    made: list[Entry] = [(f"d{n}", "folder", None) for n in range(4)]
    made += [(path, "file", data) for path, data in content.items()]
    made.insert(30, ("hard0", "hardlink", "d0/f00"))
    made.append(("hard3", "hardlink", "d3/f39"))
    content |= {"hard0": content["d0/f00"], "hard3": content["d3/f39"]}
    return cut(COMPRESS[name](packed(made)[0]), tmp_path / "v", f"a.{name}", 3 * MB), content


def stored(s3: EmbeddedServer, bucket: str) -> dict[str, bytes]:
    """Read all objects of a bucket below ``x/``."""
    client, found = client_of(s3), {}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="x/"):
        for entry in page.get("Contents", []):
            found[entry["Key"][2:]] = client.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
    client.close()
    return found


def in_rounds(line: Callable[[], Report], free: Callable[[], object]) -> list[str]:
    """Run the command and make room in turn until it succeeds; return how each round ended."""
    ended = []
    while len(ended) < 30:
        try:
            line()
        except (nbdata.NotEnoughSpace, nbdata.TransferFailed) as error:
            ended.append(type(error).__name__)
        else:
            free()
            return [*ended, "done"]
        free()
    raise AssertionError(f"it never ends: {ended}")


@pytest.mark.long
@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("name", ["tar", "tar.gz", "tar.xz", "whole.tar.bz2"])
@pytest.mark.in_ci("tar.gz")
def test_rounds_of_unpack_and_push_bring_all_to_the_store_once(
    name: str, tmp_path: Path, small: Path, s3: EmbeddedServer, bucket: str
) -> None:
    volumes, content = heavy(tmp_path, name)
    out, sent = small / "out", list[str]()

    def free() -> None:
        report = nbdata.push(out, f"s3://{bucket}/x/", delete_source=True, quiet=True)
        sent.extend(row.path for row in report.rows if row.action == "sent")

    ended = in_rounds(lambda: untar(volumes, out, ignore_space=True, skip_written=True), free)
    assert ended.count("NotEnoughSpace") >= 3
    # Extracting a second name needs the file again if it was moved away.
    assert ended.count("TransferFailed") <= 1
    assert stored(s3, bucket) == content
    # Deleting one of two names changes the status of the other file, so push keeps that one until the next round.
    twice = {"d0/f00", "hard0", "d3/f39", "hard3"}
    assert {path for path in sent if sent.count(path) > 1} <= twice
    free()
    assert {path for path in out.rglob("*") if path.is_file()} == set()
    report = untar(volumes, out, skip_written=True)
    assert report.counts == {"moved away": len(content)}
    assert report.details["compressed"] == 0


@pytest.mark.long
def test_rounds_converge_though_the_agent_is_killed_in_each(
    tmp_path: Path, small: Path, s3: EmbeddedServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes, content = heavy(tmp_path, "tar.xz")
    client, out, sent = client_of(s3), small / "out", list[str]()
    for path in volumes.iterdir():
        client.put_object(Bucket=bucket, Key=f"v/{path.name}", Body=path.read_bytes())
    client.close()
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "state"))
    killed = 0
    ended = list[str]()
    stop_all(now=True)
    done = False
    with Gate(s3.url) as gate:
        while not done:
            assert len(ended) < 30, ended
            gate.close(after=4 * MB)
            monkeypatch.setenv("AWS_ENDPOINT_URL", gate.url)
            line = ["untar_volumes", f"s3://{bucket}/v/", str(out), "--ignore-space", "--skip-written", "-q"]
            command = subprocess.Popen([NBDATA, *line], stderr=subprocess.PIPE, text=True)
            if killed < 4:
                wait_until(lambda command=command: gate.holds or command.poll() is not None)
                if gate.holds:
                    _kill_the_agent()
                    killed += 1
            gate.open()
            ended.append(command.communicate(timeout=PATIENCE)[1])
            done = command.returncode == 0
            monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
            if out.exists():
                report = nbdata.push(out, f"s3://{bucket}/x/", delete_source=True, quiet=True)
                sent.extend(row.path for row in report.rows if row.action == "sent")
    assert killed == 4
    assert stored(s3, bucket) == content
    assert sorted(set(sent)) == sorted(content)


@pytest.mark.long
@pytest.mark.usefixtures("inline")
def test_without_the_option_what_is_gone_is_written_again_and_the_message_says_so(
    tmp_path: Path, small: Path
) -> None:
    volumes, out = heavy(tmp_path, "tar.gz")[0], small / "out put"
    with pytest.raises(nbdata.NotEnoughSpace) as caught:
        untar(volumes, out, ignore_space=True)
    written = {path for path in look(out) if path.startswith("d") and "/" in path}
    assert len(written) > 5
    told = str(caught.value)
    assert (
        f"Make room and run the command again to resume, with --skip-written if you move files away from {out}"
        in told
    )
    assert "untar_volumes" not in told
    assert told.count("again") == 1
    shutil.move(out / "d0", tmp_path)
    with pytest.raises(nbdata.NotEnoughSpace) as caught:
        untar(volumes, out, ignore_space=True, skip_written=True)
    assert f"Make room, also by moving files away from {out}, and run the command again" in str(caught.value)
    assert not (out / "d0" / "f00").exists()
    shutil.move(out / "d1", tmp_path)
    with pytest.raises(nbdata.NotEnoughSpace):
        untar(volumes, out, ignore_space=True)
    assert (out / "d0" / "f00").exists()


@pytest.mark.parametrize("ignore_space", [False, True])
def test_rounds_need_ignore_space_and_the_refusal_says_so(ignore_space: bool) -> None:
    told = nbdata.UntarVolumes("v", "out", skip_written=True, ignore_space=ignore_space).with_less
    assert ("add --ignore-space" in told) is not ignore_space
    assert "--ignore-space" not in nbdata.UntarVolumes("v", "out").with_less


def test_a_job_that_waits_says_how_files_can_be_moved_away() -> None:
    told = nbdata.UntarVolumes("v", "out").room_elsewhere
    assert told.endswith("cancel it and run it with --skip-written")


# -- what counts as written --------------------------------------------------------------------------


@pytest.fixture
def unpacked(tmp_path: Path, expected: dict[str, tuple[object, ...]]) -> tuple[Path, Path]:
    """Volumes, and a folder with everything extracted from them."""
    volumes = cut(packed(entries())[0], tmp_path / "v")
    untar(volumes, tmp_path / "out")
    assert look(tmp_path / "out") == expected
    return volumes, tmp_path / "out"


@pytest.mark.usefixtures("inline", "small_steps")
@pytest.mark.parametrize("name", COMPRESS)
@pytest.mark.parametrize("after", [5, 50])
@pytest.mark.in_ci("50-tar.gz", "5-whole.tar.bz2", 1)
def test_what_was_moved_is_not_written_again_wherever_it_was_interrupted(
    name: str, after: int, tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes = cut(COMPRESS[name](packed(entries())[0]), tmp_path / "v", f"a.{name}")
    out, away = tmp_path / "out", tmp_path / "away"
    interrupted(volumes, out, after)
    moved = {path for path in look(out) if "/" in path}
    for path in moved:
        (away / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(out / path, away / path)
    plan = untar(volumes, out, dry_run=True, skip_written=True)
    assert f"{len(moved)} members" in " ".join(plan.notes)
    if "d0/f03" in moved:  # `hard` is another name of it, not extracted yet
        with pytest.raises(nbdata.TransferFailed, match="moved away"):
            untar(volumes, out, skip_written=True)
        assert not moved & set(look(out))
        report = untar(volumes, out, skip_written=True)
        assert {path for path in moved if (out / path).exists()} == {"d0/f03"}
        assert report.counts["moved away"] == len(moved) - 1
    else:
        report = untar(volumes, out, skip_written=True)
        assert not moved & set(look(out))
        assert report.counts["moved away"] == len(moved)
    shutil.copytree(away, out, dirs_exist_ok=True)
    kept = {path: what[0] for path, what in look(out).items()}
    assert {path: kind[0] if isinstance(kind, tuple) else kind for path, kind in kept.items()} == {
        path: what[0][0] if isinstance(what[0], tuple) else what[0] for path, what in expected.items()
    }


@pytest.mark.usefixtures("inline")
def test_a_file_that_was_changed_or_lost_in_part_was_not_moved_away(
    unpacked: tuple[Path, Path], expected: dict[str, tuple[object, ...]]
) -> None:
    volumes, out = unpacked
    (out / "d0" / "f00").write_bytes(b"changed")
    os.truncate(out / "d1" / "f01", 10)
    (out / "d2" / "f02").unlink()
    report = untar(volumes, out, skip_written=True)
    assert (report.counts["extracted"], report.counts["moved away"]) == (2, 1)
    assert {path: look(out)[path] for path in ("d0/f00", "d1/f01")} == {
        path: expected[path] for path in ("d0/f00", "d1/f01")
    }
    assert not (out / "d2" / "f02").exists()


@pytest.mark.usefixtures("inline")
def test_links_and_folders_that_were_moved_away(unpacked: tuple[Path, Path]) -> None:
    volumes, out = unpacked
    (out / "link").unlink()
    (out / "hard").unlink()
    (out / "d0" / "f03").unlink()
    shutil.rmtree(out / "d2")
    report = untar(volumes, out, skip_written=True)
    assert report.counts == {"unchanged": COUNT - COUNT // 3 - 1, "moved away": 3 + COUNT // 3}
    assert not (out / "link").is_symlink()
    assert not (out / "d2").exists()
    (out / "d0" / "f00").write_bytes(b"so that it is not complete")
    untar(volumes, out, skip_written=True)
    assert not (out / "hard").exists()
    assert not list((out / "d2").iterdir()), "it is made again, and stays empty"


@pytest.mark.usefixtures("inline")
def test_a_second_name_that_is_left_is_still_what_it_was(unpacked: tuple[Path, Path]) -> None:
    """Moving the first name away changes only the file's status."""
    volumes, out = unpacked
    (out / "d0" / "f03").unlink()
    looked, content = (out / "hard").stat(), (out / "hard").read_bytes()
    for _ in range(2):
        report = untar(volumes, out, skip_written=True)
        assert (report.counts["moved away"], report.counts.get("links", 0)) == (1, 0)
        assert (out / "hard").stat().st_ino == looked.st_ino
    (out / "hard").write_bytes(bytes(len(content)))
    os.utime(out / "hard", ns=(looked.st_atime_ns, looked.st_mtime_ns))
    with pytest.raises(nbdata.TransferFailed, match="moved away"):
        untar(volumes, out, skip_written=True)
    report = untar(volumes, out, skip_written=True)
    assert (out / "hard").read_bytes() == (out / "d0" / "f03").read_bytes() == content


@pytest.mark.usefixtures("inline", "state")
def test_a_record_that_was_only_announced_does_not_count(unpacked: tuple[Path, Path], state: str) -> None:
    """An example is a file that was about to be replaced when the agent was killed."""
    volumes, out = unpacked
    with _Records(state, out) as index:
        record = index.get("d0/f00")
        assert record is not None
        index.announce({"d0/f00": record.tag})
        index._announced.clear()  # as after a kill
    (out / "d0" / "f00").unlink()
    (out / "d0" / "f06").unlink()
    report = untar(volumes, out, skip_written=True)
    assert (report.counts["extracted"], report.counts["moved away"]) == (1, 1)
    assert (out / "d0" / "f00").exists()


@pytest.mark.usefixtures("inline", "state")
def test_a_doubtful_member_does_not_count(unpacked: tuple[Path, Path], state: str) -> None:
    """Its archive was damaged during extraction, so the file that was moved away may be wrong."""
    volumes, out = unpacked
    with _Records(state, out) as index:
        for path in ("d0/f00", "link"):
            record = index.get(path)
            assert record is not None
            fingerprint, offset, _, line = record.tag.split(":")
            index.put({path: record._replace(tag=f"{fingerprint}:{offset}:?:{line}")})
            (out / path).unlink()
    (out / "d0" / "f06").unlink()
    report = untar(volumes, out, skip_written=True)
    assert (report.counts["extracted"], report.counts["links"], report.counts["moved away"]) == (1, 1, 1)


@pytest.mark.usefixtures("inline")
def test_other_volumes_are_extracted_from_the_start(tmp_path: Path) -> None:
    files, out = _files(tmp_path), tmp_path / "out"
    volumes = pack(files, tmp_path / "v", "a.tar", 100_000)
    untar(volumes, out)
    for file in out.iterdir():
        file.unlink()
    shutil.rmtree(volumes)
    (files / "f0").write_bytes(os.urandom(50_000))
    pack(files, tmp_path / "v", "a.tar", 100_000)
    assert untar(volumes, out, skip_written=True).counts["extracted"] == 8
    assert look(out) == look(files)


@pytest.mark.usefixtures("inline")
def test_of_two_members_with_one_name_only_the_last_counts(tmp_path: Path) -> None:
    source = archive(tmp_path / "v", ("x", "file", b"old"), ("y", "file", b"y"), ("x", "file", b"new"))
    out = tmp_path / "out"
    untar(source, out)
    assert (out / "x").read_bytes() == b"new"
    (out / "x").unlink()
    (out / "y").write_bytes(b"so that it is not complete")
    report = untar(source, out, skip_written=True)
    assert report.counts == {"moved away": 1, "extracted": 1}
    assert not (out / "x").exists()


@pytest.mark.usefixtures("inline")
def test_other_members_in_its_place_were_not_moved_away(tmp_path: Path) -> None:
    """An example is members of another folder, extracted by a command with other options."""
    source = archive(tmp_path / "v", ("a/x", "file", b"same"), ("b/x", "file", b"same"))
    out = tmp_path / "out"
    untar(source, out, members="a", strip_components=1)
    (out / "x").unlink()
    assert untar(source, out, members="b", strip_components=1, skip_written=True).counts == {"extracted": 1}


@pytest.mark.usefixtures("inline", "state")
@pytest.mark.parametrize("size", [50_000, 3_000_000])
def test_other_bytes_than_the_archive_holds_were_not_written(tmp_path: Path, state: str, size: int) -> None:
    """An archive in one piece reveals only at its end that it arrived damaged. That end may not have been read."""
    source, out = (
        archive(tmp_path / "v", ("x", "file", os.urandom(size)), ("y", "file", b"y")),
        tmp_path / "out",
    )
    untar(source, out)
    with _Records(state, out) as index:
        record = index.get("x")
        assert record is not None
        fingerprint, offset, _, line = record.tag.split(":")
        index.put({"x": record._replace(tag=f"{fingerprint}:{offset}:00000bad:{line}")})
    (out / "x").unlink()
    if size > MB:  # its bytes have passed by then
        with pytest.raises(nbdata.TransferFailed, match="writes this file anew"):
            untar(source, out, skip_written=True)
    assert untar(source, out, skip_written=True).counts == {"extracted": 1, "unchanged": 1}


@pytest.mark.usefixtures("inline", "small_steps")
def test_volumes_are_deleted_when_what_they_hold_was_written_and_moved_away(
    tmp_path: Path, expected: dict[str, tuple[object, ...]]
) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    first = str(min(volumes.iterdir()))
    interrupted(first, out, 50, delete_volumes=True)
    left = len(list(volumes.iterdir()))
    moved = {path for path in look(out) if "/" in path and path != "d0/f03"}
    for path in moved:
        (out / path).unlink()
    with pytest.raises(nbdata.TransferFailed, match="its volumes were deleted"):
        untar(first, out, delete_volumes=True)
    assert len(list(volumes.iterdir())) == left
    moved -= set(look(out))  # members of the remaining volumes were extracted again
    report = untar(first, out, delete_volumes=True, skip_written=True)
    assert report.counts["moved away"] == len(moved) > 30
    assert list(volumes.iterdir()) == []
    assert set(look(out)) == set(expected) - moved


@pytest.mark.usefixtures("inline", "small_steps")
def test_a_hard_link_whose_content_went_with_the_volumes_is_told_clearly(tmp_path: Path) -> None:
    volumes, out = cut(packed(entries())[0], tmp_path / "v"), tmp_path / "out"
    first = str(min(volumes.iterdir()))
    interrupted(first, out, 50, delete_volumes=True)
    (out / "d0" / "f03").unlink()
    for _ in range(2):
        with pytest.raises(nbdata.TransferFailed) as caught:
            untar(first, out, delete_volumes=True, skip_written=True)
        (failure,) = caught.value.report.failures
        assert failure[0] == "hard"
        assert "d0/f03, to which it is a hard link, was moved away. Copy d0/f03 from where" in failure[1]
    assert list(volumes.iterdir())


def test_the_option_and_one_that_writes_all_again_exclude_each_other() -> None:
    for made in (nbdata.UntarVolumes, nbdata.Pull):
        with pytest.raises(nbdata.BadOption, match="exclude"):
            made("/v", "/out", skip_written=True, overwrite="always")


def test_the_command_has_the_same_identity_with_and_without_the_option() -> None:
    lines = [nbdata.UntarVolumes("/v", "/out", skip_written=told) for told in (False, True)]
    assert lines[0].identity() == lines[1].identity()


# -- pull -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("inline", "state")
def test_a_pull_goes_in_rounds_too(
    put: Callable[[dict[str, bytes]], str], tmp_path: Path, small: Path, s3: EmbeddedServer, bucket: str
) -> None:
    content = {f"f{n:02}": os.urandom(1_000_000) for n in range(30)}
    url, out = put({f"in/{name}": data for name, data in content.items()}), small / "out"
    away, fetched = tmp_path / "away", list[str]()
    away.mkdir()

    def line() -> Report:
        return nbdata.pull(f"{url}in/", out, ignore_space=True, skip_written=True, quiet=True)

    def free() -> None:
        for path in out.iterdir():
            if path.is_file():
                fetched.append(path.name)
                shutil.move(path, away)

    assert in_rounds(line, free).count("NotEnoughSpace") >= 2
    assert sorted(fetched) == sorted(content)
    assert {path.name: path.read_bytes() for path in away.iterdir()} == content
    assert line().counts == {"moved away": 30}
    client_of(s3).put_object(Bucket=bucket, Key="in/f07", Body=b"another")
    assert line().counts == {"moved away": 29, "fetched": 1}
    assert nbdata.pull(f"{url}in/f08", out / "f08", ignore_space=True, quiet=True).counts == {"fetched": 1}


@pytest.mark.usefixtures("inline", "state")
def test_files_only_announced_or_not_written_by_a_pull_do_not_count(
    put: Callable[[dict[str, bytes]], str], tmp_path: Path, state: str
) -> None:
    url, out = put({"a": b"a" * 100, "b": b"b" * 100, "c": b"c" * 100}), tmp_path / "out"
    out.mkdir()
    (out / "c").write_bytes(b"c" * 100)
    assert nbdata.pull(url, out, quiet=True).counts == {"fetched": 2, "unchanged": 1}
    with _Records(state, out) as index:
        record = index.get("a")
        assert record is not None
        index.announce({"a": record.tag})
        index._announced.clear()
    for name in "abc":
        (out / name).unlink()
    plan = nbdata.pull(url, out, skip_written=True, dry_run=True)
    assert {name: count for name, (count, _) in plan.actions.items()} == {"fetch": 2, "moved away": 1}
    assert nbdata.pull(url, out, skip_written=True, quiet=True).counts == {"moved away": 1, "fetched": 2}


def _kill_the_agent() -> None:
    with connect() as connection:
        agent = int(connection.ask({"do": "hello"}, timeout=PATIENCE)["pid"])
    os.kill(agent, signal.SIGKILL)
    wait_until(lambda: not held(endpoint().alive))


def _files(tmp_path: Path) -> Path:
    """Create eight files that cannot be compressed."""
    files = tmp_path / "files"
    files.mkdir()
    for number in range(8):
        (files / f"f{number}").write_bytes(os.urandom(50_000))
    return files


class _Records:
    """The index of a target, opened for writing."""

    def __init__(self, state: str, out: Path) -> None:
        (self._index,) = written_below(state, str(out))
        self._out = out

    def __enter__(self) -> Index:
        found = self._out.stat()
        self._index.open((found.st_dev, found.st_ino))
        return self._index

    def __exit__(self, *exc: Any) -> None:
        self._index.close()
