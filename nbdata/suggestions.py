"""Suggests the known word for a misspelt one, or for the word of another tool."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

__all__ = ["suggest", "suggest_verb"]

# Least likeness (from 0 to 1) of a word that is suggested.
_ALIKE = 0.6
# Options of other verbs and other tools, and their names here.
_OPTIONS = {
    "include": "members",
    "j": "concurrency",
    "jobs": "concurrency",
    "parallel": "concurrency",
    "num-workers": "concurrency",
    "threads": "concurrency",
    "transfers": "concurrency",
    "workers": "concurrency",
    "bandwidth": "max-rate",
    "bwlimit": "max-rate",
    "limit-rate": "max-rate",
    "rate": "max-rate",
}
_WHOLE = ("recursive", "r", "R")
# Verbs of other tools, and the verb here; or the advice if no verb does the same.
_VERBS = {
    "archive": "pack",
    "cat": "No verb prints an object: pull it, and read the file",
    "check": "md5check",
    "checksum": "md5check",
    "clean": "cleanup",
    "cp": "pull gets objects from a store, push sends files to one, copy goes from store to store",
    "df": "quota",
    "dir": "ls",
    "download": "pull",
    "extract": "untar_volumes",
    "fetch": "pull",
    "find": "ls",
    "get": "pull",
    "jobs": "transfers",
    "list": "ls",
    "md5": "md5check",
    "md5sum": "md5check",
    "mirror": "pull, push and copy mirror a folder with --delete",
    "mv": "push --delete-source moves files to a store; no verb moves objects within one",
    "ps": "transfers",
    "put": "push",
    "rm": "No verb deletes objects, except that pull, push and copy mirror with --delete; cleanup removes leftovers",
    "send": "push",
    "size": "du",
    "status": "transfers",
    "stream": "cache_stream",
    "sync": "pull, push and copy skip what is there already; with --delete they mirror",
    "tar": "pack",
    "unpack": "untar_volumes",
    "untar": "untar_volumes",
    "unzip": "untar_volumes",
    "upload": "push",
    "verify": "md5check",
}
_VERBS |= dict.fromkeys(("delete", "remove"), _VERBS["rm"]) | {"move": _VERBS["mv"]}


def suggest(word: str, known: Sequence[str]) -> str:
    """Suggest a remedy for a misspelt word: the nearest known one, or the list."""
    bare = {_bare(name): name for name in reversed(known)}
    typed = _bare(word)
    if typed in _WHOLE and "include" in bare:
        return "Leave it out: a folder is always taken with all folders below it"
    letter = typed.rstrip("0123456789")  # -j8 is -j with its value
    other = _OPTIONS.get(letter if len(letter) == 1 else typed, "")
    near = [other] if other in bare else difflib.get_close_matches(typed.lower(), bare, n=1, cutoff=_ALIKE)
    return f"Did you mean {bare[near[0]]}?" if near else f"Known are {', '.join(known)}"


def suggest_verb(word: str, known: Sequence[str]) -> str:
    """Suggest a remedy for a verb that does not exist: the verb that does this, or that there is none."""
    typed = word.lower().replace("-", "_")
    said = typed if typed in known else _VERBS.get(typed, "")
    if not said:
        return suggest(typed, known)
    return f"Did you mean {said}?" if said in known else said


def _bare(word: str) -> str:
    return word.lstrip("-").replace("_", "-")
