"""Prints the tests that reach a module of nbdata: ``make where M=nbdata/transfer/fetch.py``.

Nothing is run. A test file is found if it has the module's name, if it guards lines of the module (`tests.mutants`), or
if it imports the module, by itself or through other modules of nbdata: nearest first. Tests reach most of the engine
through verbs, so the last group is long; its tests are counted by folder. Needs nothing but Python.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_CHANGE = re.compile(r"^<<<<\n(.*?)^====\n", re.MULTILINE | re.DOTALL)


def _module(path: Path) -> str:
    """Return the dotted name of a file: ``nbdata.transfer.fetch``."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


@cache
def _imports(path: Path) -> frozenset[str]:
    """Return the modules of this project that a file imports, also inside functions."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    return frozenset(name for name in found if name.split(".")[0] in ("nbdata", "tests"))


def _test_files() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


def same_name(module: Path) -> Iterator[Path]:
    """Yield the test files of the module's name, with the folder's name before it or not."""
    wanted = {f"test_{module.stem}", f"test_{module.parent.name}_{module.stem}", f"test_{module.parent.name}"}
    folders = module.relative_to(ROOT / "nbdata").parent.parts
    for path in _test_files():
        there = path.relative_to(ROOT / "tests").parent.parts
        if path.stem in wanted and there in (folders, folders[:-1]):
            yield path


def guards(module: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the test of each mutant that changes lines of the module."""
    text = module.read_text()
    for path in sorted((ROOT / "tests/mutants").glob("*.mutant")):
        mutant = path.read_text()
        if any(lines in text for lines in _CHANGE.findall(mutant)):
            head = dict(line.split(": ", 1) for line in mutant.partition("\n\n")[0].splitlines())
            yield path.stem, head["Test"]


def importers(module: Path) -> Iterator[set[Path]]:
    """Yield the test files that import the module; then those that import what imports it; and so on."""
    sources = sorted((ROOT / "nbdata").rglob("*.py"))
    reached, seen = {_module(module)}, set[Path]()
    while reached:
        tests = {path for path in _test_files() if _imports(path) & reached} - seen
        seen |= tests
        yield tests
        nearer = {_module(path) for path in sources if _imports(path) & reached}
        known = reached | nearer
        if known == reached:
            return
        reached = known


def main() -> int:
    """Print them; the exit status is 2 without a module."""
    module = (ROOT / (sys.argv[1] if len(sys.argv) == 2 else "")).resolve()
    if module.suffix != ".py" or not module.is_file() or ROOT / "nbdata" not in module.parents:
        print("usage: make where M=nbdata/transfer/fetch.py", file=sys.stderr)
        return 2
    for path in same_name(module):
        print(f"of its name    {path.relative_to(ROOT)}")
    for name, test in guards(module):
        print(f"guards it      {test}   (mutant {name})")
    for step, tests in enumerate(importers(module)):
        if step == 0:
            for path in sorted(tests):
                print(f"imports it     {path.relative_to(ROOT)}")
        elif tests and step <= 3:
            folders = Counter("/".join(path.relative_to(ROOT).parts[:-1]) for path in tests)
            said = ", ".join(f"{folder} ({count})" for folder, count in sorted(folders.items()))
            print(f"{step} import{'s' * (step > 1)} away  {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
