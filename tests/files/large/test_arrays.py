"""Arrays, archives and models: zarr, xarray, h5py, numpy, torch, Pillow, zipfile and tarfile over nbdata's files."""

from __future__ import annotations

import io
import tarfile
import threading
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import xarray as xr
import zarr
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from PIL import Image
from zarr.storage import FsspecStore

import nbdata
from tests.files.large.conftest import Bucket, Place

VALUES = np.random.default_rng(2).integers(0, 1000, (200, 300)).astype("int32")


@pytest.fixture(scope="module", autouse=True)
def threads_of_zarr() -> None:
    """Have zarr start the threads that it keeps."""
    zarr.create_array({}, shape=(1,), dtype="int8")[:] = 1


def test_zarr_writes_and_reads_many_chunks_at_a_time(store: Bucket) -> None:
    files = AsyncFileSystemWrapper(store.files, asynchronous=True)
    place = FsspecStore(files, path=store.path("a.zarr"))
    with zarr.config.set({"async.concurrency": 32}):
        made = zarr.create_array(place, shape=VALUES.shape, chunks=(20, 20), dtype="int32", overwrite=True)
        made[:] = VALUES
        made[5:25, 10:12] = 7
        again = zarr.open_array(place, mode="r")[:]
    expected = VALUES.copy()
    expected[5:25, 10:12] = 7
    assert (again == expected).all()
    assert (zarr.open_array(store.fetched("a.zarr"), mode="r")[:] == expected).all()


def test_threads_write_chunks_of_one_array(store: Bucket) -> None:
    made = zarr.create_array(store.named("t.zarr"), shape=VALUES.shape, chunks=(50, 50), dtype="int32")

    def fill(start: int) -> None:
        made[start : start + 50] = VALUES[start : start + 50]

    threads = [threading.Thread(target=fill, args=(start,)) for start in range(0, 200, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (zarr.open_array(store.named("t.zarr"), mode="r")[:] == VALUES).all()


def test_zarr_and_xarray_read_and_write_by_a_url(place: Place) -> None:
    zarr.save(place("z"), VALUES)
    assert (zarr.load(place("z")) == VALUES).all()
    assert (zarr.load(place.store.fetched("z")) == VALUES).all()
    data = xr.Dataset({"value": (("x", "y"), VALUES)}, coords={"x": np.arange(200)})
    data.to_zarr(place("x.zarr"), mode="w", consolidated=False)
    xr.testing.assert_identical(xr.open_zarr(place("x.zarr"), consolidated=False).compute(), data)
    xr.testing.assert_identical(
        xr.open_zarr(place.store.fetched("x.zarr"), consolidated=False).compute(), data
    )


def test_h5py_reads_and_writes_open_files(store: Bucket) -> None:
    with h5py.File(store.local("a.h5"), "w") as file:
        file.create_dataset("group/values", data=VALUES, chunks=(10, 300), compression="gzip")
    store.send("a.h5")
    with nbdata.open(store.url("a.h5"), "rb") as source, h5py.File(source, "r") as file:
        assert (file["group/values"][40:60, ::7] == VALUES[40:60, ::7]).all()
    with pytest.raises((OSError, ValueError)), nbdata.open(store.url("b.h5"), "wb") as target:
        h5py.File(target, "w")  # it goes back to what it has written, which a store cannot
    assert not store.files.exists(store.path("b.h5"))


def test_numpy_saves_and_loads(store: Bucket) -> None:
    with nbdata.open(store.url("a.npy"), "wb") as file:
        np.save(file, VALUES)
    with nbdata.open(store.url("a.npz"), "wb") as file:
        np.savez_compressed(file, one=VALUES, two=VALUES[:3])
    with nbdata.open(store.url("a.txt"), "w", encoding="ascii") as text:
        np.savetxt(text, VALUES[:5], fmt="%d")
    assert (np.load(store.fetched("a.npy")) == VALUES).all()
    with nbdata.open(store.url("a.npy"), "rb") as file:
        assert (np.load(file) == VALUES).all()
    with nbdata.open(store.url("a.npz"), "rb") as file, np.load(file) as held:
        assert (held["two"] == VALUES[:3]).all()
    with nbdata.open(store.url("a.txt")) as text:
        assert (np.loadtxt(text) == VALUES[:5]).all()
    # np.memmap wants a file of the disk.
    found = np.load(store.fetched("a.npy"), mmap_mode="r")
    assert (found[100:110] == VALUES[100:110]).all()


def test_torch_saves_and_loads(store: Bucket) -> None:
    state = {"weight": torch.arange(100_000.0).reshape(100, 1000), "step": 3}
    with nbdata.open(store.url("a.pt"), "wb") as file:
        torch.save(state, file)
    for place in (store.fetched("a.pt"), nbdata.open(store.url("a.pt"), "rb")):
        found = torch.load(place, weights_only=True)
        assert found["step"] == 3
        assert torch.equal(found["weight"], state["weight"])
    place.close()


def test_pillow_saves_and_opens(store: Bucket) -> None:
    picture = Image.fromarray((VALUES % 256).astype("uint8"))
    for kind in ("PNG", "GIF", "BMP"):
        with nbdata.open(store.url(f"a.{kind}"), "wb") as file:
            picture.save(file, kind)
        with nbdata.open(store.url(f"a.{kind}"), "rb") as file, Image.open(file) as found:
            assert found.tobytes() == picture.tobytes()
    with pytest.raises(io.UnsupportedOperation), nbdata.open(store.url("a.tif"), "wb") as file:
        picture.save(file, "TIFF")  # goes back to what it has written, which a store cannot
    assert not store.files.exists(store.path("a.tif"))


def test_zip_and_tar_archives(store: Bucket) -> None:
    members = {f"folder/{number}": bytes([number]) * 70_000 for number in range(20)}
    with (
        nbdata.open(store.url("a.zip"), "wb") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name, data in members.items():
            packed.writestr(name, data)
    with nbdata.open(store.url("a.tar.gz"), "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, data in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    for place in (store.fetched("a.zip"), nbdata.open(store.url("a.zip"), "rb")):
        with zipfile.ZipFile(place) as packed:
            assert {name: packed.read(name) for name in reversed(packed.namelist())} == members
    place.close()
    for data in (
        io.BytesIO(Path(store.fetched("a.tar.gz")).read_bytes()),
        nbdata.open(store.url("a.tar.gz"), "rb"),
    ):
        with data, tarfile.open(fileobj=data) as tar:
            assert {one.name: tar.extractfile(one).read() for one in tar} == members  # type: ignore[union-attr]
