"""What changes in the store during a mount, several mounts, and other users."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, NbdataError
from nbdata.files.mounted import wire
from tests.conftest import client_of
from tests.faults.proxy import BEFORE, Exchange, Fault, FaultProxy
from tests.files.mounted.conftest import Scene
from tests.files.mounted.kernel import kernel
from tests.s3_client import S3Client
from tests.waiting import AT_ONCE, wait_until

pytestmark = pytest.mark.needs("mount")
# A listing that is remembered for longer than any test takes; the kernel believes for ten seconds what it was told.
LONG = "86400"


@pytest.fixture
def client(environment: EmbeddedServer) -> Iterator[S3Client]:
    """A client of SeaweedFS that is not nbdata."""
    client = client_of(environment)
    yield client
    client.close()


@pytest.fixture
def folder(client: S3Client) -> Iterator[Callable[[dict[str, bytes]], str]]:
    """A function that fills a new bucket, and returns the name."""
    name = f"changes-{os.urandom(4).hex()}"
    client.create_bucket(Bucket=name)

    def put(objects: dict[str, bytes]) -> str:
        for key, data in objects.items():
            client.put_object(Bucket=name, Key=f"data/{key}", Body=data)
        return name

    yield put
    client.delete_bucket(Bucket=name)


Filled = Callable[[dict[str, bytes]], str]


# -- changes in the store --------------------------------------------------------------------------


def test_without_age_each_change_is_seen_at_once(client: S3Client, folder: Filled, tmp_path: Path) -> None:
    name = folder({"f": b"one", "d/x": b"x", "gone": b"gone"})
    with nbdata.mount(f"s3://{name}/data", str(tmp_path / "m"), max_age=0) as mount:
        top = Path(mount.folder)
        assert (top / "f").read_bytes() == b"one"
        assert sorted(os.listdir(top / "d")) == ["x"]
        client.put_object(Bucket=name, Key="data/f", Body=b"another, longer")
        client.put_object(Bucket=name, Key="data/d/y", Body=b"y")
        client.delete_object(Bucket=name, Key="data/gone")
        assert (top / "f").stat().st_size == 15
        assert (top / "f").read_bytes() == b"another, longer"
        assert sorted(os.listdir(top / "d")) == ["x", "y"]
        assert not (top / "gone").exists()
        assert sorted(os.listdir(top)) == [".nbdata-mount", "d", "f"]


def test_with_age_a_listing_stays_and_a_file_that_is_opened_is_the_new_one(
    client: S3Client, folder: Filled, tmp_path: Path
) -> None:
    large, larger = os.urandom(400_000), os.urandom(700_001)
    name = folder({"f": large, "gone": bytes(300_000), "d/x": b"x"})
    with nbdata.mount(f"s3://{name}/data", str(tmp_path / "m"), max_age=LONG) as mount:
        top = Path(mount.folder)
        assert sorted(os.listdir(top)) == [".nbdata-mount", "d", "f", "gone"]
        assert (top / "f").read_bytes() == large
        client.put_object(Bucket=name, Key="data/f", Body=larger)
        client.put_object(Bucket=name, Key="data/new", Body=b"new")
        client.delete_object(Bucket=name, Key="data/gone")
        with open(top / "f", "rb") as file:
            assert os.fstat(file.fileno()).st_size == len(larger)
            assert file.read() == larger
        assert (top / "f").stat().st_size == len(larger)
        assert (top / "f").read_bytes() == larger
        assert sorted(os.listdir(top)) == [".nbdata-mount", "d", "f", "gone"]  # as it was listed
        with pytest.raises(FileNotFoundError):
            (top / "gone").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("age", ["0", "1"])
def test_a_file_becomes_a_folder_and_back(client: S3Client, folder: Filled, tmp_path: Path, age: str) -> None:
    name = folder({"x": b"file", "other": b"o"})
    with nbdata.mount(f"s3://{name}/data", str(tmp_path / "m"), max_age=age) as mount:
        place = Path(mount.folder, "x")
        for number in range(3):
            wait_until(place.is_file)
            assert place.read_bytes() == b"file"
            client.delete_object(Bucket=name, Key="data/x")
            client.put_object(Bucket=name, Key="data/x/in", Body=b"in %d" % number)
            wait_until(place.is_dir)
            assert os.listdir(place) == ["in"]
            assert (place / "in").read_bytes() == b"in %d" % number
            client.delete_object(Bucket=name, Key="data/x/in")
            with contextlib.suppress(AssertionError):  # SeaweedFS keeps the folder, and moto would not
                client.delete_object(Bucket=name, Key="data/x/")
            client.put_object(Bucket=name, Key="data/x", Body=b"file")


@pytest.mark.long
def test_what_is_asked_for_by_name_counts_as_no_odd_name(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(1050):
        (tmp_path / f"many/{number:04}").touch()
    with kernel(tmp_path) as line:
        line.begin()
        above = line.look_up(wire.ROOT, b"many").node
        found = line.look_up(above, b"1040")  # behind the names that are listed for it
        assert found.node
        assert not line.look_up(above, b"1040x").node
        names = line.all_names(above, 4096, plus=True)
        assert len({one.name for one in names}) == len(names) == 1052
        assert found.node in {one.inode for one in names if one.name == b"1040"}
        about = line.look_up(wire.ROOT, b".nbdata-mount").node
        assert b"do not show: 0\n" in line.read(about, line.opened(about), 0, 4096)


@pytest.mark.long
def test_a_listing_that_breaks_off_is_an_error_for_all_who_wait_for_it(
    environment: EmbeddedServer, folder: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = folder({f"many/{number:04}": b"x" for number in range(1200)})
    asked = threading.Event()

    def plan(request: Exchange, before: int) -> Fault | None:
        if request.action != "list":
            return None
        if not before:
            asked.set()
            return Fault("delay", BEFORE, seconds=0.5)  # meanwhile the others come to wait
        return Fault("refuse", BEFORE, status=403)

    def listed(_: int) -> int:
        try:
            return len(os.listdir(tmp_path / "m/many"))
        except PermissionError:
            return -1

    with FaultProxy(environment.url) as proxy, monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        with nbdata.mount(f"s3://{name}/data", str(tmp_path / "m")) as mount, ThreadPoolExecutor(6) as pool:
            os.listdir(mount.folder)
            proxy.begin(plan)
            assert set(pool.map(listed, range(6))) == {-1}
            assert asked.is_set()
            proxy.begin()
            assert listed(0) == 1200


# -- several mounts --------------------------------------------------------------------------------


@pytest.mark.long
def test_two_mounts_of_one_place_do_not_know_of_each_other(scene: Scene, tmp_path: Path) -> None:
    with nbdata.mount(scene.url, str(tmp_path / "a")) as a, nbdata.mount(scene.url, str(tmp_path / "b")) as b:
        for mount in (a, b):
            assert Path(mount.folder, "big.bin").read_bytes() == (scene.disk / "big.bin").read_bytes()
        a.unmount()
        assert os.listdir(a.folder) == []
        assert len(os.listdir(Path(b.folder, "many"))) == 300
    assert len(os.listdir(scene.folder / "many")) == 300


@pytest.mark.long
def test_a_mount_below_a_mount_is_possible_where_there_is_a_folder(scene: Scene) -> None:
    inner = scene.folder / "deep/er"
    with pytest.raises(BadOption, match="not empty"):
        nbdata.mount(scene.url, str(inner))
    with pytest.raises(OSError, match="read-only"):
        nbdata.mount(scene.url, str(scene.folder / "new"))
    assert (inner / "st/ünï [x].txt").read_text() == "deep"


@pytest.mark.long
def test_a_folder_in_use_stays_mounted_and_is_said_by_whom(own_scene: Scene) -> None:
    inside = "import os, sys; os.chdir(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", inside, own_scene.folder / "deep"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"1\n"
        with pytest.raises(NbdataError, match=rf"process {holder.pid}\) has .*/deep"):
            own_scene.mount.unmount()
        assert len(os.listdir(own_scene.folder / "many")) == 300
        assert holder.stdin is not None
        holder.stdin.close()
        holder.wait(AT_ONCE)
    own_scene.mount.unmount()
    assert os.listdir(own_scene.folder) == []
