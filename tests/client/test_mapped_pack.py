"""pack with map: a program changes each sample, in order, and failures leave nothing behind."""

from __future__ import annotations

import gzip
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import nbdata
from nbdata.client.mapping.folders import Folders
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, NbdataError, NotFound
from tests.client.test_shard_writer import pending, there
from tests.engine.pack.test_pack import content, members, plain
from tests.kernel import Kernel
from tests.waiting import AT_ONCE, wait_until

Put = Callable[[dict[str, bytes]], str]
PYTHON = sys.executable


def command(tmp_path: Path, code: str) -> str:
    """Return a command that runs Python code with the sample's folder as first argument."""
    path = tmp_path / "change.py"
    path.write_text(f"import os, pathlib, sys\nfolder = pathlib.Path(sys.argv[1])\n{code}\n")
    return f"{PYTHON} -S {path} {{}}"


def temporary() -> set[str]:
    """Return the temporary folders of all mapped packs."""
    places = {"/dev/shm", tempfile.gettempdir()}
    return {
        f"{place}/{name}" for place in places for name in os.listdir(place) if name.startswith("nbdata-map-")
    }


def is_there(pid: str) -> bool:
    """True if a process is alive; a zombie is not."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Check after each test that no process, thread or temporary folder is left."""
    before = temporary()
    yield
    wait_until(lambda: not multiprocessing.active_children())
    ours = ("nbdata-map", "nbdata-shards")
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(ours)])
    left = temporary() - before  # includes folders of parallel tests, which vanish
    wait_until(lambda: not left & temporary())


def shards_in(s3: EmbeddedServer, bucket: str, prefix: str) -> dict[str, bytes]:
    return {
        key.removeprefix(prefix): data
        for key, data in there(s3, bucket).items()
        if key.startswith(prefix) and key.endswith(".tar")
    }


@pytest.mark.parametrize("change", [dict, "true", "true {}"])
@pytest.mark.in_ci("dict")
def test_unchanged_samples_give_the_same_bytes_as_pack(
    put: Put, s3: EmbeddedServer, bucket: str, inline: None, change: Any
) -> None:
    url = put(content(30))
    options = {"shard_size": 40_000, "shuffle": True, "seed": 4, "quiet": True}
    wanted = nbdata.pack(f"{url}in/", f"{url}a/x-%06d.tar", **options)
    report = nbdata.pack(f"{url}in/", f"{url}b/x-%06d.tar", map=change, **options)
    assert shards_in(s3, bucket, "b/") == shards_in(s3, bucket, "a/")
    assert there(s3, bucket)["b/x.json"] == there(s3, bucket)["a/x.json"]
    assert (report.verb, report.state, report.counts, report.bytes, report.details["samples"]) == (
        "pack", "DONE", wanted.counts, wanted.bytes, 30,
    )  # fmt: skip
    assert [row[:3] for row in report.rows] == sorted(row[:3] for row in wanted.rows)


def test_a_closure_changes_leaves_out_and_makes_several_in_order(put: Put, inline: None) -> None:
    url = put({f"in/{n:03}.cls": str(n).encode() for n in range(40)})
    most = 30

    def change(sample: dict[str, Any]) -> Any:
        number = int(sample["cls"])
        assert sample["__url__"] == f"{url}in/{number:03}.cls"
        if number >= most:
            return None
        if number % 2:
            return {"cls": number + 1, "json": {"was": number}}  # by default, the key stays
        return ({"__key__": f"{sample['__key__']}-{part}", "cls": number} for part in range(number % 3))

    report = nbdata.pack(f"{url}in/", f"{url}out/x-%d.tar", map=change, map_workers=3, quiet=True)
    wanted: list[dict[str, Any]] = []
    for number in range(most):
        if number % 2:
            more = {"cls": str(number + 1).encode(), "json": json.dumps({"was": number}).encode()}
            wanted.append({"__key__": f"{number:03}", **more})
        else:
            wanted += [
                {"__key__": f"{number:03}-{part}", "cls": str(number).encode()} for part in range(number % 3)
            ]
    samples = nbdata.samples(f"{url}out/x-0.tar")
    assert plain(samples.stream()) == wanted
    samples.close()
    nothing = sum(not number % 6 for number in range(most))
    assert f"--map left out {40 - most + nothing} of 40 samples" in report.notes


def test_values_are_encoded_by_their_extension(put: Put, tmp_path: Path, inline: None) -> None:
    out = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(out, "png")
    put({"in/a.png": out.getvalue()})
    url = put({})

    def smaller(sample: dict[str, Any]) -> dict[str, Any]:
        picture = nbdata.decode(sample)["png"]
        return {**sample, "png": picture.resize((4, 2)), "size.json": picture.size}

    nbdata.pack(f"{url}in/", str(tmp_path / "x-%d.tar"), map=smaller, quiet=True)
    found = members((tmp_path / "x-0.tar").read_bytes())
    assert Image.open(io.BytesIO(found["a.png"])).size == (4, 2)
    assert json.loads(found["a.size.json"]) == [8, 8]


def test_a_command_changes_adds_and_removes_files(put: Put, tmp_path: Path, inline: None) -> None:
    url = put(
        {f"in/{n}.{name}": f"{n}".encode() for n in range(6) for name in ("txt", "cls")} | {"in/6.txt": b""}
    )
    line = command(
        tmp_path,
        "(folder / 'sample.txt').write_text(folder.joinpath('sample.txt').read_text() * 3)\n"
        "(folder / 'sample.a.json').write_text('{}')\n"
        "(folder / 'other.txt').write_text('not of the sample')\n"
        "(folder / 'sample.cls').unlink(missing_ok=True)\n"
        "if (folder / 'sample.txt').read_text() == '222':\n"
        "    [path.unlink() for path in folder.iterdir()]\n",
    )
    report = nbdata.pack(f"{url}in/", str(tmp_path / "x-%d.tar"), map=line, quiet=True)
    found = members((tmp_path / "x-0.tar").read_bytes())
    wanted = {f"{n}.txt": str(n).encode() * 3 for n in (0, 1, 3, 4, 5)} | {"6.txt": b""}
    assert {name: data for name, data in found.items() if name.endswith("txt")} == wanted
    assert list(found)[:2] == ["0.txt", "0.a.json"]
    assert len(found) == 12
    assert "--map left out 1 of 7 samples" in report.notes


def test_compressed_shards_are_streamed_and_pack_names_the_way(
    put: Put, s3: EmbeddedServer, bucket: str, inline: None
) -> None:
    url = put(content(20))
    nbdata.pack(f"{url}in/", f"{url}a/x-%d.tar", quiet=True)
    tar = there(s3, bucket)["a/x-0.tar"]
    put({"c/x-0.tar.gz": gzip.compress(tar)})
    with pytest.raises(BadOption, match="With --map true, in Python with map=dict"):
        nbdata.pack(f"{url}c/x-0.tar.gz", f"{url}d/x-%d.tar", quiet=True)
    with pytest.raises(BadOption, match="Leave --shuffle and --sort out"):
        nbdata.pack(f"{url}c/x-0.tar.gz", f"{url}d/x-%d.tar", map=dict, sort=True, quiet=True)
    report = nbdata.pack(f"{url}c/x-0.tar.gz", f"{url}d/x-%d.tar", map=dict, quiet=True)
    assert there(s3, bucket)["d/x-0.tar"] == tar
    assert report.details["samples"] == 20


@pytest.mark.parametrize("packing", ["loose", "shards", "packed folders"])
@pytest.mark.parametrize("order", [{}, {"sort": True}, {"shuffle": True, "seed": 2}])
@pytest.mark.in_ci("order1-shards")
def test_samples_are_selected_and_renamed_before_they_are_changed(
    put: Put, s3: EmbeddedServer, bucket: str, inline: None, packing: str, order: dict[str, Any]
) -> None:
    url = put(content(30))
    nbdata.pack(f"{url}in/", f"{url}a/x-%d.tar", shard_size=60_000, quiet=True)
    nbdata.pack(f"{url}in/", f"{url}a.ffr/", shard_size=60_000, quiet=True)
    places = {"loose": f"{url}in/", "shards": f"{url}a/x-*.tar", "packed folders": f"{url}a.ffr/"}
    source = places[packing]
    options = {"select": "size(jpg) > 2kB", "rename": "cls.txt=cls", "quiet": True, **order}
    wanted = nbdata.pack(source, f"{url}b/x-%d.tar", **options)

    def change(sample: dict[str, Any]) -> dict[str, Any]:
        assert list(sample) == ["__key__", "__url__", "cls", "jpg"]
        return sample

    report = nbdata.pack(source, f"{url}c/x-%d.tar", map=change, **options)
    assert shards_in(s3, bucket, "c/") == shards_in(s3, bucket, "b/")
    assert sorted(report.notes) == sorted(wanted.notes)
    with pytest.raises(NotFound, match="none of 30 samples is selected"):
        nbdata.pack(source, f"{url}d/x-%d.tar", map=dict, select="none", quiet=True, **order)


def test_neighbours_of_one_key_stay_two_samples(
    put: Put, s3: EmbeddedServer, bucket: str, inline: None
) -> None:
    url = put({f"in/{folder}/1.cls": folder.encode() for folder in "ab"})
    for folder in "ab":
        nbdata.pack(f"{url}in/{folder}/", f"{url}shards/{folder}-%d.tar", quiet=True)
    report = nbdata.pack(f"{url}shards/*.tar", f"{url}out/x-%d.tar", map=dict, quiet=True)
    assert members(there(s3, bucket)["out/x-0.tar"]) == {"1.cls": b"a", "1~2.cls": b"b"}
    assert "1 sample has the key of their neighbour, and are called KEY~2 and so on" in report.notes


@pytest.mark.long
def test_random_numbers_depend_on_the_sample_and_the_seed_alone(
    put: Put, tmp_path: Path, inline: None
) -> None:
    url = put({f"in/{n:02}.cls": b"" for n in range(12)})

    def drawn(sample: dict[str, Any]) -> dict[str, Any]:
        import random

        return {**sample, "json": [random.random(), np.random.rand()]}

    for name, workers, seed in (("a", 1, 1), ("b", 4, 1), ("c", 4, 2)):
        target = str(tmp_path / name / "x-%d.tar")
        nbdata.pack(f"{url}in/", target, map=drawn, map_workers=workers, seed=seed, quiet=True)
    a, b, c = (members((tmp_path / name / "x-0.tar").read_bytes()) for name in "abc")
    assert a == b != c
    assert len({data for name, data in a.items() if name.endswith("json")}) == 12


def _raise(sample: dict[str, Any]) -> Any:
    if sample["__key__"] == "07":
        raise ValueError("no good")
    return sample


def _twice(sample: dict[str, Any]) -> Any:
    return [sample, sample] if sample["__key__"] == "07" else sample


def _end(sample: dict[str, Any]) -> Any:
    if sample["__key__"] == "07":
        os._exit(3)
    return sample


def _later(sample: dict[str, Any]) -> Any:
    if sample["__key__"] == "07":
        yield sample
        raise KeyError("later")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_raise, r"--map: the function failed for the sample '07': ValueError: no good \(.*, line \d+\)"),
        (_later, "the function failed for the sample '07': KeyError: 'later'"),
        (_twice, "the function made two samples with the key '07' of '07'"),
        (_end, "a process of --map ended with status 3 while it changed the sample '07'"),
        (lambda sample: 7, "the function returned something else for the sample '00'"),
        (lambda sample: ["a"], "the function returned something else for the sample '00'"),
        (lambda sample: [{"cls": 1}, {"cls": 2}], "a sample that the function made of '00' has no key"),
        (lambda sample: {"cls": object()}, "the field 'cls' of the sample '00'"),
        (lambda sample: {"JPG": b""}, "'00.JPG' would be in no sample"),
        (lambda sample: {"__key__": "same", "cls": 1}, "two neighbours have the key 'same'"),
        (lambda sample: None, "--map left all 30 samples out"),
        (f"{PYTHON} -S -c 'import sys; print(1); sys.exit(\"a\\nwhy\")'", "status 1 for the sample '00' .got a / why"),
        (f"{PYTHON} -S -c 'import os; os.kill(os.getpid(), 9)'", "was ended by signal 9 for the sample '00'"),
        ("/no/such/command {}", "/no/such/command cannot be run"),
        ("ln -sf /etc/passwd {}/sample.cls", "the command left something else than a file as sample.cls"),
        ("mkfifo {}/sample.pipe", "the command left something else than a file as sample.pipe"),
    ],
)  # fmt: skip
@pytest.mark.in_ci("_*", "ln -sf*", 1)
def test_what_goes_wrong_names_the_sample_and_leaves_nothing(
    put: Put, s3: EmbeddedServer, bucket: str, inline: None, change: Any, told: str
) -> None:
    url = put({f"in/{n:02}.cls": str(n).encode() for n in range(30)})
    with pytest.raises(NbdataError, match=told):
        nbdata.pack(f"{url}in/", f"{url}out/x-%d.tar", map=change, quiet=True)
    assert pending(s3, bucket) == 0
    assert shards_in(s3, bucket, "out/") == {}
    assert "out/x.json" not in there(s3, bucket)


@pytest.mark.long
def test_existing_shards_are_replaced_only_on_request(
    put: Put, s3: EmbeddedServer, bucket: str, inline: None
) -> None:
    url = put(content(20))
    line = nbdata.Pack(f"{url}in/", f"{url}out/x-%d.tar", map=dict, shard_size=20_000)
    line.run(quiet=True)
    first = there(s3, bucket)
    for act in (line.plan, lambda: line.run(quiet=True)):
        with pytest.raises(BadOption, match="Say --overwrite always"):
            act()
    fewer = {"map": lambda sample: None if "1" in sample["__key__"] else sample, "overwrite": "always"}
    again = nbdata.Pack(f"{url}in/", f"{url}out/x-%d.tar", **fewer)
    again.plan()
    assert there(s3, bucket) == first
    again.run(quiet=True)
    assert len(shards_in(s3, bucket, "out/")) < len(first) - 41


def test_a_plan_says_how_many_samples_there_are_if_that_is_known(put: Put, inline: None) -> None:
    url = put(content(20))
    plan = nbdata.pack(f"{url}in/", f"{url}a/x-%d.tar", map=dict, dry_run=True)
    assert plan.details["samples"] == 20
    assert "map 20 (" in plan.line
    nbdata.pack(f"{url}in/", f"{url}a/x-%d.tar", quiet=True)
    plan = nbdata.pack(f"{url}a/x-*.tar", f"{url}b/x-%d.tar", map=dict, dry_run=True)
    assert "read 1 (" in plan.line
    assert plan.fits
    assert not plan.empty


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"map": "a 'b"}, "No closing quotation|no closing quotation"),
        ({"map": " "}, "this command is empty"),
        ({"map": 3}, "map: 3 is not a text"),
        ({"map": dict, "shard_count": 2}, "--map and --shard-count exclude each other"),
        ({"map": dict, "max_rate": "5MB"}, "--map and --max-rate exclude each other"),
        ({"map": dict, "on_error": "report"}, "--map and --on-error report exclude each other"),
        ({"map": dict, "map_workers": 0}, "--map-workers: 0 is out of range"),
        ({"map_workers": 2}, "--map-workers is for --map"),
        ({"map": dict, "background": True}, "--map cannot run in the background"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        nbdata.pack("s3://none/in/", "s3://none/out/", **options)


def test_shards_are_not_made_of_those_that_they_replace(
    put: Put, s3: EmbeddedServer, bucket: str, inline: None
) -> None:
    url = put(content(10))
    nbdata.pack(f"{url}in/", f"{url}a/x-%d.tar", quiet=True)
    before = there(s3, bucket)
    with pytest.raises(BadOption, match="would replace those that they are made of"):
        nbdata.pack(f"{url}a/x-*.tar", f"{url}a/x-%d.tar", map=dict, overwrite="always", quiet=True)
    assert there(s3, bucket) == before


@pytest.mark.long
@pytest.mark.parametrize("kind", ["function", "command"])
def test_an_interrupt_ends_all_of_it(
    put: Put, s3: EmbeddedServer, bucket: str, tmp_path: Path, kind: str
) -> None:
    url = put(content(20))
    pids = tmp_path / "pids"
    waiting = f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); import time; time.sleep(600)"
    line = command(tmp_path, waiting)
    change = "wait" if kind == "function" else repr(line)
    program = f"""
import os, sys, nbdata
def wait(sample):
    {waiting}
try:
    nbdata.pack({f"{url}in/"!r}, {f"{url}out/x-%d.tar"!r}, map={change}, map_workers=2)
except KeyboardInterrupt:
    print("interrupted")
"""
    process = subprocess.Popen(
        [PYTHON, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: pids.exists() and len(pids.read_text().splitlines()) == 2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=AT_ONCE)
    finally:
        process.kill()
        process.communicate()
    assert out == "interrupted\n", err
    assert "interrupted; run it again with --overwrite always to start over" in err
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert pending(s3, bucket) == 0
    assert shards_in(s3, bucket, "out/") == {}


_KILLED = """
import os
from nbdata.client.mapping.folders import Folders

folders = Folders(1).__enter__()
with folders.one(1) as folder:
    open(folder + "/x", "w").close()
    print(*(base.path for base in folders._bases.values()), flush=True)
    os._exit(0)
"""


def test_the_next_pack_removes_the_folders_of_a_killed_one(put: Put, tmp_path: Path, inline: None) -> None:
    url = put({"in/a.cls": b"1"})
    left = subprocess.run([PYTHON, "-c", _KILLED], capture_output=True, text=True, check=True).stdout.split()
    assert left
    assert all(map(os.path.isdir, left))
    with Folders(1) as lives:
        nbdata.pack(f"{url}in/", str(tmp_path / "x-%d.tar"), map="true", quiet=True)
        assert not any(map(os.path.exists, left))
        assert all(os.path.isdir(base.path) for base in lives._bases.values())


def test_a_pack_removes_no_folder_that_only_has_the_name_of_one(
    put: Put, tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an archive or a repository of somebody else, or a copy of one of nbdata's own."""
    url, place = put({"in/a.cls": b"1"}), tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    own = next(
        path
        for path in subprocess.run(
            [PYTHON, "-c", _KILLED], env={**os.environ, "TMPDIR": str(place)},
            capture_output=True, text=True, check=True,
        ).stdout.split()
        if path.startswith(str(place))
    )  # fmt: skip
    renamed, tools = place / "nbdata-map-renamed", place / "nbdata-map-tools"
    os.rename(own, renamed)
    shutil.copytree(renamed, own)
    tools.mkdir()
    (tools / "alive").touch()
    for folder in (own, renamed, tools):
        Path(folder, "thesis.txt").write_text("precious")
    nbdata.pack(f"{url}in/", str(tmp_path / "x-%d.tar"), map="true", quiet=True)
    assert len(list(place.glob("*/thesis.txt"))) == 3


def test_a_command_line_and_a_cell_change_samples(
    put: Put, s3: EmbeddedServer, bucket: str, tmp_path: Path, kernel: Kernel
) -> None:
    url = put({f"in/{n}.txt": b"abc" for n in range(3)})
    script = tmp_path / "upper"
    script.write_text("#!/bin/sh\ntr a-z A-Z < $1/sample.txt > $1/t && mv $1/t $1/sample.txt\n")
    script.chmod(0o755)
    words = [PYTHON, "-m", "nbdata", "pack", f"{url}in/", f"{url}out/x-%d.tar", "--map", f"{script} {{}}"]
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["details"]["samples"] == 3
    assert done.stderr == ""
    assert members(there(s3, bucket)["out/x-0.tar"]) == {f"{n}.txt": b"ABC" for n in range(3)}
    refused = subprocess.run([*words, "-b"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--map cannot run in the background" in refused.stderr
    said = kernel.run(f"%pack {url}in/ {url}cell/x-%d.tar --map '{script} {{}}' -o made\nprint(made.counts)")
    assert said.error is None
    assert "3 samples in 1 shard" in said.displays[0]
    assert "{'packed': 1}" in said.text
    assert there(s3, bucket)["cell/x-0.tar"] == there(s3, bucket)["out/x-0.tar"]


@pytest.mark.in_ci("function")
@pytest.mark.parametrize("kind", ["function", "command"])
def test_the_stop_button_ends_it_and_says_how_to_go_on(
    put: Put, s3: EmbeddedServer, bucket: str, tmp_path: Path, kernel: Kernel, kind: str
) -> None:
    url = put(content(20))
    pids = tmp_path / "pids"
    waiting = f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n'); import time; time.sleep(600)"
    if kind == "function":
        cell = (
            "import os, nbdata\ndef wait(sample):\n    " + waiting + "\n"
            f"nbdata.pack('{url}in/', '{url}out/x-%d.tar', map=wait, map_workers=2)"
        )
    else:
        cell = f"%pack {url}in/ {url}out/x-%d.tar --map '{command(tmp_path, waiting)}' --map-workers 2"
    running = kernel.start(cell)
    kernel.until(lambda: pids.exists() and len(pids.read_text().splitlines()) == 2)
    kernel.manager.interrupt_kernel()
    out = kernel.collect(running)
    assert out.error is not None
    if kind == "command":
        assert "Cancelled: pack was interrupted" in out.error
        assert "run it again with --overwrite always to start over" in "".join(out.displays)
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert pending(s3, bucket) == 0
    # The kernel continues, and the next pack works.
    again = kernel.run(f"import nbdata\nprint(nbdata.pack('{url}in/', '{url}out/x-%d.tar', map=dict).counts)")
    assert (again.error, again.text) == (None, "{'packed': 1}\n")


def test_the_processes_of_a_killed_pack_end(
    put: Put, s3: EmbeddedServer, bucket: str, tmp_path: Path
) -> None:
    url = put(content(20))
    pids = tmp_path / "pids"
    program = f"""
import os, time, nbdata
def change(sample):
    open({str(pids)!r}, "a").write(f"{{os.getpid()}}\\n")
    time.sleep(0.1)
    return sample
nbdata.pack({f"{url}in/"!r}, {f"{url}out/x-%d.tar"!r}, map=change, map_workers=3)
"""
    process = subprocess.Popen([PYTHON, "-c", program], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: pids.exists() and len(set(pids.read_text().split())) == 3)
    finally:
        process.kill()
        process.wait()
    for pid in set(pids.read_text().split()):
        wait_until(lambda pid=pid: not is_there(pid))
