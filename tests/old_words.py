"""``make words``: counts words in `nbdata/` that have a plainer alternative, and lists their places.

A listed word may be right in its place. So the count is a hint and not a test.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

# Patterns of whole words, and their plain alternatives.
OLD = {
    r"lanes?": "multiplexer, connection slot",
    r"gather(er|ers|ing)": "batcher",
    r"crew|bring": "worker pool, submit",
    r"land(ed|ing)s?": "committed, commit",
    r"standing": "existing",
    r"judges?|judged": "checker, check",
    r"vouch(es|ed)?": "stored checksum",
    r"same lines?": "command; run it again to resume",
    r"who(ever)? (only )?\w+s\b": "name the person, process or class",
    r"what (is|was|has|had) \w+(ed|en)": "name the thing",
    r"somebody|nobody": "another process, no process",
    r"tape|marks|pump|ways|aim|apart": "what it holds or does",
    r"_ear|_mouth": "wake_reader, wake_writer",
    r"pulling|pushing|copying|streaming": "the package of the verb",
    r"a thread an object|an object a \w+": "per object",
}
ROOT = Path(__file__).parents[1]


def found(folder: Path) -> dict[str, list[str]]:
    """Return the places of each old word in a folder, as ``path:line: text``."""
    places: dict[str, list[str]] = {word: [] for word in OLD}
    patterns = {word: re.compile(rf"(?<![\w.])(?:{word})(?!\w)", re.IGNORECASE) for word in OLD}
    for path in sorted(folder.rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for word, pattern in patterns.items():
                if pattern.search(line):
                    places[word].append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    return places


def main() -> None:
    """Print the counts, and the places of one word if it is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("word", nargs="?", help="show the places of what this stands in")
    chosen = parser.parse_args().word
    for word, places in found(ROOT / "nbdata").items():
        print(f"{len(places):5}  {word:45} {OLD[word]}")
        if chosen and chosen in word:
            print("\n".join(f"       {place}" for place in places))


if __name__ == "__main__":
    main()
