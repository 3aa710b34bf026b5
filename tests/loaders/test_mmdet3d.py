"""nbdata.loaders.mmdet3d with stand-ins for mmcv and mmdet; make test-mmengine tests it with the real mmengine."""

from __future__ import annotations

import io
import json
import pickle
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image

from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.ffrecord import FileWriter
from nbdata.loaders import mmdet3d
from nbdata.loaders.mmdet3d import FFRecordBackend, LoadMultiViewImageFromFilesHF


def picture(number: int) -> np.ndarray:
    return np.full((4, 6, 3), (10 * number, 20, 30), np.uint8)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Pictures and a text, packed by name."""
    files = {}
    for number in range(5):
        out = io.BytesIO()
        Image.fromarray(picture(number)).save(out, "PNG")
        files[f"{number}.png"] = out.getvalue()
    files["note.txt"] = "größer".encode()
    (tmp_path / "train").mkdir()
    with FileWriter(tmp_path / "train/PART_00000.ffr", len(files)) as writer:
        for data in files.values():
            writer.write_one(data)
    (tmp_path / "train/filename2idx.json").write_text(json.dumps({name: n for n, name in enumerate(files)}))
    return tmp_path / "train"


class Backend:
    """Stand-in for the backends' base class in mmengine and mmcv."""

    _allow_symlink = False

    @property
    def name(self) -> str:
        return type(self).__name__


class Client:
    """Stand-in for their FileClient, with its rule for backends that may be registered."""

    known: ClassVar[dict[str, type]] = {}

    def __init__(self, backend: str, **args: Any) -> None:
        self.client = self.known[backend](**args)

    @classmethod
    def register_backend(cls, name: str, backend: type, force: bool = False) -> None:
        assert issubclass(backend, Backend)
        assert force or name not in cls.known
        cls.known[name] = backend

    def get(self, path: Any) -> Any:
        return self.client.get(path)


class Registry:
    def __init__(self) -> None:
        self.known: dict[str, type] = {}

    def register_module(self, *, module: type, force: bool) -> None:
        self.known[module.__name__] = module


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Install stand-ins for mmcv before 2.0 and for mmdet."""
    fileio, builder, found = types.ModuleType("mmcv.fileio"), types.ModuleType("builder"), Registry()
    fileio.BaseStorageBackend, fileio.FileClient = Backend, Client  # type: ignore[attr-defined]
    builder.PIPELINES = found  # type: ignore[attr-defined]
    for name in ("mmengine.fileio", "mmengine.registry"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("mmcv", "mmdet", "mmdet.datasets"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "mmcv.fileio", fileio)
    monkeypatch.setitem(sys.modules, "mmdet.datasets.builder", builder)
    Client.known = {}
    return types.SimpleNamespace(client=Client, pipelines=found)


def test_files_are_found_by_the_last_component_of_their_path(records: Path) -> None:
    backend = FFRecordBackend(str(records))
    assert backend.get("./data/anything/3.png").startswith(b"\x89PNG")
    several = backend.get(["a/0.png", "1.png", "0.png"])
    assert several[0] == several[2] != several[1]
    assert all(type(one) is bytes for one in several)
    with pytest.raises(NotFound, match=r"no file '9.png' in these records"):
        backend.get("9.png")


def test_text_is_read_from_the_records_or_as_annotations_from_the_disk(records: Path, tmp_path: Path) -> None:
    backend = FFRecordBackend(str(records))
    assert backend.get_text("x/note.txt") == "größer"
    (tmp_path / "annotations.txt").write_text("on the disk")
    assert backend.get_text(tmp_path / "annotations.txt") == "on the disk"


def test_a_backend_goes_to_workers(records: Path) -> None:
    again = pickle.loads(pickle.dumps(FFRecordBackend(str(records))))
    assert again.get("2.png").startswith(b"\x89PNG")


def test_configurations_find_it_as_backend_ffrecord(records: Path, library: types.SimpleNamespace) -> None:
    assert mmdet3d.register() == [
        "mmcv.fileio: backend ffrecord",
        "mmdet.datasets.builder.PIPELINES: LoadMultiViewImageFromFilesHF",
    ]
    args = {"backend": "ffrecord", "fname": str(records)}  # as in today's configurations
    assert library.client(**args).get("4.png").startswith(b"\x89PNG")
    assert library.pipelines.known == {"LoadMultiViewImageFromFilesHF": LoadMultiViewImageFromFilesHF}
    assert len(mmdet3d.register()) == 2  # repeated, as on a reload


def test_it_is_imported_where_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mmengine.fileio", "mmcv.fileio", "mmengine.registry", "mmdet.datasets.builder"):
        monkeypatch.setitem(sys.modules, name, None)
    assert mmdet3d.register() == []


@pytest.mark.parametrize("backend", ["ffrecord", "disk"])
def test_the_images_of_all_cameras_are_loaded_as_mmdet3d_has_them(
    records: Path, tmp_path: Path, backend: str
) -> None:
    step = LoadMultiViewImageFromFilesHF(
        to_float32=True,
        file_client_args={"backend": backend, **({"fname": str(records)} if backend == "ffrecord" else {})},
    )
    names = [str(tmp_path / f"{number}.png") for number in (3, 1)]
    if backend == "disk":
        for number in (3, 1):
            Image.fromarray(picture(number)).save(tmp_path / f"{number}.png")
    results = pickle.loads(pickle.dumps(step))({"img_filename": names, "sample_idx": 7})
    assert results["filename"] == names
    assert results["sample_idx"] == 7
    assert [image.dtype for image in results["img"]] == [np.float32, np.float32]
    assert np.array_equal(results["img"][0], picture(3)[..., ::-1])  # B, G, R
    assert results["img_shape"] == results["ori_shape"] == results["pad_shape"] == (4, 6, 3, 2)
    assert results["scale_factor"] == 1.0
    assert results["img_norm_cfg"]["std"].tolist() == [1, 1, 1]


def test_images_of_other_sizes_and_backends_that_nobody_has_are_told(records: Path, tmp_path: Path) -> None:
    Image.fromarray(picture(1)[:2]).save(tmp_path / "small.png")
    Image.fromarray(picture(1)).save(tmp_path / "large.png")
    names = [str(tmp_path / "small.png"), str(tmp_path / "large.png")]
    with pytest.raises(BadOption, match="differ in size"):
        LoadMultiViewImageFromFilesHF()({"img_filename": names})
    with pytest.raises(BadOption, match="needs mmengine or mmcv"):
        LoadMultiViewImageFromFilesHF(file_client_args={"backend": "petrel"})({"img_filename": names})
    with pytest.raises(BadOption, match="color_type"):
        LoadMultiViewImageFromFilesHF(color_type="hsv")({"img_filename": names})


def test_an_image_that_claims_more_than_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmdet3d, "_imported", lambda name: None)
    monkeypatch.setattr(mmdet3d, "_LARGEST", 100_000)
    data = io.BytesIO()
    Image.new("RGB", (100, 100)).save(data, "PNG")
    with pytest.raises(NbdataError, match="too much memory"):
        mmdet3d._image(data.getvalue(), "color")
