"""Removes one guard after the other and checks that its test fails: ``make mutants``.

Each ``NAME.mutant`` in this folder begins with three headers. ``Guard:`` is the purpose of the guard. ``Test:`` is a
test file, or one test in it, that must fail without the guard. ``Short:`` says if the mutant is in the short run.
``Needs:`` may name a package that the test needs and that ``make test`` does not install; a run without it leaves the
mutant out, and says so.

The changes follow. Each change replaces the whole lines between ``<<<<`` and ``====`` with the lines up to ``>>>>``.
Changes name no file, so code may move. The lines must occur exactly once in nbdata/; otherwise the mutant fails,
because the guard was rewritten or removed.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# The lines to replace, and their replacement.
_CHANGE = re.compile(r"^<<<<\n(.*?)^====\n(.*?)^>>>>$", re.MULTILINE | re.DOTALL)
_numbers = itertools.count(1)
NEEDED = ("nbdata", "tests", "benchmarks", "docs", "pyproject.toml", "README.md")


@dataclass
class Mutant:
    """A guard, its test, and the changes that remove the guard."""

    name: str
    guard: str
    test: str
    short: bool
    needs: str
    changes: list[tuple[str, str]]

    @classmethod
    def of(cls, path: Path) -> Mutant:
        """Read a mutant file."""
        text = path.read_text()
        head = dict(line.split(": ", 1) for line in text.partition("\n\n")[0].splitlines())
        changes = _CHANGE.findall(text)
        if not changes:
            raise ValueError(f"{path}: no change between <<<<, ==== and >>>>")
        needs = head.get("Needs", "")
        return cls(path.stem, head["Guard"], head["Test"], head["Short"] == "yes", needs, changes)

    def applied(self, tree: Path) -> dict[Path, str]:
        """Return the new texts of the files that it changes, by path; write nothing.

        Raises
        ------
        ValueError
            If the lines to replace do not occur exactly once.
        """
        found: dict[Path, str] = {}
        texts = {path: path.read_text() for path in sorted((tree / "nbdata").rglob("*.py"))}
        for old, new in self.changes:
            places = [(path, text.count(old)) for path, text in texts.items() if old in text]
            if sum(count for _, count in places) != 1:
                shown = (
                    ", ".join(f"{path.relative_to(tree)} ({count})" for path, count in places) or "no file"
                )
                raise ValueError(f"lines that must stand in one place of nbdata/ stand in {shown}:\n{old}")
            path = places[0][0]
            texts[path] = found[path] = texts[path].replace(old, new)
        return found


def tested(tree: Path, mutant: Mutant) -> tuple[int, str]:
    """Run the mutant's test in a tree; return the exit status and the end of the output."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    for name in ("NBDATA_TESTED", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:nbval",
        mutant.test,
    ]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout[-1500:] + done.stderr[-500:]


def _copied(tree: Path) -> Path:
    """Copy the files that the tests need into a separate folder, and return the copy."""
    for part in NEEDED:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, tree / part, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copy(source, tree / part)
    return tree


def _falls(mutant: Mutant, tree: Path) -> bool:
    """True if the mutant's test fails as it should; prints the result."""
    mutated = mutant.applied(tree)
    before = {path: (path.read_text(), path.stat().st_mtime) for path in mutated}
    for path, text in mutated.items():
        path.write_text(text)
        # A time of its own, or Python could use the bytecode of another text of the same size.
        at = before[path][1] + next(_numbers)
        os.utime(path, (at, at))
    began = time.monotonic()
    try:
        status, said = tested(tree, mutant)
    finally:
        for path, (text, at) in before.items():
            path.write_text(text)
            os.utime(path, (at, at))
    verdict = "falls" if status == 1 else f"SURVIVES (pytest's status {status})\n{said}"
    seconds = time.monotonic() - began
    print(f"{mutant.name}: {verdict}   [{mutant.guard}; {mutant.test}; {seconds:.0f} s]", flush=True)
    return status == 1


def _why_not(mutant: Mutant, tree: Path) -> str:
    """Return why a mutant cannot run on this machine; '' if it can."""
    try:
        mutant.applied(tree)
    except ValueError as error:
        return str(error)
    file, _, name = mutant.test.partition("::")
    text = (tree / file).read_text() if (tree / file).is_file() else ""
    there = f"def {name.partition('[')[0]}(" in text if name else (tree / file).exists()
    return "" if there else f"there is no test {mutant.test}"


def main() -> int:
    """Run all mutants, the short ones, or those named; return 1 if a test passes without its guard."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--short", action="store_true", help="only the quick ones; all must apply")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time, each in a tree of its own")
    options = parser.parse_args()
    mutants = [Mutant.of(path) for path in sorted(HERE.glob("*.mutant"))]
    wanted = [
        m
        for m in mutants
        if (not options.names or m.name in options.names) and (m.short or not options.short)
    ]
    with tempfile.TemporaryDirectory(prefix="nbdata-mutants-") as folder:
        trees = [_copied(Path(folder, str(number))) for number in range(options.jobs)]
        reasons = {m.name: why for m in mutants if (why := _why_not(m, trees[0]))}
        for name, why in reasons.items():
            print(f"{name}: {why}")
        bad = set(reasons)
        left_out = [m for m in wanted if m.needs and importlib.util.find_spec(m.needs) is None]
        wanted = [m for m in wanted if m not in left_out]
        for mutant in left_out:
            print(f"{mutant.name}: NOT RUN, because {mutant.needs} is not installed")
        free = queue.SimpleQueue[Path]()
        for tree in trees:
            free.put(tree)

        def run(mutant: Mutant) -> None:
            tree = free.get()
            try:
                if not _falls(mutant, tree):
                    bad.add(mutant.name)
            finally:
                free.put(tree)

        with ThreadPoolExecutor(options.jobs) as workers:
            try:
                for done in [workers.submit(run, mutant) for mutant in wanted if mutant.name not in bad]:
                    done.result()
            except BaseException:  # for Ctrl-C: do not run all the others first
                workers.shutdown(wait=False, cancel_futures=True)
                raise
    print(f"{len(mutants)} mutants, {len(wanted)} run, {len(left_out)} left out, {len(bad)} bad")
    return 1 if bad or not wanted else 0


if __name__ == "__main__":
    raise SystemExit(main())
