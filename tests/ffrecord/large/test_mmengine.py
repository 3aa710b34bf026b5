"""With the real mmengine: configurations find the backend, and mmengine reads through it."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.fileio import FileClient, get, get_file_backend, get_text
from mmengine.registry import TRANSFORMS

import nbdata
from nbdata.client.converting.mmdet3d.config import read_config
from nbdata.ffrecord import FileWriter
from tests.client.converting.test_mmdet3d import NEW, OLD, content, infos, new_info

# Warnings of mmengine itself, at its import and in its Config.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    (tmp_path / "train").mkdir()
    with FileWriter(tmp_path / "train/PART_00000.ffr", 2) as writer:
        writer.write_one(b"one")
        writer.write_one("zwölf".encode())
    (tmp_path / "train/filename2idx.json").write_text(json.dumps({"one.jpg": 0, "zwei.txt": 1}))
    return tmp_path / "train"


def test_custom_imports_of_a_configuration_register_the_backend(tmp_path: Path, records: Path) -> None:
    (tmp_path / "c.py").write_text(
        textwrap.dedent(f"""
        custom_imports = dict(imports=['nbdata.loaders.mmdet3d'])
        backend_args = dict(backend='ffrecord', fname={str(records)!r})
        """)
    )
    config = Config.fromfile(str(tmp_path / "c.py"))
    args = config.backend_args.to_dict()
    assert get("data/one.jpg", backend_args=args) == b"one"
    assert get_text("zwei.txt", backend_args=args) == "zwölf"
    assert get_file_backend(backend_args=args).get("one.jpg") == b"one"
    assert FileClient(**args).get("x/one.jpg") == b"one"  # configurations from before mmdet3d 1.0
    assert TRANSFORMS.get("LoadMultiViewImageFromFilesHF") is not None


def test_what_is_read_of_a_configuration_is_what_mmengine_makes_of_it(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text("data = dict(workers_per_gpu=4, train=dict(use_valid_flag=True))\n")
    text = (
        OLD.replace("os.mkdir('ran')", "")
        .replace("print('ran')", "")
        .replace("        other=os.getcwd()),", "        ),")
        .replace("import os\n", "")
    )
    for name, configuration in {"old.py": text, "new.py": NEW}.items():
        (tmp_path / name).write_text(configuration)
        assert read_config(str(tmp_path / name)) == Config.fromfile(str(tmp_path / name)).to_dict()


def test_a_configuration_is_run_if_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for split in ("train", "val"):
        for camera in ("CAM_FRONT", "CAM_BACK"):
            folder = tmp_path / "data/nuscenes/samples" / camera
            folder.mkdir(parents=True, exist_ok=True)
            for frame in range(6):
                name = f"{split}-{frame}-{camera}.jpg"
                (folder / name).write_bytes(content(name))
    infos(tmp_path, new_info, "data_list")
    (tmp_path / "new.py").write_text(
        NEW.replace("ann_file='infos_train.pkl'", "ann_file=''.join(['infos_', 'train.pkl'])")
    )
    report = nbdata.convert("mmdet3d", "new.py", "out", run_config=True, quiet=True)
    assert report.counts == {"converted": 2}
