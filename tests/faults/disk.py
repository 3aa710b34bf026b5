"""A model of a disk whose machine may fail at any moment: it computes which states may remain after a failure.

The model replays a log of `recording`. For each file it keeps the *sure* bytes, which are certainly on the disk, and
the changes since then; for each folder it does the same with names. Only a sync makes data sure:

- `fsync` and `fdatasync` of a file cover its bytes, but not its name;
- `fsync` of a folder covers its names, but not the content of the files;
- `syncfs` covers a whole file system.

POSIX promises this much; ext4, XFS and btrfs keep more. Each direct child of the watched folder is a separate file
system.

After a failure one of these states remains (`KINDS`, or a seed for a random state):

``nothing``
    only what is sure;
``names``
    all names, but only sure bytes: for example an empty file under its final name;
``sizes``
    all names and all sizes, with zeros for bytes that are not sure;
``bytes``
    all bytes, but only sure names;
``everything``
    all changes, as after a kill;
``all of NAME``
    one file system with all changes, and only what is sure on the others;
a seed
    each name as when it was sure or as at any time since; each change of a file kept, lost or partly kept.

Two rules hold on every file system in use. First, a rename never loses the file between its two names, and is sure when
either folder is synced. Second, a truncation reaches the disk before later writes, because freed blocks do not come
back. The model does not cover a disk that reports a sync too early, damage to sure data, an order within one sync, or
the times and permissions of files.
"""

from __future__ import annotations

import json
import mmap
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.content import Content

__all__ = ["KINDS", "Disk", "Node", "Tree", "read_log"]

KINDS = ("nothing", "names", "sizes", "bytes", "everything")
_ALL_OF = "all of "
_Looks = tuple[int, int, int]


_Change = tuple[int, memoryview | None]  # offset and data of a write; or a size and None


@dataclass(eq=False)
class Node:
    """A file, a folder or a symbolic link, independent of its names.

    Attributes
    ----------
    kind : str
        ``file``, ``folder`` or ``link``.
    target : str
        Target of a link; it is on the disk as soon as the link's name is.
    now, sure : Content
        A file's bytes as last written, and those that are certainly on the disk.
    changes : list
        Changes to a file since it was last sure.
    names, sure_names : dict of str to Node
        A folder's names as last changed, and those that are certainly on the disk.
    were : dict of str to list
        For each name of a folder, all nodes that it referred to since the last sync; None for no node.
    looks : set
        Size, mtime and ctime of a file at each of its stat calls.
    """

    kind: str
    target: str = ""
    now: Content = field(default_factory=Content)
    sure: Content = field(default_factory=Content)
    changes: list[_Change] = field(default_factory=list)
    names: dict[str, Node] = field(default_factory=dict)
    sure_names: dict[str, Node] = field(default_factory=dict)
    were: dict[str, list[Node | None]] = field(default_factory=dict)
    looks: set[_Looks] = field(default_factory=set)

    def sync(self) -> None:
        """Make the current state sure."""
        self.sure, self.changes = self.now, []
        self.sure_names, self.were = dict(self.names), {}

    def name(self, name: str, node: Node | None) -> None:
        """Let a name in this folder refer to a node, or to nothing."""
        self.were.setdefault(name, [self.names.get(name)]).append(node)
        if node is None:
            del self.names[name]
        else:
            self.names[name] = node

    def is_sure(self, name: str, node: Node | None) -> None:
        """Note that a name's node is certainly on the disk; the name may refer to another node since then."""
        if name not in self.were:
            return  # everything is sure
        if self.names.get(name) is node:
            del self.were[name]
        if node is None:
            self.sure_names.pop(name, None)
        else:
            self.sure_names[name] = node

    def left(self, kind: str, source: random.Random) -> Content:
        """Return the bytes of a file that remain in a state of this kind."""
        if kind in ("bytes", "everything"):
            return self.now
        if kind == "sizes":
            return self.sure.truncated(self.now.size)
        if kind in KINDS:
            return self.sure
        found = self.sure
        kept = [source.random() < 0.5 for _ in self.changes]
        for number, (at, data) in enumerate(self.changes):
            if data is None:
                if any(kept[number:]):
                    found = found.truncated(at)
            elif kept[number]:
                cut = source.choice([len(data), len(data), source.randrange(len(data) + 1) // 512 * 512])
                found = found.written(at, data[:cut])
            elif source.random() < 0.3:  # the size was kept, but not the bytes
                found = found.truncated(max(found.size, at + len(data)))
        return found

    def names_left(self, kind: str, source: random.Random) -> dict[str, Node]:
        """Return the names of a folder that remain in a state of this kind."""
        if kind in ("names", "sizes", "everything"):
            return self.names
        if kind in KINDS:
            return self.sure_names
        found = dict(self.sure_names)
        for name, were in self.were.items():
            chosen = source.choice([were[0], were[-1], source.choice(were)])
            if chosen is None:
                found.pop(name, None)
            else:
                found[name] = chosen
        return found


class _Rename(NamedTuple):
    """A node that was moved from an old name to a new one."""

    node: Node
    old: Node
    old_name: str
    new: Node
    new_name: str


@dataclass
class Tree:
    """The files with their bytes, links with their targets, and folders that remain, by relative path."""

    files: dict[str, Content] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    nodes: dict[str, Node] = field(default_factory=dict)

    def write(self, root: Path) -> None:
        """Write the tree into a folder; a file with several names becomes several files.

        Modes are not modelled. Only the owner may read a file, as nbdata wants it of its key.
        """
        for path in sorted(self.folders):
            (root / path).mkdir(exist_ok=True)
        for path, content in self.files.items():
            with (root / path).open("wb") as file:
                os.chmod(file.fileno(), 0o600)
                file.writelines(content.blocks())
        for path, target in self.links.items():
            (root / path).symlink_to(target)

    def below(self, folder: str) -> Tree:
        """Return the subtree below a folder, with paths relative to it."""
        start = folder + "/"

        def cut(found: Any) -> Any:
            return {path[len(start) :]: value for path, value in found.items() if path.startswith(start)}

        folders = {path[len(start) :] for path in self.folders if path.startswith(start)}
        return Tree(cut(self.files), cut(self.links), folders, cut(self.nodes))


class Disk:
    """The content of a watched folder; when the recording starts, all of it is sure."""

    def __init__(self, root: Path) -> None:
        self._root_path = os.path.realpath(root)
        self._open: dict[int, Node] = {}
        self._inodes: dict[tuple[int, int], Node] = {}
        self.root = self._read(Path(self._root_path))
        del self._inodes
        self._unsure: set[Node] = set()
        self._renames: list[_Rename] = []  # renames that are not yet sure

    def _read(self, path: Path) -> Node:
        found = path.lstat()
        known = self._inodes.get((found.st_dev, found.st_ino))
        if known is not None:
            return known
        if path.is_symlink():
            node = Node("link", os.readlink(path))
        elif path.is_dir():
            node = Node("folder", names={each.name: self._read(each) for each in path.iterdir()})
        else:
            node = Node("file", now=Content.of(path.read_bytes()))
            node.looks.add((found.st_size, found.st_mtime_ns, found.st_ctime_ns))
        node.sync()
        self._inodes[found.st_dev, found.st_ino] = node
        return node

    def _at(self, path: str) -> tuple[Node, str]:
        """Return the folder node and name of a path; for the root, the root itself and ''."""
        node = self.root
        *above, name = os.path.relpath(path, self._root_path).split("/")
        for each in above:
            node = node.names[each]
        return node, "" if name == "." else name

    def _node(self, path: str) -> Node:
        folder, name = self._at(path)
        return folder.names[name] if name else folder

    def take(self, what: list[Any], data: memoryview) -> None:
        """Apply one entry of a log; `data` holds the written bytes."""
        do, *rest = what
        if do == "open":
            self._opened(*rest)
        elif do == "close":
            del self._open[rest[0]]
        elif do == "write":
            node, at = self._open[rest[0]], rest[1]
            self._change(node, node.now.written(at, data), (at, data))
        elif do == "truncate":
            self._truncate(self._open[rest[0]], rest[1])
        elif do == "sync":
            self._sync(self._open[rest[0]])
        elif do == "syncfs":
            top = os.path.relpath(rest[0], self._root_path).split("/")[0]
            for node in _all_below(self.root.names[top], set()) & self._unsure:
                self._sync(node)
        elif do == "looks":
            self._node(rest[0]).looks.add((rest[1], rest[2], rest[3]))
        elif do == "mkdir":
            self._name(rest[0], Node("folder"))
        elif do == "symlink":
            self._name(rest[0], Node("link", rest[1]))
        elif do == "link":
            self._name(rest[1], self._node(rest[0]))
        elif do in ("unlink", "rmdir"):
            self._name(rest[0], None)
        elif do == "rename":
            node = self._node(rest[0])
            self._name(rest[1], node)
            self._name(rest[0], None)
            self._renames.append(_Rename(node, *self._at(rest[0]), *self._at(rest[1])))
        else:
            assert do == "moment", f"unknown entry {do}"

    def _opened(self, fd: int, path: str, truncated: bool) -> None:
        folder, name = self._at(path)
        if name and name not in folder.names:
            self._name(path, Node("file"))
        node = self._node(path)
        self._open[fd] = node
        if truncated:
            self._truncate(node, 0)

    def _truncate(self, node: Node, size: int) -> None:
        if node.now.size != size:
            self._change(node, node.now.truncated(size), (size, None))

    def _sync(self, node: Node) -> None:
        node.sync()
        self._unsure.discard(node)
        for rename in [each for each in self._renames if node in (each.old, each.new)]:
            rename.old.is_sure(rename.old_name, None)
            rename.new.is_sure(rename.new_name, rename.node)
            self._renames.remove(rename)

    def _change(self, node: Node, now: Content, change: _Change) -> None:
        node.now = now
        node.changes.append(change)
        self._unsure.add(node)

    def _name(self, path: str, node: Node | None) -> None:
        folder, name = self._at(path)
        folder.name(name, node)
        self._unsure.add(folder)

    def left(self, kind: str) -> Tree:
        """Return a state that may remain if the machine fails now; `kind` is in `KINDS`, ``all of NAME`` or a seed."""
        tree, source = Tree(), random.Random(kind)
        contents: dict[Node, Content] = {}
        names: dict[Node, dict[str, Node]] = {}
        favoured = kind.removeprefix(_ALL_OF) if kind.startswith(_ALL_OF) else ""
        if favoured:
            kind = "nothing"

        def names_of(folder: Node, kind: str = kind) -> dict[str, Node]:
            if folder not in names:
                names[folder] = folder.names_left(kind, source)
            return names[folder]

        if kind not in KINDS:
            for node, old, old_name, new, new_name in self._renames:
                if names_of(new).get(new_name) is not node:
                    names_of(old).setdefault(old_name, node)

        def walk(folder: Node, above: str, kind: str) -> None:
            for name, node in sorted(names_of(folder, kind).items()):
                path = above + name
                tree.nodes[path] = node
                if node.kind == "folder":
                    tree.folders.add(path)
                    walk(node, path + "/", "everything" if path == favoured else kind)
                elif node.kind == "link":
                    tree.links[path] = node.target
                else:
                    if node not in contents:
                        contents[node] = node.left(kind, source)
                    tree.files[path] = contents[node]

        walk(self.root, "", kind)
        return tree


def _all_below(node: Node, found: set[Node]) -> set[Node]:
    found.add(node)
    for each in node.names.values():
        if each not in found:
            _all_below(each, found)
    return found


def read_log(log: Path) -> Iterator[tuple[list[Any], memoryview]]:
    """Read the entries of a log, each with the bytes that were written."""
    data = memoryview(b"")
    with Path(f"{log}.bytes").open("rb") as file:
        if os.fstat(file.fileno()).st_size:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    at = 0
    with log.open(encoding="ascii") as lines:
        for line in lines:
            what = json.loads(line)
            count = what[3] if what[0] == "write" else 0
            yield what, data[at : at + count]
            at += count
