"""The code base stays easy to overview: few entries per folder, and no file that is too long."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "nbdata"

# The files of tests/ that may sleep: `take` of tests.slow, `wait_until`, and a campaign with its own time limit.
_MAY_SLEEP = {"slow.py", "waiting.py", "faults/kills.py"}


@pytest.mark.parametrize(("room", "most"), [("engine", 18), ("stores", 17)])
def test_a_folder_has_few_entries(room: str, most: int) -> None:
    entries = [path.name for path in (ROOT / room).iterdir() if path.name != "__pycache__"]
    assert len(entries) <= most, sorted(entries)


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in ROOT.rglob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


def test_every_file_named_in_the_ways_through_the_code_is_there() -> None:
    text = (ROOT.parent / "CONTRIBUTING.md").read_text()
    ways = text[text.index("### Ways through the code") : text.index("Rules that tests hold")]
    named = {word.strip("().,;") for word in ways.replace("`", " ").split()}
    assert [word for word in sorted(named) if word.endswith(".py") and not (ROOT / word).is_file()] == []


def test_names_that_campaigns_and_benchmarks_import_from_nbdata_exist() -> None:
    missing = []
    for folder in ("benchmarks", "tests/faults", "tests/mutants"):
        for path in sorted((ROOT.parent / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "nbdata":
                    missing += [
                        f"{path.name}: {node.module}.{one.name}"
                        for one in node.names
                        if not _there(node, one)
                    ]
    assert missing == []


def _there(node: ast.ImportFrom, one: ast.alias) -> bool:
    """True if `one` can be imported from the module, as an attribute or a submodule."""
    assert node.module is not None
    try:
        if hasattr(importlib.import_module(node.module), one.name):
            return True
        importlib.import_module(f"{node.module}.{one.name}")
    except ModuleNotFoundError as error:
        return not (error.name or "").startswith("nbdata")  # an optional package that is not installed here
    return True


def test_no_test_sleeps() -> None:
    """A test that sleeps and then finds that nothing happened also passes where it happens later: wait for an event."""
    folder = ROOT.parent / "tests"
    sleeping = [
        f"{name}:{node.lineno}"
        for path in sorted(folder.rglob("*.py"))
        if (name := str(path.relative_to(folder))) not in _MAY_SLEEP
        for node in ast.walk(ast.parse(path.read_text()))
        if _sleeps(node)
    ]
    assert sleeping == []


def _sleeps(node: ast.AST) -> bool:
    """True for `time.sleep`, however it is imported, and for a wait on an event that nobody sets."""
    match node:
        case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
            return True
        case ast.ImportFrom(module="time", names=names):
            return any(name.name == "sleep" for name in names)
        case ast.Attribute(value=ast.Call(func=ast.Attribute(attr="Event")), attr="wait"):
            return True
    return False


# Files that make calls which a disk may refuse: not on the user's disks, or where an error is right.
_OPTIONAL = {
    "acls.py": "a group that the system refuses shows in its answer",
    "agent/server.py": "the runtime folder's own files",
    "client/mapping/folders.py": "without a lock, no other process removes the folder",
    "demo/dataset.py": "the demo's folder, which needs a lock",
    "demo/serverstate.py": "the demo's folder, which needs a lock",
    "files/blocks/folder.py": "a disk without locks is refused",
    "lock_files.py": "releases locks, and takes those in the runtime folder",
    "optional_calls.py": "the place of these calls",
    "space/holders.py": "the runtime folder's own files",
    "transfer/marks.py": "writes the mark where it cannot be touched",
}


def test_calls_that_disks_refuse_are_made_where_a_refusal_is_passed_over() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if _is_optional(node)
    }
    assert found == _OPTIONAL.keys()


def _is_optional(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(
            value=ast.Name(id="os"),
            attr="fsync" | "fdatasync" | "chmod" | "fchmod" | "chown" | "fchown" | "utime" | "link",
        ):
            return True
        case ast.Attribute(value=ast.Name(id="fcntl"), attr="flock"):
            return True
    return False


# Where trees are walked or deleted by path, and why that leads nowhere. All else goes through `nbdata.guarded_trees`.
_BY_PATH = {
    "client/converting/contract.py": "walks what the caller's module names",
    "client/converting/finished.py": "walks from the descriptor of a split",
    "client/mapping/folders.py": "folders of samples, in one that this process has made",
    "client/records/general.py": "walks a data set to list its files",
    "engine/runner.py": "the rows of a job, in the private runtime folder",
    "files/mox/file.py": "does with the caller's own folders what moxing's functions do",
    "files/shifted/shutil_calls.py": "stands for shutil's functions, and lists empty folders of the caller's",
    "protocols.py": "lists the files of a slot for its reader",
    "runtime.py": "walks this package",
}


def test_trees_are_walked_and_deleted_by_path_only_where_that_is_safe() -> None:
    """A link in ``.nbdata/`` once led `cleanup` into another folder, which it emptied."""
    found = {
        name
        for path in ROOT.rglob("*.py")
        if not (name := str(path.relative_to(ROOT))).startswith("demo/")
        for node in ast.walk(ast.parse(path.read_text()))
        if _takes_a_tree(node)
    }
    assert found == _BY_PATH.keys()


def _takes_a_tree(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr="walk" | "fwalk" | "removedirs"):
            return True
        case ast.Attribute(value=ast.Name(id="shutil"), attr="rmtree" | "move" | "copytree"):
            return True
        case ast.ImportFrom(module="shutil" | "os", names=names):
            return any(name.name in ("rmtree", "move", "copytree", "walk") for name in names)
    return False
