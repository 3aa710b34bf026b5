"""ls shows folders, objects, globs and odd names, in a store and on the disk."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.cli import main
from nbdata.demo.server import EmbeddedServer
from nbdata.engine.queries import ls as engine_ls
from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.report import Rows
from nbdata.verbs.listing import Ls
from tests.conftest import client_of
from tests.kernel import Kernel

Put = Callable[[dict[str, bytes]], str]
ODD = [
    "with space",
    " lead",
    "new\nline",
    "ünï/日本語 🎉.txt",
    "semi;colon",
    "per%20cent",
    "star*",
    "-dash",
    "tab\tx",
]
KEYS = [name for name in ODD if "\n" not in name]


def test_long_has_sizes_and_times_in_a_pipe_too(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", f"{tree}/b/"]) == 0
    assert capsys.readouterr().out.splitlines() == ["c.bin", "d/", "e.txt"]
    assert main(["ls", "-l", f"{tree}/b/"]) == 0
    first, folder, _ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r" *100.0 kB  \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  c.bin", first)
    assert folder.split()[0] == "–"
    assert folder.endswith("Z  d/")


def names(place: str, **options: object) -> list[str]:
    return [row.path for row in nbdata.ls(place, quiet=True, **options).rows]


@pytest.fixture
def odd(moto: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket on moto, which keeps keys unchanged, even those that end with a slash.

    Only line breaks are not possible.
    """
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    bucket = f"odd-{secrets.token_hex(4)}"
    moto.create_bucket(bucket)
    client = client_of(moto)
    keys = [*KEYS, "marker/", "marker/in it", "both", "both/below", "a//b"]
    for key in keys:
        client.put_object(Bucket=bucket, Key=f"x/{key}", Body=b"12345" if not key.endswith("/") else b"")
    yield f"s3://{bucket}/x/"

    client.close()


@pytest.mark.parametrize("host", ["agent", "inline"])
def test_a_folder_of_a_store_has_its_objects_and_folders(
    put: Put, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_HOST", host)
    url = put({"a.txt": b"12345", "b/1": b"x", "b/2/3": b"yy", "c": b""})
    report = nbdata.ls(url, quiet=True)
    rows = {row.path: row for row in report.rows}
    assert {path: (row.action, row.size) for path, row in rows.items()} == {
        "a.txt": ("object", 5),
        "b/": ("folder", -1),
        "c": ("object", 0),
    }
    assert rows["a.txt"].detail["modified"] > 1_500_000_000
    assert rows["a.txt"].detail["etag"]
    assert report.details["base"] == url
    assert report.line == f"ls {url}: 1 folder, 2 objects, 5 B"
    assert names(url, recursive=True) == ["a.txt", "b/1", "b/2/3", "c"]
    assert names(f"{url}b") == names(f"{url}b/") == ["1", "2/"]
    assert all(job.verb != "ls" for job in nbdata.transfers())


def test_one_object(put: Put, inline: None) -> None:
    url = put({"d/a.txt": b"12345", "d/a.txt.old": b""})
    report = nbdata.ls(f"{url}d/a.txt", quiet=True)
    assert [(row.path, row.size) for row in report.rows] == [("a.txt", 5)]
    assert report.details["base"] == f"{url}d/"


def test_globs_show_what_they_match_and_nothing_below_it(put: Put, inline: None) -> None:
    url = put(dict.fromkeys(("a1.jpg", "a2.jpg", "a3.txt", "b/a4.jpg", "b/c/a5.jpg", "bb/x", "z"), b"1"))
    assert names(f"{url}*.jpg") == ["a1.jpg", "a2.jpg"]
    assert names(f"{url}a{{1..3}}.*") == ["a1.jpg", "a2.jpg", "a3.txt"]
    assert names(f"{url}b*") == ["b/", "bb/"]
    assert names(f"{url}*/") == ["b/", "bb/"]
    assert names(f"{url}b*/*") == ["b/a4.jpg", "b/c/", "bb/x"]
    assert names(f"{url}**/*.jpg") == ["a1.jpg", "a2.jpg", "b/a4.jpg", "b/c/a5.jpg"]
    assert names(f"{url}b*", recursive=True) == ["b/a4.jpg", "b/c/a5.jpg", "bb/x"]
    with pytest.raises(NotFound, match="nothing matches"):
        names(f"{url}*.png")


def test_odd_names_come_as_they_are(odd: str, inline: None) -> None:
    everything = set(names(odd, recursive=True))
    assert everything == {*KEYS, "marker/", "marker/in it", "both", "both/below", "a//b"}
    assert set(names(odd)) == {
        *(name for name in KEYS if "/" not in name), "ünï/", "marker/", "both", "both/", "a/",
    }  # fmt: skip
    assert names(f"{odd}marker/") == ["", "in it"]
    assert names(f"{odd}both") == ["both", "both/"], "an object and a folder stand side by side"
    assert names(f"{odd}both", recursive=True) == ["both", "both/below"]
    assert names(f"{odd}a/") == ["/"]


def test_odd_names_of_the_disk(tmp_path: Path, inline: None) -> None:
    for name in ODD:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "empty").mkdir()
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "up").symlink_to("..")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / ".nbdata").mkdir()
    report = nbdata.ls(tmp_path, quiet=True)
    assert {row.path for row in report.rows} == {
        *(name for name in ODD if "/" not in name), "ünï/", "empty/",
    }  # fmt: skip
    assert any(note.startswith("3 entries are neither file nor folder") for note in report.notes)
    assert set(names(str(tmp_path), recursive=True)) == set(ODD)
    assert names(f"{tmp_path}/empty") == []
    assert names(f"{tmp_path}/new*") == ["new\nline"]
    assert names(f"{tmp_path}/-dash") == ["-dash"]


def test_what_is_not_there(put: Put, tmp_path: Path, inline: None) -> None:
    url = put({"a": b""})
    with pytest.raises(NotFound, match="no such object or folder"):
        names(f"{url}none/")
    with pytest.raises(NotFound, match="bucket"):
        names("s3://no-such-bucket-at-all/")
    with pytest.raises(NotFound, match="no such object or folder"):
        names(str(tmp_path / "none"))
    with pytest.raises(BadOption, match="no bucket"):
        nbdata.ls("s3://", recursive=True, quiet=True)


def test_an_empty_bucket_is_no_mistake_and_buckets_are_listed(bucket: str, inline: None) -> None:
    assert names(f"s3://{bucket}") == []
    assert f"{bucket}/" in names("s3://")


def test_the_number_of_rows_can_be_limited_and_it_is_said(put: Put, inline: None) -> None:
    url = put({f"{n:02}": b"1" for n in range(9)})
    report = nbdata.ls(url, max_files=3, quiet=True)
    assert [row.path for row in report.rows] == ["00", "01", "02"]
    assert any("--max-files 3" in note for note in report.notes)
    assert not report.details["complete"]


def test_the_display_is_limited_and_the_rows_are_complete(put: Put, inline: None) -> None:
    count = engine_ls._SHOWN + 10
    url = put({f"{n:03}<b>": b"1" for n in range(count)})
    report = nbdata.ls(url, quiet=True)
    assert len(report.rows) == count
    html = report._repr_html_()
    assert html.count("<tr") == 1 + engine_ls._SHOWN
    assert "000&lt;b&gt;" in html
    assert f"the first {engine_ls._SHOWN} of {count}" in html
    assert f"{engine_ls._SHOWN + 1:03}" not in report.text()


@pytest.mark.parametrize("host", ["agent", "inline"])
def test_the_command_line_prints_names_for_programs_and_json_for_all(
    put: Put, host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NBDATA_HOST", host)
    url = put({"a b": b"12345", "new\nline": b"", "d/x": b""})
    assert main(["ls", url]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["a b", "d/", "new\\nline"]
    assert "1 folder, 2 objects, 5 B" in err
    assert main(["ls", url, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["path"], row["kind"], row["size"]) for row in rows] == [
        ("a b", "object", 5),
        ("d/", "folder", None),
        ("new\nline", "object", 0),
    ]
    assert rows[0]["url"] == f"{url}a b"
    assert rows[0]["modified"].endswith("Z")
    assert main(["ls", rows[2]["url"], "--json"]) == 0, "a row's url names it again"


def test_missing_rows_are_an_error(inline: None) -> None:
    report = nbdata.ls("/", quiet=True)
    report.rows = Rows(len(report.rows) + 1, report.rows._page)
    with pytest.raises(NbdataError, match="could still be read"):
        list(Ls("/").lines(report, as_json=True, people=False))


def test_ls_in_a_notebook_is_ipythons_but_for_urls(kernel: Kernel, put: Put, tmp_path: Path) -> None:
    url = put({"there": b"12345"})
    (tmp_path / "mine.txt").touch()
    done = kernel.run(f"place = {url!r}\nwhat = 'mine.*'\n%ls $place")
    assert done.error is None
    assert "there" in "".join(done.displays) + done.text
    for line in ("%ls", "ls", "%ls $what", "%ls -a"):
        cell = kernel.run(line)
        assert cell.error is None
        assert "mine.txt" in cell.text, line
    assert "mine.txt" in "".join((cell := kernel.run("%nbdata ls .")).displays) + cell.text
    assert "NotFound" in str(kernel.run("%nbdata ls none").error)
    assert "there is no verb 'lss'" in str(kernel.run("%nbdata lss").error)
    assert "5 B in 1 object" in "".join(kernel.run(f"%du {url}").displays)
    assert kernel.run("%unload_ext nbdata\n%ls").text.count("mine.txt") == 1
    assert kernel.run("%load_ext nbdata\n%ls $what").text.count("mine.txt") == 1
