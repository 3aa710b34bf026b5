"""A call that the system refuses for one file is a failure of that file, whichever call it is; the rest is done."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.errors import NbdataError, NotEnoughSpace, TransferFailed
from nbdata.transfer.target_folder import TargetFolder

pytestmark = pytest.mark.usefixtures("inline")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Three files, of which `bad` is to fail."""
    root = tmp_path / "files"
    root.mkdir()
    for name in ("a", "bad", "z"):
        (root / name).write_bytes(name.encode() * 1000)
    return root


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Returns a function that mounts a file over another one, as containers mount single files."""
    made = []

    def mount(over: Path) -> None:
        other = tmp_path / "mounted"
        other.write_text("mounted")
        over.parent.mkdir(parents=True, exist_ok=True)
        over.write_text("below")
        subprocess.run(["mount", "--bind", str(other), str(over)], check=True)
        made.append(over)

    yield mount
    for over in made:
        subprocess.run(["umount", "-l", str(over)], check=True)


def failed(run: Callable[[], Any]) -> tuple[dict[str, int], list[list[str]]]:
    """Return the counts and failures of a run that fails for some files."""
    with pytest.raises(TransferFailed) as caught:
        run()
    report = caught.value.report
    return report.counts, report.failures


@pytest.mark.needs("mounts")
def test_a_mount_in_the_place_of_a_file_fails_that_file(
    files: Path, tmp_path: Path, mounted: Callable[[Path], None]
) -> None:
    mounted(tmp_path / "out" / "bad")
    counts, failures = failed(lambda: nbdata.pull(files, tmp_path / "out", overwrite="always", quiet=True))
    assert counts == {"fetched": 2, "failed": 1}
    assert failures[0][0] == "bad"
    assert f"{tmp_path}/out/bad" in failures[0][1]
    assert "in use" in failures[0][1]


@pytest.mark.needs("mounts")
def test_a_mount_in_the_place_of_a_member_fails_that_member(
    files: Path, tmp_path: Path, mounted: Callable[[Path], None]
) -> None:
    subprocess.run(["tar", "cf", tmp_path / "one.tar", "-C", files, "a", "bad", "z"], check=True)
    mounted(tmp_path / "out" / "bad")
    counts, failures = failed(
        lambda: nbdata.untar_volumes(tmp_path / "one.tar", tmp_path / "out", overwrite="always", quiet=True)
    )
    assert counts == {"extracted": 2, "failed": 1}
    assert "in use" in failures[0][1]


LIMITED = """
import json, resource, sys
import nbdata
limit, value = getattr(resource, sys.argv[1]), int(sys.argv[2])
resource.setrlimit(limit, (value, value))
try:
    report = nbdata.pull(sys.argv[3], sys.argv[4], quiet=True, on_error="report")
    print(json.dumps([report.counts, report.failures]))
except nbdata.NbdataError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


def limited(name: str, value: int, source: Path, target: Path) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, name, str(value), str(source), str(target)],
        capture_output=True,
        text=True,
        env={**os.environ, "NBDATA_HOST": "inline"},
        check=False,
    )
    assert done.stdout, done.stderr
    assert "internal error" not in done.stdout
    return json.loads(done.stdout)


def test_a_file_over_the_limit_of_the_process_fails_alone(files: Path, tmp_path: Path) -> None:
    with open(files / "bad", "wb") as file:
        file.truncate(2_000_000)
    counts, failures = limited("RLIMIT_FSIZE", 1_000_000, files, tmp_path / "out")
    assert counts == {"fetched": 2, "failed": 1}
    assert failures[0][0] == "bad"
    assert "larger than this disk or the limit of this process allows" in failures[0][1]
    assert "ulimit -f" in failures[0][1]


def test_too_few_descriptors_are_said_and_are_no_internal_error(files: Path, tmp_path: Path) -> None:
    for number in range(60):
        (files / f"f{number}").write_bytes(b"x" * 300_000)
    counts, failures = limited("RLIMIT_NOFILE", 20, files, tmp_path / "out")
    if (
        counts == "NbdataError"
    ):  # the moment without a descriptor was one of the job's own, not one of a file's
        assert "ulimit -n" in failures
    else:
        assert sum(counts.values()) == 63
        assert "ulimit -n" in failures[0][1]


_ERRORS = (
    "EIO",
    "EACCES",
    "ENAMETOOLONG",
    "ELOOP",
    "ESTALE",
    "EBUSY",
    "EINVAL",
    "ENODEV",
    "ETXTBSY",
    "EFBIG",
    "EMFILE",
)


def of_bad(path: object, dir_fd: int | None = None) -> bool:
    """True for the file that is to fail, by any name that a call gives it."""
    if isinstance(path, int):
        try:
            path = os.readlink(f"/proc/self/fd/{path}")
        except OSError:
            return False
    return os.path.basename(os.fspath(path)) == "bad"  # type: ignore[call-overload, no-any-return]


def refuse(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Let a call fail for the file `bad`, as target or as source."""
    real = getattr(os, call)

    def refused(*args: Any, **kwargs: Any) -> Any:
        if any(of_bad(one) for one in args[:2] if isinstance(one, (str, bytes, int))):
            raise OSError(number, os.strerror(number), args[0] if isinstance(args[0], str) else None)
        return real(*args, **kwargs)

    monkeypatch.setattr(os, call, refused)


def tar(files: Path, tmp_path: Path) -> Path:
    subprocess.run(["tar", "cf", tmp_path / "one.tar", "-C", files, "a", "bad", "z"], check=True)
    return tmp_path / "one.tar"


def streamed(files: Path, tmp_path: Path) -> Any:
    with nbdata.cache_stream(
        files, max_size="1MB", by="file", on_error="report", cache_dir=tmp_path / "cache", quiet=True
    ) as stream:
        for _ in stream:
            pass
    error = TransferFailed("told in the report")
    error.report = stream.report
    raise error


_RUNS: dict[str, Callable[[Path, Path, str], Any]] = {
    "pull": lambda files, tmp_path, url: nbdata.pull(files, tmp_path / "out", quiet=True),
    "untar_volumes": lambda files, tmp_path, url: nbdata.untar_volumes(
        tar(files, tmp_path), tmp_path / "out", quiet=True
    ),
    "push": lambda files, tmp_path, url: nbdata.push(files, url, quiet=True),
    "md5check": lambda files, tmp_path, url: nbdata.md5check(files, write=True, quiet=True),
    "cache_stream": lambda files, tmp_path, url: streamed(files, tmp_path),
}
_CALLS = [
    ("pull", "replace"), ("pull", "lstat"), ("pull", "open"), ("pull", "preadv"),
    ("untar_volumes", "replace"), ("untar_volumes", "lstat"), ("push", "open"), ("push", "read"),
    ("md5check", "open"), ("md5check", "preadv"), ("cache_stream", "preadv"), ("cache_stream", "open"),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "call"), _CALLS, ids=lambda one: one)
@pytest.mark.in_ci("pull-replace", "push-read")
def test_every_refusal_of_a_call_is_a_failure_of_its_file(
    verb: str, call: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Any
) -> None:
    place = put({})
    for number, name in enumerate(_ERRORS):
        root = tmp_path / name
        root.mkdir()
        with monkeypatch.context() as patch:
            refuse(patch, call, getattr(errno, name))
            counts, failures = failed(partial(_RUNS[verb], files, root, f"{place}{number}/"))
        assert counts.pop("failed") == 1, (name, counts)
        assert sum(counts.values()) == 2, (name, counts)
        assert [path for path, _ in failures] == ["bad"], name
        assert "internal error" not in failures[0][1], name


def test_a_refusal_that_no_code_expects_is_a_failure_of_its_file(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = TargetFolder.set_mode

    def refused(self: TargetFolder, fd: int, final: str, mode: int | None = None) -> None:
        if of_bad(final):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), final)
        real(self, fd, final, mode)

    monkeypatch.setattr(TargetFolder, "set_mode", refused)
    counts, failures = failed(lambda: nbdata.pull(files, tmp_path / "out", quiet=True))
    assert counts == {"fetched": 2, "failed": 1}
    assert f"Invalid argument): {tmp_path}/out/bad" in failures[0][1]


def test_a_full_disk_at_a_call_that_nobody_expected_still_ends_the_job(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ENOSPC", "EDQUOT"):
        with monkeypatch.context() as patch:
            refuse(patch, "lstat", getattr(errno, name))
            with pytest.raises(NotEnoughSpace):
                nbdata.pull(files, tmp_path / name, quiet=True)


def test_a_refused_call_outside_of_files_names_call_and_path(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: object, *_: object) -> None:
        os.listdir("/proc/self/mem")

    monkeypatch.setattr("nbdata.engine.job.results.Results.report", refused)
    with pytest.raises(NbdataError, match=r"listdir|no such file") as caught:
        nbdata.pull(files, tmp_path / "out", quiet=True)
    assert "internal error" not in str(caught.value)
    assert "/proc/self/mem" in str(caught.value)


def test_a_fault_of_nbdata_still_is_an_internal_error(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbdata.engine.job.results.Results.report", lambda self: {}["nothing"])
    with pytest.raises(NbdataError, match="internal error: KeyError"):
        nbdata.pull(files, tmp_path / "out", quiet=True)
