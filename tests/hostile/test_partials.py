"""A partial counts only if this user's nbdata made it, or the store proves its bytes; whoever put it there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.operation import Context
from nbdata.paths import canonical
from nbdata.seals import Seals
from nbdata.stores.base import ObjectInfo
from nbdata.stores.resolve import open_place
from nbdata.transfer.part_records import PART, PartRecord, names
from nbdata.transfer.partials import Partial
from nbdata.transfer.staging import Staging
from tests.conformance.conftest import context
from tests.conftest import client_of
from tests.stores.folder_server import folder_server

pytestmark = pytest.mark.usefixtures("inline")

DATA = os.urandom(2 * PART + 1000)
FOREIGN = os.urandom(PART)
ANEW = "big: nothing proved the bytes that were there, so it was fetched anew"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This user's state folder, which has the key of the seals."""
    monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, ObjectInfo]]:
    """An object of a store that keeps no checksums."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served/big").write_bytes(DATA)
    with folder_server(tmp_path / "served") as server:
        yield f"{server.url}big", open_place(f"{server.url}big", context()).store.head("big")


@pytest.fixture
def bucket_object(s3: EmbeddedServer, bucket: str) -> tuple[str, ObjectInfo]:
    """An object of a store that keeps its MD5."""
    client = client_of(s3)
    client.put_object(Bucket=bucket, Key="big", Body=DATA)
    client.close()
    options = {name: value for name, value in s3.storage_options().items() if name != "bucket"}
    return f"s3://{bucket}/big", open_place(f"s3://{bucket}/big", context(**options)).store.head("big")


def begun(target: Path, source: tuple[str, ObjectInfo], state: Path, data: bytes) -> None:
    """Leave a partial whose first part has these bytes, sealed with the key of a state folder."""
    own = target / ".nbdata"
    own.mkdir(parents=True, mode=0o700)
    place = open_place(source[0], Context("/", env=dict(os.environ)))
    known = f"{place.store.server}\n{canonical(source[0])}"
    parts = Partial(Staging(str(own)), "big", known, source[1], Seals(str(state)))
    os.pwrite(parts.fd, data, 0)
    parts.mark(0)
    parts.close()


def pulled(target: Path, source: tuple[str, ObjectInfo]) -> tuple[int, bool]:
    """Pull; return how many bytes were kept, and whether the report says that some were fetched anew."""
    report = nbdata.pull(source[0], f"{target}/", quiet=True)
    assert isinstance(report, nbdata.Report)
    assert (target / "big").read_bytes() == DATA
    assert not (target / ".nbdata").exists()
    return report.present, ANEW in report.notes


def test_a_partial_of_this_user_is_continued(
    tmp_path: Path, web: tuple[str, ObjectInfo], state: Path
) -> None:
    begun(tmp_path / "out", web, state, DATA[:PART])
    assert pulled(tmp_path / "out", web) == (PART, False)


@pytest.mark.parametrize("data", [FOREIGN, DATA[:PART]], ids=["foreign", "right"])
def test_what_neither_a_seal_nor_the_store_proves_is_fetched_anew(
    tmp_path: Path, web: tuple[str, ObjectInfo], data: bytes
) -> None:
    begun(tmp_path / "out", web, tmp_path / "state of a stranger", data)
    assert pulled(tmp_path / "out", web) == (0, True)


def test_what_the_store_proves_is_kept_without_a_seal(
    tmp_path: Path, bucket_object: tuple[str, ObjectInfo]
) -> None:
    """As in a container that has lost its home folder and kept the disk."""
    begun(tmp_path / "out", bucket_object, tmp_path / "lost state", DATA[:PART])
    assert pulled(tmp_path / "out", bucket_object) == (PART, False)


def test_foreign_bytes_are_found_by_the_digest_of_the_store(
    tmp_path: Path, bucket_object: tuple[str, ObjectInfo]
) -> None:
    begun(tmp_path / "out", bucket_object, tmp_path / "state of a stranger", FOREIGN)
    assert pulled(tmp_path / "out", bucket_object)[0] == 0


def test_a_record_that_was_moved_to_another_file_has_no_seal_there(
    tmp_path: Path, web: tuple[str, ObjectInfo], state: Path
) -> None:
    """A seal is of the source, the version and the path of one object."""
    served = tmp_path / "served"
    (served / "other").write_bytes(FOREIGN + DATA[PART:])
    url = web[0].removesuffix("big")
    other = open_place(f"{url}other", context()).store.head("other")
    begun(tmp_path / "theirs", (f"{url}other", other), state, FOREIGN)
    begun(tmp_path / "out", web, tmp_path / "state of a stranger", FOREIGN)
    for there, here in zip(
        sorted((tmp_path / "theirs/.nbdata").iterdir()),
        sorted((tmp_path / "out/.nbdata").iterdir()),
        strict=True,
    ):
        os.replace(there, here)
    pulled(tmp_path / "out", web)


def test_partials_stay_in_the_folder_that_was_entered(
    tmp_path: Path, web: tuple[str, ObjectInfo], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the folder around it can exchange it for a link, also in a sticky one."""
    out, secret, real = tmp_path / "out", tmp_path / "secret", PartRecord.__init__
    secret.mkdir()
    for name in names("big"):
        (secret / name).write_text("theirs")

    def exchanged(found: PartRecord, folder: Staging, name: str) -> None:
        if not (out / ".nbdata").is_symlink():
            (out / ".nbdata").rename(tmp_path / "aside")
            (out / ".nbdata").symlink_to(secret)
        real(found, folder, name)

    monkeypatch.setattr(PartRecord, "__init__", exchanged)
    with pytest.raises(nbdata.NbdataError):
        nbdata.pull(web[0], f"{out}/", quiet=True)
    assert sorted(os.listdir(secret)) == sorted(names("big"))
    assert {path.read_text() for path in secret.iterdir()} == {"theirs"}
    assert set(os.listdir(tmp_path / "aside")) == set(names("big")), "what is there is for the next run"


@pytest.mark.parametrize("what", ["keep", "remove", "forget_record", "discard"])
def test_a_partial_is_kept_and_removed_where_it_was_opened(tmp_path: Path, state: Path, what: str) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "secret").mkdir()
    folder, seals, info = Staging(str(tmp_path / "own")), Seals(str(state)), ObjectInfo("k", 1000, '"v1"')
    parts = Partial(folder, "big", "source", info, seals)
    (tmp_path / "own/temporary").write_bytes(bytes(600))
    data, record = names("big")
    for name in (data, record, "temporary"):
        (tmp_path / "secret" / name).write_text("theirs")
    (tmp_path / "own").rename(tmp_path / "aside")
    (tmp_path / "own").symlink_to(tmp_path / "secret")
    if what == "keep":
        assert Partial.keep(folder, "big", "source", info, "temporary", 600, seals)
    elif what == "discard":
        parts.discard()
    else:
        getattr(Partial, what)(folder, data)
    parts.close()
    left = {"keep": {data, record}, "forget_record": {data, "temporary"}}.get(what, {"temporary"})
    assert set(os.listdir(tmp_path / "aside")) == left
    assert {path.read_text() for path in (tmp_path / "secret").iterdir()} == {"theirs"}
    assert len(os.listdir(tmp_path / "secret")) == 3


def test_what_lies_at_the_name_of_a_partial_is_not_opened_through(tmp_path: Path, state: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    folder, seals, info = Staging(str(own)), Seals(str(state)), ObjectInfo("k", 1000, '"v1"')
    for place in names("big"):
        for kind in ("link", "second name"):
            parts = Partial(folder, "big", "source", info, seals)
            parts.note(0, 500)
            parts.close()
            theirs = tmp_path / f"{place}-{kind}"
            (own / place).rename(theirs)
            theirs.write_bytes(before := theirs.read_bytes()[:-1])
            (own / place).symlink_to(theirs) if kind == "link" else (own / place).hardlink_to(theirs)
            again = Partial(folder, "big", "source", info, seals)
            assert again.present() == 0
            os.pwrite(again.fd, b"new", 0)
            again.mark(0)
            again.discard()
            assert theirs.read_bytes() == before
