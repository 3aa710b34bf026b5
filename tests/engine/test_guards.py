"""What no pull may do: keep wrong bytes, delete other people's files, run commands, trust others' folders."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.runtime import runtime_folder
from tests.engine.cache.test_cache_stream import Put
from tests.slow import SlowProxy

DATA = b"the right bytes, " * 1000


class Flipping(SlowProxy):
    """Changes one byte of the stored data on its way to the client."""

    def _forward(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        if answers:
            source = _Flipped(source)  # type: ignore[assignment]
        super()._forward(source, target, answers)

    def _wait(self, size: int, answers: bool) -> None:
        pass


class _Flipped:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def recv(self, count: int) -> bytes:
        return self._sock.recv(count).replace(b"right bytes", b"wrong bytes")

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._sock.close()


@pytest.mark.in_ci("whole")
@pytest.mark.parametrize("size", [len(DATA), 40_000_000], ids=["whole", "in parts"])
def test_bytes_that_were_changed_on_their_way_get_no_name(
    put: Put, s3: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    url = put({"d/a": (DATA * (size // len(DATA) + 1))[:size], "d/b": b"unharmed"})
    with Flipping(s3.url, rate=1) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        with pytest.raises(nbdata.TransferFailed) as caught:
            nbdata.pull(f"{url}d/", f"{tmp_path}/out", quiet=True)
    assert [path for path, _ in caught.value.report.failures] == ["a"]  # type: ignore[union-attr]
    assert "md5" in caught.value.report.failures[0][1]  # type: ignore[union-attr]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["b"]


def test_a_mirror_deletes_what_it_wrote_and_refuses_what_it_never_wrote(put: Put, tmp_path: Path) -> None:
    url = put({"d/a": b"a", "d/b": b"b"})
    out = tmp_path / "out"
    nbdata.pull(f"{url}d/", str(out), quiet=True)
    (out / "mine").write_text("not from there")
    with pytest.raises(nbdata.BadOption, match="never wrote"):
        nbdata.pull(f"{url}d/", str(out), delete=True, exclude="b", quiet=True)
    assert sorted(p.name for p in out.iterdir()) == ["a", "b", "mine"]
    (out / "mine").unlink()
    url_of_one = put({"e/a": b"a"})
    with pytest.raises(nbdata.BadOption, match="never wrote"):  # the pull came from another place
        nbdata.pull(f"{url_of_one}e/", str(out), delete=True, quiet=True)


def test_a_mirror_of_one_file_is_no_mirror_of_the_folder_around_it(put: Put, tmp_path: Path) -> None:
    url = put({"d/a": b"a"})
    (tmp_path / "mine").write_text("not from there")
    report = nbdata.pull(f"{url}d/a", tmp_path / "b", delete=True, force=True, quiet=True)
    assert report.counts == {"fetched": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "mine"]


@pytest.mark.parametrize("verb", [nbdata.pull, nbdata.push, nbdata.copy, nbdata.md5check])
def test_a_pipe_is_never_run(verb: object, tmp_path: Path) -> None:
    assert callable(verb)
    words = [f"pipe:touch {tmp_path}/run", *([f"{tmp_path}/x"] if verb is not nbdata.md5check else [])]
    with pytest.raises(nbdata.BadOption, match="never does"):
        verb(*words, quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("wrong", ["open to others", "a link"])
def test_a_runtime_folder_that_is_not_ours_alone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    folder = tmp_path / "run"
    if wrong == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        os.chmod(folder, 0o750)
    monkeypatch.setenv("NBDATA_RUNTIME_DIR", str(folder))
    with pytest.raises(nbdata.AccessDenied, match="private"):
        runtime_folder()
