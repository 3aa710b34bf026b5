"""Secrets are removed from URLs, texts and errors; other text is kept."""

from __future__ import annotations

import io
import json
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata import redaction
from nbdata.engine.job.task import Task
from nbdata.errors import NbdataError, WithheldError, cleaned, error_from_dict
from nbdata.redaction import (
    Hidden,
    ScrubbedStream,
    is_secret_name,
    redacted,
    remember,
    remember_options,
    scrub,
)
from nbdata.report import Report, Snapshot
from tests.waiting import PATIENCE

# A library's message could contain these two secrets: one is recognized by its form, one is a remembered value.
TELLING = "GET http://u:word@host/?sig=0a1b2c failed for kn0wn-elsewhere"


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("http://user:word@host:80/a/b?sig=1", "http://host:80/a/b?…"),
        ("s3://bucket/key@with?both", "s3://bucket/key@with?both"),
        ("s3://key:secret@bucket/a@b", "s3://bucket/a@b"),
        ("/data/odd://user:word@x?y", "/data/odd://user:word@x?y"),
        ("http://[bad/x?y", "http://…"),
        ("s3://key:sec/ret@bucket/a", "s3://bucket/a"),
        ("gs://key:1/2@bucket/a", "gs://bucket/a"),
        ("https://user:wo/rd@host:80/a", "https://host:80/a"),
        ("sftp://user:wo?rd@host/a", "sftp://host/a"),
        ("https://user:wo#rd@host/a?sig=1", "https://host/a?…"),
        ("http://host:80/a@b:c", "http://host:80/a@b:c"),
        ("s3://arn:aws:s3:eu:1:accesspoint/name/a@b", "s3://arn:aws:s3:eu:1:accesspoint/name/a@b"),
        ("http://[::1]/a@b", "http://[::1]/a@b"),
    ],
)
def test_a_place_is_shown_without_password_and_query(place: str, shown: str) -> None:
    assert redacted(place) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET http://h/k?X-Amz-Signature=0a1b&x=1 failed", "GET http://h/k?X-Amz-Signature=…&x=1 failed"),
        ("SAS: se=2030&sig=abc%2B&sp=r", "SAS: se=2030&sig=…&sp=r"),
        ("Credential=x, Signature=0a1b", "Credential=x, Signature=…"),
        ("{'Authorization': 'AWS4-HMAC-SHA256 Credential=a/b'}", "{'Authorization': '…'}"),
        ("proxy-authorization: Basic dTpwdw==\r\nhost: h", "proxy-authorization: …\r\nhost: h"),
        ("ftp://user:word@host/x", "ftp://host/x"),
        ("https://a-token@host/x", "https://host/x"),
        ("abfs://container@account.host/x",) * 2,
        ("no bucket: s3://key:sec/ret@bucket/a", "no bucket: s3://bucket/a"),
        ("https://user:wo?rd@host:80/a@b", "https://host:80/a@b"),
        ("http://host:80/a@b http://[::1]:80/a@b s3://arn:aws:s3:eu:1:accesspoint/n/a@b",) * 2,
        ("the key AKIAIOSFODNN7EXAMPLE is unknown", "the key … is unknown"),
        ("The authorization header is malformed; expecting 'eu-1'",) * 2,
        ("basic rules, signature of a function, s3://bucket/a@b",) * 2,
    ],
)
def test_what_looks_like_a_secret_is_cut_out(text: str, shown: str) -> None:
    assert scrub(text) == shown
    assert scrub(shown) == shown


@pytest.mark.parametrize("text", ["a." * 60_000, "a-" * 60_000, "a://b:" * 10_000, "https://" * 10_000])
def test_a_long_text_takes_no_quadratic_time(text: str) -> None:
    """Keys of a store are such texts, and nothing else of the process goes on meanwhile."""
    start = time.process_time()
    assert scrub(f"{text}://") == f"{text}://"
    assert time.process_time() - start < 5


@pytest.mark.parametrize("before", ["", "x", "x.", "-", "1", "see:...", "jdbc:"])
def test_a_password_is_cut_out_whatever_stands_before_the_scheme(before: str) -> None:
    assert "hunter22" not in scrub(f"{before}ftp://me:hunter22@host/x")
    assert "hunter22" not in scrub(f"{before}ftp://me:hun/ter?hunter22@host/x")


def test_a_known_value_is_cut_out_however_it_is_written() -> None:
    remember_options(
        {"client_kwargs": {"headers": {"X-Auth-Token": "Bearer kn0wn/va lue+1"}}, "region": "somewhere"}
    )
    remember_options({"HTTPS_PROXY": "http://user:un/escaped1@proxy:3128"})
    remember_options(
        {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=open-account;AccountKey=c0nnected/key=="}
    )
    remember_options({"sas_token": "sv=2030-01-01&sig=s1gned%2Bvalue"})
    assert scrub("open-account 2030-01-01") == "open-account 2030-01-01"
    for text in (
        "c0nnected/key==",
        "s1gned%2Bvalue",
        "s1gned+value",
        "kn0wn/va lue+1",
        "kn0wn%2Fva%20lue%2B1",
        "kn0wn/va%20lue%2B1",
        "kn0wn%2Fva+lue%2B1",
        "un/escaped1",
    ):
        assert scrub(f"<{text}>") == "<…>", text
    assert scrub("somewhere") == "somewhere"


def test_names_tell_what_is_secret() -> None:
    secret = "key secret token password account_key AWS_SECRET_ACCESS_KEY sas_token Authorization AWS_ACCESS_KEY_ID"
    open_ = "endpoint_url region profile GOOGLE_APPLICATION_CREDENTIALS AWS_WEB_IDENTITY_TOKEN_FILE anon monkey keys_of"
    assert [name for name in secret.split() if not is_secret_name(name)] == []
    assert [name for name in open_.split() if is_secret_name(name)] == []


def test_options_and_operations_have_no_secret_in_their_repr() -> None:
    made = nbdata.Pull("http://u:word@h/x?sig=1", "/x", storage_options={"token": "abcdefgh1"})
    assert "word" not in repr(made)
    assert "sig=1" not in repr(made)
    assert repr(made.storage_options) == "{'token': '…'}"
    assert made.storage_options == {"token": "abcdefgh1"}
    assert "abcdefgh1" not in repr(Hidden(context={"storage_options": {"token": "abcdefgh1"}}))


def test_a_cause_that_shows_a_secret_is_replaced_and_others_are_kept() -> None:
    def fail(text: str) -> BaseException:
        try:
            try:
                raise ValueError(text)
            except ValueError as error:
                raise NbdataError("it failed") from error
        except NbdataError as error:
            return cleaned(error)  # its frame is this function, which is still running

    harmless = fail("no such thing")
    assert isinstance(harmless.__cause__, ValueError)
    assert harmless.__traceback__ is not None
    telling = fail("http://u:word@host/?sig=abc")
    assert isinstance(telling.__cause__, WithheldError)
    shown = traceback.TracebackException.from_exception(telling, capture_locals=True)
    text = "".join(shown.format())
    assert "http://host/?sig=…" in text
    assert "word" not in text


def shows_none(told: str) -> bool:
    return (
        not any(secret in told for secret in ("word@", "0a1b2c", "kn0wn-elsewhere"))
        and "http://host/" in told
    )


def test_an_error_shows_no_secret_in_any_of_its_parts() -> None:
    remember("kn0wn-elsewhere")
    error = NbdataError(
        TELLING, path=TELLING, expected=TELLING, got=TELLING, remedy=TELLING, details={"a": [TELLING]}
    )
    for made in (error, error_from_dict(error.to_dict())):
        assert shows_none(str(made))
        assert shows_none(repr(made))
        assert shows_none(json.dumps(made.to_dict()))


def test_the_report_and_the_snapshot_of_a_job_show_no_secret() -> None:
    def work(task: Task) -> Report:
        table = {"caption": TELLING, "head": ["a"], "rows": [[TELLING]]}
        remember("kn0wn-elsewhere")
        return Report(
            "pull", state="FAILED", counts={"failed": 1}, failures=[["x", TELLING]], notes=[TELLING],
            headline=TELLING, details={"a": {"b": TELLING}}, tables=[table],
        )  # fmt: skip

    task = Task(Snapshot(id="t", verb="pull"))
    task.enter("PLANNING")
    task.enter("RUNNING")
    task.start(work)
    task.join(PATIENCE)
    assert task.report is not None
    assert shows_none(json.dumps(task.report.to_dict()))
    assert shows_none(task.report.text())
    assert shows_none(json.dumps(task.snapshot().to_dict()))


def test_a_log_shows_no_secret() -> None:
    remember("kn0wn-elsewhere")
    written = io.StringIO()
    stream = ScrubbedStream(written)
    assert stream.write(TELLING) == len(TELLING)
    stream.writelines([TELLING, "kn0wn-elsewhere"])
    stream.flush()
    assert shows_none(written.getvalue())


def test_an_error_that_the_caller_was_handling_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NBDATA_HOST", "inline")

    def fails() -> None:
        kept = [1]
        raise ValueError(kept)

    try:
        fails()
    except ValueError as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        with pytest.raises(nbdata.NotFound):
            nbdata.pull(f"{tmp_path}/nothing", tmp_path / "out", dry_run=True)
    assert frames[-1].f_locals == {"kept": [1]}


def test_a_generator_that_met_an_error_goes_on_when_that_is_shown() -> None:
    met = []

    def numbers() -> Iterator[int]:
        try:
            raise ValueError("met")
        except ValueError as error:
            met.append(error)
        yield from (1, 2)

    going = numbers()
    assert next(going) == 1
    cleaned(met[0])
    assert list(going) == [2]


def test_a_secret_counts_as_known_only_once_it_is_removed_from_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """If another thread or a forked child finds a secret among the known ones, its redaction must already work."""
    seen = []

    def watched(*args: Any, **named: Any) -> list[str]:
        seen.append("first-of-all-9" in redaction._known)
        return sorted(*args, **named)

    monkeypatch.setattr(redaction, "sorted", watched, raising=False)
    remember("first-of-all-9")
    assert seen == [False]
    assert "first-of-all-9" in redaction._longest_first
