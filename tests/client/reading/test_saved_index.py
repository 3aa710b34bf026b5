"""The index that is saved beside the data, for readers who may not or need not list it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import NbdataError
from nbdata.formats.sample_index import IndexWriter, SampleObject
from tests.conftest import client_of
from tests.faults.gate import Gate

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


def test_an_index_that_leads_out_of_the_data_is_not_taken(
    tmp_path: Path, elsewhere: Callable[[str], None]
) -> None:
    """Another user may have written the index and put it beside the data, to have other data fetched to the disk."""
    (tmp_path / "data").mkdir()
    for name, data in FILES.items():
        (tmp_path / "data" / name).write_bytes(data)
    (tmp_path / "secret.txt").write_bytes(b"not of these data")
    with nbdata.samples(str(tmp_path / "data")) as samples:
        place = Path(samples.save_index())  # type: ignore[attr-defined]
        about = samples.index.about  # type: ignore[attr-defined]
    for path in ("../secret.txt", "x/../../secret.txt"):
        for key in ("../secret", "secret"):
            writer = IndexWriter()
            writer.add(key, [SampleObject("txt", path, 17, "")])
            place.write_bytes(b"".join(writer.pieces(about)))
            elsewhere(f"{path} as {key}".replace("/", "_"))
            with nbdata.samples(str(tmp_path / "data"), refresh="never") as found:
                assert len(found) == 10
