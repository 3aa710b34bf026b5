"""The index that is saved beside the data, for readers who may not or need not list it."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.client.reading import saved_index
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import NbdataError, UnsafeMember
from nbdata.formats.sample_index import IndexWriter, SampleIndex
from nbdata.formats.sample_objects import SampleObject
from nbdata.operation import Context
from nbdata.reading import stored_index
from nbdata.reading.index_files import write_index
from nbdata.stores.base import ObjectInfo
from nbdata.stores.local import LocalStore
from nbdata.verbs.samples import SampleSource
from tests.conftest import client_of
from tests.faults.gate import Gate
from tests.hostile.web import served

Put = Callable[[dict[str, bytes]], str]
FILES = {f"{n:02}.{name}": f"{n} {name}".encode() for n in range(10) for name in ("jpg", "cls")}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Returns a function that switches to another state folder, as on another machine."""

    def move(name: str) -> None:
        monkeypatch.setenv("NBDATA_STATE_DIR", str(tmp_path / name))

    move("first")
    return move


def test_a_reader_without_an_index_uses_the_one_beside_the_data_and_lists_nothing(
    put: Put, s3: EmbeddedServer, bucket: str, gate: Gate, elsewhere: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    url = put({f"in/{name}": data for name, data in FILES.items()}) + "in/"
    with nbdata.samples(url, exclude="09.*") as samples:
        assert samples.save_index().startswith(f"{url}_nbdata-index.")  # type: ignore[attr-defined]
    with nbdata.samples(url) as every:
        assert (len(every), len(samples)) == (10, 9)
        assert every.report.left_out == 0, "it is no leftover"
    put({"in/10.jpg": b"added since"})
    elsewhere("second")
    with nbdata.samples(url, exclude="09.*", refresh="never") as found:
        assert (len(found), found[3]["jpg"], found.fingerprint) == (9, b"3 jpg", samples.fingerprint)
    with nbdata.samples(url, refresh="never") as other:
        assert len(other) == 11, "there is none of this selection: it was listed"
    with nbdata.samples(url, exclude="09.*") as listed:
        assert len(listed) == 10
    # Copied data with its index is found at its new place.
    nbdata.copy(url, f"s3://{bucket}/moved/", quiet=True)
    client = client_of(s3)
    for name in FILES:
        client.delete_object(Bucket=bucket, Key=f"in/{name}")
    client.close()
    elsewhere("third")
    with nbdata.samples(f"s3://{bucket}/moved/", exclude="09.*", refresh="never") as moved:
        assert moved[3]["jpg"] == b"3 jpg"
        assert moved[3]["__url__"] == f"s3://{bucket}/moved/03.cls"


def test_another_file_in_the_place_of_the_index_is_not_used(
    put: Put, elsewhere: Callable[[str], None], s3: EmbeddedServer, bucket: str
) -> None:
    url = put(FILES)
    with nbdata.samples(url) as samples:
        place = samples.save_index()  # type: ignore[attr-defined]
    client, key = client_of(s3), place.removeprefix(url)
    whole = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    for number, spoilt in enumerate(
        (b"", b"no index", whole[:100], whole[: len(whole) // 2], b"x" * len(whole))
    ):
        client.put_object(Bucket=bucket, Key=key, Body=spoilt)
        elsewhere(f"after {number}")
        with nbdata.samples(url, refresh="never") as found:
            assert (len(found), found[3]["jpg"]) == (10, b"3 jpg")
    client.close()


def test_a_place_where_nothing_may_be_written_is_told(
    tmp_path: Path, elsewhere: Callable[[str], None]
) -> None:
    (tmp_path / "data").mkdir()
    for name, data in FILES.items():
        (tmp_path / "data" / name).write_bytes(data)
    with nbdata.samples(str(tmp_path / "data")) as samples:
        assert Path(samples.save_index()).is_file()  # type: ignore[attr-defined]
        (tmp_path / "data").rename(tmp_path / "away")
        (tmp_path / "data").write_bytes(b"no folder")
        with pytest.raises(NbdataError):
            samples.save_index()  # type: ignore[attr-defined]


@pytest.fixture
def local(tmp_path: Path, elsewhere: Callable[[str], None]) -> Callable[[IndexWriter], Path]:
    """Returns a function that stores an index beside some data, as another user can, and returns their folder."""
    (tmp_path / "data").mkdir()
    (tmp_path / "secret.txt").write_bytes(b"not of these data")
    for name, data in FILES.items():
        (tmp_path / "data" / name).write_bytes(data)
    with nbdata.samples(str(tmp_path / "data")) as samples:
        place = Path(samples.save_index())  # type: ignore[attr-defined]
        about = samples.index.about  # type: ignore[attr-defined]

    def store(writer: IndexWriter) -> Path:
        place.write_bytes(b"".join(writer.pieces(about)))
        elsewhere("another")
        return tmp_path / "data"

    return store


class _Escaping(IndexWriter):
    """Writes dots as JSON escapes."""

    def _write_other(self, value: object) -> None:
        text = json.dumps(value).replace(".", "\\u002e").encode()
        self._columns.others += len(text).to_bytes(8, "little") + text


LEADING_OUT = {
    "plain": (IndexWriter, "secret", "txt", "../secret.txt"),
    "below": (IndexWriter, "secret", "txt", "x/../../secret.txt"),
    "in the key": (IndexWriter, "../secret", "txt", "../secret.txt"),
    "of key and field": (IndexWriter, ".", "/secret.txt", "../secret.txt"),
    "as the whole": (IndexWriter, "..", "", ".."),
    "at the end": (IndexWriter, "x", "txt", "x/.."),
    "as JSON escapes": (_Escaping, "secret", "txt", "../secret.txt"),
    "percent-encoded": (IndexWriter, "secret", "txt", "%2E%2e/secret.txt"),
    "percent-encoded slash": (IndexWriter, "secret", "txt", "..%2Fsecret.txt"),
    "percent-encoded twice": (IndexWriter, "secret", "txt", "%252E%252e/secret.txt"),
    "with a parameter": (IndexWriter, "secret", "txt", "..;v=1/secret.txt"),
    "with backslashes": (IndexWriter, "secret", "txt", "x\\..\\..\\secret.txt"),
}


@pytest.mark.parametrize("spelled", LEADING_OUT)
def test_no_spelling_in_an_index_leads_out_of_the_data(
    local: Callable[[IndexWriter], Path], spelled: str
) -> None:
    """Another user may have written the index and put it beside the data, to have other data fetched to the disk."""
    kind, key, field, path = LEADING_OUT[spelled]
    writer = kind()
    writer.add(key, [SampleObject(field, path, 17, "")])
    writer.add("03", [SampleObject("jpg", "03.jpg", 5, "")])
    with nbdata.samples(str(local(writer)), refresh="never") as found:
        with pytest.raises(UnsafeMember, match="outside of its folder") as refused:
            found[0]
        assert refused.value.path == found.index.path  # type: ignore[attr-defined]
        assert refused.value.got == path
        assert found[1]["jpg"] == b"3 jpg"


def test_an_index_names_no_other_folder_for_its_paths(
    tmp_path: Path, local: Callable[[IndexWriter], Path]
) -> None:
    """Neither at first nor from then on; nor does one that was copied with the data name its old place."""
    writer = IndexWriter()
    writer.add("secret", [SampleObject("txt", "secret.txt", 17, "")])
    writer.add("03", [SampleObject("jpg", "03.jpg", 5, "")])
    data = local(writer)
    (place,) = data.glob("_nbdata-index*")
    about = {**SampleIndex(str(place)).about, "prefix": f"{tmp_path}/"[1:]}
    place.write_bytes(b"".join(writer.pieces(about)))
    for _ in range(2):
        with nbdata.samples(str(data), refresh="never") as found:
            assert found[1]["jpg"] == b"3 jpg"
            with pytest.raises(nbdata.NotFound):
                found[0]


@pytest.mark.parametrize("damage", ["numbers", "a list", "no JSON"])
def test_a_damaged_path_in_an_index_is_told(local: Callable[[IndexWriter], Path], damage: str) -> None:
    writer = IndexWriter()
    said = {"numbers": "12345678", "a list": ["a", "b", 1], "no JSON": "12345678"}[damage]
    writer.add("a", [SampleObject("txt", said, 17, "")])  # type: ignore[arg-type]
    if damage != "a list":
        text = b"12345678.0" if damage == "numbers" else b'"12345678['
        writer._columns.others[8:18] = text
    with (
        nbdata.samples(str(local(writer)), refresh="never") as found,
        pytest.raises(NbdataError, match="the index is damaged"),
    ):
        found[0]


def test_an_index_whose_samples_share_objects_is_not_used(local: Callable[[IndexWriter], Path]) -> None:
    """One of 8 MB could stand for a hundred thousand samples of a hundred thousand objects each."""
    writer = IndexWriter()
    for key in "abc":
        writer.add(key, [SampleObject("txt", "03.jpg", 5, "")])
    writer._columns.begins[1:] = array("Q", [3, 0, 3])
    with nbdata.samples(str(local(writer)), refresh="never") as found:
        assert [*found.keys] == sorted({name.partition(".")[0] for name in FILES})


@pytest.mark.parametrize("what", ["path", "version"])
def test_an_index_whose_objects_share_a_path_or_version_is_not_used(
    local: Callable[[IndexWriter], Path], what: str
) -> None:
    """One of 700 KB could stand for ten thousand paths of 300 KB each."""
    writer = IndexWriter()
    for key in "abc":
        writer.add(key, [SampleObject("txt", "03.jpg", 5, '"x"')])
    if what == "path":
        writer._columns.odd[1::2] = array("Q", [0, 0, 0])
    else:
        writer._columns.tags = writer._columns.tags[:16] * 3
    with nbdata.samples(str(local(writer)), refresh="never") as found:
        assert [*found.keys] == sorted({name.partition(".")[0] for name in FILES})


@pytest.mark.parametrize(("path", "version"), [("a" * 300_000, ""), ("a.txt", "a" * 300_000), ("a.txt", [1])])
def test_a_long_path_or_version_is_damage(
    local: Callable[[IndexWriter], Path], path: str, version: str
) -> None:
    writer = IndexWriter()
    writer.add("a", [SampleObject("txt", path, 17, '"x"', None, version)])
    with (
        nbdata.samples(str(local(writer)), refresh="never") as found,
        pytest.raises(NbdataError, match="the index is damaged"),
    ):
        found[0]


def test_a_name_that_no_file_has_is_damage(local: Callable[[IndexWriter], Path]) -> None:
    writer = IndexWriter()
    writer.add("a", [SampleObject("txt", "\ud900.txt", 17, "")])
    with (
        nbdata.samples(str(local(writer)), refresh="never") as found,
        pytest.raises(NbdataError, match="the index is damaged"),
    ):
        found[0]


def test_a_sample_of_no_objects_is_damage(local: Callable[[IndexWriter], Path]) -> None:
    writer = IndexWriter()
    writer.add("a", [])
    with (
        nbdata.samples(str(local(writer)), refresh="never") as found,
        pytest.raises(NbdataError, match="the index is damaged"),
    ):
        found[0]


def test_a_size_for_which_there_is_no_memory_is_told_with_the_object(
    local: Callable[[IndexWriter], Path],
) -> None:
    writer = IndexWriter()
    writer.add("03", [SampleObject("jpg", "03.jpg", 35 << 40, '"0"')])
    writer.add("03", [SampleObject("jpg", "03.jpg", 5, "")])
    with nbdata.samples(str(local(writer)), refresh="never") as found:
        with pytest.raises(NbdataError, match=r"no memory for an object of a sample: .*03\.jpg"):
            found[0]
        assert found[1]["jpg"] == b"3 jpg"


def test_a_folder_in_a_store_with_the_name_of_an_index_is_none(
    put: Put, s3: EmbeddedServer, bucket: str, tmp_path: Path, elsewhere: Callable[[str], None]
) -> None:
    url = put(FILES)
    with nbdata.samples(url) as samples:
        key = samples.save_index().removeprefix(url)  # type: ignore[attr-defined]
    client = client_of(s3)
    client.delete_object(Bucket=bucket, Key=key)
    client.close()
    put({f"{key}/evil/file": b"evil"})
    goes_on(url, tmp_path, elsewhere)


@pytest.mark.parametrize("kind", ["a folder", "no index", "a large file", "a file of unknown size"])
def test_what_has_the_name_of_an_index_and_is_none_leaves_nothing(
    tmp_path: Path, elsewhere: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name, content in FILES.items():
        (data / name).write_bytes(content)
    with nbdata.samples(str(data)) as samples:
        place = Path(samples.save_index())  # type: ignore[attr-defined]
    if kind == "a folder":
        place.unlink()
        (place / "evil").mkdir(parents=True)
        (place / "evil/file").write_text("evil")
    elif kind == "no index":
        place.write_bytes(b"nbidx\x00\x00\x02" + bytes(1000))
    else:
        real = LocalStore.head

        def head(store: LocalStore, key: str) -> ObjectInfo:
            size = stored_index.MOST + 1 if kind == "a large file" else -1
            return real(store, key)._replace(size=size) if key.endswith(".idx") else real(store, key)

        monkeypatch.setattr(LocalStore, "head", head)
        monkeypatch.setattr(stored_index, "fetch_whole", _unasked)
    goes_on(str(data), tmp_path, elsewhere)


def _unasked(*_: object) -> bool:
    raise AssertionError("it is not to be fetched")


def goes_on(url: str, tmp_path: Path, elsewhere: Callable[[str], None]) -> None:
    """Read samples without a stored index, in each way, with the state folder that the one before has left."""
    elsewhere("second")
    for refresh in ("never", "auto", "always", "never"):
        with nbdata.samples(url, refresh=refresh) as found:
            assert (len(found), found[3]["jpg"]) == (10, b"3 jpg")
        (index,) = (tmp_path / "second/samples").iterdir()
        assert index.is_file()


def test_an_index_of_which_the_fetch_fails_leaves_nothing(
    local: Callable[[IndexWriter], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = IndexWriter()
    writer.add("03", [SampleObject("jpg", "03.jpg", 5, "")])
    data = str(local(writer))

    def fails(_control: object, _store: object, _info: object, fd: int, _check: object) -> bool:
        os.write(fd, b"half")
        raise NbdataError("the line broke")

    with monkeypatch.context() as patch:
        patch.setattr(stored_index, "fetch_whole", fails)
        with pytest.raises(NbdataError, match="the line broke"):
            nbdata.samples(data, refresh="never")
        assert list((tmp_path / "another/samples").iterdir()) == []
        for refresh in ("auto", "always"):
            with nbdata.samples(data, refresh=refresh) as found:
                assert len(found) == 10


def test_an_index_that_is_larger_than_readers_take_is_not_stored(
    local: Callable[[IndexWriter], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_index, "MOST", 100)
    with (
        nbdata.samples(str(local(IndexWriter()))) as found,
        pytest.raises(NbdataError, match="larger than readers take"),
    ):
        found.save_index()  # type: ignore[attr-defined]


def test_an_index_beside_data_on_the_disk_leads_through_no_link_out_of_them(
    tmp_path: Path, local: Callable[[IndexWriter], Path]
) -> None:
    """A listing of the folder follows no link to a folder either."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private/secret.txt").write_bytes(b"not of these data")
    (tmp_path / "data/below").mkdir()
    (tmp_path / "data/below/b.txt").write_bytes(b"of these data")
    (tmp_path / "data/x").symlink_to(tmp_path / "private")
    (tmp_path / "data/y").symlink_to("below")
    fine, leading = IndexWriter(), IndexWriter()
    fine.add("y/b", [SampleObject("txt", "y/b.txt", 13, "")])
    leading.add("x/secret", [SampleObject("txt", "x/secret.txt", 17, "")])
    with pytest.raises(UnsafeMember, match="outside of its folder") as refused:
        nbdata.samples(str(local(leading)), refresh="never")
    assert refused.value.got == "x/secret.txt"
    with nbdata.samples(str(local(fine)), refresh="never") as found:
        assert found[0]["txt"] == b"of these data"


def test_a_stored_index_takes_no_room_that_limits_do_not_leave(
    tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is fetched, as of no other data that does not fit."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("NBDATA_STATE_DIR", str(state))
    monkeypatch.setenv("NBDATA_QUOTA", f"10MB:{state}")
    with served() as site:
        operation = SampleSource(f"{site.url}/d/", refresh="never")
        path = saved_index._beside(operation).removeprefix(site.url)
        site.files[path] = bytes(6_000_000)
        with pytest.raises(nbdata.NotEnoughSpace, match=r"12\.0 MB"):
            nbdata.samples(f"{site.url}/d/", refresh="never")
        assert [one.method for one in site.asked if one.path == path] == ["HEAD"]
    assert not list((state / "samples").iterdir())


def test_an_index_that_is_made_takes_no_room_that_limits_do_not_leave(
    tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("NBDATA_STATE_DIR", str(state))
    monkeypatch.setenv("NBDATA_QUOTA", f"2MB:{state}")
    context = Context("/", env={"NBDATA_QUOTA": f"2MB:{state}"}, state_dir=str(state))
    with pytest.raises(nbdata.NotEnoughSpace):
        write_index(context, str(state / "samples/x.idx"), [bytes(2_000_000), bytes(1_000_000)])
    assert not list(state.rglob("x.idx*"))
    write_index(context, str(state / "samples/x.idx"), [bytes(1_200_000)])
    assert (state / "samples/x.idx").stat().st_size == 1_200_000
