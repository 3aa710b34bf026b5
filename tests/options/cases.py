"""For each shared option of each verb: a small scene in which it must matter, or the reason why there is none."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import nbdata
from nbdata.operation import Operation
from tests.hostile.bombs import zstd_of_zeros

from .observing import counted_by_rate, met, planned, results, selected
from .scenes import FILES, LARGE, Place, Shelf, tar

__all__ = ["AGES", "CASES", "FILTERS", "LIMITS", "REASONS", "Case", "Scene"]

#: Options that change nothing that a test could observe, by verb and option.
REASONS: dict[tuple[str, str], str] = {
    ("ls", "concurrency"): "a listing asks for one page after the other",
    ("du", "concurrency"): "a listing asks for one page after the other",
    ("copy", "ignore_space"): "it takes no room on the disk",
    ("shards", "ignore_space"): "it takes no room on the disk, but for an index in the state folder",
    ("cleanup", "ignore_space"): "it takes no room on the disk",
    ("delete", "ignore_space"): "it takes no room on the disk",
    ("delete", "max_rate"): "it moves no bytes",
    ("delete", "concurrency"): "one request deletes a thousand objects",
    ("delete", "on_error"): "a store has to refuse it: see tests/engine/upkeep/test_delete.py",
    ("cleanup", "max_rate"): "it moves no bytes",
    ("cleanup", "concurrency"): "it asks for one deletion after the other",
    (
        "cleanup",
        "on_error",
    ): "what root cannot delete needs a broken disk; all verbs share `engine/job/results.py`",
    ("mount", "verify"): "it moves nothing; tests/files/mounted reads wrong bytes with it and without",
    **{
        (verb, option): why
        for verb in ("copy", "md5check", "pack", "pull", "push", "shards", "untar_volumes")
        for option, why in (
            ("cluster", "other processes make the same files, objects and report: tests/cluster"),
            ("insecure_cluster", "it only lifts a refusal: tests/cluster/test_closed.py"),
            ("send_credentials", "the workers read the same with it: tests/cluster/test_credentials.py"),
        )
    },
    ("cleanup", "fs"): "no file system of fsspec tells unfinished uploads, and files below a path are local",
}

#: The arguments of a verb and the options that both runs have.
Scene = Callable[[Place], "tuple[tuple[Any, ...], dict[str, Any]]"]


@dataclass
class Case:
    """One option of one verb in one scene.

    Attributes
    ----------
    verb, option : str
    scene : callable
        Sets the scene up and returns the arguments, and the options of both runs.
    value : object or callable
        The value of the option, or a function that makes it in the scene.
    observe : callable
        Returns what has to differ: see `observing`.
    fewer : bool
        Whether the option must leave fewer paths, but some.
    form : str
        The form of the verb, if there are several.
    """

    verb: str
    option: str
    scene: Scene
    value: Any
    observe: Callable[[Callable[[], Operation]], object] = planned
    fewer: bool = False
    form: str = field(default="")

    def __str__(self) -> str:
        return f"{self.form or self.verb}-{self.option}"


# -- include, exclude, samples, limits, lists --------------------------------------------------------

_FORMS: dict[str, Scene] = {
    "pull": lambda p: ((p.folder(), p.root / "target"), {}),
    "push": lambda p: ((p.folder(), f"{p.root}/target/"), {}),
    "copy": lambda p: ((p.url(), p.url("target", {})), {}),
    "delete": lambda p: ((p.url(),), {"yes": True}),
    "md5check": lambda p: ((p.summed(),), {}),
    "md5check --against": lambda p: ((p.folder(),), {"against": p.url()}),
    "md5check --write": lambda p: ((p.folder(),), {"write": True}),
    "md5check --write sidecars": lambda p: ((p.folder(),), {"write": "sidecars"}),
    "md5check --repair": lambda p: (
        (p.summed(),),
        {"repair": p.folder("other", dict.fromkeys(FILES, b"wrong"))},
    ),
    "cache_stream": lambda p: ((p.folder(),), {"by": "file", "cache_dir": p.root / "cache"}),
    "samples": lambda p: ((p.folder(),), {"by": "file"}),
    "samples of a packed folder": lambda p: ((_packed(p),), {"by": "file"}),
    "pack": lambda p: ((p.folder(), p.root / "out/%06d.tar"), {"by": "file"}),
    "pack to an archive": lambda p: ((p.folder(), p.root / "out/x.zip"), {}),
    "pack to files": lambda p: ((p.folder(), f"{p.root}/out/"), {"by": "file", "format": "files"}),
    "pack to FFRecord": lambda p: ((p.folder(), p.root / "out/x.ffr"), {"by": "file"}),
}


def _packed(place: Place) -> str:
    target = f"{place.root}/packed.ffr"
    nbdata.pack(place.folder(), target, by="file", quiet=True)
    return target


# Another seed that draws other files.
_SEED = 3
#: A value for each option that filters by name, by time, and for each that selects a part of the rest.
FILTERS: dict[str, Any] = {"include": "*.jpg", "exclude": "*.jpg"}
AGES: dict[str, Any] = {"newer_than": Place.between, "older_than": Place.between}
LIMITS: dict[str, Any] = {
    "max_files": 2,
    "max_bytes": 25,
    "sample": 2,
    "files_from": lambda place: place.list("a/1.jpg", "b/4.txt"),
}


def _selecting() -> Iterator[Case]:
    for form, scene in _FORMS.items():
        verb = form.split()[0]
        for option, value in FILTERS.items():
            yield Case(verb, option, scene, value, selected, fewer=True, form=form)
        for option, value in AGES.items():
            if form != "samples of a packed folder":
                yield Case(verb, option, scene, value, selected, fewer=True, form=form)
            else:  # it keeps no times, so this is refused
                yield Case(verb, option, scene, value, results, form=form)
        if verb in ("samples", "pack"):
            continue
        for option, value in LIMITS.items():
            yield Case(verb, option, scene, value, selected, fewer=True, form=form)
        yield Case(verb, "seed", functools.partial(_with, scene, sample=2), _SEED, selected, form=form)


def _with(scene: Scene, place: Place, **more: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    places, options = scene(place)
    return places, {**options, **more}


# -- mirrors -----------------------------------------------------------------------------------------


def _mirror(verb: str, files: dict[str, bytes], **base: Any) -> Scene:
    """Return a scene whose target holds these files."""
    return lambda p: (
        (
            p.url() if verb == "copy" else p.folder(),
            p.folder("target", files) if verb == "pull" else p.url("target", files),
        ),
        base,
    )


def _mirroring() -> Iterator[Case]:
    for verb in ("pull", "push", "copy"):
        yield Case(verb, "overwrite", _mirror(verb, {"a/1.jpg": b"another"}), "never")
        yield Case(verb, "size_only", _mirror(verb, {"a/1.jpg": b"0123456789"}), True)
        yield Case(verb, "delete", _mirror(verb, {"more": b"x"}, force=True), True)
        yield Case(verb, "force", _mirror(verb, {"more": b"x"}, delete=True), True)


# -- proof -------------------------------------------------------------------------------------------


def _shard(place: Place, data: bytes) -> str:
    return str(place.folder("shards", {"x.tar": data}) / "x.tar")


# A disk keeps no MD5 of a file.
_verifying = [
    Case("pull", "verify", _FORMS["pull"], "md5", results),
    Case("cache_stream", "verify", _FORMS["cache_stream"], "md5", results),
    Case("samples", "verify", _FORMS["samples"], "md5", results),
    Case("samples", "verify", lambda p: ((_shard(p, tar()),), {}), "md5", results, form="samples of shards"),
    Case("pack", "verify", _FORMS["pack"], "md5", results),
    Case("pack", "verify", _FORMS["pack to an archive"], "md5", results, form="pack to an archive"),
    Case("shards", "verify", lambda p: (("verify", _shard(p, tar())), {}), "md5", results),
]


# -- indexes -----------------------------------------------------------------------------------------


def _led(place: Place) -> str:
    """Put an index that names a shard in another folder into the store, and return its place."""
    shard = place.url("more", {"x.tar": tar()}) + "x.tar"
    said = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [{"url": shard}]}
    return place.url("data", {"index.json": json.dumps(said).encode()}) + "index.json"


_leading = [
    Case("samples", "trust_index", lambda p: ((_led(p),), {}), True, results),
    Case("pack", "trust_index", lambda p: ((_led(p), p.root / "out/%06d.tar"), {}), True, planned),
    Case("shards", "trust_index", lambda p: (("ls", _led(p)), {}), True, planned),
]


# -- web pages ---------------------------------------------------------------------------------------

# The first bytes of a tar archive are the name of its first member.
_PAGE = {"x.bin": b"<html>log in</html>"}
_PAGED = {"x.tar": tar({"<html>/1.jpg": b"1", "<html>/1.cls": b"2"})}
_fetching = [
    Case("pull", "allow_html", lambda p: ((p.pages(_PAGE) + "x.bin", p.root / "target"), {}), True, results),
    Case(
        "copy",
        "allow_html",
        lambda p: ((p.pages(_PAGE) + "x.bin", p.url("out", {}) + "x"), {}),
        True,
        results,
    ),
    Case(
        "md5check", "allow_html", lambda p: ((p.pages(_PAGE) + "x.bin",), {"against": _sum(p)}), True, results
    ),
    Case(
        "cache_stream",
        "allow_html",
        lambda p: ((p.pages(_PAGE) + "x.bin",), {"by": "file", "cache_dir": p.root / "cache"}),
        True,
        results,
    ),
    Case(
        "untar_volumes",
        "allow_html",
        lambda p: ((p.pages(_PAGED) + "x.tar", p.root / "target"), {}),
        True,
        results,
    ),
    Case("samples", "allow_html", lambda p: ((p.pages(_PAGED) + "x.tar",), {}), True, results),
    Case(
        "pack",
        "allow_html",
        lambda p: ((p.pages(_PAGED) + "x.tar", p.root / "out/%06d.tar"), {}),
        True,
        results,
    ),
    Case("ls", "allow_html", lambda p: ((p.pages(_PAGE) + "x.bin",), {}), True, results),
    Case("du", "allow_html", lambda p: ((p.pages(_PAGE) + "x.bin",), {}), True, results),
    Case("shards", "allow_html", lambda p: (("ls", p.pages(_PAGED) + "x.tar"), {}), True, results),
]


def _sum(place: Place) -> str:
    """Return a list with the checksum of the page."""
    line = f"{hashlib.md5(_PAGE['x.bin']).hexdigest()}  x.bin\n".encode()
    return str(place.folder("sums", {"MD5SUMS": line}) / "MD5SUMS")


# -- what was moved away -----------------------------------------------------------------------------


def _moved_away(place: Place) -> tuple[tuple[Any, ...], dict[str, Any]]:
    source, target = place.folder(), place.root / "target"
    nbdata.pull(source, target, quiet=True)
    os.unlink(target / "a/1.jpg")
    return (source, target), {}


def _unpacked_away(place: Place) -> tuple[tuple[Any, ...], dict[str, Any]]:
    archive, target = _shard(place, tar()), place.root / "target"
    nbdata.untar_volumes(archive, target, quiet=True)
    os.unlink(target / "a/1.jpg")
    return (archive, target), {}


_writing = [
    Case("pull", "skip_written", _moved_away, True),
    Case("untar_volumes", "skip_written", _unpacked_away, True, results),
]


# -- room, failures, bandwidth -----------------------------------------------------------------------


def _tight(scene: Scene) -> Scene:
    """Return a scene in a folder without room."""

    def tight(place: Place) -> tuple[tuple[Any, ...], dict[str, Any]]:
        found = scene(place)
        place.quota(1)
        return found

    return tight


def _damaged(place: Place) -> tuple[tuple[Any, ...], dict[str, Any]]:
    root = place.summed()
    (root / "a/1.jpg").write_bytes(b"damaged...")
    return (root,), {}


_PULLED: Scene = _FORMS["pull"]
_UNPACKED: Scene = lambda p: ((_shard(p, tar()), p.root / "target"), {})  # noqa: E731
_COPIED: Scene = lambda p: ((p.shelf(FILES), "shelf://out/"), {})  # noqa: E731

_room = [
    Case("pull", "ignore_space", _tight(_PULLED), True, results),
    Case("push", "ignore_space", _tight(_FORMS["push"]), True, results),
    Case(
        "md5check",
        "ignore_space",
        _tight(lambda p: (_damaged(p)[0], {"repair": p.folder("other")})),
        True,
        results,
    ),
    Case("untar_volumes", "ignore_space", _tight(_UNPACKED), True, results),
    Case("cache_stream", "ignore_space", _tight(_FORMS["cache_stream"]), True, results),
    Case("pack", "ignore_space", _tight(_FORMS["pack"]), True, results),
]

_BAD = {"bad.bin": b"bad", "good.bin": b"good"}
_failing: list[tuple[str, Scene]] = [
    ("pull", lambda p: ((p.shelf(_BAD), p.root / "target"), {})),
    ("push", lambda p: ((p.folder(files=_BAD), p.shelf({})), {})),
    ("copy", lambda p: ((p.shelf(_BAD), "shelf://out/"), {})),
    ("md5check", _damaged),
    ("untar_volumes", lambda p: ((_shard(p, tar(_BAD)), p.shelf({})), {})),
    ("cache_stream", lambda p: ((p.shelf(_BAD),), {"by": "file", "cache_dir": p.root / "cache"})),
    ("pack", lambda p: ((p.shelf(_BAD), p.root / "out/%06d.tar"), {"by": "file"})),
    ("shards", lambda p: (("verify", _shard(p, tar()[:700])), {})),
]

_limited: list[tuple[str, Scene]] = [
    ("pull", _PULLED),
    ("push", _FORMS["push"]),
    ("copy", _COPIED),
    ("md5check", _FORMS["md5check"]),
    ("untar_volumes", _UNPACKED),
    ("cache_stream", _FORMS["cache_stream"]),
    ("pack", _FORMS["pack"]),
    ("shards", lambda p: (("ls", _shard(p, tar())), {})),
]


# -- requests ----------------------------------------------------------------------------------------

_BOTH = {"a.bin": b"a", "b.bin": b"b"}
_LESS = {"a.bin": b"a"}
# With the other shelf there is more.
_elsewhere: list[tuple[str, Scene, Any]] = [
    ("pull", lambda p: ((p.shelf(_LESS, _BOTH), p.root / "target"), {}), planned),
    ("push", lambda p: ((p.folder(files=_BOTH), p.shelf({}, _LESS)), {"size_only": True}), planned),
    ("copy", lambda p: ((p.shelf(_LESS, _BOTH), "shelf://out/"), {}), planned),
    ("delete", lambda p: ((p.shelf(_LESS, _BOTH),), {}), planned),
    ("md5check", lambda p: ((p.shelf(_LESS, _BOTH),), {"write": True}), planned),
    (
        "untar_volumes",
        lambda p: ((f"{p.shelf({'x.tar': tar()}, {'x.tar': tar(_BOTH)})}x.tar", p.root / "target"), {}),
        results,
    ),
    (
        "cache_stream",
        lambda p: ((p.shelf(_LESS, _BOTH),), {"by": "file", "cache_dir": p.root / "cache"}),
        planned,
    ),
    ("samples", lambda p: ((p.shelf(_LESS, _BOTH),), {"by": "file"}), results),
    ("pack", lambda p: ((p.shelf(_LESS, _BOTH), p.root / "out/%06d.tar"), {"by": "file"}), planned),
    ("shards", lambda p: (("ls", f"{p.shelf({'x.tar': tar()}, {'x.tar': tar() * 2})}x.tar"), {}), planned),
    ("ls", lambda p: ((p.shelf(_LESS, _BOTH),), {}), results),
    ("du", lambda p: ((p.shelf(_LESS, _BOTH),), {}), results),
]

_SHARDS = {f"{name}.tar": tar({"x.bin": data}) for name, data in LARGE.items()}
_together: list[tuple[str, Scene]] = [
    ("pull", lambda p: ((p.shelf(LARGE), p.root / "target"), {})),
    ("push", lambda p: ((p.folder(files=LARGE), p.shelf({})), {})),
    ("copy", lambda p: ((p.shelf(LARGE), "shelf://out/"), {})),
    ("md5check", lambda p: ((p.shelf(LARGE),), {"write": True})),
    ("untar_volumes", lambda p: ((_shard(p, tar(LARGE)), p.shelf({})), {})),
    ("cache_stream", lambda p: ((p.shelf(LARGE),), {"by": "file", "cache_dir": p.root / "cache"})),
    ("samples", lambda p: ((p.shelf(LARGE),), {"by": "file"})),
    ("pack", lambda p: ((p.shelf(LARGE), p.root / "out/%06d.tar"), {"by": "file"})),
    ("shards", lambda p: (("ls", f"{p.shelf(_SHARDS)}*.tar"), {})),
]


# -- memory ------------------------------------------------------------------------------------------


def _long(place: Place) -> str:
    """Return an archive whose compression needs a window of 512 MiB."""
    path = place.folder("long", {"x.tar.zst": zstd_of_zeros(29, 512, tar())}) / "x.tar.zst"
    return str(path)


def _streamed(make: Callable[[], Operation]) -> object:
    """Return the keys of a stream of samples, or the kind of its error."""
    try:
        with make().run(quiet=True) as samples:
            return [sample["__key__"] for sample in samples.stream()]
    except nbdata.NbdataError as error:
        return type(error).__name__


def _mapped(source: Callable[[Place], str]) -> Scene:
    return lambda p: ((source(p), f"{p.root}/out/%06d.tar"), {"map": dict})


_memory = [
    Case("untar_volumes", "max_window", lambda p: ((_long(p), p.root / "target"), {}), "512MiB", results),
    Case("samples", "max_window", lambda p: ((_long(p),), {}), "512MiB", _streamed),
    Case("shards", "max_window", lambda p: (("verify", _long(p)), {"on_error": "report"}), "512MiB", results),
    Case("pack", "max_window", _mapped(_long), "512MiB", results),
    Case("samples", "max_sample", lambda p: ((_shard(p, tar()),), {}), 100, _streamed),
    Case("pack", "max_sample", _mapped(lambda p: _shard(p, tar())), 100, results),
]


#: All cases.
CASES: list[Case] = [
    *_selecting(),
    *_mirroring(),
    *_verifying,
    *_leading,
    *_fetching,
    *_writing,
    *_room,
    *_memory,
    *(Case(verb, "on_error", scene, "report", results) for verb, scene in _failing),
    *(Case(verb, "max_rate", scene, "1GB", counted_by_rate) for verb, scene in _limited),
    *(Case(verb, "concurrency", scene, 1, met) for verb, scene in _together),
    *(Case(verb, "fs", scene, lambda _: Shelf("two"), look) for verb, scene, look in _elsewhere),
    *(Case(verb, "storage_options", scene, {"shelf": "two"}, look) for verb, scene, look in _elsewhere),
    Case("cleanup", "storage_options", lambda p: ((p.url(),), {}), {"key": "other", "secret": "other"}),
]
