"""Finds the names that are the volumes of one archive, and their order.

====================  ==============================================  ====================
scheme                names                                           made by
====================  ==============================================  ====================
``letters``           ``a.tar.gz.aa``, ``vol-aa``, ``xaa``, ``.aaa``  ``split``
``numbers``           ``vol-00``, ``a.tar.001``, ``a_1``, ``x00``     ``split -d``, 7-Zip
``part``              ``a.tar.part1``, ``a.tar.gz.part1of5``,         download sites
                      ``a.part01.tar.gz``, ``a-part-1-of-5.tgz``
``zip``               ``a.z01``, ``a.z02``, … ``a.zip``               ``zip -s``
``gnu``               ``a.tar``, ``a.tar-2``, ``a.tar-3``             ``tar --multi-volume``
``single``            ``a.tar.gz``                                    everybody
====================  ==============================================  ====================

A number or letters count as an index only *at the end* of a name or after the word *part*: ``train-000001.tar`` is a
whole archive, a shard. Many other names end in a number or two letters (``notes.md``, ``data_2023``). So a group counts
as a set if at least half of it is present, or if the rest of its name is an archive's and it begins near the first
volume. Names do not reveal the last volume unless they say *of 5*. If it is missing, the archive ends too early.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from nbdata.algorithms import ALGORITHMS
from nbdata.errors import BadOption, MissingVolume, NotFound
from nbdata.paths import is_ours
from nbdata.sizes import counted

__all__ = [
    "VolumeSet",
    "choose_set",
    "folder_name",
    "guess_format",
    "is_later_part",
    "numbered_sets",
    "set_prefix",
    "set_titles",
    "volume_sets",
]

_ARCHIVES = {
    ".tar": "tar",
    ".tar.gz": "tar.gz",
    ".tgz": "tar.gz",
    ".tar.bz2": "tar.bz2",
    ".tbz": "tar.bz2",
    ".tbz2": "tar.bz2",
    ".tar.xz": "tar.xz",
    ".txz": "tar.xz",
    ".tar.zst": "tar.zst",
    ".tzst": "tar.zst",
    ".tar.lz4": "tar.lz4",
    ".zip": "zip",
}
# Compressions that are not supported; listed so that `.lz` is not read as the index of a volume.
_UNSUPPORTED = (".tlz", *(f".tar.{name}" for name in ("lz", "lzo", "lzma", "z", "br", "sz", "rz", "zz")))
_COMPRESSED = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst", ".lz4": "lz4"}

_DIGITS = "0123456789"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# More digits are no index: Python makes no number of thousands of them.
_INDEX = r"[0-9]{1,18}|[a-z]{2,3}|z[a-z]{3}|zz[a-z]{4}"
# Without re.ASCII, a long s or a sign of Kelvin would count as a letter, too.
_ANY_CASE = re.IGNORECASE | re.ASCII
_SEPARATED = re.compile(rf"(.+?)([._-]part[._-]?(?=[0-9]+$|[a-z]{{2}}$)|[._-])({_INDEX})", _ANY_CASE)
# ``split`` adds no separator: its default prefix is x, and users often pass a file name as prefix.
_GLUED = re.compile(rf"((?:.*/)?x|.+\.(?:tar|tgz|zip|tar\.(?:gz|bz2|xz|zst|lz4)))()({_INDEX})")
# The number of a part, optionally with the total, before the suffix of the archive or at the end.
_PART = re.compile(
    r"(.+?)([._-]part[._-]?)([0-9]{1,18})([._-]?of[._-]?([0-9]{1,18}))?"
    r"((?:\.tar(?:\.gz|\.bz2|\.xz|\.zst|\.lz4)?|\.tgz|\.tbz2?|\.txz|\.tzst)?)",
    _ANY_CASE,
)
# Characters that may be an index at the end of a name; names that differ before them are not a set.
_AT_END = string.ascii_letters + string.digits
_ZIPPED = re.compile(r"(.+)(\.z)([0-9]{2,18})", _ANY_CASE)
_DIGESTS = "|".join(ALGORITHMS)
_SIDECAR = re.compile(
    rf".*\.({_DIGESTS}|sha224|sha384|crc|sfv|sig|asc)(sums?)?(\.txt)?"
    rf"|({_DIGESTS}|b2|check)_?sums?(\.txt)?",
    re.IGNORECASE,
)
_NEAR_START = 26
_NAMED_HOLES = 10


@dataclass(frozen=True)
class VolumeSet:
    """The volumes of one archive.

    Attributes
    ----------
    stem : str
        The common part of the names, with the folder: ``data/train.tar.gz``.
    scheme : str
        ``letters``, ``numbers``, ``part``, ``zip``, ``gnu`` or ``single``.
    names : tuple of str
        All volumes, in joining order.
    format : str or None
        The format according to the name (``tar.gz``); None if the name does not tell.
    """

    stem: str
    scheme: str
    names: tuple[str, ...]
    format: str | None


def volume_sets(names: Iterable[str], *, whole: Collection[str] = ()) -> list[VolumeSet]:
    """Find all volume sets among names, in the order of their stems.

    Parameters
    ----------
    names : iterable of str
        Names as a folder or a store lists them, in any order. Digest sidecars, hidden files and names under
        ``.nbdata/`` are not volumes. The volumes of a set share a folder.
    whole : collection of str, optional
        Names of whole archives: each is a set of its own, whatever it is called.

    Raises
    ------
    MissingVolume
        If a set has a gap.
    BadOption
        If a volume occurs twice, as ``a-1`` and ``a-01``.
    """
    return [group.ordered() for group in _groups(names, claimed=None, whole=whole)]


def numbered_sets(names: Iterable[str]) -> list[list[str]]:
    """Return the names of each set that is ordered by a number in them, whether complete or not, in their order.

    Each may be a volume, or a whole archive. Sets of ``zip -s`` and of GNU tar are not among them.
    """
    return [
        [group.texts[text] for text in sorted(group.texts, key=lambda text: (len(text), text))]
        for group in _groups(names, claimed=None)
        if group.scheme in ("letters", "numbers", "part")
    ]


def set_titles(names: Iterable[str], *, whole: Collection[str] = ()) -> list[str]:
    """List the titles of the archives among names, in the order of their stems, including incomplete ones.

    A title that occurs twice belongs to two sets, such as ``a.tar.gz`` and ``a.tar.gz.aa …``. `whole` is as for
    `volume_sets`.
    """
    return [group.title for group in _groups(names, claimed=None, whole=whole)]


def folder_name(title: str) -> str:
    """Return an archive's title without its archive suffix."""
    lower = title.lower()
    suffix = max((s for s in (*_ARCHIVES, *_COMPRESSED) if lower.endswith(s)), key=len, default="")
    bare = title[: len(title) - len(suffix)]
    return bare if bare.rpartition("/")[2] else title


def choose_set(
    names: Iterable[str], *, first: str | None = None, title: str | None = None, whole: Collection[str] = ()
) -> VolumeSet:
    """Choose the set that contains a name or has a title, or the only set.

    Parameters
    ----------
    names : iterable of str
        As for `volume_sets`; gaps in sets that are not chosen do not matter.
    first : str, optional
        Any volume of the wanted set, or an archive of any name. None means the only set.
    title : str, optional
        Title of the wanted set as listed by `set_titles`, or its `folder_name`.
    whole : collection of str, optional
        As for `volume_sets`.

    Raises
    ------
    MissingVolume, BadOption
        As for `volume_sets`. BadOption also if there are several sets and none is chosen; ``details`` then has their
        titles as ``stems``.
    NotFound
        If `first` is not among the names, no set has the title, or no name belongs to a volume.
    """
    names = list(names)
    if first is not None:
        return _set_of(first, names, whole)
    groups = _groups(names, claimed=None, whole=whole)
    if not groups:
        raise NotFound(
            f"no archive among the {counted(len(names), 'files')} there",
            expected="volumes such as a.tar.gz.aa, or one such as a.tar.gz",
            remedy="Name the archive itself; a single compressed file, such as x.csv.gz, is not looked for in folders",
        )
    stems = [group.title for group in groups]
    shown = ", ".join(stems[:_NAMED_HOLES]) + (" …" if len(stems) > _NAMED_HOLES else "")
    if title is not None:
        groups = [group for group in groups if title in (group.title, folder_name(group.title))]
        if not groups:
            raise NotFound(f"no archive is called {title}", expected=shown, remedy="Check the name of --set")
        stems = [group.title for group in groups]
    if len(groups) > 1:
        called = "" if title is None else f" of this name, {title}"
        raise BadOption(
            f"{len(groups)} archives are here{called}: {shown}",
            expected="one",
            remedy="Name the one you want with --set, or its first volume as SOURCE",
            details={"stems": stems},
        )
    return groups[0].ordered()


def guess_format(name: str) -> str | None:
    """Return the format that a name indicates: ``tar.gz`` for ``a.tgz``; None if there is none."""
    return _by_suffix(name, _ARCHIVES) or _by_suffix(name, _COMPRESSED)


def set_prefix(name: str) -> str:
    """Return the common start of all names in the set that this name may belong to."""
    part = _PART.fullmatch(name)
    return part[1] + part[2] if part is not None else name.rstrip(_AT_END)


def is_later_part(name: str) -> bool:
    """True if a name fits both an archive and a later part of one, such as ``a.part7.tar``."""
    part = _PART.fullmatch(name)
    return part is not None and bool(part[6]) and int(part[3]) > 1


def _set_of(first: str, names: list[str], whole: Collection[str]) -> VolumeSet:
    if first not in names:
        raise NotFound("no such volume", path=first, remedy="Check the name, or list its folder")
    if not _is_candidate(first):
        raise BadOption(
            f"{first} is a digest or a hidden file, not a volume", remedy="Name the first volume itself"
        )
    for group in _groups(names, claimed=first, whole=whole):
        if group.holds(first) and not _is_suffix(group):
            return group.ordered()
    return VolumeSet(first, "single", (first,), guess_format(first))


def _is_suffix(group: _Group) -> bool:
    """True if the indexes of a group look like file types, as in ``data.bin``, or ``7.jpg`` beside ``7.cls``."""
    return (
        group.scheme == "letters" and all(len(text) == 3 for text in group.texts) and not group.is_plausible()
    )


def _is_candidate(name: str) -> bool:
    folders, _, base = name.rpartition("/")
    if not base or base.startswith(".") or _SIDECAR.fullmatch(base):
        return False
    return not is_ours(folders)


def _by_suffix(name: str, suffixes: dict[str, str]) -> str | None:
    lower = name.lower()
    matching = [suffix for suffix in suffixes if lower.endswith(suffix)]
    return suffixes[max(matching, key=len)] if matching else None


@dataclass
class _Group:
    """Names that differ only in their index; it is not yet known if they form a complete set, or a set at all."""

    stem: str
    separator: str
    scheme: str
    texts: dict[str, str] = field(default_factory=dict)  # index as written -> name
    total: int | None = None  # number of volumes, if the names state it
    behind: str = ""  # text after the index: the total, and the suffix of the archive
    suffix: str = ""  # of the archive, after the index
    head: str | None = None  # gnu: the first volume, which has no number
    tail: str | None = None  # zip: the last volume, which has no number

    @property
    def title(self) -> str:
        """The name of the archive that the volumes form."""
        return self.stem + self.suffix

    @property
    def alphabet(self) -> str:
        return _LETTERS if self.scheme == "letters" or next(iter(self.texts)).isalpha() else _DIGITS

    @property
    def extended(self) -> bool:
        """True if ``split`` widened the index while writing: …, 89, 9000, … or …, yz, zaaa, …"""
        last, lengths = self.alphabet[-1], {len(text) for text in self.texts}
        return (
            len(lengths) > 1
            and min(lengths) == 2
            and all(
                len(text) % 2 == 0 and len(text) - len(text.lstrip(last)) == len(text) // 2 - 1
                for text in self.texts
            )
        )

    def numbered(self) -> dict[int, str]:
        """The names by position, counted as in the scheme."""
        alphabet, extended = self.alphabet, self.extended
        found: dict[int, str] = {} if self.head is None else {1: self.head}
        for text, name in self.texts.items():
            number = _decode(text, alphabet, extended=extended)
            if number in found:
                raise BadOption(
                    f"{found[number]} and {name} are the same volume", remedy="Remove or rename one of them"
                )
            found[number] = name
        return found

    def holds(self, name: str) -> bool:
        return name in (self.head, self.tail) or name in self.texts.values()

    def holes(self, present: Iterable[int]) -> Iterator[int]:
        """Yield missing positions in ascending order; the end is unknown unless the names state the total."""
        ordered = sorted(present)
        expected = 0 if self.alphabet is _LETTERS else min(ordered[0], 1)
        for number in ordered:
            yield from range(expected, number)
            expected = number + 1
        if self.total is not None:
            yield from range(expected, self.total + (ordered[0] > 0))

    def is_plausible(self) -> bool:
        """True if these names look like volumes rather than years, versions or file types."""
        if self.scheme in ("single", "zip", "gnu") or self.total is not None:
            return True
        alphabet, extended = self.alphabet, self.extended
        numbers = {_decode(text, alphabet, extended=extended) for text in self.texts}
        present = len(numbers)
        half = sum(1 for _ in islice(self.holes(numbers), present + 1)) <= present
        if _by_suffix(self.title, _ARCHIVES):
            return half or min(numbers) < _NEAR_START
        return half and len(self.texts) > 1

    def ordered(self) -> VolumeSet:
        if self.scheme == "single":
            return VolumeSet(self.stem, "single", (self.stem,), guess_format(self.stem))
        numbered = self.numbered()
        missing = [self._spell(number) for number in islice(self.holes(numbered), _NAMED_HOLES + 1)]
        if self.scheme == "zip" and self.tail is None:
            missing.append(self.stem)
        if missing:
            shown = ", ".join(missing[:_NAMED_HOLES]) + (" and more" if len(missing) > _NAMED_HOLES else "")
            raise MissingVolume(
                f"missing volume{'s' if len(missing) > 1 else ''} {shown}",
                path=self.title,
                got=counted(len(numbered), "volumes"),
                remedy="Fetch the missing part again, or give a folder that has all of them",
                details={"missing": missing},
            )
        names = [numbered[number] for number in sorted(numbered)]
        if self.tail is not None:
            names.append(self.tail)
        return VolumeSet(self.title, self.scheme, tuple(names), guess_format(self.title))

    def _spell(self, number: int) -> str:
        width = min(map(len, self.texts))
        index = _encode(number, self.alphabet, width, extended=self.extended)
        if self.scheme == "zip":
            return f"{self.stem[:-4]}{self.separator}{index}"
        return f"{self.stem}{self.separator}{index}{self.behind}"


def _groups(names: Iterable[str], *, claimed: str | None, whole: Collection[str] = ()) -> list[_Group]:
    """Return all groups that are sets; the group of the claimed name is always included."""
    candidates = sorted({name for name in names if _is_candidate(name)})
    groups: dict[tuple[str, ...], _Group] = {}
    for name in candidates:
        if name in whole:
            continue
        part = _PART.fullmatch(name)
        if part is not None and (part[4] or part[6]):
            stem, separator, index, behind, total, suffix = part.groups(default="")
            group = groups.setdefault(
                (stem, separator, behind, suffix),
                _Group(
                    stem,
                    separator,
                    "part",
                    total=int(total) if total else None,
                    behind=behind + suffix,
                    suffix=suffix,
                ),
            )
            group.texts[index] = name
            continue
        for pattern in (_ZIPPED, _SEPARATED, _GLUED):
            match = pattern.fullmatch(name)
            if match and match[1].rpartition("/")[2]:
                _add(groups, name, *match.groups())
                break
    _see_prefixes_of_split(groups)
    _add_unnumbered(groups, set(candidates))
    sets = []
    for group in groups.values():
        _drop_plain_archives(group)
        if group.texts and (group.is_plausible() or (claimed is not None and group.holds(claimed))):
            sets.append(group)
    used = {name for group in sets for name in (*group.texts.values(), group.head, group.tail)}
    sets += [
        _Group(n, "", "single")
        for n in candidates
        if n in whole or (n not in used and _by_suffix(n, _ARCHIVES))
    ]
    if not sets:
        sets = [_Group(n, "", "single") for n in candidates if n.lower().endswith(_UNSUPPORTED)]
    return sorted(sets, key=lambda group: (group.stem, group.separator))


def _add(groups: dict[tuple[str, ...], _Group], name: str, stem: str, separator: str, index: str) -> None:
    if separator.lower() == ".z":
        scheme, stem = "zip", stem + ".zip"
    elif "part" in separator.lower():
        scheme = "part"
    else:
        scheme = "numbers" if index.isdigit() else "letters"
    if index.isdigit():
        kind = "digits"
    elif index.islower():
        kind = "3 letters" if len(index) == 3 else "2 letters"  # 4 and 6 are 2, widened by split
    else:
        return
    key = (stem, separator, kind)
    groups.setdefault(key, _Group(stem, separator, scheme)).texts[index] = name


def _see_prefixes_of_split(groups: dict[tuple[str, ...], _Group]) -> None:
    """Tell ``x.z00 …`` and ``x.zaa …``, as ``split x.zip x.z`` makes them, from ``x.z01`` of ``zip -s`` and from types.

    ``zip -s`` counts from 1; and suffixes of three letters do not begin with z before the 16,901st volume.
    """
    for group in groups.values():
        if group.scheme == "zip" and any(not int(text) for text in group.texts):
            group.stem, group.scheme = group.stem[:-4], "numbers"
        elif (
            group.separator == "."
            and len(group.texts) > 1
            and all(len(text) == 3 and text[0] == "z" for text in group.texts)
        ):
            group.separator, group.texts = ".z", {text[1:]: name for text, name in group.texts.items()}


def _add_unnumbered(groups: dict[tuple[str, ...], _Group], names: set[str]) -> None:
    """Add ``a.zip`` to the group of ``.z01 …``, and ``a.tar`` to the group of ``a.tar-2 …``."""
    for group in groups.values():
        if group.scheme == "zip":
            spellings = (group.stem, group.stem[:-4] + ".ZIP")
            group.tail = next((name for name in spellings if name in names), None)
        elif group.scheme == "numbers" and group.separator == "-" and group.stem in names:
            first = min(int(text) for text in group.texts)
            if first >= 2 and group.stem.lower().endswith(".tar"):
                group.scheme, group.head = "gnu", group.stem


def _drop_plain_archives(group: _Group) -> None:
    """Remove ``a.tar.gz`` from ``a.tar.aa …``, unless it is the volume after ``a.tar.gy``; same for ``a.tar.lz``."""
    if group.alphabet is _LETTERS:
        for text in sorted(group.texts):
            before = _encode(max(_decode(text, _LETTERS) - 1, 0), _LETTERS, len(text))
            name = group.texts[text]
            is_archive = guess_format(name) is not None or name.lower().endswith(_UNSUPPORTED)
            if is_archive and before not in group.texts:
                del group.texts[text]


def _decode(text: str, alphabet: str, *, extended: bool = False) -> int:
    """Return the position that an index means.

    ``split`` widens an index before it runs out. It keeps the last symbol (9 or z) as a marker in front, once for each
    widening, so that names still sort as text. Source: coreutils, split.c.
    """
    base, marks = len(alphabet), (len(text) // 2 - 1 if extended else 0)
    number = 0
    for symbol in text[marks:]:
        number = number * base + alphabet.index(symbol)
    return number + _widened(base, marks)


def _encode(number: int, alphabet: str, width: int, *, extended: bool = False) -> str:
    base, marks = len(alphabet), 0
    while extended and number >= _widened(base, marks + 1):
        marks += 1
    number -= _widened(base, marks)
    text = ""
    while number or len(text) < width + marks:
        number, digit = divmod(number, base)
        text = alphabet[digit] + text
    return alphabet[-1] * marks + text


def _widened(base: int, marks: int) -> int:
    """Count the volumes before the first one with this many markers."""
    return int(base ** (marks + 1)) - base
