"""Lists the shards of a source: names with braces, globs, lists, and the JSON index of wids."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urljoin

from nbdata.bounded import parse_json
from nbdata.errors import AccessDenied, BadOption, NotFound
from nbdata.origins import is_below, store_of
from nbdata.paths import canonical, glob_pattern, has_glob, is_inside, is_url, last_component, leads_out
from nbdata.reading.source_file import Promised, SourceFile, all_or_none, digest_of, sliced
from nbdata.redaction import redacted
from nbdata.sizes import counted
from nbdata.stores.base import Location
from nbdata.transfer.reader import Reader
from nbdata.transfer.retry import retrying
from nbdata.transfer.sources import Opener, find, folder_part
from nbdata.transfer.worker_pool import FIRST
from nbdata.verbs.samples import SampleSource

__all__ = [
    "are_shards",
    "fingerprint_elsewhere",
    "is_plain",
    "is_shard",
    "named_by_braces",
    "none_missing",
    "shards_of",
]

_SHARD = re.compile(r"(?i)\.(tar|tgz|tzst|txz|tbz2?|tar\.(gz|zst|xz|bz2))$")
_PLAIN = re.compile(r"(?i)\.tar$")
_WIDS = "wids-shard-index-v1"
# Most bytes of a JSON index.
_MOST_JSON = 64 << 20
# The most values in it: an index of 64 MiB names some 400,000 shards.
_MOST_VALUES = 4 << 20
# The most characters of the places of all its shards, and so many more for each byte of it, in which a base comes once.
_ALL_PLACES, _FOR_A_BYTE = 64 << 20, 4
# Most names of missing shards in an error.
_NAMED = 5


def is_shard(name: str) -> bool:
    """Whether a file is a tar shard, by its name."""
    return _SHARD.search(name) is not None


def is_plain(shard: SourceFile) -> bool:
    """True if the name shows that a shard is not compressed, so that single samples can be read."""
    return _PLAIN.search(shard.key) is not None


def are_shards(places: Sequence[str]) -> bool:
    """True if all places are shards, by their names; BadOption if only some are."""
    return all_or_none(_names_shards, places, "shards")


def _names_shards(place: str) -> bool:
    name = last_component(place)
    names = _expanded(name) if has_glob(name) else [name]
    return all(map(is_shard, names)) or (len(names) == 1 and name.lower().endswith(".json"))


def _expanded(pattern: str) -> list[str]:
    """Expand the braces of a pattern, in order."""
    import braceexpand

    try:
        return list(braceexpand.braceexpand(pattern))
    except ValueError:
        raise BadOption(f"{pattern!r} has an unfinished brace", remedy="Close it") from None


def named_by_braces(place: str) -> list[str]:
    """The names that a place says in braces; none if it has other wildcards, too."""
    names = _expanded(glob_pattern(place)) if has_glob(place) else []
    return [] if any(map(has_glob, names)) else names


def none_missing(place: str, names: Sequence[str], found: Container[str]) -> None:
    """Raise NotFound if not all shards that a place says in braces are there."""
    missing = [one for one in names if one not in found]
    if missing:
        shown = ", ".join(missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
        raise NotFound(
            f"{len(missing):,} of {counted(len(names), 'shards', 'are')} not there: {shown}",
            path=redacted(place),
            remedy="Check the numbers between the braces, or write a glob such as train-*.tar for those that are",
        )


def shards_of(opener: Opener) -> list[SourceFile]:
    """List the shards of a source in the order of their naming; those of a glob in key order.

    Raises
    ------
    NotFound
        If a named shard does not exist, or a glob matches nothing.
    BadOption
        If a JSON file is not an index of shards, or a shard is named twice.
    """
    operation = opener.operation
    assert isinstance(operation, SampleSource)
    shards = list[SourceFile]()
    for named, places in itertools.groupby(operation.sources, _names_one):
        if named:
            shards += _heads(opener, [*_located(opener, places)])
        else:
            shards += itertools.chain.from_iterable(_of_place(opener, place) for place in places)
    twice = _first_twice((shard.place, shard.key) for shard in shards)
    if twice is not None:
        raise BadOption("a shard is named twice", path=shards[twice].url, remedy="Name each once")
    return sliced(operation, shards)


def _first_twice(names: Iterable[object]) -> int | None:
    seen = set[object]()
    for number, name in enumerate(names):
        if name in seen:
            return number
        seen.add(name)
    return None


def _names_one(place: str) -> bool:
    """True if a place is the name of one shard, and no pattern or index."""
    return not has_glob(place) and not last_component(place).lower().endswith(".json")


def _of_place(opener: Opener, place: str) -> list[SourceFile]:
    if not has_glob(place):
        return _of_wids(opener, place)
    names = named_by_braces(place)
    base = folder_part(place)
    location = opener.open(base)
    if names and location.store.lists_by_page:
        prefix, _, query = base.partition("?")
        named = [prefix + one + (f"?{query}" if query else "") for one in names]
        return _heads(opener, [*_located(opener, named)])
    root = redacted(base).rstrip("/") + "/"
    found = {
        entry.path: SourceFile.of(base, root + entry.path, entry.info)
        for entry in find(opener, place).entries
    }
    if not names:
        return list(found.values())
    none_missing(place, names, found)
    return [found[one] for one in names]


class _Located(NamedTuple):
    """A named shard: the place that opens its store, and its location there."""

    opens: str
    location: Location


def _located(opener: Opener, places: Iterable[str]) -> Iterator[_Located]:
    """Open the places of named shards; neighbours in one bucket share a store, and the place that opens it."""
    last: _Located | None = None
    for place in places:
        location = opener.open(place)
        # A web server may tell two spellings of one path apart, and only the place has the spelling.
        shared = last is not None and not location.store.lists_by_page
        if last is None or not shared or not location.store.same_objects(last.location.store):
            last = _Located(place, location)
        yield _Located(last.opens, Location(last.location.store, location.key, redacted(place)))


def _head(opener: Opener, named: _Located) -> SourceFile:
    location = named.location
    try:
        info = retrying(opener.control, lambda: location.store.head(location.key))
    except AccessDenied as error:
        if not opener.context.knows(named.opens):
            error.remedy = (
                "Only an index names this server, so it gets no credentials: name the shards themselves"
            )
        raise
    return SourceFile.of(named.opens, location.place, info)


def _heads(opener: Opener, named: list[_Located]) -> list[SourceFile]:
    with ThreadPoolExecutor(FIRST, thread_name_prefix="asking") as asking:
        return list(asking.map(lambda one: _head(opener, one), named))


def _of_wids(opener: Opener, place: str) -> list[SourceFile]:
    """List the shards of an index that the wids library wrote."""
    location = opener.open(place)
    info = retrying(opener.control, lambda: location.store.head(location.key))
    if info.size > _MOST_JSON:
        raise _no_index(place, f"{info.size:,} bytes")
    data = bytearray()
    with Reader(opener.control, location.store, info) as reader:
        for block in reader.blocks():
            data += block
            if len(data) > _MOST_JSON:
                raise _no_index(place, "more than 64 MiB")
    try:
        named = list(_named_by(parse_json(bytes(data), values=_MOST_VALUES), place))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _no_index(place, "something else") from None
    if not named:
        raise _no_index(place, "no shards")
    if sum(len(base) + len(str(said["url"])) for base, said in named) > _ALL_PLACES + _FOR_A_BYTE * len(data):
        raise _no_index(place, "a base that is too long for so many shards")
    places = [_joined(base, str(said["url"])) for base, said in named]
    led = [*_located(opener, places)]
    _refuse_elsewhere(opener, place, zip(places, led, strict=True))
    heads = _heads(opener, led)
    return [shard._replace(promised=Promised.of(said)) for shard, (_, said) in zip(heads, named, strict=True)]


def _named_by(said: dict[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the base of each shard, and its entry, which has at least its URL."""
    if said["__kind__"] != _WIDS:
        raise ValueError
    lists = [said, *(one for one in said.get("datasets", ()) if "shardlist" in one)]
    for one in lists:
        base = str(one.get("base") or said.get("base") or place)
        for shard in one.get("shardlist", ()):
            _ = shard["url"]
            yield base, shard


def _joined(base: str, url: str) -> str:
    """Return the place of a shard in an index."""
    if base.startswith(("http://", "https://")):
        joined = urljoin(base, url)
    elif is_url(url) or url.startswith("/"):
        joined = url
    else:
        joined = base[: base.rfind("/") + 1] + url
    return canonical(joined, name="url of a shard")


def _refuse_elsewhere(opener: Opener, index: str, led: Iterable[tuple[str, _Located]]) -> None:
    """Raise BadOption if an index in a store leads out of its folder, or to files of this machine.

    An index on this disk may name any path, but no link leads a name below its folder elsewhere. ``--trust-index``
    opens other stores.
    """
    operation = opener.operation
    assert isinstance(operation, SampleSource)
    if not is_url(index):
        above = index.rpartition("/")[0] or "/"
        for place, _ in led:
            if is_inside(place, above) and leads_out(place, above):
                raise BadOption(
                    "a link leads a shard of this index out of its folder",
                    path=place,
                    expected=f"a file below {above}",
                    got=os.path.realpath(place),
                    remedy="Look where the link came from, or name the shards themselves",
                )
        return
    key = opener.open(index).key
    folder, store = key[: key.rfind("/") + 1], store_of(index)
    for place, named in led:
        if not is_url(place):
            where, remedy = "a local file", "Name the shards themselves, or copy the index to this disk"
        elif operation.trust_index or (store_of(place) == store and is_below(named.location.key, folder)):
            continue
        else:
            where = "another place"
            remedy = "Name the shards themselves, or add --trust-index (in Python trust_index=True)"
        raise BadOption(
            f"this index leads from a store to {where}",
            path=redacted(index),
            got=redacted(place),
            expected="shards in its own folder or below it",
            remedy=remedy,
        )


def _no_index(place: str, got: str) -> BadOption:
    return BadOption(
        "this is no index of shards",
        path=redacted(place),
        expected=f'JSON with "__kind__": "{_WIDS}"',
        got=got,
        remedy="Name the shards themselves, such as train-{000000..000099}.tar",
    )


def fingerprint_elsewhere(shards: Sequence[SourceFile]) -> str:
    """Return a digest that is equal for the same shards at any place; empty if one of them has no ETag."""
    if not all(shard.etag for shard in shards):
        return ""
    return digest_of([last_component(shard.key), shard.size, shard.etag] for shard in shards)
