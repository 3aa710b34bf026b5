"""untar_volumes that ends early, because of damage or a stop; and the same command again."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.engine.unpack.checkpointing import packed
from tests.engine.unpack.unpacking import archive, inodes, look, no_leftovers, pack, untar, upload, whole
from tests.slow import take
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.usefixtures("inline")


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz"])
@pytest.mark.in_ci("a.tar.gz")
def test_a_truncated_last_volume_ends_it_and_the_same_line_continues(
    content: Path, tmp_path: Path, name: str
) -> None:
    volumes = pack(content, tmp_path / "v", name, 200_000)
    last = max(volumes.iterdir())
    data = last.read_bytes()
    last.write_bytes(data[: len(data) // 2])
    job = nbdata.UntarVolumes(str(volumes), str(tmp_path / "out")).start()
    with pytest.raises(nbdata.BadArchive):
        job.wait()
    assert job.snapshot().failures == 0
    assert whole(tmp_path / "out", content)
    assert no_leftovers(tmp_path / "out")
    last.write_bytes(data)
    untar(volumes, tmp_path / "out")
    assert look(tmp_path / "out") == look(content)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar.bz2", "a.tar.xz"])
@pytest.mark.in_ci("a.tar.gz")
def test_a_flipped_byte_is_found_and_nothing_wrong_stands_there(
    content: Path, tmp_path: Path, name: str
) -> None:
    volumes = pack(content, tmp_path / "v", name, 200_000)
    path = sorted(volumes.iterdir())[-2]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(nbdata.BadArchive) as caught:
        untar(volumes, tmp_path / "out", delete_volumes=True)
    assert caught.value.details["offset"] >= 0
    assert no_leftovers(tmp_path / "out")
    assert len(list(volumes.iterdir())) > 2


def test_a_volume_that_changes_while_it_is_read_ends_the_run(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, proxy: Proxy
) -> None:
    volumes = pack(content, tmp_path / "v")
    upload(s3, bucket, volumes)
    proxy.stall_at = 1_200_000
    job = nbdata.UntarVolumes(f"s3://{bucket}/v/", str(tmp_path / "out")).start()
    wait_until(proxy.stalled.is_set)
    client_of(s3).put_object(Bucket=bucket, Key=f"v/{max(volumes.iterdir()).name}", Body=b"another")
    proxy.go_on()
    with pytest.raises(nbdata.SourceChanged):
        job.wait(PATIENCE)


# -- the same command again -----------------------------------------------------------------------


def test_a_second_run_writes_nothing_and_does_not_read_the_volumes(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str
) -> None:
    upload(s3, bucket, pack(content, tmp_path / "v"))
    out = tmp_path / "out"
    untar(f"s3://{bucket}/v/", out)
    before = inodes(out)
    job = nbdata.UntarVolumes(f"s3://{bucket}/v/", str(out)).start()
    assert job.wait().counts == {"unchanged": 67}
    assert job.snapshot().bytes == 0
    assert inodes(out) == before


def test_only_what_was_changed_or_removed_is_written_again(content: Path, tmp_path: Path) -> None:
    volumes, out = pack(content, tmp_path / "v"), tmp_path / "out"
    untar(volumes, out)
    (out / "d1" / "f001.bin").unlink()
    found = (out / "d2" / "f002.bin").stat()
    (out / "d2" / "f002.bin").write_bytes(bytes(found.st_size))
    os.utime(out / "d2" / "f002.bin", ns=(found.st_atime_ns, found.st_mtime_ns))
    report = untar(volumes, out)
    assert report.counts == {"extracted": 2, "unchanged": 65, "folders": 8}
    assert look(out) == look(content)
    (out / "ünï code" / "x" / "y").rmdir()
    untar(volumes, out)
    assert look(out) == look(content)
    assert untar(volumes, out).counts == {"unchanged": 67}
    (out / "ünï code" / "x" / "y").rmdir()
    (out / "ünï code" / "x" / "y").write_bytes(b"a file in a folder's place")
    with pytest.raises(nbdata.TransferFailed):
        untar(volumes, out)


def test_lines_that_put_different_members_in_the_same_place_do_not_trust_each_other(tmp_path: Path) -> None:
    source, out = (
        archive(tmp_path / "v", ("a/x", "file", b"of a"), ("b/x", "file", b"of b")),
        tmp_path / "out",
    )
    for _ in range(2):
        for folder in "ab":
            untar(source, out, members=folder, strip_components=1)
            assert (out / "x").read_text() == f"of {folder}"


def test_other_members_of_the_same_archive_are_no_reason_to_skip_the_rest(
    content: Path, tmp_path: Path
) -> None:
    volumes, out = pack(content, tmp_path / "v"), tmp_path / "out"
    assert untar(volumes, out, members="d1").counts["extracted"] == 12
    assert untar(volumes, out, members="d1").counts == {"unchanged": 13}
    report = untar(volumes, out)
    assert report.counts == {"unchanged": 13, "extracted": 51, "links": 3, "folders": 8}
    assert look(out) == look(content)


def test_overwrite_says_what_happens_to_files_that_exist(content: Path, tmp_path: Path) -> None:
    volumes, out = pack(content, tmp_path / "v"), tmp_path / "out"
    out.mkdir()
    (out / "big.bin").write_bytes(b"mine")
    assert untar(volumes, out, overwrite="never").counts["skipped"] == 1
    assert (out / "big.bin").read_bytes() == b"mine"
    assert untar(volumes, out).counts["extracted"] == 1
    before = inodes(out)
    assert untar(volumes, out, overwrite="always").counts == {"extracted": 63, "links": 4, "folders": 8}
    assert all(before[path] != inode for path, inode in inodes(out).items())
    assert look(out) == look(content)


def test_another_archive_under_the_same_names_is_written(content: Path, tmp_path: Path) -> None:
    volumes, out = pack(content, tmp_path / "v"), tmp_path / "out"
    untar(volumes, out)
    (content / "d0" / "f005.bin").write_bytes(b"new")
    (out / "d1" / "f001.bin").write_bytes(b"mine")
    shutil.rmtree(volumes)
    pack(content, tmp_path / "v")
    with pytest.raises(nbdata.TransferFailed) as caught:
        untar(volumes, out)
    assert caught.value.report.counts["conflict"] == 1
    assert (out / "d0" / "f005.bin").read_bytes() == b"new"
    assert (out / "d1" / "f001.bin").read_bytes() == b"mine"
    untar(volumes, out, overwrite="always")
    assert look(out) == look(content)


def test_volumes_before_a_damaged_one_are_not_unpacked_again(tmp_path: Path) -> None:
    content, out = tmp_path / "content", tmp_path / "out"
    content.mkdir()
    for number in range(30):
        (content / f"f{number:02d}").write_bytes(os.urandom(1_200_000))
    volumes = pack(content, tmp_path / "v", "a.tar", 3_900_000)
    last = max(volumes.iterdir())
    data = last.read_bytes()
    last.write_bytes(data[:100_000])
    with pytest.raises(nbdata.BadArchive):
        untar(volumes, out)
    last.write_bytes(data)
    report = untar(volumes, out)
    assert report.counts["unchanged"] > 15
    assert look(out) == look(content)


@pytest.mark.parametrize("size", [300_000, 3_000_000])
@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
@pytest.mark.in_ci("a.tar.gz-3000000", "a.tar-300000")
def test_what_was_damaged_on_its_way_is_written_again(
    tmp_path: Path, s3: EmbeddedServer, bucket: str, proxy: Proxy, name: str, size: int
) -> None:
    mark = os.urandom(16)
    data = b"".join(os.urandom(60_000) + mark for _ in range(size // 60_000))
    content = tmp_path / "content"
    content.mkdir()
    (content / "x").write_bytes(data)
    (content / "y").write_bytes(os.urandom(3_000_000))
    upload(s3, bucket, pack(content, tmp_path / "v", name, volume=10**9))
    proxy.damage = mark  # random bytes are stored, so only a checksum of the whole reveals it
    out = tmp_path / "out"
    with pytest.raises(nbdata.ChecksumMismatch, match="command again"):
        untar(f"s3://{bucket}/v/", out, delete_volumes=True)
    assert (out / "x").read_bytes() != data
    proxy.damage = b""
    untar(f"s3://{bucket}/v/", out)
    assert look(out) == look(content)


@pytest.mark.usefixtures("small_steps")
def test_a_volume_that_arrives_wrong_has_no_checkpoint_in_it_when_volumes_are_deleted(
    tmp_path: Path, s3: EmbeddedServer, bucket: str, proxy: Proxy
) -> None:
    mark, content, out = os.urandom(16), tmp_path / "content", tmp_path / "out"
    content.mkdir()
    for number in range(40):
        begin = mark if number == 18 else b""
        (content / f"{number:02}").write_bytes(b"".join(begin + os.urandom(20_000) for _ in range(3)))
    upload(s3, bucket, pack(content, tmp_path / "v", "a.tar", 500_000))
    proxy.damage = mark
    with pytest.raises(nbdata.ChecksumMismatch):
        untar(f"s3://{bucket}/v/", out, delete_volumes=True)
    proxy.damage = b""
    report = untar(f"s3://{bucket}/v/", out, delete_volumes=True)
    assert report.details["resumed_at"] > 500_000
    assert "1 of 4 volumes could not be compared" in " ".join(report.notes)
    assert report.counts["deleted"] == 4
    assert look(out) == look(content)


# -- stopping -------------------------------------------------------------------------------------


class Proxy:
    """Forwards bytes to a server and back; it can slow down, hold, cut or damage the responses."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.stall_at = self.cut_every = -1
        self.damage = b""
        self.pace = 0.0  # seconds per 16 KiB
        self.passed = self.connections = 0
        self.stalled, self._released = threading.Event(), threading.Event()
        self._open: list[socket.socket] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def go_on(self) -> None:
        self.stall_at = -1
        self._released.set()

    def close(self) -> None:
        self.go_on()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(PATIENCE)  # it may have accepted a connection just before
        self._listener.close()
        for one in list(self._open):  # wakes the threads, which close them
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                down, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            up = socket.create_connection(("127.0.0.1", self._port))
            self._open += [down, up]
            threading.Thread(target=self._queue, args=(down, up, False), daemon=True).start()
            threading.Thread(target=self._queue, args=(up, down, True), daemon=True).start()

    def _queue(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        count = 0
        with source, sink:
            try:
                while data := source.recv(16384):
                    if answers:
                        count += len(data)
                        self.passed += len(data)
                        take(self.pace)
                        if 0 <= self.stall_at < self.passed:
                            self.stalled.set()
                            self._released.wait()
                        if 0 <= self.cut_every < count:
                            sink.shutdown(socket.SHUT_RDWR)
                            return
                    sink.sendall(data.replace(self.damage, self.damage[::-1]) if self.damage else data)
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                return


@pytest.fixture
def proxy(s3: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy between ``s3://`` and SeaweedFS."""
    proxy = Proxy(int(s3.environment()["AWS_ENDPOINT_URL"].rpartition(":")[2].strip("/")))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    yield proxy
    proxy.close()


def test_a_cancel_ends_a_read_that_hangs_and_the_same_line_completes(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, proxy: Proxy
) -> None:
    upload(s3, bucket, pack(content, tmp_path / "v"))
    proxy.stall_at = 2_900_000
    proxy.pace = 0.003  # else all data may lie in blocks that are not full yet
    line, out = nbdata.UntarVolumes(f"s3://{bucket}/v/", str(tmp_path / "out")), tmp_path / "out"
    job = line.start()
    wait_until(lambda: proxy.stalled.is_set() and job.snapshot().files > 5)
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait(PATIENCE)  # while the read still hangs
    count = whole(out, content)
    assert count
    assert no_leftovers(out)
    proxy.go_on()
    report = line.run(quiet=True)
    assert look(out) == look(content)
    assert report.counts["unchanged"] >= count - 3
    assert report.counts["extracted"] > 0


def test_a_cancel_in_the_last_padding_does_not_count_as_the_end(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, proxy: Proxy
) -> None:
    volumes = pack(content, tmp_path / "v", "a.tar", 1_000_000)
    with max(volumes.iterdir()).open("ab") as last:
        last.write(bytes(3_000_000))
    upload(s3, bucket, volumes)
    proxy.stall_at = sum(p.stat().st_size for p in volumes.iterdir()) - 500_000
    line = nbdata.UntarVolumes(f"s3://{bucket}/v/", str(tmp_path / "out"))
    job = line.start()
    wait_until(lambda: proxy.stalled.is_set() and job.snapshot().files > 60)
    wait_until(lambda: job.snapshot().bytes > proxy.stall_at - 1_000_000)  # far into the padding
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait(PATIENCE)
    proxy.go_on()
    assert line.run(quiet=True).details["compressed"] > 0


@pytest.mark.parametrize("stuck", ["00", "03"])
def test_a_cancel_does_not_wait_for_a_file_system_that_cannot_be_woken(
    content: Path, tmp_path: Path, stuck: str
) -> None:
    import fsspec
    from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

    hangs, released = threading.Event(), threading.Event()

    class Stuck(MemoryFileSystem):  # type: ignore[misc]
        protocol = "stuck"
        cachable = False

        def _open(self, *args: Any, **kwargs: Any) -> Any:
            file = super()._open(*args, **kwargs)
            if not isinstance(file, MemoryFile) or not str(args[0]).endswith(stuck):
                return file
            return _StuckFile(hangs, released)

    fs = Stuck()
    for path in pack(content, tmp_path / "v").iterdir():
        fsspec.filesystem("memory").pipe_file(f"/stuck/{path.name}", path.read_bytes())
    job = nbdata.UntarVolumes("memory://stuck/", str(tmp_path / "out"), fs=fs).start()
    wait_until(lambda: job.snapshot().bytes >= int(stuck) * 300_000 and hangs.is_set())
    job.cancel()
    with pytest.raises(nbdata.Cancelled):
        job.wait(PATIENCE)  # while the read still hangs
    released.set()


class _StuckFile(io.RawIOBase):
    def __init__(self, hangs: threading.Event, released: threading.Event) -> None:
        super().__init__()
        self._hangs, self._released = hangs, released

    def read(self, size: int = -1) -> bytes:
        self._hangs.set()
        self._released.wait()
        raise OSError("stuck")


def test_a_read_that_breaks_off_goes_on_where_it_was(
    content: Path, tmp_path: Path, s3: EmbeddedServer, bucket: str, proxy: Proxy
) -> None:
    upload(s3, bucket, pack(content, tmp_path / "v", volume=1_000_000))
    proxy.cut_every = 400_000
    report = untar(f"s3://{bucket}/v/", tmp_path / "out")
    assert look(tmp_path / "out") == look(content)
    assert report.retries >= 4
    assert proxy.passed < 2 * report.details["compressed"]


def test_with_report_or_stop_a_failure_is_told_or_ends_it(tmp_path: Path) -> None:
    source = archive(tmp_path / "v", ("a/x", "file", b"x"), ("b", "file", b"b"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_bytes(b"a file where a folder is to be")
    report = untar(source, tmp_path / "out", on_error="report")
    assert report.counts == {"failed": 1, "extracted": 1}
    assert "a file with the name of a needed folder exists" in report.failures[0][1]
    with pytest.raises(nbdata.AccessDenied):
        untar(source, tmp_path / "out", on_error="stop")
    with pytest.raises(nbdata.TransferFailed):
        untar(source, tmp_path / "out")


def test_damage_of_a_single_archive_is_reported_as_of_one_among_several(tmp_path: Path) -> None:
    source = archive(tmp_path / "v", ("a", "file", b"a" * 3000), ("b", "file", b"b" * 3000))
    source.write_bytes(source.read_bytes()[:6000])
    said = "the tar archive ends too early"
    for options in ({}, {"on_error": "stop"}):
        with pytest.raises(nbdata.BadArchive, match=said):
            untar(source, tmp_path / "out", **options)
    report = untar(source, tmp_path / "out", on_error="report")
    assert not report.ok
    assert report.counts["failed"] == 1
    [(name, reason)] = report.failures
    assert name == "evil.tar"
    assert said in reason
    listed = untar(source, list=True, on_error="report")
    assert listed.counts["failed"] == 1
    other = archive(tmp_path / "v", ("c", "file", b"c"), name="other.tar")
    several = untar(other.parent, tmp_path / "all", on_error="report")
    assert several.counts["failed"] == 1
    evil = archive(tmp_path / "e", ("a", "file", b"a"), ("../b", "file", b"b"))
    assert untar(evil, tmp_path / "e/out", on_error="report").failures[0][1].startswith("member '../b'")
    with pytest.raises(nbdata.NotFound):
        untar(other, tmp_path / "none", members=["*.none"], on_error="report")


def test_a_hard_link_gets_no_content_of_a_later_member(inline: None, tmp_path: Path) -> None:
    """If a name comes twice, its later content already exists when the command is repeated."""
    made = [("a", "file", b"one"), ("link", "hardlink", "a"), ("a", "file", b"two")]
    (tmp_path / "a.tar").write_bytes(packed(made)[0])
    out = tmp_path / "out"
    untar(tmp_path / "a.tar", out)
    assert ((out / "a").read_bytes(), (out / "link").read_bytes()) == (b"two", b"one")
    (out / "link").unlink()
    with pytest.raises(nbdata.TransferFailed, match="has the content of a later member by now"):
        untar(tmp_path / "a.tar", out)
    untar(tmp_path / "a.tar", out, overwrite="always")
    assert ((out / "a").read_bytes(), (out / "link").read_bytes()) == (b"two", b"one")


def test_a_hard_link_gets_no_content_of_an_earlier_member_whose_follower_was_not_written(
    inline: None, tmp_path: Path
) -> None:
    made = [("a", "file", b"one"), ("a", "file", b"two"), ("link", "hardlink", "a")]
    source, out = archive(tmp_path / "v", *made), tmp_path / "out"
    for _ in range(2):
        with pytest.raises(nbdata.TransferFailed, match="a, to which it is a hard link, was not written"):
            untar(source, out, overwrite="never")
        assert os.listdir(out) == ["a"]
    assert untar(source, out, overwrite="always").ok
    assert (out / "link").read_bytes() == b"two"


def test_a_further_name_of_a_file_leaves_its_other_names_as_recorded(inline: None, tmp_path: Path) -> None:
    made = [("a", "file", b"one"), *((name, "hardlink", "a") for name in "bd")]
    made[2:2] = [("c", "hardlink", "b")]
    source, out = archive(tmp_path / "v", *made), tmp_path / "out"
    untar(source, out, exclude=["c"])
    report = untar(source, out)
    assert report.ok
    assert report.counts["unchanged"] >= 2
    assert len({(out / name).stat().st_ino for name in "abcd"}) == 1
    assert untar(source, out).counts == {"unchanged": 4}
    assert untar(source, out).details["compressed"] == 0
