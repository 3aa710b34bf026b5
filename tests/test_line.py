"""`command_line` returns a shell command that repeats an operation."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbdata.engine.runner import command_line
from nbdata.operation import Context, Operation
from nbdata.redaction import redacted
from nbdata.verbs import VERBS
from nbdata.verbs.copy import Copy
from nbdata.verbs.md5check import Md5check
from nbdata.verbs.parsing import parse
from nbdata.verbs.pull import Pull
from nbdata.verbs.untar_volumes import UntarVolumes

LINES = {
    "pull": (
        "s3://bucket/data/ /w/data",
        "s3://bucket/data/ '/w/with space' --include '*.mp4' --include=-x --exclude \"it's\" --max-bytes 4000000",
        "s3://bucket/{000..099}.tar /w/data --sample 5% --seed 7 --verify none --overwrite always",
        "s3://bucket/data/ /w/data --delete --force --concurrency 4 --on-error report --ignore-space",
        "s3://bucket/data/ /w/data --files-from /w/list --size-only",
    ),
    "push": ("/w/data s3://bucket/data/ --part-size 8388608 --delete-source",),
    "mount": ("s3://bucket/data/ /w/data --max-age 5 --cache 5000000 --keep", ""),
    "unmount": ("/w/data",),
    "copy": (
        "s3://bucket/data/ s3://other/data/ --delete --part-size 8388608",
        "s3://bucket/data/ s3://other/data/ --cluster local:4",
        "s3://bucket/data/ s3://other/data/ --cluster tcp://10.0.0.1:8786 --insecure-cluster",
        "s3://bucket/data/ s3://other/data/ --cluster tls://10.0.0.1:8786 --send-credentials",
    ),
    "cache_stream": (
        "s3://bucket/video --cache-dir /w --max-size 1000 --by sample --shuffle --epochs 3 --keep lru",
    ),
    "samples": (
        "s3://bucket/a.tar s3://bucket/b.tar --shard-slice 0:1",
        "s3://bucket/images/ --by file --include '*.jpg' --ahead-bytes 1000 --refresh never",
        "s3://bucket/images/ --cache 10000000 --cache-dir /w",
    ),
    "serve_samples": (
        "s3://bucket/images/ --batch 64 --shuffle --seed 1 --transform train:load --workers 4 --state /w/state",
        "s3://b/a.tar s3://b/b.tar --mode broadcast --consumers 2 --listen tcp://127.0.0.1:0 --ahead 1000 --name x",
    ),
    "shards": (
        "ls s3://bucket/a.tar s3://bucket/b.tar",
        "verify 's3://bucket/x-*.tar' --verify md5",
        "index 's3://bucket/x-*.tar' --cluster local",
    ),
    "pack": (
        "s3://b/a.tar s3://b/b.tar s3://b/x-%06d.tar --fields jpg,cls --rename cls=label --slice=-5: --keys %06d",
        "/w/shards/ /w/x-%06d.tar --files-from /w/list --shard-samples 10 --sort cls --on-error report",
        "/w/x.tar /w/x-%06d.tar --sort",
        "s3://bucket/images/ s3://bucket/shards/x-%06d.tar --by file --shard-size 64000000 --shuffle --seed 3",
        "s3://bucket/images/ s3://bucket/shards/x-%06d.tar --cluster tls://head:8786",
        "s3://bucket/site/ s3://bucket/site.tar.zst --format tar.zst --volume-size 100000000 --md5 --sort --mtime 0",
    ),
    "convert": (
        "/w/dataset.py /w/raw /w/packed --store npy --mini 10 --overwrite always",
        "mmdet3d /w/config.py /w/packed --key pts_filename --sweeps",
    ),
    "md5check": (
        "/w/data --against s3://bucket/data/ --algorithm md5",
        "/w/data --write",
        "/w/data --write MD5SUMS --overwrite always",
        "/w/data --repair s3://bucket/data/",
    ),
    "untar_volumes": (
        "/w/volumes /w/data --members '**/*.json' --strip-components 1 --max-expansion 1000",
        "s3://bucket/volumes/ --list",
        "s3://bucket/volumes/ /w/data --cluster local:8",
    ),
    "ls": ("s3://bucket/data/ --recursive --max-files 100", "'s3://bucket/{000..099}.tar'"),
    "du": ("s3://bucket/data/ --depth 2",),
    "delete": ("s3://bucket/results/ --older-than 30d --include '*.log' --yes",),
    "quota": ("/w --limit 5GB", "/w"),
    "transfers": ("3f2a91 --cancel", ""),
    "cleanup": ("/w/data --all", "s3://bucket/results/"),
}


def test_a_flag_that_may_have_a_value_takes_no_word_that_has_to_be_the_place() -> None:
    assert said("md5check", "--write /w/data") == said("md5check", "/w/data --write")
    assert said("md5check", "--write MD5SUMS /w/data") == said("md5check", "/w/data --write MD5SUMS")
    assert said("md5check", "--write --max-files 2 /w/data") == said(
        "md5check", "/w/data --max-files 2 --write"
    )


def said(verb: str, line: str) -> Operation:
    operation, _ = parse(VERBS[verb], shlex.split(line), prog=verb, extra={})
    assert operation is not None
    return operation


@pytest.mark.parametrize(("verb", "line"), [(verb, line) for verb in VERBS for line in LINES[verb]])
def test_a_line_says_the_same_operation_again(verb: str, line: str) -> None:
    operation = said(verb, line)
    words = shlex.split(operation.line())
    assert words[0] == verb
    again = said(verb, shlex.join(words[1:]))
    assert again == operation
    assert operation.bound or again.identity() == operation.identity()


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)


@given(
    name=TEXT, include=st.lists(TEXT, max_size=3), count=st.none() | st.integers(0, 10**9), flag=st.booleans()
)
def test_odd_names_and_patterns_survive(name: str, include: list[str], count: int | None, flag: bool) -> None:
    operation = Pull(
        f"s3://bucket/{name}", f"/w/{name}", include=include, max_files=count, size_only=flag, verify="none"
    )
    assert said("pull", shlex.join(shlex.split(operation.line())[1:])) == operation


def test_defaults_are_left_out() -> None:
    assert Pull("s3://bucket/data/", "/w/data").line() == "pull s3://bucket/data/ /w/data"


def test_storage_options_are_not_in_it() -> None:
    operation = Pull("s3://bucket/data/", "/w/data", storage_options={"secret": "hunter2"})
    assert "hunter2" not in operation.line()


def test_passwords_and_signatures_are_not_in_it() -> None:
    operation = Pull("https://user:hunter2@host/data.bin?sig=5ec2e7", "/w/data")
    against = Md5check("/w/data", against="https://user:hunter2@host/MD5SUMS?sig=5ec2e7")
    for line in (operation.line(redacted), against.line(redacted)):
        assert "hunter2" not in line
        assert "5ec2e7" not in line


def test_a_list_of_places_has_no_line() -> None:
    assert UntarVolumes(["/w/b", "/w/a"], "/w/data").line() == ""


def test_the_line_that_a_panel_offers_names_the_server_and_no_secret() -> None:
    context = Context(
        cwd="/",
        storage_options={
            "endpoint_url": "https://user:hunter2@s3.example.com",
            "secret": "hunter2",
            "client_kwargs": {"region_name": "eu"},
        },
        target_options={"profile": "far", "token": "hunter2"},
    )
    line = command_line(Copy("s3://a/x/", "s3://b/y/"), context)
    assert line == (
        "copy s3://a/x/ s3://b/y/ --option endpoint_url=https://s3.example.com "
        "--option client_kwargs.region_name=eu --target-option profile=far"
    )
