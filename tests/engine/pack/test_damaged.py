"""pack --on-error report: damaged shards cost the samples that are damaged, and each of them is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nbdata
from nbdata.cli import main
from nbdata.errors import BadArchive, ChecksumMismatch, NbdataError
from tests.engine.pack.shards import WHOLE, Shelf, shelf
from tests.engine.pack.test_pack import Put
from tests.faults.proxy import BODY, Fault, FaultProxy
from tests.faults.test_lines import proxy

__all__ = ["proxy", "shelf"]


def broken(shelf: Shelf, name: str, key: str, *, cut: bool) -> None:
    """Break the header of a sample in a shard, or end the shard there, amid its first field."""
    data = bytearray(shelf.read("")[name])
    at = next(
        start
        for start in range(0, len(data), 512)
        if bytes(data[start : start + len(key) + 1]) == f"{key}.".encode()
    )
    if cut:
        del data[at + 514 :]
    else:
        data[at : at + 512] = b"\x07" * 512
    shelf.put({name: bytes(data)})


def packed(shelf: Shelf, **options: Any) -> nbdata.Report:
    options = {"on_error": "report", "quiet": True, **options}
    report = nbdata.pack(f"{shelf.root}in-*.tar", f"{shelf.root}out/x-%06d.tar", **options)
    assert isinstance(report, nbdata.Report)
    return report


def failed(report: nbdata.Report) -> list[str]:
    return [row.path for row in report.rows if row.action == "failed"]


@pytest.mark.in_ci("disk-broken", "store-broken")
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "broken"])
def test_the_rest_goes_on_and_each_left_out_sample_is_named(
    shelf: Shelf, cut: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    shelf.shards()
    broken(shelf, "in-1.tar", "0030", cut=cut)
    with pytest.raises(BadArchive):
        packed(shelf, on_error="raise")
    assert shelf.read("out/") == {}
    report = packed(shelf)
    first = 30 if cut else 29  # whether a field of 0029 followed, nobody knows
    lost = ["0030"] if cut else [f"{n:04}" for n in range(first, 40)]
    assert failed(report) == lost
    assert all("in-1.tar" in row.detail["reason"] for row in report.rows if row.action == "failed")
    assert list(shelf.samples("out/")) == [
        (key, one) for key, one in WHOLE.items() if not first <= int(key) < 40
    ]
    assert "x.json" in shelf.read("out/")
    again = packed(shelf)
    assert (again.counts, again.ok) == ({"unchanged": 1, "failed": len(lost)}, False)
    words = ["pack", f"{shelf.root}in-*.tar", f"{shelf.root}out/x-%06d.tar", "--on-error", "report"]
    assert main(words) == 1
    assert "0030" in capsys.readouterr().out
    samples = nbdata.samples(f"{shelf.root}in-*.tar")
    with pytest.raises(BadArchive):  # the index of what is left is not for others
        samples[0]
    samples.close()


def test_other_targets_and_choices_take_what_is_left_too(shelf: Shelf) -> None:
    places = shelf.shards()
    broken(shelf, "in-1.tar", "0030", cut=True)
    options: dict[str, Any] = {"on_error": "report", "quiet": True, "select": "key = '002*'", "fields": "cls"}
    report = nbdata.pack(places, f"{shelf.root}files/", format="files", **options)
    assert failed(report) == ["0030"]
    assert set(shelf.read("files/")) == {f"{n:04}.cls" for n in range(20, 30)}
    report = nbdata.pack(places, f"{shelf.root}x.ffr", on_error="report", quiet=True, keys="%02d")
    assert failed(report) == ["0030"]
    samples = nbdata.samples(f"{shelf.root}x.ffr")
    assert len(samples) == len(WHOLE) - 10
    samples.close()


def test_a_shard_that_its_store_contradicts_is_left_out_as_a_whole(
    proxy: FaultProxy, put: Put, s3: Any, bucket: str
) -> None:
    shelf = Shelf.store(s3, bucket, put)
    shelf.shards()
    flip = Fault("flip", BODY, 0.5)
    proxy.begin(lambda request, _: flip if request.download and request.key == "in-1.tar" else None)
    with pytest.raises(ChecksumMismatch):
        packed(shelf, on_error="raise")
    report = packed(shelf)
    proxy.begin()
    assert set(failed(report)) <= {f"{n:04}" for n in range(20, 40)}
    assert len(failed(report)) >= 19  # the flipped byte may be one of a name
    assert [key for key, _ in shelf.samples("out/")] == [f"{n:04}" for n in (*range(20), *range(40, 60))]
    assert packed(shelf, overwrite="always").ok  # the damage was on the way, and is not remembered


def test_a_broken_shard_whose_samples_before_are_wrong_too_is_left_out(
    proxy: FaultProxy, put: Put, s3: Any, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nbdata.reading.shards.content._CHUNK", 4096)  # so that samples come before the end
    shelf = Shelf.store(s3, bucket, put)
    shelf.shards()
    broken(shelf, "in-1.tar", "0030", cut=False)
    flip = Fault("flip", BODY, 0.65)  # within the picture of the first sample

    def plan(request: Any, _: int) -> Fault | None:
        return flip if request.download and request.key == "in-1.tar" and not request.start else None

    tally = proxy.begin(plan)
    report = packed(shelf)
    proxy.begin()
    assert tally.faults
    assert [key for key, _ in shelf.samples("out/")] == [f"{n:04}" for n in (*range(20), *range(40, 60))]
    assert {"0020", "0025", "0030", "0039"} <= set(failed(report))


def test_shards_that_are_no_tar_leave_nothing(tmp_path: Path, inline: None) -> None:
    shelf = Shelf.folder(tmp_path)
    shelf.put({"in-0.tar": b"<html>", "in-1.tar": b"x" * 5000})
    with pytest.raises(NbdataError, match="not an archive"):
        packed(shelf)
    shelf.shards(shards=1, prefix="in-2")
    report = packed(shelf)
    assert failed(report) == [f"all samples of {tmp_path}/in-{n}.tar" for n in (0, 1)]
    assert list(shelf.samples("out/")) == list(WHOLE.items())
