"""Tab completion of options, choices, local paths and places in a store: as a function, in bash, and in a kernel."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nbdata
from nbdata.cli import main
from nbdata.client.hosts import ChoosingHost
from nbdata.demo.server import EmbeddedServer
from nbdata.report import Snapshot
from nbdata.verbs import VERBS
from nbdata.verbs.completion import completions, described, split_line
from tests.conftest import client_of
from tests.engine.cache.test_cache_stream import Put
from tests.kernel import Kernel
from tests.waiting import AT_ONCE, PATIENCE


def offered(verb: str, line: str) -> list[str]:
    words, current = split_line(line)
    return completions(VERBS[verb], words, current, extra={})


@pytest.mark.parametrize(
    ("line", "words", "current"),
    [
        ("", [], ""),
        ("a ", ["a"], ""),
        ("a b", ["a"], "b"),
        ("'a b' c", ["a b"], "c"),
        ("'a b", [], "a b"),
        ('x "', ["x"], ""),
        ("a\\ b", [], "a b"),
        ("# c", ["#"], "c"),
    ],
)
def test_a_line_is_cut_into_whole_words_and_the_one_that_is_typed(
    line: str, words: list[str], current: str
) -> None:
    assert split_line(line) == (words, current)


def test_options_and_choices_are_completed_without_those_already_given() -> None:
    assert offered("pull", "--over") == ["--overwrite"]
    assert "--dry-run" in offered("pull", "s3://b/x y --d")
    assert offered("pull", "--overwrite ") == ["changed", "always", "never"]
    assert offered("pull", "--verify=m") == ["--verify=md5"]
    assert offered("pull", "--delete --del") == []
    assert offered("pull", "--include a --incl") == ["--include"]
    assert offered("pull", "--max-bytes ") == []
    assert "--background" not in offered("quota", "-")


def test_local_paths_hide_what_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("data/x", "data set/x", "datum", ".hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert offered("push", "dat") == ["data set/", "data/", "datum"]
    assert offered("push", "'data s") == ["data set/"]
    assert offered("push", "") == ["data set/", "data/", "datum"]
    assert offered("push", ".h") == [".hidden"]
    assert offered("push", "~/da") == ["~/data set/", "~/data/", "~/datum"]
    assert offered("pull", "--files-from dat") == ["data set/", "data/", "datum"]
    assert offered("push", "nowhere/x") == []


def test_a_name_that_a_line_cannot_hold_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (b"x good", b"x\n!run this", b"x\x1b[31m", b"x\xff", b"x\xe2\x80\xaegpj.exe"):
        Path(os.fsdecode(name)).touch()
    assert offered("push", "x") == ["x good"]


@pytest.mark.parametrize("host", ["agent", "inline"])
def test_places_in_a_store_no_deeper_than_the_next_slash(
    put: Put, bucket: str, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("NBDATA_HOST", host)
    put({"train/1/a": b"", "train/2/b": b"", "train.txt": b"", "test/x": b"", "with space/y": b""})
    nbdata.quota(quiet=True)  # starts an agent before the measured Tab
    assert offered("pull", f"s3://{bucket}/t") == [
        f"s3://{bucket}/test/",
        f"s3://{bucket}/train.txt",
        f"s3://{bucket}/train/",
    ]
    assert offered("pull", f"s3://{bucket}/train/") == [f"s3://{bucket}/train/1/", f"s3://{bucket}/train/2/"]
    assert offered("pull", f"'s3://{bucket}/with") == [f"s3://{bucket}/with space/"]
    assert offered("pull", f"s3://{bucket[:-1]}") == [f"s3://{bucket}/"]
    assert offered("pull", f"s3://{bucket}/none") == []
    assert offered("pull", "s3://no-such-bucket/x") == []
    assert all(job.verb != "complete" for job in nbdata.transfers())


def test_an_answer_is_remembered_for_a_moment(put: Put, bucket: str, s3: EmbeddedServer) -> None:
    put({"first": b""})
    nbdata.quota(quiet=True)
    assert offered("pull", f"s3://{bucket}/") == [f"s3://{bucket}/first"]
    client = client_of(s3)
    client.delete_object(Bucket=bucket, Key="first")
    assert offered("pull", f"s3://{bucket}/") == [f"s3://{bucket}/first"]
    monkey = offered("pull", f"s3://{bucket}/ --option anon=true s3://{bucket}/")
    assert monkey != [f"s3://{bucket}/first"], "another identity gets no answer of ours"


def test_a_store_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    began = time.monotonic()
    assert offered("pull", "s3://bucket/x") == []
    assert time.monotonic() - began < AT_ONCE


def in_bash(line: str, cwd: Path) -> list[str]:
    """Return bash's completions of a line."""
    script = f"""
        shopt -s expand_aliases
        nbdata() {{ "{sys.executable}" -c 'from nbdata.cli import main; raise SystemExit(main())' "$@"; }}
        export -f nbdata
        eval "$(nbdata completion bash)"
        COMP_LINE={line!r} COMP_POINT=${{#COMP_LINE}}
        compopt() {{ :; }}
        _nbdata
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    run = subprocess.run(
        ["bash", "-c", script], cwd=cwd, env=os.environ, capture_output=True, text=True, check=True
    )
    return run.stdout.split("\n")[:-1]


@pytest.mark.long
@pytest.mark.needs("bash")
def test_bash_completes_verbs_options_and_places(put: Put, bucket: str, tmp_path: Path) -> None:
    put({"folder/x": b""})
    nbdata.quota(quiet=True)
    (tmp_path / "a file").touch()
    assert in_bash("nbdata pu", tmp_path) == ["pull", "push"]
    assert in_bash("nbdata agent st", tmp_path) == ["status", "stop"]
    assert in_bash("nbdata pull --jso", tmp_path) == ["--json"]
    assert in_bash("nbdata pull --verify=sh", tmp_path) == ["sha256"]
    assert in_bash(f"nbdata pull s3://{bucket}/f", tmp_path) == [f"//{bucket}/folder/"]
    assert in_bash("nbdata push 'a", tmp_path) == ["a file"]


def until(terminal: int, wanted: bytes) -> bytes:
    """Return what a terminal shows, up to `wanted`."""
    seen = b""
    while wanted not in seen:
        assert select.select([terminal], [], [], 20)[0], seen
        seen += os.read(terminal, 4096)
    return seen


def typed_in_bash(typed: str, cwd: Path) -> list[str]:
    """Return the words of a command line in bash after Tab at its end, and Enter."""
    ours, theirs = os.openpty()
    (cwd / ".rc").write_text(f"""
        nbdata() {{
            if [[ $1 == completion ]]; then
                "{sys.executable}" -c 'from nbdata.cli import main; raise SystemExit(main())' "$@"
            else printf '<%s>\\n' "$@"; echo over; fi
        }}
        eval "$(nbdata completion bash)"
        PS1='ready$ '
    """)
    command = ["bash", "--noprofile", "--rcfile", str(cwd / ".rc"), "-i"]
    env = {**os.environ, "TERM": "dumb"}
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as bash:
        os.close(theirs)
        try:
            until(ours, b"ready$ ")
            # bash handles these keys after the completion has ended.
            os.write(ours, f"{typed}\t\n".encode())
            seen = until(ours, b"over\r\n")
        finally:
            bash.kill()
            os.close(ours)
    return re.findall(r"^<(.*)>\r$", seen.decode(), re.MULTILINE)


@pytest.mark.needs("bash")
def test_of_many_jobs_the_unfinished_and_newest_are_offered_with_what_they_are(
    inline: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        Snapshot(id=f"{n:06x}", verb="pull", target=f"/w/data{n}", state="DONE", created=1000.0 + n)
        for n in range(245)
    ]
    jobs[3].state = "PAUSED"
    monkeypatch.setattr(ChoosingHost, "look", lambda self: (jobs, False))
    found = described(VERBS["transfers"], [], "", extra={})
    assert list(found) == [jobs[3].id, *(job.id for job in jobs[:-20:-1])]
    assert found[jobs[3].id] == "pull data3, paused"
    assert found[jobs[-1].id] == "pull data244, done"
    assert list(described(VERBS["transfers"], [], "000001", extra={})) == ["000001"]
    monkeypatch.setenv("COMP_LINE", "nbdata transfers ")
    main(["completion", "words"])
    assert capsys.readouterr().out.split() == list(found)[:8]


@pytest.mark.long
def test_bash_makes_one_word_of_what_it_completes(put: Put, bucket: str, tmp_path: Path) -> None:
    put({"sub dir/x": b""})
    nbdata.quota(quiet=True)
    (tmp_path / "quo\"'s file.txt").touch()
    assert typed_in_bash("nbdata pul", tmp_path) == ["pull"]
    assert typed_in_bash("nbdata push quo", tmp_path) == ["push", "quo\"'s file.txt"]
    assert typed_in_bash("nbdata push --files-from=quo", tmp_path)[1] == "--files-from=quo\"'s file.txt"
    there = f"s3://{bucket}/sub dir/"
    assert typed_in_bash(f"nbdata pull {there[:-5]}", tmp_path) == ["pull", there]
    assert typed_in_bash(f'nbdata pull "{there[:-5]}', tmp_path) == ["pull", there]
    assert typed_in_bash(f"nbdata pull '{there[:-5]}", tmp_path) == ["pull", there]


def test_the_commands_help_shows_the_line_of_each_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "--help"]) == 0
    shown = capsys.readouterr().out
    for shell in ("bash", "zsh"):
        assert f'eval "$(nbdata completion {shell})"' in shown


def test_a_kernel_completes_magics_with_and_without_a_name_before(
    kernel: Kernel, put: Put, bucket: str, tmp_path: Path
) -> None:
    put({"folder/x": b"", "folder/y": b""})
    kernel.run("%quota -q")

    def complete(code: str) -> list[str]:
        reply = kernel.client.complete(code, len(code), reply=True, timeout=PATIENCE)
        content = reply["content"]
        return sorted(code[: content["cursor_start"]] + match for match in content["matches"])

    assert complete("%pull --over") == ["%pull --overwrite"]
    assert complete("x = 1\nit = %cache_stream s --keep l") == ["x = 1\nit = %cache_stream s --keep lru"]
    assert complete(f"%pull s3://{bucket}/fo") == [f"%pull s3://{bucket}/folder/"]
    assert complete(f"%pull s3://{bucket}/folder/") == [
        f"%pull s3://{bucket}/folder/x",
        f"%pull s3://{bucket}/folder/y",
    ]
    assert complete("%%cache_stream --by fo") == ["%%cache_stream --by folder"]
    assert not any("--overwrite" in found for found in complete("import o"))
    for name in ("two words", "two \"quo'tes\\", "set of sets", "xy", "x\n!run this"):
        (tmp_path / name).touch()
    assert complete("%push tw") == [r"%push two\ \"quo\'tes\\", r"%push two\ words"]
    assert complete(r"%push two\ w") == [r"%push two\ words"]
    assert complete(r"%push set\ of\ s") == [r"%push set\ of\ sets"]
    assert complete("%push 'two w") == ["%push 'two words"]
    assert complete("%push x") == ["%push xy"]


@pytest.mark.in_ci("agent")
@pytest.mark.parametrize("host", ["agent", "inline"])
def test_ids_of_jobs_are_completed(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("NBDATA_HOST", host)
    nbdata.pull(tree, tmp_path / "out", quiet=True)
    job = max(nbdata.transfers(), key=lambda job: job.created).id
    assert job in offered("transfers", "")
    begin_so = [each.id for each in nbdata.transfers() if each.id.startswith(job[:3])]  # ids are random
    assert sorted(offered("transfers", job[:3])) == sorted(begin_so)
    assert offered("transfers", "no-job") == []
