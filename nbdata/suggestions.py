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
    "c": "against",
    "check": "against",
    "j": "concurrency",
    "jobs": "concurrency",
    "max-workers": "concurrency",
    "parallel": "concurrency",
    "num-workers": "concurrency",
    "numworkers": "concurrency",
    "threads": "concurrency",
    "transfers": "concurrency",
    "workers": "concurrency",
    "bandwidth": "max-rate",
    "bwlimit": "max-rate",
    "limit-rate": "max-rate",
    "max-bandwidth": "max-rate",
    "rate": "max-rate",
    "max-age": "newer-than",
    "min-age": "older-than",
    "newer": "newer-than",
    "newer-mtime": "newer-than",
    "no-progress": "quiet",
    "only-show-errors": "quiet",
    "silent": "quiet",
}
_WHOLE = "Leave it out: a folder is always taken with all folders below it"
_KEEP = "Write --overwrite never, which leaves what is there"
_RESUMES = "Leave it out: the same command resumes where it was stopped"
_SECOND = "Write the target as the second path, without an option"
_SIZES = "No option selects by size: write the paths to a file for --files-from"
_ALONE = (
    "Leave it out: a cleanup aborts the few uploads that are noted on its machine. Run it on the machines of the "
    "workers, too"
)
# Options of other tools without a name here: the option that a verb must have for the advice, and the advice.
_ADVICE = {
    **dict.fromkeys(("recursive", "r", "R"), ("include", _WHOLE)),
    **dict.fromkeys(
        ("skip-existing", "ignore-existing", "keep-existing", "no-clobber"), ("overwrite", _KEEP)
    ),
    **dict.fromkeys(("continue", "partial", "resume"), ("overwrite", _RESUMES)),
    **dict.fromkeys(
        ("C", "O", "directory", "local-dir", "o", "output", "output-document"), ("overwrite", _SECOND)
    ),
    **dict.fromkeys(("max-size", "min-size"), ("files-from", _SIZES)),
    "checksum": ("verify", "Leave it out: the bytes are compared with their checksums by default"),
    "cluster": ("only-here", _ALONE),
    "delete-source": ("delete", "Leave it out: only push deletes its source"),
    "filter": ("include", "Write --include GLOB or --exclude GLOB"),
    "inplace": ("overwrite", "Leave it out: a file gets its name when it is whole"),
}
# Verbs of other tools, and the verb here; or the advice if no verb does the same.
_VERBS = {
    "archive": "pack",
    "cat": "No verb prints an object: pull it, and read the file",
    "check": "md5check",
    "cancel": "transfers",
    "checksum": "md5check",
    "clean": "cleanup",
    "cp": "pull gets objects from a store, push sends files to one, copy goes from store to store",
    "curl": "pull",
    "df": "quota",
    "dir": "ls",
    "download": "pull",
    "extract": "untar_volumes",
    "fetch": "pull",
    "find": "ls",
    "get": "pull",
    "gunzip": "untar_volumes",
    "hash": "md5check",
    "jobs": "transfers",
    "kill": "transfers",
    "list": "ls",
    "md5": "md5check",
    "mb": "No verb makes or deletes buckets: the store's own console or program does",
    "md5sum": "md5check",
    "mirror": "pull, push and copy mirror a folder with --delete",
    "mv": "push --delete-source moves files to a store; no verb moves objects within one",
    "ps": "transfers",
    "put": "push",
    "rm": "No verb deletes objects, except that pull, push and copy mirror with --delete; cleanup removes leftovers",
    "send": "push",
    "sha256sum": "md5check",
    "size": "du",
    "stat": "ls",
    "status": "transfers",
    "stream": "cache_stream",
    "sync": "pull, push and copy skip what is there already; with --delete they mirror",
    "tar": "pack",
    "tree": "ls",
    "unpack": "untar_volumes",
    "untar": "untar_volumes",
    "unzip": "untar_volumes",
    "upload": "push",
    "verify": "md5check",
    "wget": "pull",
    "zip": "pack",
}
for _word, _same in {
    "delete": "rm",
    "remove": "rm",
    "head": "cat",
    "tail": "cat",
    "move": "mv",
    "rb": "mb",
    "rsync": "sync",
}.items():
    _VERBS[_word] = _VERBS[_same]


def suggest(word: str, known: Sequence[str]) -> str:
    """Suggest a remedy for a misspelt word: the nearest known one, or the list."""
    bare = {_bare(name): name for name in reversed(known)}
    typed = _bare(word)
    needed, advice = _ADVICE.get(typed, ("", ""))
    if needed in bare:
        return advice
    letter = typed.rstrip("0123456789")  # -j8 is -j with its value
    other = _OPTIONS.get(letter if len(letter) == 1 else typed, "")
    near = [other] if other in bare else difflib.get_close_matches(typed.lower(), bare, n=1, cutoff=_ALIKE)
    return f"Did you mean {bare[near[0]]}?" if near else f"Known are {', '.join(known)}"


def suggest_verb(word: str, known: Sequence[str]) -> str:
    """Suggest a remedy for a verb that does not exist: the verb that does this, or that there is none."""
    typed = word.lower().replace("-", "_")
    verb = typed if typed in known else _VERBS.get(typed, "")
    if not verb:
        return suggest(typed, known)
    return f"Did you mean {verb}?" if verb in known else verb


def _bare(word: str) -> str:
    return word.lstrip("-").replace("_", "-")
