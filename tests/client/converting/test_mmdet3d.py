"""nbdata convert mmdet3d parses configurations without running them, and packs all files that they name."""

from __future__ import annotations

import collections
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nbdata
from nbdata.client.converting.mmdet3d.config import Unknown, read_config, run_config
from nbdata.errors import BadArchive, BadOption, NbdataError, NotFound, UnsafeMember
from nbdata.ffrecord import FileReader
from nbdata.loaders.mmdet3d import FFRecordBackend
from tests.client.converting.data import convert, tree

CAMERAS = ("CAM_FRONT", "CAM_BACK")

OLD = """
_base_ = ['./base.py']
point_cloud_range = [-51.2, -51.2, -5.0, 51.2, 51.2, 3.0]
voxel_size = [0.2, 0.2, 8]
dataset_type = 'NuScenesDataset'
data_root = 'data/nuscenes/'
bev_h_ = 200
_dim_ = 256
file_client_args = dict(backend='disk')
import os
print('ran')
os.mkdir('ran')
train_pipeline = [dict(type='LoadMultiViewImageFromFiles', to_float32=True), dict(type='Pad', size=_dim_ * 2)]
data = dict(
    samples_per_gpu=1,
    train=dict(
        type=dataset_type,
        data_root=data_root,
        ann_file=data_root + 'infos_train.pkl',
        pipeline=train_pipeline,
        bev_size=(bev_h_, bev_h_),
        other=os.getcwd()),
    val=dict(ann_file=f'{data_root}infos_val.pkl'))
"""

NEW = """
train_dataloader = dict(dataset=dict(type='CBGSDataset', dataset=dict(
    data_root='data/nuscenes', ann_file='infos_train.pkl',
    data_prefix=dict(pts='samples/LIDAR_TOP', CAM_FRONT='samples/CAM_FRONT', CAM_BACK='samples/CAM_BACK',
                     sweeps='sweeps/LIDAR_TOP'))))
val_dataloader = dict(dataset=dict(data_root='data/nuscenes', ann_file='infos_val.pkl', data_prefix=dict(
    pts='samples/LIDAR_TOP', CAM_FRONT='samples/CAM_FRONT', CAM_BACK='samples/CAM_BACK')))
"""


def content(name: str) -> bytes:
    return f"the bytes of {name}".encode().ljust(300)


def old_info(split: str, frame: int) -> dict[str, Any]:
    return {
        "lidar_path": f"./data/nuscenes/samples/LIDAR_TOP/{split}-{frame}.bin",
        "token": f"{frame:032x}",
        "timestamp": 1_532_402_927_647_951 + frame,
        "gt_boxes": np.zeros((2, 7)),
        "gt_names": np.array(["car", "pedestrian"]),
        "valid_flag": np.array([True, False]),
        "ego2global_rotation": [1.0, 0.0, 0.0, 0.0],
        "sweeps": [{"data_path": f"./data/nuscenes/sweeps/LIDAR_TOP/{split}-{frame}-sweep.bin"}],
        "cams": {
            camera: {"data_path": f"./data/nuscenes/samples/{camera}/{split}-{frame}-{camera}.jpg"}
            for camera in CAMERAS
        },
    }


def new_info(split: str, frame: int) -> dict[str, Any]:
    return {
        "lidar_points": {"lidar_path": f"{split}-{frame}.bin"},
        "lidar_sweeps": [{"lidar_points": {"lidar_path": f"{split}-{frame}-sweep.bin"}}],
        "images": {camera: {"img_path": f"{split}-{frame}-{camera}.jpg"} for camera in CAMERAS},
    }


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small nuScenes-like data set below the working folder, and configurations of both kinds."""
    root = tmp_path / "data/nuscenes"
    names = {f"samples/{camera}": f"-{camera}.jpg" for camera in CAMERAS}
    names |= {"samples/LIDAR_TOP": ".bin", "sweeps/LIDAR_TOP": "-sweep.bin"}
    for folder, end in names.items():
        (root / folder).mkdir(parents=True)
        for split, count in (("train", 6), ("val", 2)):
            for frame in range(count):
                name = f"{split}-{frame}{end}"
                (root / folder / name).write_bytes(content(name))
    (tmp_path / "base.py").write_text("data = dict(workers_per_gpu=4, train=dict(use_valid_flag=True))\n")
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "new.py").write_text(NEW)
    infos(tmp_path, old_info)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def infos(folder: Path, info: Any, wrap: str = "infos") -> None:
    for split, count in (("train", 6), ("val", 2)):
        made = {wrap: [info(split, frame) for frame in range(count)], "metadata": {"version": "v1.0"}}
        (folder / f"data/nuscenes/infos_{split}.pkl").write_bytes(pickle.dumps(made))


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("kind", ["old", "new"])
def test_the_images_of_all_cameras_are_there_by_name(data: Path, kind: str) -> None:
    if kind == "new":
        infos(data, new_info, "data_list")
    report = nbdata.convert("mmdet3d", f"{kind}.py", "out", quiet=True, file_size="1KiB")
    assert report.counts["converted"] > 2
    assert not (data / "ran").exists()
    assert {Path(name).parts[0] for name in tree(data / "out")} == {"train", "val"}
    index = json.loads((data / "out/train/filename2idx.json").read_text())
    assert pickle.loads((data / "out/train/filename2idx.pkl").read_bytes()) == index
    assert len(index) == 12
    reader = FileReader(data / "out/train")
    for name, number in index.items():
        assert bytes(reader.read_one(number)) == content(name)
    backend = FFRecordBackend("out/val")
    assert backend.get("./data/nuscenes/samples/CAM_BACK/val-1-CAM_BACK.jpg") == content("val-1-CAM_BACK.jpg")


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("kind", ["old", "new"])
def test_point_clouds_are_there_and_those_of_sweeps_if_they_are_asked_for(data: Path, kind: str) -> None:
    if kind == "new":
        infos(data, new_info, "data_list")
    nbdata.convert("mmdet3d", f"{kind}.py", "out", key="pts_filename", quiet=True)
    assert sorted(json.loads((data / "out/train/filename2idx.json").read_text())) == [
        f"train-{n}.bin" for n in range(6)
    ]
    with pytest.raises(NotFound, match="need convert --sweeps"):
        FFRecordBackend("out/train").get("train-0-sweep.bin")
    if kind == "new":  # its val data does not say where the sweeps are
        (data / "new.py").write_text(
            NEW.replace("CAM_BACK='samples/CAM_BACK')))", "sweeps='sweeps/LIDAR_TOP')))")
        )
    nbdata.convert("mmdet3d", f"{kind}.py", "out", key="pts_filename", sweeps=True, quiet=True)
    assert FFRecordBackend("out/train").get("train-0-sweep.bin") == content("train-0-sweep.bin")


def test_a_file_that_two_frames_name_is_stored_once_and_two_of_one_name_are_refused(data: Path) -> None:
    infos(data, lambda split, frame: old_info(split, 0))
    nbdata.convert("mmdet3d", "old.py", "out", quiet=True)
    assert FileReader(data / "out/train").n == 2
    other = data / "data/nuscenes/samples/CAM_BACK/train-0-CAM_FRONT.jpg"
    other.write_bytes(b"another picture")

    def clash(split: str, frame: int) -> dict[str, Any]:
        info = old_info(split, frame)
        info["cams"]["CAM_BACK"]["data_path"] = (
            f"./data/nuscenes/samples/CAM_BACK/{split}-{frame}-CAM_FRONT.jpg"
        )
        return info

    infos(data, clash)
    with pytest.raises(BadOption, match=r"two files are called train-0-CAM_FRONT.jpg"):
        nbdata.convert("mmdet3d", "old.py", "other", quiet=True)


def test_a_configuration_is_read_and_never_run(data: Path) -> None:
    found = read_config(str(data / "old.py"))
    assert found["data"]["train"]["ann_file"] == "data/nuscenes/infos_train.pkl"
    assert found["data"]["train"]["use_valid_flag"] is True  # inherited from its base
    assert found["data"]["workers_per_gpu"] == 4
    assert found["data"]["train"]["bev_size"] == (200, 200)
    assert isinstance(found["data"]["train"]["other"], Unknown)
    assert found["train_pipeline"][1] == {"type": "Pad", "size": 512}
    assert not (data / "ran").exists()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a = -1 + 2 * 3", 5),
        ("a = dict(b=1, **dict(c=2))", {"b": 1, "c": 2}),
        ("b = [1, 2]\na = b[1]", 2),
        ("b = dict(c=3)\na = b['c'] + b.c", 6),
        ("a = b = 'x'", "x"),
        ("a = {'k': (1, None)}", {"k": (1, None)}),
        ("a = f'{1}-{\"x\"}'", "1-x"),
    ],
)
def test_expressions_of_plain_data_are_worked_out(tmp_path: Path, text: str, value: object) -> None:
    (tmp_path / "c.py").write_text(text)
    assert read_config(str(tmp_path / "c.py"))["a"] == value


@pytest.mark.parametrize(
    "text",
    [
        "a = open('x')",
        "a = __import__('os').system('touch ran')",
        "a = (lambda: 1)()",
        "a = [n for n in range(3)]",
        "a = 1\nif True:\n    a = 2",
        "a = 1\nfor a in (1, 2): pass",
        "a = 1\na += 1",
        "from os import path as a",
        "def dict(**k): pass\na = dict(b=1)",
        "a = '%s' % 'x'",
        "a = 'x' * 99999999",
        "a = ''.__class__.__mro__",
        "a = unknown + 1",
        "a = 9 ** 9 ** 9",
        "b = 'x' * 1000000\na = f'{b}{b}'",
        "b = [0]\na = f'{b}'",
        "b = [0] * 1000000\na = [0] * 1000000",
        "b = ()\n" + "b = (b, b)\n" * 20 + "a = {b: 1}",
        "b = 'x' * (1e999 - 1e999)\na = 'x' * 2000000",
    ],
)
def test_whatever_only_running_it_would_tell_is_unknown(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.py").write_text(text)
    assert isinstance(read_config(str(tmp_path / "c.py"))["a"], Unknown)
    assert os.listdir(tmp_path) == ["c.py"]


def test_bases_are_merged_and_deleted_from(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = dict(one=1, two=dict(three=3))\ny = 1")
    (tmp_path / "b.py").write_text("z = 5")
    (tmp_path / "c.py").write_text(
        "_base_ = ['a.py', './b.py']\nx = dict(two=dict(four=4))\nw = dict(_delete_=True, k=1)"
    )
    assert read_config(str(tmp_path / "c.py")) == {
        "x": {"one": 1, "two": {"three": 3, "four": 4}}, "y": 1, "z": 5, "w": {"k": 1},
    }  # fmt: skip
    (tmp_path / "a.py").write_text("_base_ = 'c.py'")
    with pytest.raises(BadOption, match="name each other"):
        read_config(str(tmp_path / "c.py"))


@pytest.mark.parametrize("how", ["text", "bases", "merged", "dict(b)", "dict(x=1, **b)"])
def test_a_configuration_that_is_too_large_with_its_bases_is_refused(tmp_path: Path, how: str) -> None:
    if how == "text":
        (tmp_path / "0.py").write_text("# " + "x" * 2_000_000)
    elif how == "bases":
        for number in range(3):
            (tmp_path / f"{number}.py").write_text(f"_base_ = ['{number + 1}.py'] * 10")
        (tmp_path / "3.py").write_text("")
    elif how.startswith("dict"):
        items = "".join(f"{number}: 0, " for number in range(1000))
        (tmp_path / "0.py").write_text(f"b = {{{items}}}\n" + f"a = {how}\n" * 1100)
    else:
        twice = "a = dict(x=1)\n" + "a = dict(p=a, q=a)\n" * 20
        (tmp_path / "0.py").write_text(f"_base_ = '1.py'\n{twice}")
        (tmp_path / "1.py").write_text(twice)
    with pytest.raises(BadOption, match=r"with its bases, is too large.*at most 1,048,576 characters"):
        read_config(str(tmp_path / "0.py"))


@pytest.mark.parametrize(
    "data",
    [
        "d = dict(ann_file='infos.json')\n" + "d = dict(datasets=[d, d])\n" * 12,
        "d = [dict(ann_file='infos.json')] * 1001",
        "d = dict(ann_file=['infos.json'] * 1001)",
    ],
)
def test_a_split_of_too_many_data_sets_is_refused(project: Path, data: str) -> None:
    one_camera(project, "images/1.jpg")
    (project / "one.py").write_text(f"{data}\ntrain_dataloader = dict(dataset=d)")
    with pytest.raises(BadOption, match="at most 1,000 data sets and info files"):
        nbdata.convert("mmdet3d", "one.py", "out", quiet=True)


@pytest.mark.parametrize("name", ["img_path", "data_root", "ann_file"])
def test_a_path_that_no_system_takes_is_refused(project: Path, name: str) -> None:
    long = "a/" * 3000 + "1.jpg"
    one_camera(project, long if name == "img_path" else "images/1.jpg")
    text = "train_dataloader = dict(dataset=dict(data_root='DATA_ROOT', ann_file='ANN_FILE'))"
    text = text.replace(name.upper(), long).replace("DATA_ROOT", "").replace("ANN_FILE", "infos.json")
    (project / "one.py").write_text(text)
    with pytest.raises(BadOption, match="a path that no system takes"):
        nbdata.convert("mmdet3d", "one.py", "out", quiet=True)


def test_what_is_needed_and_unknown_asks_to_run_it(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "old.py").write_text("import os\ndata = dict(train=dict(ann_file=os.environ['X']))")
    with pytest.raises(BadOption, match="--run-config runs the configuration with mmengine"):
        nbdata.convert("mmdet3d", "old.py", "out", quiet=True)
    monkeypatch.setitem(sys.modules, "mmengine", None)
    monkeypatch.setitem(sys.modules, "mmengine.config", None)
    with pytest.raises(BadOption, match="needs mmengine, which is not installed"):
        run_config("old.py")


class Touch:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


def test_info_files_run_no_code(data: Path) -> None:
    infos(data, lambda split, frame: {**old_info(split, frame), "evil": Touch()})
    with pytest.raises(BadOption, match=r"is a pickle with posix.mkdir"):
        nbdata.convert("mmdet3d", "old.py", "out", quiet=True)
    assert not (data / "ran").exists()


@pytest.mark.long
def test_files_and_infos_that_are_not_there_are_told(data: Path) -> None:
    (data / "data/nuscenes/samples/CAM_BACK/train-3-CAM_BACK.jpg").unlink()
    with pytest.raises(
        NotFound, match=r"name a file that is not there: .*train-3-CAM_BACK.jpg. .*--root FOLDER"
    ):
        nbdata.convert("mmdet3d", "old.py", "out", quiet=True)
    (data / "data/nuscenes/infos_train.pkl").unlink()
    with pytest.raises(NotFound, match="no ann_file of the train data"):
        nbdata.convert("mmdet3d", "old.py", "out", quiet=True)
    infos(data, lambda split, frame: {"image": {}})
    with pytest.raises(BadOption, match="do not name files by img_filename"):
        nbdata.convert("mmdet3d", "old.py", "out", quiet=True)
    with pytest.raises(NotFound, match="no such configuration"):
        nbdata.convert("mmdet3d", "none.py", "out", quiet=True)
    (data / "old.py").write_text("a = 1")
    with pytest.raises(BadOption, match="has no data"):
        nbdata.convert("mmdet3d", "old.py", "out", quiet=True)
    assert not (data / "out").exists()


def test_relative_paths_may_begin_elsewhere(data: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = convert("mmdet3d", data / "old.py", "out", "--root", data, "--mini", "3", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert FileReader(elsewhere / "mini/out/train").n == 3
    assert sorted(FFRecordBackend(str(elsewhere / "mini/out/train"))._records._index.values()) == [0, 1, 2]


def test_an_index_of_the_original_converter_is_read_without_running_it(data: Path) -> None:
    nbdata.convert("mmdet3d", "old.py", "out", quiet=True)
    (data / "out/train/filename2idx.json").unlink()
    assert FFRecordBackend("out/train").get("train-2-CAM_BACK.jpg") == content("train-2-CAM_BACK.jpg")
    pickled = data / "out/train/filename2idx.pkl"
    pickled.write_bytes(pickle.dumps(collections.OrderedDict(a=99)))
    with pytest.raises(BadArchive, match="no index of the 12 files"):
        FFRecordBackend("out/train")
    pickled.write_bytes(pickle.dumps(Touch()))
    with pytest.raises(NbdataError):
        FFRecordBackend("out/train")
    assert not (data / "ran").exists()
    pickled.unlink()
    with pytest.raises(NotFound, match=r"no filename2idx.json"):
        FFRecordBackend("out/train")


def one_camera(folder: Path, path: str) -> None:
    """Let the info files name one image each, and the configuration no data_root."""
    made = {"data_list": [{"images": {"CAM": {"img_path": path}}}]}
    (folder / "infos.json").write_text(json.dumps(made))
    (folder / "one.py").write_text("train_dataloader = dict(dataset=dict(ann_file='infos.json'))")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cloned project beside a private file of the user, which is the working folder."""
    (tmp_path / "secret").write_text("a key")
    (tmp_path / "project/images").mkdir(parents=True)
    (tmp_path / "project/images/1.jpg").write_bytes(b"an image")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.mark.parametrize("how", ["absolute", "above", "link", "linked folder"])
def test_a_file_outside_of_the_data_set_is_refused(project: Path, how: str) -> None:
    secret = project.parent / "secret"
    (project / "link").symlink_to(secret)
    (project / "up").symlink_to(project.parent)
    path = {
        "absolute": str(secret),
        "above": "images/../../secret",
        "link": "link",
        "linked folder": "up/secret",
    }
    one_camera(project, path[how])
    with pytest.raises(UnsafeMember, match=r"outside of the data set.*with --root") as told:
        nbdata.convert("mmdet3d", "one.py", "out", quiet=True)
    assert told.value.got == str(secret)
    assert not (project / "out").exists()


@pytest.mark.in_ci(2)
@pytest.mark.parametrize("data_root", ["/", "..", "/usr", "root", "up", "hidden"])
def test_a_data_root_that_leads_out_of_the_working_folder_is_refused(project: Path, data_root: str) -> None:
    """A configuration of somebody else decides by it where its info files may lead."""
    (project / "root").symlink_to("/")
    (project / "up").symlink_to("..")
    (project.parent / ".keys").mkdir()
    (project / "hidden").symlink_to("../.keys")
    one_camera(project, "images/1.jpg")
    text = (project / "one.py").read_text().replace("ann_file", f"data_root='{data_root}', ann_file")
    (project / "one.py").write_text(text)
    with pytest.raises(UnsafeMember, match=r"data_root of the configuration leads out.*with --root"):
        nbdata.convert("mmdet3d", "one.py", "out", quiet=True)
    assert not (project / "out").exists()


def test_a_data_root_elsewhere_is_read_with_root(project: Path) -> None:
    one_camera(project, str(project / "images/1.jpg"))
    text = (project / "one.py").read_text().replace("ann_file", f"data_root='{project}/images', ann_file")
    (project / "one.py").write_text(text.replace("infos.json", f"{project}/infos.json"))
    (project / "elsewhere").mkdir()
    os.chdir(project / "elsewhere")
    with pytest.raises(UnsafeMember, match="data_root of the configuration leads out"):
        nbdata.convert("mmdet3d", "../one.py", "out", quiet=True)
    nbdata.convert("mmdet3d", "../one.py", "out", root=str(project), quiet=True)
    assert FFRecordBackend("out/train").get("1.jpg") == b"an image"


def test_a_hidden_file_of_the_working_folder_is_refused(project: Path) -> None:
    (project / ".aws").mkdir()
    (project / ".aws/credentials").write_text("a key")
    one_camera(project, ".aws/credentials")
    with pytest.raises(UnsafeMember, match="or a hidden one"):
        nbdata.convert("mmdet3d", "one.py", "out", quiet=True)


@pytest.mark.long
def test_root_and_data_root_name_other_folders(project: Path) -> None:
    """As for a data set whose info files have absolute paths, or that a link in the project leads to."""
    other = project.parent / "disk/nuscenes"
    (project / "images").rename(project.parent / "images")
    other.mkdir(parents=True)
    (project.parent / "images").rename(other / "images")
    one_camera(project, str(other / "images/1.jpg"))
    with pytest.raises(UnsafeMember):
        nbdata.convert("mmdet3d", "one.py", "out", quiet=True)
    (project / "infos.json").rename(other / "infos.json")
    nbdata.convert("mmdet3d", "one.py", "out", root=str(other), quiet=True)
    assert FFRecordBackend("out/train").get("1.jpg") == b"an image"
    (project / "data").symlink_to(other)
    config = (project / "one.py").read_text().replace("ann_file", "data_root='data', ann_file")
    (project / "one.py").write_text(config)
    report = nbdata.convert("mmdet3d", "one.py", "again", quiet=True)
    assert nbdata.convert("mmdet3d", "one.py", "again", overwrite="always", quiet=True).counts["converted"]
    assert FFRecordBackend("again/train").get("1.jpg") == b"an image"
    assert f"data_root of the configuration leads to {other}" in report.notes


def test_a_file_that_becomes_a_link_meanwhile_is_refused(project: Path) -> None:
    from nbdata.client.converting.mmdet3d.source import load

    one_camera(project, "images/1.jpg")
    (split,) = load("one.py", str(project), "img_filename", mini=None).splits
    assert split.sample(0) == b"an image"
    (project / "images/1.jpg").unlink()
    (project / "images/1.jpg").symlink_to(project.parent / "secret")
    with pytest.raises(UnsafeMember, match="outside of the data set"):
        split.sample(0)
    (project / "images/1.jpg").unlink()
    os.mkfifo(project / "images/1.jpg")
    with pytest.raises(UnsafeMember, match="a named pipe has the place of a file"):
        split.sample(0)


@pytest.mark.in_ci("ann_file", "configuration")
@pytest.mark.parametrize("where", ["image", "ann_file", "base", "configuration"])
def test_a_pipe_or_a_device_is_told_and_not_read(project: Path, where: str) -> None:
    one_camera(project, "images/2.jpg")
    place = {"image": "images/2.jpg", "ann_file": "infos.json", "base": "base.py", "configuration": "one.py"}
    (project / place[where]).unlink(missing_ok=True)
    if where == "base":
        (project / "one.py").write_text("_base_ = 'base.py'")
    os.mkfifo(project / place[where])
    told = "the train data name a named pipe" if where == "image" else "a named pipe has the place"
    with pytest.raises((BadOption, UnsafeMember), match=told):
        nbdata.convert("mmdet3d", "one.py", "out", quiet=True)
    (project / place[where]).unlink()
    (project / place[where]).symlink_to("/dev/zero")
    with pytest.raises((BadOption, UnsafeMember), match=r"a device|outside of the data set"):
        nbdata.convert("mmdet3d", "one.py", "out", quiet=True)
