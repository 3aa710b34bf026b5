"""The verb convert: a data set of Python, or one of mmdet3d, into FFRecord files."""

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

#: Said in place of DATASET.py.
MMDET3D = "mmdet3d"
#: What of the data sets of mmdet3d can be converted.
KEYS = ("img_filename", "pts_filename")
# Bytes of a file: what the format's authors advise.
_FILE_SIZE = 256 << 20
_MOST_WORKERS = 256


@dataclass(frozen=True)
class Convert(Operation):
    """DATASET.py is a module of yours with ``get_datasets(folder)``, which returns pairs of a data set and the name of
    its split; a data set has ``len()`` and samples by number. The module may have ``get_files_or_dirs()``, which names
    what of INPUT is copied to NAME/files; a data set ``get_meta()``, and ``serialize_sample(sample)``, which returns
    bytes. Samples of one without that are pickled, or stored as --store says. NAME/SPLIT/ffrdata then holds
    PART_00000.ffr and so on; ``nbdata.ffrecord.GeneralDataset(NAME, SPLIT)`` reads them. DATASET.py is your code and is
    run, as ``python DATASET.py`` would, in processes of its own that end with this line. A split has its name only
    when all of it is there; the same command goes on with the files that are missing, and other splits stay.

    With mmdet3d in place of DATASET.py the files that the configuration's train and val data name go into OUT/train
    and OUT/val, with filename2idx.json and .pkl, which say where each is. The configuration is read as data and not
    run, unless --run-config says so; ``nbdata.loaders.mmdet3d`` gives the files to mmdet3d.
    """

    verb: ClassVar[str] = "convert"
    summary: ClassVar[str] = "Convert a data set of Python, or one of mmdet3d, into FFRecord files."
    examples: ClassVar[tuple[str, ...]] = (
        "convert examples/imagenet_dataset.py /data/imagenet /data/converted/imagenet",
        "convert my_dataset.py /data/coco converted/coco --mini 100 --store bytes",
        "convert mmdet3d configs/bevformer_base.py converted/nuscenes --key img_filename",
    )
    less: ClassVar[str] = "--mini"

    dataset: str = argument("Your module; or the word mmdet3d.", kind="path", metavar="DATASET.py")
    source: str = argument(
        "Folder that get_datasets is given; or the configuration of mmdet3d.",
        kind="path",
        metavar="INPUT|CONFIG",
    )
    target: str = argument(
        "Folder of the converted data set, with a folder for each split.", kind="path", metavar="NAME|OUT"
    )
    mini: int | None = option(
        None,
        "Convert only the first N samples of each split, into a folder mini beside where NAME would be: mini/NAME.",
        kind="count",
        metavar="N",
    )
    store: str = option(
        "auto",
        "How samples are stored that have no serialize_sample. auto: as pickles; pickle: likewise; npy: arrays and "
        "images, decoded, as npy files; bytes: as they are, such as the bytes of a JPEG file. npy and bytes are read "
        "without unpickling.",
        choices=("auto", "pickle", "npy", "bytes"),
    )
    key: str | None = option(
        None,
        "Of mmdet3d: which files. img_filename: images of all cameras (default); pts_filename: point clouds.",
        choices=KEYS,
    )
    sweeps: bool = option(
        False, "Of mmdet3d: with --key pts_filename also the point clouds of the sweeps.", kind="flag"
    )
    root: str | None = option(
        None,
        "Of mmdet3d: the folder in which relative paths begin (default: the working folder).",
        kind="path",
        metavar="FOLDER",
    )
    run_config: bool = option(
        False,
        "Of mmdet3d: run the configuration with mmengine, as mmdet3d itself does, in place of reading it.",
        kind="flag",
    )
    file_size: int = option(
        _FILE_SIZE,
        "Bytes of a file, about; but at most 200 files are made of a split.",
        kind="size",
        metavar="SIZE",
    )
    overwrite: str = option(
        "changed",
        "changed: replace splits that another DATASET.py, INPUT or --store made, or that have other samples; always; "
        "never.",
        choices=("changed", "always", "never"),
    )
    workers: int | None = option(
        None,
        "Processes side by side, each of which writes one file at a time (default: one for each processor).",
        kind="count",
        identity=False,
        metavar="N",
    )
    ignore_space: bool = option(
        False, "Start although it does not fit by the numbers.", kind="flag", identity=False
    )

    def check(self) -> None:
        super().check()
        places = {"INPUT": self.source, "NAME": self.target, "--root": self.root or ""}
        for name, place in {"DATASET.py": self.dataset, **places}.items():
            if is_url(place):
                raise BadOption(
                    f"{name} is a local path", got=redacted(place),
                    remedy="Pull it first: what reads a data set of Python reads files",
                )  # fmt: skip
        if self.mini == 0:
            raise BadOption("--mini: 0 samples make no data set", expected="1 or more")
        if self.file_size < 1 << 10:
            raise BadOption(f"--file-size: {self.file_size} bytes is too little", expected="at least 1 KiB")
        if self.workers is not None and not 1 <= self.workers <= _MOST_WORKERS:
            raise BadOption(f"--workers: {self.workers} is out of range", expected=f"1 to {_MOST_WORKERS}")
        self._check_mmdet3d()

    def _check_mmdet3d(self) -> None:
        """Refuse what makes sense for mmdet3d alone, or not there."""
        if self.is_mmdet3d:
            if self.store != "auto":
                raise BadOption("--store: files are stored as they are", remedy="Leave it out with mmdet3d")
            if self.sweeps and self.files_key != "pts_filename":
                raise BadOption("--sweeps are point clouds", remedy="Say --key pts_filename")
            return
        if not self.dataset.endswith(".py"):
            raise BadOption(
                f"{self.dataset!r} is no module of Python", expected="a file DATASET.py, or the word mmdet3d",
            )  # fmt: skip
        for name in ("key", "sweeps", "root", "run_config"):
            if getattr(self, name):
                raise BadOption(
                    f"--{name.replace('_', '-')} is for mmdet3d",
                    remedy="Leave it out, or say mmdet3d for DATASET.py",
                )

    @property
    def is_mmdet3d(self) -> bool:
        """Whether the word mmdet3d was said in place of a module."""
        return os.path.basename(self.dataset) == MMDET3D

    @property
    def files_key(self) -> str:
        """Which files of mmdet3d are meant."""
        return self.key or KEYS[0]

    @property
    def folder(self) -> str:
        """Where the splits are made."""
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
            "convert has no background: DATASET.py is run by processes of this one",
            remedy="Leave --background out; nohup, or a terminal of its own, lets it go on",
        )

    def run(self, *, quiet: bool = False) -> Any:
        """As of `Operation`, but processes of the caller's do it."""
        return slots.conversion(self).run(quiet=quiet)


convert = function_of(Convert)
