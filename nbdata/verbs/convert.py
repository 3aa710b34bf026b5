"""The verb convert: converts a Python data set, or the data of mmdet3d, into FFRecord files."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from typing import Any, ClassVar

from nbdata.errors import BadOption
from nbdata.operation import Operation, function_of, slots
from nbdata.option import argument, option
from nbdata.paths import is_url
from nbdata.protocols import Job
from nbdata.redaction import redacted
from nbdata.report import Plan

__all__ = ["KEYS", "MMDET3D", "Convert", "convert"]

#: The word that stands in place of DATASET.py.
MMDET3D = "mmdet3d"
#: The kinds of mmdet3d files that can be converted.
KEYS = ("img_filename", "pts_filename")
# Bytes of a file, as the authors of the format advise.
_FILE_SIZE = 256 << 20
_MOST_WORKERS = 256


@dataclass(frozen=True)
class Convert(Operation):
    """DATASET.py is your own Python module. It must have ``get_datasets(folder)``, which returns pairs of a
    data set and the name of its split. A data set has ``len()`` and samples by number. These parts are
    optional:

    - ``get_files_or_dirs()`` of the module returns the files and folders of INPUT to copy to NAME/files.
    - ``get_meta()`` of a data set returns metadata, which is stored as meta.pkl.
    - ``serialize_sample(sample)`` of a data set returns the bytes of a sample. Without it, samples are
      pickled, or stored as --store says.

    The result is NAME/SPLIT/ffrdata/PART_00000.ffr and so on, which
    ``nbdata.ffrecord.GeneralDataset(NAME, SPLIT)`` reads. DATASET.py is executed, as
    ``python DATASET.py`` would, in separate processes that end with this command. A split gets its
    name only when it is complete. Run the same command again to write the missing files; other splits
    stay as they are.

    The word mmdet3d in place of DATASET.py converts the files of an mmdet3d configuration. Its train
    and val data go to OUT/train and OUT/val, with filename2idx.json and .pkl, which map each file to
    its record. The configuration is read as data and is not executed, unless you give --run-config.
    ``nbdata.loaders.mmdet3d`` reads the result in mmdet3d.
    """

    verb: ClassVar[str] = "convert"
    summary: ClassVar[str] = (
        "Convert a Python data set, or the data of an mmdet3d configuration, into FFRecord files."
    )
    examples: ClassVar[tuple[str, ...]] = (
        "convert examples/imagenet_dataset.py /data/imagenet /data/converted/imagenet",
        "convert my_dataset.py /data/coco converted/coco --mini 100 --store bytes",
        "convert mmdet3d configs/bevformer_base.py converted/nuscenes --key img_filename",
    )
    less: ClassVar[str] = "--mini"

    dataset: str = argument("Path of your module; or the word mmdet3d.", kind="path", metavar="DATASET.py")
    source: str = argument(
        "Folder that is passed to get_datasets; or the mmdet3d configuration.",
        kind="path",
        metavar="INPUT|CONFIG",
    )
    target: str = argument(
        "Folder for the converted data set; it gets a subfolder per split.", kind="path", metavar="NAME|OUT"
    )
    mini: int | None = option(
        None,
        "Convert only the first N samples of each split, into mini/NAME beside NAME.",
        kind="count",
        metavar="N",
    )
    store: str = option(
        "auto",
        "How to store samples without serialize_sample. auto, pickle: as pickles; npy: arrays and decoded images as "
        "npy files; bytes: unchanged, such as the bytes of a JPEG file. npy and bytes can be read without unpickling.",
        choices=("auto", "pickle", "npy", "bytes"),
    )
    key: str | None = option(
        None,
        "Only for mmdet3d: the files to convert. img_filename: images of all cameras (default); pts_filename: point "
        "clouds.",
        choices=KEYS,
    )
    sweeps: bool = option(
        False,
        "Only for mmdet3d: with --key pts_filename, also convert the point clouds of the sweeps.",
        kind="flag",
    )
    root: str | None = option(
        None,
        "Only for mmdet3d: the folder that relative paths start from, and that all files lie in (default: the working "
        "folder).",
        kind="path",
        metavar="FOLDER",
    )
    run_config: bool = option(
        False,
        "Only for mmdet3d: execute the configuration with mmengine, as mmdet3d does, instead of reading it as data.",
        kind="flag",
    )
    file_size: int = option(
        _FILE_SIZE,
        "Approximate size of a file, in bytes. It becomes larger if a split would need more than 200 files.",
        kind="size",
        metavar="SIZE",
    )
    overwrite: str = option(
        "changed",
        "What to do with existing splits. changed: replace those with another DATASET.py, INPUT, --store or other "
        "samples; always: replace all; never: keep all.",
        choices=("changed", "always", "never"),
    )
    workers: int | None = option(
        None,
        "Number of parallel processes; each writes one file at a time (default: one per processor).",
        kind="count",
        identity=False,
        metavar="N",
    )
    ignore_space: bool = option(
        False, "Start even if the result needs more space than is free.", kind="flag", identity=False
    )

    def check(self) -> None:
        super().check()
        places = {"INPUT": self.source, "NAME": self.target, "--root": self.root or ""}
        for name, place in {"DATASET.py": self.dataset, **places}.items():
            if is_url(place):
                raise BadOption(
                    f"{name} is a local path",
                    got=redacted(place),
                    remedy="Pull it first: Python data sets read local files",
                )
        if self.mini == 0:
            raise BadOption("--mini: 0 samples make no data set", expected="1 or more")
        if self.file_size < 1 << 10:
            raise BadOption(f"--file-size: {self.file_size} bytes is too little", expected="at least 1 KiB")
        if self.workers is not None and not 1 <= self.workers <= _MOST_WORKERS:
            raise BadOption(f"--workers: {self.workers} is out of range", expected=f"1 to {_MOST_WORKERS}")
        self._check_mmdet3d()

    def _check_mmdet3d(self) -> None:
        """Refuse options that make sense for mmdet3d only, or not with mmdet3d."""
        if self.is_mmdet3d:
            if self.store != "auto":
                raise BadOption("--store: files are stored as they are", remedy="Leave it out with mmdet3d")
            if self.sweeps and self.files_key != "pts_filename":
                raise BadOption("--sweeps are point clouds", remedy="Use --key pts_filename")
            return
        if not self.dataset.endswith(".py"):
            raise BadOption(
                f"{self.dataset!r} is not a Python module",
                expected="a file DATASET.py, or the word mmdet3d",
            )
        for name in ("key", "sweeps", "root", "run_config"):
            if getattr(self, name):
                raise BadOption(
                    f"--{name.replace('_', '-')} is for mmdet3d",
                    remedy="Leave it out, or write mmdet3d for DATASET.py",
                )

    @property
    def is_mmdet3d(self) -> bool:
        """True if the word mmdet3d stands in place of a module."""
        return os.path.basename(self.dataset) == MMDET3D

    @property
    def files_key(self) -> str:
        """The kind of mmdet3d files to convert."""
        return self.key or KEYS[0]

    @property
    def folder(self) -> str:
        """The folder for the splits."""
        path = self.target.rstrip("/") or "/"
        return (
            path
            if self.mini is None
            else posixpath.join(os.path.dirname(path), "mini", os.path.basename(path))
        )

    def places(self) -> tuple[str, str]:
        return self.source, self.folder

    def local_target(self) -> str | None:
        return self.folder

    def plan(self) -> Plan:
        return slots.conversion(self).plan()

    def start(self) -> Job:
        raise BadOption(
            "convert cannot run in the background, because child processes of this one run DATASET.py",
            remedy="Leave --background out; nohup, or a separate terminal, keeps it running",
        )

    def run(self, *, quiet: bool = False) -> Any:
        """Run as in `Operation`; child processes of the caller do the work."""
        return slots.conversion(self).run(quiet=quiet)


convert = function_of(Convert)
