"""The process of a conversion; its arguments are LIFE CONTROL EVENTS LOCK.

It runs the caller's code, so it is neither the agent nor a notebook's kernel. It leads its own process group, which
ends with it. The arguments are numbers of files that its parent has opened:

- LIFE ends when the parent ends in any way. A small process waits for that, and then kills the group.
- CONTROL carries the request as a line of JSON, and a second line when the parent has reserved the disk.
- EVENTS carries the events to the parent, as lines of JSON.
- LOCK is a lock that lasts as long as any process of the group.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from nbdata.client.converting import contract
from nbdata.client.converting.contract import FILES, Copy, Source
from nbdata.client.converting.layout import SplitPlan, mend, planned
from nbdata.client.converting.overlap import refuse_overlap
from nbdata.client.converting.workers import write_parts
from nbdata.disk import disk_error, open_regular, write_file
from nbdata.errors import NbdataError, SourceChanged
from nbdata.guarded_folders import GuardedFolders, NamedFolders
from nbdata.seals import Seals
from nbdata.verbs.convert import MMDET3D

__all__ = ["Request", "main"]

# Bytes to copy at a time.
_PIECE = 1 << 20


@dataclass(frozen=True)
class Request:
    """The request to a converting process: the options of `nbdata.verbs.convert.Convert` that it needs."""

    dataset: str
    source: str
    folder: str
    mini: int | None
    store: str
    key: str
    sweeps: bool
    root: str
    run_config: bool
    file_size: int
    overwrite: str
    workers: int
    only_plan: bool
    state_dir: str
    here: tuple[str, int, int] | None


class _Events:
    """Sends events to the parent."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def say(self, event: str, **said: Any) -> None:
        self._file.write(json.dumps({"event": event, **said}).encode() + b"\n")
        self._file.flush()


def main() -> int:
    """Convert; the exit status is 0 if the last event reports the end."""
    numbers = [int(word) for word in sys.argv[1:5]]
    for number in numbers:
        os.set_inheritable(number, False)  # programs that a data set may start must not inherit them
    life, control, said, lock = numbers
    watcher = _watch(life, (control, said, lock))
    with open(control, "rb") as requests, open(said, "wb") as file:
        events = _Events(file)
        try:
            with contextlib.suppress(BrokenPipeError):
                _convert(Request(**json.loads(requests.readline())), requests, events)
                events.say("end")
            return 0
        except NbdataError as error:
            events.say("error", error=error.to_dict())
        except OSError as error:
            events.say("error", error=disk_error(error, str(error.filename or "")).to_dict())
        finally:
            os.kill(watcher, signal.SIGKILL)
            os.waitpid(watcher, 0)
    return 1


def _watch(life: int, others: tuple[int, ...]) -> int:
    """Start the process that kills this group when our parent has ended; return its pid."""
    watcher = os.fork()
    if watcher:
        os.close(life)
        return watcher
    for number in others:
        os.close(number)
    while os.read(life, 1):
        pass
    os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _convert(request: Request, requests: BinaryIO, events: _Events) -> None:
    names = GuardedFolders(request.folder, opened=NamedFolders(request.here))
    names.hold()
    source = _load(request)
    for split in source.splits:
        refuse_overlap(request.source, os.path.join(request.folder, split.name))
    seals = Seals(request.state_dir)
    if not request.only_plan:
        for split in source.splits:
            mend(request.folder, split.name, seals, names)
    plans = [
        planned(split, request.folder, request.file_size, request.overwrite, seals, names)
        for split in source.splits
    ]
    events.say("plan", **_told(plans, source))
    if request.only_plan or not requests.readline():
        return
    for plan in plans:
        if plan.action != "unchanged":
            plan.begin()
    by_name = {plan.split.name: plan for plan in plans}
    for one in write_parts(plans, request.workers):
        if one.size is not None:
            by_name[one.split].note_whole(one.part)
        events.say("written", **one._asdict())
        if one.wants:
            events.say("room", bytes=one.wants)
            if not requests.readline():
                return
    for plan in plans:
        if plan.action != "unchanged":
            events.say("split", name=plan.split.name, notes=plan.finish())
    for size in _copied(source.copies, request.folder, names):
        events.say("copied", bytes=size)


def _load(request: Request) -> Source:
    if request.dataset == MMDET3D:
        from nbdata.client.converting.mmdet3d.source import load

        return load(
            request.source,
            request.root,
            request.key,
            mini=request.mini,
            sweeps=request.sweeps,
            run=request.run_config,
        )
    return contract.load(request.dataset, request.source, request.mini, request.store)


def _told(plans: list[SplitPlan], source: Source) -> dict[str, Any]:
    splits = [
        {
            "name": plan.split.name,
            "action": plan.action,
            "samples": plan.split.count,
            "of": plan.split.of,
            "stored": plan.split.stored,
            "files": len(plan.parts),
            "kept": len(plan.kept),
            "bytes": sum(map(plan.size, plan.parts)),
            "needed": sum(map(plan.size, plan.missing)),
            "missing": len(plan.missing),
            "unproven": plan.unproven,
        }
        for plan in plans
    ]
    return {
        "splits": splits,
        "copies": len(source.copies),
        "copied": sum(copy.size for copy in source.copies),
        "notes": source.notes,
    }


def _copied(copies: list[Copy], folder: str, folders: GuardedFolders) -> Iterator[int]:
    """Copy files below a data set, each whole or not at all; yield their sizes."""
    for copy in copies:
        target = os.path.join(folder, FILES, copy.new)
        above = folders.open_to_write(os.path.dirname(target))
        try:
            with open(open_regular(copy.path), "rb") as file:
                yield write_file(target, _pieces(file, copy), folder=above).st_size
        finally:
            os.close(above)


def _pieces(file: BinaryIO, copy: Copy) -> Iterator[bytes]:
    """Yield the bytes of a file to copy: as many as were listed, for which disk is reserved."""
    left = copy.size
    while left and (piece := file.read(min(_PIECE, left))):
        left -= len(piece)
        yield piece
    if left or file.read(1):
        raise SourceChanged("a file to copy changed", path=copy.path, remedy="Run the command again")
