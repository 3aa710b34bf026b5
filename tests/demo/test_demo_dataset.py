"""The sample data set is complete, reproducible and of the requested size, and appears only when finished."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sysconfig
import threading
from pathlib import Path

import pytest

from nbdata.demo.dataset import build_dataset
from nbdata.errors import AccessDenied, BadOption
from tests.waiting import PATIENCE, wait_until

SIZE = 3_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return build_dataset(tmp_path_factory.mktemp("dataset"), size=SIZE)


def extract(dataset, target: Path) -> list[Path]:
    target.mkdir()
    with subprocess.Popen(["cat", *map(str, dataset.volumes)], stdout=subprocess.PIPE) as cat:
        subprocess.run(["tar", "xz", "-C", str(target)], stdin=cat.stdout, check=True)
    return sorted(path for path in target.rglob("*") if not path.is_dir())


def test_it_has_twenty_equal_volumes(made):
    sizes = [path.stat().st_size for path in made.volumes]
    assert [path.name for path in made.volumes] == [f"site-{number:02d}" for number in range(20)]
    assert len(set(sizes[:-1])) == 1
    assert 0 < sizes[-1] <= sizes[0]
    assert sum(sizes) == made.bytes
    assert sorted(path.name for path in (made.folder / "compressed").iterdir()) == [
        path.name for path in made.volumes
    ]


def test_the_joined_volumes_unpack_to_the_same_files(made, tmp_path):
    files = extract(made, tmp_path / "out")
    stdlib = Path(sysconfig.get_paths()["stdlib"]).resolve()
    assert len(files) == made.members > 10
    assert sum(path.stat().st_size for path in files) == made.member_bytes
    for path in files:
        source = stdlib / path.relative_to(tmp_path / "out" / "stdlib")
        assert path.read_bytes() == source.read_bytes()
        assert int(path.stat().st_mtime) == int(source.stat().st_mtime)
        assert "__pycache__" not in path.parts


def test_md5sum_agrees_with_the_sidecars(made):
    assert [path.name for path in made.sidecars] == [f"site-{number:02d}.md5" for number in range(20)]
    assert (
        made.sidecars[0].read_text() == f"{hashlib.md5(made.volumes[0].read_bytes()).hexdigest()}  site-00\n"
    )
    done = subprocess.run(
        ["md5sum", "-c", "--strict", *map(str, made.sidecars)],
        cwd=made.folder / "compressed", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.count(": OK") == 20


@pytest.mark.long
def test_the_same_options_give_the_same_bytes(made, tmp_path):
    again = build_dataset(tmp_path / "again", size=SIZE)
    assert again.fingerprint == made.fingerprint
    assert [path.read_bytes() for path in again.volumes] == [path.read_bytes() for path in made.volumes]


def test_a_finished_one_is_not_made_again(made):
    before = [path.stat().st_ino for path in (*made.volumes, *made.sidecars)]
    assert build_dataset(made.folder, size=SIZE) == made
    assert [path.stat().st_ino for path in (*made.volumes, *made.sidecars)] == before


@pytest.mark.long
def test_other_options_replace_it_and_nothing_else(tmp_path):
    build_dataset(tmp_path, size="1MB", volumes=12, name="first")
    mine = tmp_path / "compressed" / "mine-01"
    mine.write_text("not of the data set")
    made = build_dataset(tmp_path, size="500kB", volumes=3, name="second")
    names = sorted(path.name for path in (tmp_path / "compressed").iterdir())
    assert names == ["mine-01", "second-00", "second-01", "second-02"]
    assert sorted(path.name for path in (tmp_path / "md5").iterdir()) == [path.name for path in made.sidecars]


@pytest.mark.long
@pytest.mark.parametrize("lost", ["dataset.json", "compressed/site-01", "md5/site-00.md5"])
@pytest.mark.in_ci("compressed/site-01")
def test_an_unfinished_one_is_made_anew(tmp_path, lost):
    made = build_dataset(tmp_path, size="500kB", volumes=3)
    (tmp_path / lost).unlink()
    (tmp_path / ".building" / "compressed").mkdir(parents=True)
    (tmp_path / ".building" / "stream").write_bytes(b"half")
    assert build_dataset(tmp_path, size="500kB", volumes=3) == made
    assert (tmp_path / lost).exists()
    assert not (tmp_path / ".building").exists()


@pytest.mark.long
@pytest.mark.parametrize("size", [100_000, 2_000_000, 10_000_000])
@pytest.mark.in_ci("100000")
def test_a_smaller_size_takes_the_first_files(tmp_path, size):
    made = build_dataset(tmp_path, size=size)
    assert size <= made.member_bytes <= size + max(64_000, size // 10)


def test_a_greater_size_repeats_the_trees(tmp_path, monkeypatch):
    tree = tmp_path / "tree"
    (tree / "__pycache__").mkdir(parents=True)
    (tree / "__pycache__" / "x.pyc").write_bytes(b"x" * 1000)
    for number in range(5):
        (tree / f"file-{number}").write_bytes(bytes([number]) * 1000)
    (tree / "outside").symlink_to("/etc/hostname")
    monkeypatch.setattr("nbdata.demo.dataset._trees", lambda: [("tree", str(tree))])
    own = tree / "dataset"  # inside its own source tree
    made = build_dataset(own, size=12_000, volumes=3)
    names = [str(path.relative_to(tmp_path / "out")) for path in extract(made, tmp_path / "out")]
    assert names == [
        *(f"copy-0001/tree/file-{number}" for number in range(5)),
        *(f"copy-0002/tree/file-{number}" for number in range(2)),
        *(f"tree/file-{number}" for number in range(5)),
    ]
    assert (made.members, made.member_bytes) == (12, 12_000)


def _blocked() -> str:
    """Return the lines of the system's list of locks that wait for another."""
    return "\n".join(line for line in Path("/proc/locks").read_text().splitlines() if "->" in line)


@pytest.mark.long
def test_a_second_builder_waits_for_the_first(tmp_path):
    build_dataset(tmp_path, size="300kB", volumes=2)
    with open(tmp_path / "dataset.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(
            target=build_dataset, args=(tmp_path,), kwargs={"size": "300kB", "volumes": 2}
        )
        second.start()
        waits = f":{os.stat(lock.fileno()).st_ino} "
        wait_until(lambda: waits in _blocked() or not second.is_alive())
        assert second.is_alive()
    second.join(PATIENCE)
    assert not second.is_alive()


def test_the_marker_says_what_it_is(made):
    facts = json.loads((made.folder / "dataset.json").read_text())
    assert facts["options"]["size"] == SIZE
    assert facts["members"] == made.members
    assert list(facts["volumes"]) == [path.name for path in made.volumes]


@pytest.mark.in_ci(1)
@pytest.mark.parametrize(
    "options",
    [{"size": 0}, {"size": "many"}, {"volumes": 0}, {"name": "../up"}, {"size": 1, "volumes": 10_000}],
)
def test_options_without_sense_are_refused(tmp_path, options):
    with pytest.raises(BadOption):
        build_dataset(tmp_path, **options)
    assert not (tmp_path / "dataset.json").exists()


def test_a_file_in_the_way_is_an_error_with_its_path(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AccessDenied, match="file"):
        build_dataset(tmp_path / "file", size=1000)


@pytest.mark.long
def test_a_build_needs_no_second_copy_of_the_stream(tmp_path, monkeypatch):
    seen = []
    digest = hashlib.md5

    def watch(*args, **kwargs):
        building = tmp_path / ".building"
        seen.append(sum(path.stat().st_size for path in building.rglob("*") if path.is_file()))
        return digest(*args, **kwargs)

    monkeypatch.setattr("nbdata.demo.dataset.hashlib.md5", watch)
    made = build_dataset(tmp_path, size="1MB", volumes=10)
    assert max(seen) <= made.bytes * 1.1 + 2000
    shutil.rmtree(tmp_path / "compressed")
