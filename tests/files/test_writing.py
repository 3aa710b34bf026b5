"""Files that are written to a store."""

from __future__ import annotations

import gzip
import io
import os
import random
import resource
import signal
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

import nbdata
from nbdata.files import use_for
from nbdata.transfer.uploads import remembered
from tests.faults.proxy import BODY, Fault, FaultProxy
from tests.files.conftest import Home, home_of

Put = Callable[[dict[str, bytes]], str]

DATA = random.Random(3).randbytes(19 << 20)


@pytest.mark.parametrize("size", [0, 1, 16 << 20, (16 << 20) + 1, 19 << 20])
def test_a_file_of_any_size_is_written(s3_home: Home, size: int) -> None:
    files, path = s3_home.files, f"{s3_home.path}/file"
    with files.open(path, "wb") as file:
        for start in range(0, size, 3_000_001):
            assert file.write(DATA[start : min(size, start + 3_000_001)])
        assert file.tell() == size
        assert not files.exists(path)
    assert file.made is not None
    assert files.cat_file(path) == DATA[:size]


def test_every_store_takes_files(home: Home) -> None:
    path = f"{home.path}/folder/file.txt"
    with home.files.open(path, "w", encoding="utf-8", newline="") as file:
        file.write("été\r\n")
    assert home.files.cat_file(path) == "été\r\n".encode()
    assert home.files.info(path)["size"] == 7
    assert home.files.size(path) == 7
    assert home.files.isfile(path)
    assert home.files.isdir(f"{home.path}/folder")
    with home.files.open(path, "ab") as file:
        file.write(b"more")
    assert home.files.read_text(path, encoding="utf-8", newline="") == "été\r\nmore"
    home.files.mv(path, f"{home.path}/moved")
    assert home.files.find(home.path) == [f"{home.path}/moved".lstrip("" if home.kind == "local" else "/")]
    home.files.rm(home.path, recursive=True)
    assert not home.files.exists(f"{home.path}/moved")


class _Stop(Exception):
    pass


def _fails(file: Any, data: object) -> None:
    """Write to a file in a block that raises."""
    with file as opened:
        opened.write(data)
        raise _Stop


def _opened_by(way: str, url: str) -> Any:
    if way == "nbdata.open":
        return nbdata.open(url, "wb")
    if way == "text":
        return nbdata.open(url, "w")
    if way == "gzip":
        return nbdata.filesystem(url).open(url, "wb", compression="gzip")
    with use_for("s3"):
        if way == "fsspec":
            return fsspec.open(url, "wb")
        return fsspec.open(url, "wt", compression="gzip")


WAYS = ["nbdata.open", "text", "gzip", "fsspec", "fsspec text gzip"]


@pytest.mark.filterwarnings("ignore:.*was not written, because of an exception")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [10, 18 << 20])
def test_nothing_is_left_of_a_file_whose_block_raises(s3_home: Home, way: str, size: int) -> None:
    url = f"s3://{s3_home.path}/file"
    data: object = "x" * size if "text" in way else DATA[:size]
    with pytest.raises(_Stop):
        _fails(_opened_by(way, url), data)
    assert s3_home.files.find(s3_home.path) == []
    place = s3_home.files._at(url)
    assert list(place.store.pending("")) == []
    assert not remembered(place.opened.context.state_dir)


@pytest.mark.parametrize("way", WAYS)
def test_a_file_is_written_also_while_an_earlier_exception_is_handled(s3_home: Home, way: str) -> None:
    url = f"s3://{s3_home.path}/file"
    try:
        raise _Stop
    except _Stop:
        with _opened_by(way, url) as file:
            file.write("text" if "text" in way else b"text")
    data = s3_home.files.cat_file(url)
    assert (gzip.decompress(data) if "gzip" in way else data) == b"text"


def _wait_for_what_was_forgotten() -> None:
    for thread in threading.enumerate():
        if thread.name == "files-forgotten":
            thread.join()


@pytest.mark.parametrize("way", ["nbdata.open", "text", "gzip"])
@pytest.mark.parametrize("size", [10, 19 << 20])
def test_a_file_that_is_forgotten_is_not_written(s3_home: Home, way: str, size: int) -> None:
    url = f"s3://{s3_home.path}/file"
    files = [_opened_by(way, url)]
    files[0].write("x" * size if way == "text" else DATA[:size])
    with pytest.warns(UserWarning, match="never closed"):
        files.clear()
    _wait_for_what_was_forgotten()
    place = s3_home.files._at(url)
    assert s3_home.files.find(s3_home.path) == []
    assert list(place.store.pending("")) == []
    assert not remembered(place.opened.context.state_dir)


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_write_that_failed_is_not_made_good_by_closing(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    home = home_of(kind, request, tmp_path)
    file = home.files.open(f"{home.path}/file", "wb")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (18 << 20, before[1]))
    try:
        with pytest.raises(nbdata.NbdataError, match="limit of this process"):
            file.write(DATA)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    for use in (lambda: file.write(b"more"), file.close):
        with pytest.raises(nbdata.NbdataError, match="could not be written"):
            use()
    assert file.closed
    assert home.files.find(home.path) == []


@pytest.mark.parametrize("way", ["nbdata.open", "text", "gzip"])
def test_a_block_that_ends_well_is_written_also_while_a_newer_exception_is_handled(
    s3_home: Home, way: str
) -> None:
    file = _opened_by(way, f"s3://{s3_home.path}/file")
    try:
        raise _Stop
    except _Stop:
        with file as opened:
            opened.write("text" if way == "text" else b"text")
    assert s3_home.files.find(s3_home.path) == [f"{s3_home.path}/file"]


def test_a_name_that_leads_out_of_the_folder_is_not_copied_to_the_disk(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    home = home_of("moto", request, tmp_path)
    home.files.pipe({f"{home.path}/a": b"1", f"{home.path}/b/../../../evil": b"2"})
    target = tmp_path / "one" / "target"
    target.mkdir(parents=True)
    with pytest.raises(ValueError, match=r"outside|leads out|would be copied to"):
        home.files.get(home.path, str(target), recursive=True)
    with pytest.raises(nbdata.BadOption, match="leads out"):  # older versions of fsspec come as far as this
        home.files.get_file(f"{home.path}/b/../../../evil", f"{target}/b/../../../evil")
    assert not list(tmp_path.rglob("evil"))
    home.files.get_file(f"{home.path}/a", f"{target}/../good")
    assert (tmp_path / "one" / "good").read_bytes() == b"1"


def test_a_device_is_written_to_and_not_replaced(s3_home: Home, tmp_path: Path) -> None:
    s3_home.files.pipe_file(f"{s3_home.path}/file", b"12")
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    s3_home.files.get_file(f"{s3_home.path}/file", str(tmp_path / "pipe"))
    assert os.read(reading, 10) == b"12"
    os.close(reading)


def test_a_file_that_is_moved_to_itself_stays(s3_home: Home) -> None:
    path = f"{s3_home.path}/file"
    s3_home.files.pipe_file(path, b"1")
    s3_home.files.mv(f"s3://{path}", path)
    assert s3_home.files.cat_file(path) == b"1"


def test_an_object_that_is_there_stays_until_the_new_one_is_whole(s3_home: Home) -> None:
    path = f"{s3_home.path}/file"
    s3_home.files.pipe_file(path, b"old")
    file = s3_home.files.open(path, "wb")
    file.write(DATA)
    assert s3_home.files.cat_file(path) == b"old"
    with pytest.raises(_Stop):
        _fails(file, DATA)
    assert s3_home.files.cat_file(path) == b"old"


def test_wrong_bytes_on_the_way_are_sent_again(proxy: FaultProxy, bucket: str) -> None:
    tally = proxy.begin(
        lambda request, before: Fault("flip", BODY, 0.5) if request.upload and not before else None
    )
    with nbdata.open(f"s3://{bucket}/file", "wb") as file:
        file.write(DATA)
    nbdata.filesystem("s3://").pipe_file(f"{bucket}/small", b"small one")
    assert len(tally.faults) >= 3
    assert nbdata.filesystem("s3://").cat([f"{bucket}/file", f"{bucket}/small"]) == {
        f"{bucket}/file": DATA,
        f"{bucket}/small": b"small one",
    }


def test_a_file_belongs_to_the_process_that_opened_it(s3_home: Home) -> None:
    with nbdata.open(f"s3://{s3_home.path}/file", "wb") as file:
        file.write(b"mine")
        child = os.fork()
        if not child:
            try:
                file.write(b"theirs")
            except nbdata.NbdataError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert s3_home.files.cat_file(f"{s3_home.path}/file") == b"mine"


def test_a_transaction_writes_all_files_or_none(s3_home: Home) -> None:
    files, path = s3_home.files, s3_home.path
    with files.transaction:
        for name in "ab":
            with files.open(f"{path}/{name}", "wb") as file:
                file.write(name.encode())
        assert files.find(path) == []
    assert files.cat(path, recursive=True) == {f"{path}/a": b"a", f"{path}/b": b"b"}
    with pytest.raises(_Stop), files.transaction:
        _fails(files.open(f"{path}/c", "wb"), b"c")
    assert files.find(path) == [f"{path}/a", f"{path}/b"]


def test_an_existing_file_is_not_replaced_in_mode_x(home: Home) -> None:
    path = f"{home.path}/file"
    with home.files.open(path, "xb") as file:
        file.write(b"1")
    with pytest.raises(FileExistsError):
        home.files.open(path, "xb")
    assert home.files.cat_file(path) == b"1"


@pytest.mark.parametrize("mode", ["r+", "w+b", "rw", "q", "rbt"])
def test_other_modes_are_refused(s3_home: Home, mode: str) -> None:
    with pytest.raises(ValueError, match="mode"):
        nbdata.open(f"s3://{s3_home.path}/file", mode)


def test_local_paths_give_the_builtins_file(tmp_path: object) -> None:
    path = f"{tmp_path}/file"
    with nbdata.open(path, "w+", encoding="utf-8") as file:
        assert type(file) is io.TextIOWrapper
        file.write("été")
    with nbdata.open(path, "rb", 0) as raw:
        assert raw.read() == "été".encode()
    with nbdata.open(os.open(path, os.O_RDONLY)) as by_number:
        assert by_number.read() == "été"


def test_printed_lines_are_written_without_a_warning(s3_home: Home) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with nbdata.open(f"s3://{s3_home.path}/file", "w") as file:
            print("line", file=file)
            print(os.linesep, file=file, end="")
        file.close()
    assert s3_home.files.cat_file(f"{s3_home.path}/file") == b"line\n\n"


@pytest.mark.parametrize("size", [3, 18 << 20])
def test_of_two_that_make_a_new_file_one_is_told(
    request: pytest.FixtureRequest, tmp_path: Path, size: int
) -> None:
    home = home_of("moto", request, tmp_path)
    path = f"{home.path}/file"
    with home.files.open(path, "xb") as late, home.files.open(path, "xb") as early:
        late.write(b"l" * size)
        early.write(b"e" * size)
        early.close()
        with pytest.raises(FileExistsError):
            late.close()
    assert home.files.cat_file(path) == b"e" * size
    with pytest.raises(FileExistsError):
        home.files.pipe_file(path, b"1", mode="create")
    assert list(home.files._at(path).store.pending("")) == []
