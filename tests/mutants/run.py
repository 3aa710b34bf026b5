"""Take away one guard after the other, and see that a named test notices: ``make mutants``.

Each ``NAME.patch`` here begins with what the guard is for (``Guard:``), the test that must fail without it (``Test:``,
a file or one test of it), and whether it belongs to the short run (``Short:``). A patch that no longer applies is a
failure too: the guard has moved, or is gone.
"""

from __future__ import annotations

import argparse
import os
import queue
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
NEEDED = ("nbdata", "tests", "benchmarks", "docs", "pyproject.toml", "README.md")


@dataclass
class Mutant:
    """One patch."""

    name: str
    guard: str
    test: str
    short: bool

    @classmethod
    def of(cls, path: Path) -> Mutant:
        """What the head of a patch says."""
        head = dict(line.split(": ", 1) for line in path.read_text().partition("\n\n")[0].splitlines())
        return cls(path.stem, head["Guard"], head["Test"], head["Short"] == "yes")

    @property
    def patch(self) -> Path:
        """Its file."""
        return HERE / f"{self.name}.patch"


def applied(tree: Path, mutant: Mutant, *options: str) -> bool:
    """Whether its patch could be applied."""
    command = ["git", "apply", "--recount", *options, str(mutant.patch)]
    return subprocess.run(command, cwd=tree, check=False).returncode == 0


def tested(tree: Path, mutant: Mutant) -> tuple[int, str]:
    """The exit status of its test in this tree, and the end of what it said."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NBDATA_TESTED", None)
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
    """What the tests need, in a folder of its own."""
    for part in NEEDED:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, tree / part, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copy(source, tree / part)
    return tree


def _falls(mutant: Mutant, tree: Path) -> bool:
    """Whether its test notices; says what came of it."""
    assert applied(tree, mutant)
    began = time.monotonic()
    status, said = tested(tree, mutant)
    assert applied(tree, mutant, "--reverse")
    verdict = "falls" if status == 1 else f"SURVIVES (pytest's status {status})\n{said}"
    seconds = time.monotonic() - began
    print(f"{mutant.name}: {verdict}   [{mutant.guard}; {mutant.test}; {seconds:.0f} s]", flush=True)
    return status == 1


def main() -> int:
    """Run all mutants, the short ones, or some by name; 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--short", action="store_true", help="only the quick ones; all must apply")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time, each in a tree of its own")
    options = parser.parse_args()
    mutants = [Mutant.of(path) for path in sorted(HERE.glob("*.patch"))]
    wanted = [
        m
        for m in mutants
        if (not options.names or m.name in options.names) and (m.short or not options.short)
    ]
    with tempfile.TemporaryDirectory(prefix="nbdata-mutants-") as name:
        trees = [_copied(Path(name, str(number))) for number in range(options.jobs)]
        bad = {m.name for m in mutants if not applied(trees[0], m, "--check")}
        for each in sorted(bad):
            print(f"{each}: the patch does not apply: the guard has moved, or is gone")
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
            except BaseException:  # Ctrl-C: not all the others first
                workers.shutdown(wait=False, cancel_futures=True)
                raise
    print(f"{len(mutants)} mutants, {len(wanted)} run, {len(bad)} bad")
    return 1 if bad or not wanted else 0


if __name__ == "__main__":
    raise SystemExit(main())
