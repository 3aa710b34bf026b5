"""Read the volumes from a file that lists them: a checksum file, or ``NAME.lst`` with one name per line.

The order of a list counts. A checksum file is often in the order in which a folder was read, and names other files
too. If the names show which are volumes and in which order, the names decide.
"""

from __future__ import annotations

import os

from nbdata.archives.volumes import choose_set, set_titles
from nbdata.engine.job.run import Run
from nbdata.engine.unpack.volumes.checksum_files import LARGEST, ChecksumFiles, content_of
from nbdata.engine.unpack.volumes.finding import Candidates
from nbdata.errors import BadOption
from nbdata.integrity.checksum_files import parse_checksums
from nbdata.integrity.checksum_names import is_checksum_file
from nbdata.integrity.listed_names import beside
from nbdata.origins import is_below
from nbdata.paths import has_glob, is_url, join, last_component, leads_out
from nbdata.transfer.sources import head_of

__all__ = ["volumes_in_file"]

_PLAIN = (".lst", ".list")


def volumes_in_file(run: Run, source: str) -> tuple[tuple[str, ...], Candidates | None]:
    """The volumes that a file lists, beside it or below its folder; none if the source is no such file.

    A checksum file with one name is a sidecar, not a list. The second value holds the checksum file, if it is one. The
    user named the folder of the list, but not the volumes: `run.listed` has them.

    Raises
    ------
    BadOption
        If a line is not understood or names a file elsewhere, or if a checksum file lists several archives.
    MissingVolume
        If a checksum file lacks a volume.
    """
    name = last_component(source)
    if (
        has_glob(source)
        or source.endswith("/")
        or not (is_checksum_file(name) or name.lower().endswith(_PLAIN))
    ):
        return (), None
    location = run.open(source)
    info = head_of(run, location)
    if info is None or not 0 <= info.size <= LARGEST:
        return (), None
    data = content_of(run, location.store, info)
    names = _checked(data, name) if is_checksum_file(name) else _lines(data)
    names = beside(names)
    for one in names:
        if one.startswith("/") or "\0" in one or not is_below(one.removeprefix("./"), ""):
            raise BadOption(
                f"{name} lists {one!r}",
                expected="names of volumes beside it",
                remedy="In Python a list of volumes may name any place",
            )
    above = source.rpartition("/")[0]
    places = tuple(join(above, one.removeprefix("./")) for one in names)
    for one, place in zip(names, places, strict=True):
        if not is_url(place) and leads_out(place, above or "/"):
            raise BadOption(
                f"{name} lists {one!r}, which a link leads out of the folder of the list",
                path=place,
                expected="names of volumes beside it",
                got=os.path.realpath(place),
                remedy="In Python a list of volumes may name any place",
            )
    run.listed.update(dict.fromkeys(places, source[: source.rfind("/") + 1]))
    if not is_checksum_file(name):
        return places, None
    base = location.key[: len(location.key) - len(name)]
    checksums = ChecksumFiles(run, location.store, base, {}, {name: info})
    return places, Candidates(location.store, {}, checksums=checksums)


def _lines(data: bytes) -> list[str]:
    """The names, one per line; blank lines and those that begin with ``#`` are ignored."""
    lines = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _checked(data: bytes, name: str) -> list[str]:
    """The names in a checksum file; empty for a sidecar."""
    parsed = parse_checksums(data, name=name)
    for problem in parsed.problems:
        raise BadOption(
            f"{name}, line {problem.line}: {problem.message}",
            expected="volumes with their checksums, in order",
            remedy="Name the first volume, or their folder",
        )
    names = [entry.name for entry in parsed.entries if entry.name is not None]
    titles = set_titles(names)
    if len(titles) > 1:
        raise BadOption(
            f"{name} lists several archives: {', '.join(titles[:5])}",
            expected="the volumes of one",
            remedy="Name the folder, and choose with --set",
        )
    if len(names) < 2:
        return []
    chosen = choose_set(names) if titles else None
    if chosen is None or (chosen.format is None and {*chosen.names} != {*names}):
        return names
    return [*chosen.names]
