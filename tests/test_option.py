"""Each verb refuses option values of a wrong type, with a clear message."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.operation import Operation
from nbdata.option import options_of
from nbdata.verbs import VERBS

PLACES = {
    "pull": ("s3://bucket/d/", "/w/d"),
    "push": ("/w/d", "s3://bucket/d/"),
    "copy": ("s3://bucket/d/", "s3://other/d/"),
    "delete": ("s3://bucket/d/",),
    "md5check": ("/w/d",),
    "untar_volumes": ("/w/v", "/w/d"),
    "cache_stream": ("s3://bucket/d/",),
    "quota": ("/w",),
    "transfers": ("3f2a91",),
    "samples": ("s3://bucket/d/",),
    "serve_samples": ("s3://bucket/d/",),
    "shards": ("ls", "s3://bucket/x-*.tar"),
    "pack": ("s3://bucket/d/", "s3://bucket/x-%06d.tar"),
    "ls": ("s3://bucket/d/",),
    "du": ("s3://bucket/d/",),
    "convert": ("/w/d.py", "/w/in", "/w/out"),
    "cleanup": ("/w/d",),
    "mount": ("s3://bucket/d/", "/w/m"),
    "unmount": ("/w/m",),
}
VALUES = [object(), None, [], ["x"], [None], {}, {1: object()}, b"x", 3, -1, 3.5, True, "", Path("x"), print]
OPTIONS = [(verb, name) for verb, cls in VERBS.items() for name in options_of(cls)]


def said(verb: str, **options: Any) -> dict[str, Any]:
    """Return the verb's required options with valid values, updated with `options`."""
    names = [name for name, (_, declared) in options_of(VERBS[verb]).items() if declared.positional]
    return {**dict(zip(names, PLACES[verb], strict=False)), **options}


@pytest.mark.parametrize(("verb", "option"), OPTIONS)
def test_no_value_of_any_option_raises_anything_but_bad_option(verb: str, option: str) -> None:
    for value in VALUES:
        try:
            operation: Operation = VERBS[verb](**said(verb, **{option: value}))
        except nbdata.BadOption:
            continue
        except Exception as error:
            pytest.fail(f"{verb}({option}={value!r}) raised {error!r}")
        # An accepted option can be sent to the agent, shown and put into a command line.
        json.dumps(operation.to_dict())
        assert len(operation.identity()) == 32
        assert repr(operation)
        assert shlex.split(operation.line()) is not None
        assert all(isinstance(place, str) for place in operation.places())


@pytest.mark.parametrize(("verb", "option"), OPTIONS)
def test_a_plain_object_is_refused_by_every_option(verb: str, option: str) -> None:
    with pytest.raises(nbdata.BadOption, match=rf"{option.replace('_', '.')}.*got object"):
        getattr(nbdata, verb)(**said(verb, **{option: object()}))


@pytest.mark.parametrize("option", ["dry_run", "background", "quiet"])
def test_values_that_are_not_bool_are_refused_by_flags(option: str) -> None:
    with pytest.raises(nbdata.BadOption, match=re.escape("'no' is neither True nor False")):
        nbdata.pull("s3://bucket/d/", "/w/d", **{option: "no"})


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: nbdata.untar_volumes([], "u"), "source: this list is empty. Give at least one"),
        (lambda: nbdata.untar_volumes((v for v in ()), "u"), "source: this list is empty"),
        (lambda: nbdata.untar_volumes([None], "u"), "source[0]: this is not a path (expected one path or URL"),
        (lambda: nbdata.untar_volumes({"a", "b"}, "u"), "source: this is not a path (expected one path or URL"),
        (lambda: nbdata.pull(["a", "b"], "q"), "source: this is not a path (expected one path or URL, as a text"),
        (lambda: nbdata.pull(None, "m"), "got NoneType)"),
        (lambda: nbdata.md5check(None), "got NoneType)"),
        (lambda: nbdata.cleanup(None), "got NoneType)"),
        (lambda: nbdata.cache_stream(None), "got NoneType)"),
        (lambda: nbdata.push("a", None), "target: this is not a path"),
        (lambda: nbdata.pull("x", 3), "target: 3 is not a path"),
        (lambda: nbdata.pull("x", "-"), "target: '-' would be standard input or output"),
        (lambda: nbdata.pull("x", "y", exclude=["a", ""]), "exclude: one value is empty"),
        (lambda: nbdata.pull(b"s3://bucket/d", "x"), "got bytes)"),
        (lambda: nbdata.quota(3), "path: 3 is not a path"),
        (lambda: nbdata.pull("a", "b", files_from=["x"]), "files-from: this is not a path"),
        (lambda: nbdata.pull("a", "b", overwrite=None), "overwrite: this is not a text (expected changed,"),
        (lambda: nbdata.pull("a", "b", max_bytes=1.5), "max_bytes: 1.5 is not a size"),
        (lambda: nbdata.pull("a", "b", verify=False), "verify: False is not a text (expected auto, none, md5"),
        (lambda: nbdata.quota("a", limit=5), "limit: 5 is not a text (expected the text SIZE|none)"),
        (lambda: nbdata.pull("a", "b", concurrency="-3"), "--concurrency: '-3' is not a count (expected 1 to 256)"),
        (lambda: nbdata.pull("a", "b", fs="s3"), "fs: 's3' is not a file system (expected an object of fsspec"),
        (
            lambda: nbdata.pull("s3://b/d", "x", storage_options={"session": object()}),
            "storage_options: 'session' is neither text nor number, nor made of them (got object)",
        ),
    ],
)  # fmt: skip
def test_invalid_values_in_python_calls_are_refused(call: Any, told: str) -> None:
    with pytest.raises(nbdata.BadOption, match=re.escape(told)):
        call()


def test_a_rate_may_be_written_per_second() -> None:
    assert nbdata.Pull("a", "b", max_rate="10MB/s") == nbdata.Pull("a", "b", max_rate=10_000_000)
    with pytest.raises(nbdata.BadOption, match="is not a size"):
        nbdata.Pull("a", "b", max_bytes="10MB/s")


def test_a_size_in_the_place_of_a_folder_is_suggested_as_the_limit(tmp_path: Path) -> None:
    with pytest.raises(nbdata.BadOption, match=r"no folder 5GB. Did you mean --limit 5GB\?"):
        nbdata.quota(tmp_path / "5GB")
    (tmp_path / "5GB").mkdir()
    assert nbdata.Quota(tmp_path / "5GB").limit is None


def test_volumes_may_come_from_a_generator_and_be_paths() -> None:
    def volumes() -> Iterator[Path | str]:
        yield Path("/w/v.001")
        yield "s3://bucket/v.002"

    operation = nbdata.UntarVolumes(volumes(), Path("/w/out"))
    assert operation.source == ("/w/v.001", "s3://bucket/v.002")
    assert operation.places()[0] == "/w/v.001 … s3://bucket/v.002"
