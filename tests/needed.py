"""Prints what tests need that ``make`` can install beside Python packages: ``chromium``, ``azurite``, ``fuse`` ….

usage: needed.py [TESTS ...], as for pytest. A test declares it with a mark or a fixture (`tests.capabilities`), which
this program finds as a word in its file, or in a conftest.py or a helper of its folders. Needs nothing but Python.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
_WORDS = {
    "chromium": r"\bchromium\b",
    "azurite": r"\bazurite\b",
    "fuse": r"needs\(\"fuse|limited_disk|install-fuse",
    "archivers": r"needs\(\"(?!aistore|fuse|mounts?\"|bash|coreutils|openssl|setpriv|namespaces)|\bNEEDS\b"
    r"|install-archivers",
}


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of a test path, and all files that are no tests in its folder and the folders above."""
    if path.is_dir():
        yield from path.rglob("*.py")
    elif path.exists():
        yield path
    folder = path if path.is_dir() else path.parent
    while TESTS in folder.parents:
        yield from (one for one in folder.glob("*.py") if not one.name.startswith("test_"))
        folder = folder.parent


def needed(paths: list[Path]) -> list[str]:
    """Return what these tests need, in a fixed order."""
    inside = [path for path in paths if path == TESTS or TESTS in path.parents]
    if TESTS in inside:
        return [*_WORDS]
    texts = [file.read_text() for path in inside for file in set(_files(path))]
    return [name for name, words in _WORDS.items() if any(re.search(words, text) for text in texts)]


if __name__ == "__main__":
    print(*needed([Path(word.partition("::")[0]).resolve() for word in sys.argv[1:]]))
