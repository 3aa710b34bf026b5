"""The machine-loss check: a simulated power failure at any moment of a command, and the same command again.

These rules hold for every state that `disk` models, at every entry of a recording:

* a final name refers to correct content, earlier content or nothing;
* each file in the index exists, and has the content that the store identifies by the recorded tag;
* a file or object that nbdata replaced does not look as if another process had replaced it;
* a part that is recorded as done holds the correct bytes; once recorded, part and record exist until the whole object
  has its final name;
* an upload with a sent part is recorded, and ``cleanup`` finds it;
* whatever is deleted at the source is safe at the target;
* whatever was deleted in the target is gone, or is still in the index and can be deleted again;
* after the end everything exists and is in the index.

For some states the tree is created on the disk, under the same names, and the same command is run again. It must
succeed, everything must be correct, and nothing of nbdata's own may remain in the target.

A file that matched the index when it was recorded must match it again. Its size and times are assumed to be on the disk
even if its bytes are not, so only the bytes decide whether the index was right. The machine has another boot id than
at the recording, and was off for minutes.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import nbdata
from nbdata.transfer.index import Record
from nbdata.transfer.part_records import PartRecord
from nbdata.transfer.staging import Staging
from nbdata.transfer.uploads import remembered
from tests.faults.case import Case, crc_line, crc_lines
from tests.faults.content import Content
from tests.faults.disk import KINDS, Disk, Node, Tree, read_log

__all__ = ["Loss"]

_OWN = ".nbdata"
# Entries that change names or make data sure. Of the other entries only one in `_SOME` is examined.
_TURNS, _SOME = ("sync", "syncfs", "rename", "unlink", "rmdir", "moment"), 10
# Seconds for which the machine was off.
_AWAY = 300


class Loss:
    """A recorded command whose machine fails at each moment.

    Parameters
    ----------
    case : Case
    scratch : Path
        An empty folder.
    environment : dict of str to str
        Environment variables for access to the store.

    Attributes
    ----------
    states, repeated : int
        The number of states examined, and of states from which the command was run again.
    """

    def __init__(self, case: Case, scratch: Path, environment: Mapping[str, str]) -> None:
        self._case, self._scratch = case, scratch
        self._right = {path: [Content.of(data) for data in all_] for path, all_ in case.right.items()}
        self._gone = {path: [Content.of(data)] for path, data in case.gone.items()}
        self._tags = {key: Content.of(data) for key, data in case.tags.items()}
        self._disk = Disk(case.root)
        self._log = scratch / "log"
        case.record(self._log, environment)
        self._known: dict[Any, tuple[Any, Any]] = {}
        self._before = {
            name: record
            for records in self._indexes(self._disk.left("nothing"))
            for name, record in records.items()
        }
        self._uploads: set[str] = set()
        self._deleted: set[str] = set()
        self._made: set[str] = set()
        self.states = self.repeated = 0

    # -- moments of the failure --------------------------------------------------------------------

    def examine(
        self, *, seeds: int, again: int, source: random.Random, all_moments: bool = True
    ) -> list[str]:
        """Let the machine fail at each moment; return the violated rules, each with an example.

        Parameters
        ----------
        seeds : int
            Number of random states for each moment, in addition to `KINDS`.
        again : int
            Number of states from which the command is run again, besides those in which something is deleted at the
            source.
        all_moments : bool
            If false, examine only the moments at which names change or data becomes sure, and some others.
        """
        wrong: dict[str, str] = {}
        log = list(read_log(self._log))
        chosen = {len(log) * (2 * number + 1) // (2 * again) for number in range(again)} if again else set()
        waiting: list[tuple[str, Tree, set[str], set[str]]] = []
        for number, (what, data) in enumerate(log, 1):
            self._disk.take(what, data)
            if what[0] == "moment":
                {"sent": self._uploads, "making": self._made, "deleting": self._deleted}[what[1]].update(
                    what[2]
                )
            kinds = [*KINDS, "all of state", "all of data", *(f"seed {number} {n}" for n in range(seeds))]
            if number in chosen or what[:2] == ["moment", "deleting"]:
                kind = source.choice(kinds) if number in chosen else KINDS[0]
                waiting.append((f"{kind}, {number}", self._disk.left(kind), {*self._made}, {*self._deleted}))
            if number < len(log) and (
                what[0] in ("close", "looks") or not (all_moments or what[0] in _TURNS or number % _SOME == 0)
            ):
                continue
            for kind in kinds:
                found = self._wrong_of(kind, end=number == len(log))
                wrong |= {_shape(each): f"{each} ({kind}, after {number}: {what[:3]})" for each in found}
        self._assert_complete()
        for where, tree, made, deleted in waiting:
            found = self._again(tree, made, deleted)
            self.repeated += 1
            wrong |= {_shape(each): f"{each} ({where})" for each in found}
        return list(wrong.values())

    def _wrong_of(self, kind: str, *, end: bool) -> list[str]:
        self.states += 1
        known = len(self._known)
        found = self._wrong(self._disk.left(kind), end=end)
        while kind.startswith("seed") and len(self._known) > known:
            self._known.popitem()  # bytes that only this state has
        return found

    def _assert_complete(self) -> None:
        """Check that the recording is complete."""
        ours, real = self._disk.left("everything"), _tree_of(self._case.root)
        assert ours.files.keys() == real.files.keys(), ours.files.keys() ^ real.files.keys()
        wrong = [path for path, content in real.files.items() if ours.files[path] != content]
        assert not wrong, f"the recording is not complete: {wrong[:3]}"
        assert (ours.links, ours.folders) == (real.links, real.folders)

    # -- the remaining state --------------------------------------------------------------------

    def _wrong(self, tree: Tree, *, end: bool) -> list[str]:
        """Return the rules that a remaining state violates."""
        case = self._case
        target = tree.below(case.target) if case.target else Tree()
        found = [*self._names(target), *self._index(tree, target, end=end), *self._parts(target)]
        found += self._remembered(tree)
        if case.whole and (end or (case.deletes and case.deletes <= self._deleted)):
            found += [f"{path} is not there" for path in self._right if path not in target.files]
            found += [f"{path} is what was before" for path in target.files if self._is_old(path, target)]
            found += [f"the link {path} is not there" for path in case.links if path not in target.links]
        return found

    def _is_old(self, path: str, target: Tree) -> bool:
        return path in self._right and not self._same(target.files[path], self._right[path][0])

    def _same(self, content: Content, right: Content) -> bool:
        return bool(self._once((id(content), id(right)), (content, right), lambda: content == right))

    def _once(self, key: Any, alive: Any, made: Callable[[], Any]) -> Any:
        """Compute a value once per key. `alive` keeps the objects alive whose ids are in the key."""
        if key not in self._known:
            self._known[key] = alive, made()
        return self._known[key][1]

    def _names(self, target: Tree) -> Iterator[str]:
        for path, content in target.files.items():
            if _OWN in path.split("/"):
                continue
            if not any(
                self._same(content, right) for right in self._right.get(path, self._gone.get(path, []))
            ):
                yield f"{path} ({content.size:,} bytes) is neither what is right nor what was before"
        for path, link in target.links.items():
            if _OWN not in path.split("/") and self._case.links.get(path) != link:
                yield f"the link {path} leads to {link}"

    def _indexes(self, tree: Tree) -> Iterator[dict[str, Record]]:
        """Yield the records of each index in a tree: files, links and folders."""
        for path, content in tree.files.items():
            if path.startswith("state/index/") and path.endswith(".log"):
                lines = self._once(id(content), content, lambda content=content: crc_lines(bytes(content))[0])
                found = {line[0]: Record(*line[1:]) if line[1:] else None for line in lines[1:]}
                yield {
                    name: record
                    for name, record in found.items()
                    if record is not None and not name.startswith(_OWN)
                }

    def _index(self, tree: Tree, target: Tree, *, end: bool) -> Iterator[str]:
        vouched, known = set[str](), set[str]()
        for records in self._indexes(tree):
            for name in self._made:
                if name in records and records[name] == self._before.get(name):
                    yield f"{name} is replaced at the store, and the index says nothing of it"
            if not self._case.target:
                continue
            known |= records.keys()
            for name, record in records.items():
                if name.endswith("/"):
                    if name[:-1] not in target.folders:
                        yield f"the index vouches for the folder {name}, which is not there"
                elif name not in target.nodes:
                    if record.local_size >= 0 and name not in self._gone:
                        yield f"the index vouches for {name}, which is not there"
                elif name in target.files:
                    good = _looks(record) in target.nodes[name].looks
                    if good:
                        vouched.add(name)
                    yield from self._one(name, record, target.files[name], good)
        for path in (self._gone.keys() & target.files.keys()) - known:
            yield f"{path} was deleted and stands there again, and the index knows nothing of it"
        if end and self._case.whole and (left := self._right.keys() - vouched):
            yield f"after the end the index does not vouch for {len(left)} files, such as {min(left)}"

    def _one(self, name: str, record: Record, content: Content, good: bool) -> Iterator[str]:
        """Yield the rules that a file and its record violate; `good` means that the file looks as recorded."""
        rights = self._right.get(name) or self._gone[name]
        said = self._tags.get((name, record.tag), rights[0])
        if good and not self._same(content, said):
            yield f"the index vouches for {name}, which is wrong"
        if not good and self._same(content, rights[0]) and said is not rights[0] and said != rights[0]:
            yield f"{name} was replaced, and looks as if somebody had changed it and its source"

    # -- parts ----------------------------------------------------------------------------------

    def _record(self, content: Content) -> PartRecord:
        def read() -> PartRecord:
            (self._scratch / "record").write_bytes(bytes(content))
            return PartRecord(Staging(str(self._scratch)), "record")

        found = self._once(("parts", id(content)), content, read)
        assert isinstance(found, PartRecord)
        return found

    def _parts(self, target: Tree) -> Iterator[str]:
        for name, content in target.files.items():
            if name.endswith(".parts"):
                record = self._record(content)
                data = target.files.get(name[:-1])
                if record.header is not None and record.done and data is not None:
                    yield from self._bytes_of_parts(record, data)
        for name, node in self._recorded():
            record = self._record(node.sure)
            if not record.header or not record.done:
                continue
            path = str(record.header["path"])
            if path in target.files and self._same(target.files[path], self._promised(record)):
                continue
            there = self._record(target.files[name]).done if name in target.files else set()
            if not record.done <= there or name[:-1] not in target.files:
                yield f"{len(record.done)} parts of {path} were recorded as done, and are not there"

    def _promised(self, record: PartRecord) -> Content:
        assert record.header is not None
        return self._tags[str(record.header["path"]), str(record.header["validator"])]

    def _bytes_of_parts(self, record: PartRecord, data: Content) -> Iterator[str]:
        right = self._promised(record)
        assert record.header is not None
        size = int(str(record.header["part"]))
        for number in record.done:
            start, end = number * size, min((number + 1) * size, right.size)
            key = ("part", id(data), id(right), number)
            if not self._once(key, (data, right), lambda s=start, e=end: data.same(right, s, e)):
                yield f"part {number} is recorded as done, and its bytes are wrong"

    def _recorded(self) -> Iterator[tuple[str, Node]]:
        """Yield the part records in the target at this moment, before the failure."""
        folder: Node | None = self._disk.root
        for name in [*filter(None, self._case.target.split("/")), _OWN]:
            folder = folder.names.get(name) if folder is not None else None
        for name, node in folder.names.items() if folder is not None else ():
            if name.endswith(".parts"):
                yield f"{_OWN}/{name}", node

    # -- uploads --------------------------------------------------------------------------------

    def _remembered(self, tree: Tree) -> Iterator[str]:
        state = self._disk.root.names.get("state")
        now = state.names.get("uploads.log") if state is not None else None
        if now is None or not self._uploads:
            return
        left = tree.files.get("state/uploads.log", Content())
        for upload in (self._uploads & self._ids(now.now)) - self._ids(left):
            yield f"a part of the upload {upload} was sent, and it is not remembered"

    def _ids(self, content: Content) -> set[str]:
        def read() -> set[str]:
            (self._scratch / "uploads.log").write_bytes(bytes(content))
            return set(remembered(str(self._scratch)))

        return set(self._once(("uploads", id(content)), content, read))

    # -- the repeated command ---------------------------------------------------------------------

    def _again(self, tree: Tree, made: set[str], deleted: set[str]) -> list[str]:
        """Create the remaining state, run the command again, and return what is wrong then."""
        case = self._case
        shutil.rmtree(case.root)
        case.root.mkdir()
        case.reset(made, deleted)
        tree.write(case.root)
        then = time.time() - _AWAY
        for name in (*tree.files, *tree.links, *tree.folders):
            os.utime(case.root / name, (then, then), follow_symlinks=False)
        self._look_as_recorded(tree)
        try:
            report = getattr(nbdata, case.verb)(**case.options, quiet=True)
        except nbdata.NbdataError as error:
            return [f"said again: {error}"]
        found = [] if report.ok else [f"said again: {report!r}"]
        real = _tree_of(case.root)
        target = real.below(case.target) if case.target else Tree()
        found += [f"said again: {path} is left" for path in target.nodes if _OWN in path.split("/")]
        found += [f"said again: {each}" for each in case.ended()]
        if case.whole:
            rights = {path: all_[0] for path, all_ in self._right.items()}
            found += [f"said again: {path} is not there" for path in rights.keys() - target.files.keys()]
            found += [
                f"said again: {path} is wrong" for path, right in rights.items()
                if path in target.files and target.files[path] != right
            ]  # fmt: skip
            found += [f"said again: {path} is still there" for path in target.files if path not in rights]
            if dict(target.links) != dict(case.links):
                found.append("said again: the links are not as they should be")
        return found

    def _look_as_recorded(self, tree: Tree) -> None:
        """Write the inodes and times of the tree on the disk into the index."""
        case = self._case
        if not case.target or not (case.root / case.target).is_dir():
            return
        place = (case.root / case.target).stat()
        for path in [
            path for path in tree.files if path.startswith("state/index/") and path.endswith(".log")
        ]:
            lines, rest = crc_lines((case.root / path).read_bytes())
            if not lines:
                continue
            lines[0][2:4] = [place.st_dev, place.st_ino]
            for line in lines[1:]:
                name = f"{case.target}/{line[0]}"
                if len(line) == 1 + len(Record._fields) and name in tree.nodes:
                    looks = (line[3], line[4], line[5])
                    whole = name in tree.links or (name in tree.files and tree.files[name].size == line[3])
                    if looks in tree.nodes[name].looks and whole:
                        now = (case.root / name).lstat()
                        line[3:] = [now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino]
            (case.root / path).write_bytes(b"".join(map(crc_line, lines)) + rest)


def _shape(found: str) -> str:
    """Return a message without its numbers, to group similar messages."""
    return re.sub("[0-9a-f]*[0-9][0-9a-f]*", "N", found)


def _looks(record: Record) -> tuple[int, int, int]:
    return record.local_size, record.mtime_ns, record.ctime_ns


def _tree_of(root: Path) -> Tree:
    """Read the tree below a folder."""
    return Disk(root).left("everything")
