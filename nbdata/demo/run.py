"""``nbdata demo``: runs the complete workflow once, on an embedded S3 server, with the public verbs.

Volumes of a real archive are in a bucket, with md5 sidecars in a separate folder. The demo pulls and checks them and
unpacks them as one stream. It pushes the files back, checks the pushed files and removes everything local. With
``--small`` the working folder may hold a tenth of the volumes; they are checked and unpacked in the store. The server
keeps its data on the same disk, so the room for all of it is checked first.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbdata.demo.dataset import DEFAULT_LIMIT, Dataset, build_dataset
from nbdata.demo.disk_watch import ChainedFiles, DiskWatch
from nbdata.demo.server import EmbeddedServer
from nbdata.demo.serverstate import emptied, private_folder, remove
from nbdata.demo.serving import BUCKET, serve
from nbdata.errors import BadOption, NotEnoughSpace
from nbdata.report import Report
from nbdata.runtime import runtime_folder, state_folder
from nbdata.sizes import counted, format_duration, format_size, parse_size
from nbdata.verbs.cleanup import cleanup
from nbdata.verbs.md5check import md5check
from nbdata.verbs.pull import pull
from nbdata.verbs.push import push
from nbdata.verbs.quota import quota
from nbdata.verbs.untar_volumes import untar_volumes

__all__ = ["main", "small_job"]

_NOTEBOOK = "notebooks/01-stage-verify-extract.ipynb"
# Bytes that the demo takes on the disk for each byte of files, measured with 120 MB and rounded up: data set and
# server, and without --small the pulled volumes and the files. A server in memory takes no disk.
_ROOM, _ROOM_SMALL, _IN_MEMORY = 3.0, 1.7, 1.3


@dataclass(frozen=True)
class _Step:
    """One row of the final table."""

    name: str
    objects: int
    bytes: int
    seconds: float


def main(words: Sequence[str]) -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="nbdata demo",
        description="Run the whole job once on an embedded S3 server, with the public verbs. Server, data set and "
        "results take three times --size on the disk: 360 MB by default, 204 MB with --small.",
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="start a store to play with, with some data in a bucket, and show lines to paste; it stays until Ctrl-C",
    )
    parser.add_argument(
        "--folder",
        help="where server, data set and results go (default: demo-data; with --serve a temporary one, which goes "
        "with it)",
    )
    parser.add_argument(
        "--size",
        help="bytes of files to pack, such as 500MB (default: this Python once, at most 120 MB; 8 MB with "
        "--serve)",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="from store to store, with a limit on the working folder of a tenth of the volumes; says what stood "
        "there. The server needs its own room: 1.7 times --size",
    )
    parser.add_argument(
        "--server", default="auto", choices=("auto", "seaweedfs", "moto"), help="which S3 server"
    )
    options = parser.parse_args(list(words))
    size = None if options.size is None else parse_size(options.size, option="--size")
    if size is not None and size < 1_000_000:
        raise BadOption(f"--size: {options.size} is too small for 20 volumes", expected="1MB or more")
    if options.serve:
        return _serve(options.folder, size, options.server)
    folder = private_folder(Path(options.folder).resolve() if options.folder else "demo-data")
    _check_room(folder, size or DEFAULT_LIMIT, small=options.small, in_memory=options.server == "moto")
    work = emptied(folder / "work")
    with EmbeddedServer.start(folder / "server", kind=options.server) as server:
        _say(f"S3 server: {server.kind} at {server.url} ({server.why})")
        os.environ.update(server.environment())
        data = build_dataset(folder / "dataset", size=size)
        _say(
            f"data set: {counted(data.members, 'files')} of this Python, {format_size(data.member_bytes)}, as "
            f"one tar.gz in {len(data.volumes)} volumes of {format_size(data.bytes)} in all"
        )
        server.create_bucket(BUCKET)
        sent = tuple(str(path.relative_to(data.folder)) for path in (*data.volumes, *data.sidecars))
        push(str(data.folder) + "/", f"s3://{BUCKET}/", include=sent, quiet=True)
        if options.small:
            small_job(data, work)
        else:
            _print_table(_job(data, work))
    _say("\nThe same job as a notebook:\n  " + _notebook_line(Path()))
    return 0


def _check_room(folder: Path, size: int, *, small: bool, in_memory: bool) -> None:
    """Raise NotEnoughSpace if server, data set and results do not fit on the disk; what an earlier run left counts."""
    factor = (_ROOM_SMALL if small else _ROOM) - _IN_MEMORY * in_memory
    there = sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))
    needed, free = max(int(size * factor) - there, 0), shutil.disk_usage(folder).free
    if needed > free:
        less = "" if small else " or --small"
        raise NotEnoughSpace(
            f"the demo needs {format_size(needed)} for its server, its data set and the results, and "
            f"{format_size(free)} are free",
            path=str(folder),
            remedy=f"Name a folder on a larger disk with --folder, or use less: --size 10MB{less}",
            details={"needed": needed, "free": free},
        )


def _serve(folder: str | None, size: int | None, kind: str) -> int:
    """Run a store until Ctrl-C, its intended end."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's script has it for `… &`
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with serve(folder=folder, size=size, server=kind) as store:
        try:
            _say(f"S3 server: {store.server.kind} at {store.server.url} ({store.server.why})")
            _say(f"{store.lines}\nCtrl-C ends it{'' if folder else ', and what is in it is gone then'}.")
            store.wait()
        except KeyboardInterrupt:
            _say("ended")
    return 0


def _job(data: Dataset, work: Path) -> list[_Step]:
    """Run the workflow of the README in an empty folder, step by step; each verb shows its own progress."""
    volumes, sidecars, files = work / "compressed", work / "md5", work / data.name
    source, pushed = f"s3://{BUCKET}", f"s3://{BUCKET}/extracted/"
    return [
        _timed("pull the volumes", lambda: pull(f"{source}/compressed/", volumes)),
        _timed("pull the md5 files", lambda: pull(f"{source}/md5/", sidecars)),
        _timed("md5check", lambda: md5check(volumes, against=sidecars)),
        _timed("untar_volumes", lambda: untar_volumes(volumes, files)),
        _timed("push", lambda: push(str(files) + "/", pushed)),
        _timed("md5check what was pushed", lambda: md5check(str(files) + "/", against=pushed)),
        _timed("cleanup", lambda: cleanup(work, all=True)),
    ]


def small_job(data: Dataset, work: Path) -> int:
    """Run the workflow from store to store with a limit on the empty working folder.

    Returns the peak disk use in bytes.
    """
    limit = data.bytes // 10
    quota(work, limit=f"{limit}B", quiet=True)
    source, unpacked = f"s3://{BUCKET}", f"s3://{BUCKET}/unpacked/"
    sums = _sums(data)
    with DiskWatch(work, state_folder(), runtime_folder()) as watch:
        steps = [
            _timed(
                "md5check in the store", lambda: md5check(f"{source}/compressed/", against=f"{source}/md5/")
            ),
            _timed("untar_volumes", lambda: untar_volumes(f"{source}/compressed/", unpacked)),
            _timed("md5check what was unpacked", lambda: md5check(unpacked, against=str(sums))),
        ]
    quota(work, limit="none", quiet=True)
    _print_table(steps)
    _say(
        f"\nOf {format_size(data.bytes)} of volumes and {format_size(data.member_bytes)} of files at most "
        f"{format_size(watch.most)} stood on the disk, all of it records; {format_size(limit)} are allowed in {work}"
    )
    return watch.most


def _sums(data: Dataset) -> Path:
    """Write the ``md5sum`` lines of the archive's files, read with Python's own tarfile, beside the data set."""
    folder = data.folder / "sums"
    remove(str(folder))
    folder.mkdir()
    with (
        ChainedFiles(data.volumes) as stream,
        tarfile.open(fileobj=stream, mode="r|gz") as archive,
        (folder / "MD5SUMS").open("w") as sums,
    ):
        for member in archive:
            if (file := archive.extractfile(member)) is not None:
                sums.write(f"{hashlib.md5(file.read()).hexdigest()}  {member.name}\n")
    return folder


def _timed(name: str, verb: Callable[[], Report]) -> _Step:
    _say(f"\n{name}")
    began = time.monotonic()
    report = verb()
    objects = report.files or report.counts.get("deleted", 0)
    size = report.bytes or report.details.get("freed", 0)
    return _Step(name, objects, size, time.monotonic() - began)


def _print_table(steps: list[_Step]) -> None:
    width = max(len(step.name) for step in steps)
    _say(f"\n{'step':{width}}  {'objects':>8}  {'bytes':>9}  {'time':>8}  {'rate':>11}")
    for step in steps:
        # For very few bytes the rate is meaningless.
        rate = (
            f"{step.bytes / step.seconds / 1e6:.1f} MB/s" if step.bytes > 1_000_000 and step.seconds else ""
        )
        _say(
            f"{step.name:{width}}  {step.objects:>8,}  {format_size(step.bytes):>9}  "
            f"{format_duration(step.seconds):>8}  {rate:>11}"
        )


def _notebook_line(here: Path) -> str:
    if not (here / _NOTEBOOK).exists():  # missing if nbdata was only installed
        return f"{_NOTEBOOK} in a checkout of nbdata"
    lab = Path(sys.executable).with_name("jupyter-lab")
    program = os.path.relpath(lab) if lab.exists() else "jupyter lab"
    if os.geteuid() == 0:  # otherwise Jupyter refuses to start
        program += " --allow-root"
    return f"{program} {_NOTEBOOK}"


def _say(text: str) -> None:
    print(text, flush=True)
