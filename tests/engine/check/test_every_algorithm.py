"""Each digest that nbdata knows can be written, is found again by a plain check, and detects one flipped byte."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nbdata.algorithms import ALGORITHMS
from nbdata.errors import NotFound
from nbdata.option import options_of
from nbdata.verbs.md5check import Md5check

from .test_md5check import check, flip

pytestmark = pytest.mark.usefixtures("inline")

# Programs that read what nbdata writes; of the CRCs, GNU's tools know none of these.
PROGRAMS = {"md5": "md5sum", "sha1": "sha1sum", "sha256": "sha256sum", "sha512": "sha512sum"}
# Where `--write` puts the digest of a.txt: in a manifest, or in a sidecar.
FORMS = {"manifest": (True, "{}SUMS"), "sidecars": ("sidecars", "a.txt.{}")}


def test_md5check_offers_every_algorithm() -> None:
    assert {*options_of(Md5check)["algorithm"][1].choices} == {"auto", *ALGORITHMS}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_written_digest_is_found_and_detects_a_flipped_byte(tree: Path, algorithm: str, form: str) -> None:
    write, name = FORMS[form]
    assert check(tree, write=write, algorithm=algorithm).counts == {"hashed": 5}
    written = tree / name.format(algorithm.upper() if write is True else algorithm)
    assert written.exists()

    report = check(tree)  # by no algorithm in particular
    assert report.counts == {"ok": 5}
    found = {row.path: (row.detail["algorithm"], Path(row.detail["source"]).name) for row in report.rows}
    assert found["a.txt"] == (algorithm, written.name)
    assert {by for by, _ in found.values()} == {algorithm}

    flip(tree / "b/c.bin")
    for options in ({}, {"algorithm": algorithm}):
        report = check(tree, **options)
        assert report.counts == {"mismatch": 1, "ok": 4}
        (wrong,) = [row for row in report.rows if row.action == "mismatch"]
        assert (wrong.path, wrong.detail["algorithm"]) == ("b/c.bin", algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_digest_of_another_algorithm_is_not_taken_for_the_wanted_one(tree: Path, algorithm: str) -> None:
    other = next(one for one in ALGORITHMS if one != algorithm)
    check(tree, write="sidecars", algorithm=algorithm)
    with pytest.raises(NotFound, match="no checksum was found for any of the 5 files"):
        check(tree, algorithm=other)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_manifest_in_a_store_is_found_beside_a_single_object(
    put: Callable[[dict[str, bytes]], str], algorithm: str
) -> None:
    url = put({"a.txt": b"alpha", "b.txt": b"beta"})
    assert check(url, write=True, algorithm=algorithm).counts == {"hashed": 2}
    (row,) = check(f"{url}a.txt").rows  # the folder is not listed, as it may be too large
    assert (row.action, row.detail["algorithm"], row.detail["source"]) == (
        "ok",
        algorithm,
        f"{algorithm.upper()}SUMS",
    )


@pytest.mark.needs("coreutils")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("algorithm", PROGRAMS)
def test_the_common_program_agrees_with_a_written_digest(tree: Path, algorithm: str, form: str) -> None:
    write, name = FORMS[form]
    check(tree, write=write, algorithm=algorithm)
    written = name.format(algorithm.upper() if write is True else algorithm)
    command = [PROGRAMS[algorithm], "--check", "--strict", "--quiet", written]
    assert subprocess.run(command, cwd=tree).returncode == 0
    flip(tree / "a.txt")
    assert subprocess.run(command, cwd=tree, capture_output=True).returncode == 1


@pytest.mark.needs("7zz")
def test_another_program_agrees_with_a_written_crc32(tree: Path) -> None:
    check(tree / "a.txt", write=True, algorithm="crc32")
    command = ["7zz", "h", "-scrcCRC32", "a.txt"]
    told = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout
    digest = (tree / "a.txt.crc32").read_text().split()[0]
    assert digest.upper() in told.split()


#: What a new algorithm takes: its entry. It is there before nbdata is imported; the script is the command line then.
WITH_ONE_MORE = """
import importlib.util, pathlib, sys
folder = pathlib.Path(importlib.util.find_spec("nbdata").origin).parent
spec = importlib.util.spec_from_file_location("nbdata.algorithms", folder / "algorithms.py")
sys.modules[spec.name] = algorithms = importlib.util.module_from_spec(spec)
spec.loader.exec_module(algorithms)
algorithms.ALGORITHMS["sha3_512"] = algorithms.Algorithm("sha3_512", 128)
from nbdata.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.long
def test_a_new_algorithm_is_one_entry(tree: Path) -> None:
    def nbdata(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITH_ONE_MORE, "md5check", *words]
        return subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"NBDATA_HOST": "inline"}
        )

    assert "sha3_512" not in ALGORITHMS, "take another one here"
    assert "sha3_512" in nbdata("--help").stdout
    assert nbdata(str(tree), "--write", "--algorithm", "sha3_512").returncode == 0
    lines = (tree / "SHA3_512SUMS").read_text()
    assert hashlib.sha3_512((tree / "a.txt").read_bytes()).hexdigest() in lines
    assert "5 ok" in nbdata(str(tree)).stdout
    flip(tree / "a.txt")
    assert nbdata(str(tree)).returncode == 1
    # SHA-512 has as many digits: only a name tells which one it is
    (tree / "SHA3_512SUMS").rename(tree / "checksums.txt")
    unclear = nbdata(str(tree))
    assert unclear.returncode == 1
    assert (
        "128 hexadecimal digits may be sha512 or sha3_512; SHA512SUMS tells it"
        in unclear.stdout + unclear.stderr
    )
