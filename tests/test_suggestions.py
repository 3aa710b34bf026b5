"""Unknown words get the known one that means the same, also words of other tools."""

from __future__ import annotations

import os

import pytest

import nbdata
from nbdata import suggestions
from nbdata.cli import main
from nbdata.option import options_of
from nbdata.suggestions import suggest_verb
from nbdata.verbs import VERBS
from nbdata.verbs.options import FACE_OPTIONS
from nbdata.verbs.parsing import flag_of, parse

KNOWN = [*VERBS, "agent", "demo", "completion"]


@pytest.mark.parametrize(
    ("word", "verb"),
    [
        ("untar", "untar_volumes"), ("untar_volume", "untar_volumes"), ("PULL", "pull"), ("md5", "md5check"),
        ("jobs", "transfers"), ("status", "transfers"), ("download", "pull"), ("upload", "push"), ("pul", "pull"),
        ("list", "ls"), ("Untar-Volumes", "untar_volumes"),
    ],
)  # fmt: skip
def test_a_verb_of_another_tool_gets_the_one_that_does_it(word: str, verb: str) -> None:
    assert suggest_verb(word, KNOWN) == f"Did you mean {verb}?"


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("cp", "copy goes from store to store"),
        ("sync", "with --delete they mirror"),
        ("mv", "--delete-source"),
        ("rm", "No verb deletes"),
        ("cat", "No verb prints"),
        ("head", "No verb prints"),
        ("rsync", "with --delete they mirror"),
        ("mb", "No verb makes or deletes buckets"),
        ("wget", "Did you mean pull?"),
        ("xyzzy", "Known are pull, push,"),
    ],
)
def test_a_word_without_a_verb_of_its_own_gets_advice(
    word: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word, "a", "b"]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--jobs 8", "Did you mean --concurrency?"),
        ("-j 8", "Did you mean --concurrency?"),
        ("-j8", "Did you mean --concurrency?"),
        ("--parallel=8", "Did you mean --concurrency?"),
        ("--threads 8", "Did you mean --concurrency?"),
        ("--workers 8", "Did you mean --concurrency?"),
        ("--recursive", "Leave it out: a folder is always taken"),
        ("-r", "Leave it out: a folder is always taken"),
        ("--exlude x", "Did you mean --exclude?"),
        ("--bwlimit 5MB", "Did you mean --max-rate?"),
        ("--delete-source", "Leave it out: only push deletes its source"),
        ("--skip-existing", "Write --overwrite never"),
        ("--no-clobber", "Write --overwrite never"),
        ("--resume", "Leave it out: the same command resumes"),
        ("-O x", "Write the target as the second path"),
        ("--max-size 5MB", "No option selects by size"),
        ("--max-age 7d", "Did you mean --newer-than?"),
        ("--min-age 7d", "Did you mean --older-than?"),
        ("--only-show-errors", "Did you mean --quiet?"),
        ("--inplace", "Leave it out: a file gets its name"),
        ("--no-verify-ssl", "Write --option verify=false"),
        ("--no-sign-request", "Write --option anon=true"),
    ],
)
def test_an_option_of_another_tool_gets_the_one_that_does_it(words: str, told: str) -> None:
    with pytest.raises(nbdata.BadOption) as caught:
        parse(VERBS["pull"], ["s3://b/d/", "d", *words.split()], prog="nbdata pull", extra={})
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (["--", "-x", "--delete"], ["-x", "--delete"]),
        (["s3://b/d/", "-n", "--", "-y"], ["s3://b/d/", "-y"]),
        (["--verify", "none", "--", "s3://b/d/", "--"], ["s3://b/d/", "--"]),
    ],
)
def test_all_is_a_place_behind_two_dashes(words: list[str], places: list[str]) -> None:
    operation, _ = parse(VERBS["untar_volumes"], words, prog="nbdata untar_volumes", extra={})
    assert operation is not None
    assert [place.removeprefix(f"{os.getcwd()}/") for place in operation.places()] == places


def test_a_call_is_suggested_the_flags_of_the_function_too() -> None:
    with pytest.raises(nbdata.BadOption, match=r"Did you mean dry_run\?"):
        nbdata.pull("s3://b/d/", "d", dryrun=True)
    with pytest.raises(nbdata.BadOption, match=r"Known are .*, dry_run, background, quiet"):
        nbdata.pull("s3://b/d/", "d", zzz=True)
    with pytest.raises(nbdata.BadOption, match=r"Known are .*, dry_run, quiet$"):
        nbdata.cache_stream("s3://b/d/", zzz=True)


def test_a_cleanup_refuses_a_cluster_by_name() -> None:
    with pytest.raises(nbdata.BadOption, match=r"option --cluster.*Run it on the machines of the workers"):
        parse(VERBS["cleanup"], ["s3://b/d/", "--cluster", "local"], prog="nbdata cleanup", extra={})


def test_no_advice_to_do_without_is_given_for_what_options_do() -> None:
    """Options that were added since must not be called missing."""
    there = {flag_of(name)[2:] for verb in VERBS.values() for name in options_of(verb)}
    assert {*suggestions._OPTIONS.values()} <= there | FACE_OPTIONS.keys()
    assert suggestions._ADVICE.keys() & there == {
        "cluster",
        "max-size",
        "resume",
        "recursive",
        "delete-source",
    }  # of some verbs
