"""FFRecord files for mmdet3d: a storage backend ``ffrecord`` for mmengine and mmcv, and a loader of images.

``custom_imports = dict(imports=["nbdata.loaders.mmdet3d"])`` in a configuration registers both, if mmengine or mmcv is
installed. Then ``backend_args=dict(backend="ffrecord", fname="converted/nuscenes/train")`` reads the output of ``nbdata
convert mmdet3d``. Configurations from before mmdet3d 1.0 use ``file_client_args=dict(…)``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbdata.client.records.named import NamedRecords
from nbdata.errors import BadOption, NbdataError
from nbdata.formats.decoding_bounds import Budget, TooLarge, open_image, refuse_large_image
from nbdata.formats.pixels import with_8_bits

__all__ = ["BACKEND", "FFRecordBackend", "LoadMultiViewImageFromFilesHF", "register"]

#: The backend's name in configurations.
BACKEND = "ffrecord"
# Most bytes that decoding one image may take.
_LARGEST = 1 << 30
# Modules with FileClient and BaseStorageBackend: from mmengine, and from mmcv before 2.0.
_CLIENTS = ("mmengine.fileio", "mmcv.fileio")
# Registries of pipeline steps, and the modules that have them.
_REGISTRIES = (
    ("mmengine.registry", "TRANSFORMS"),
    ("mmdet.datasets.builder", "PIPELINES"),
)


class FFRecordBackend:
    """Reads files by name from FFRecord files; a storage backend for mmengine and mmcv.

    Parameters
    ----------
    fname : str
        The folder of a split made by ``nbdata convert mmdet3d``.
    check_data : bool, default True
        Compare each file with its CRC-32.

    Examples
    --------
    >>> client = FFRecordBackend("converted/nuscenes/train")  # doctest: +SKIP
    >>> client.get("data/nuscenes/samples/CAM_FRONT/n015.jpg")  # doctest: +SKIP
    """

    _allow_symlink = True

    def __init__(self, fname: str, check_data: bool = True) -> None:
        self._records = NamedRecords(fname, check_data)

    def get(self, filepath: Any) -> Any:
        """Return the bytes of a file, by the last component of its path; for a list of paths, a list of bytes."""
        if isinstance(filepath, (list, tuple)):
            return self._records.read(filepath)
        return self._records.read([filepath])[0]

    def get_text(self, filepath: str | os.PathLike[str], encoding: str = "utf-8") -> str:
        """Return the text of a file; one that is not among the records, such as annotations, is read from the disk."""
        if filepath in self._records:
            return str(self.get(filepath).decode(encoding))
        return Path(filepath).read_text(encoding=encoding)


class LoadMultiViewImageFromFilesHF:
    """Loads the images of all cameras at once; a pipeline step that replaces ``LoadMultiViewImageFromFiles``.

    Parameters
    ----------
    to_float32 : bool, default False
        Return arrays of float32.
    color_type : str, default "unchanged"
        As in mmcv.imfrombytes: ``"color"``, ``"grayscale"`` or ``"unchanged"``. Colours are in the order B, G, R.
    file_client_args : dict, optional
        The backend, such as ``dict(backend="ffrecord", fname=…)``. None: files on the disk.
    """

    def __init__(
        self,
        to_float32: bool = False,
        color_type: str = "unchanged",
        file_client_args: dict[str, Any] | None = None,
    ) -> None:
        self.to_float32, self.color_type = to_float32, color_type
        self.file_client_args = dict(file_client_args or {"backend": "disk"})
        self._client: Any = None

    def __call__(self, results: dict[str, Any]) -> dict[str, Any]:
        """Add the entries of mmdet3d's own step, such as ``img`` (a list of arrays), their shapes and ``filename``."""
        import numpy as np

        names = results["img_filename"]
        images = [_image(data, self.color_type) for data in self._read(names)]
        if len({image.shape for image in images}) > 1:
            raise BadOption(
                "the images of these cameras differ in size",
                got=", ".join(str(image.shape) for image in images),
                remedy="Load them one by one",
            )
        image = np.stack(images, axis=-1)
        if self.to_float32:
            image = image.astype(np.float32)
        channels = 1 if image.ndim < 3 else image.shape[2]
        return results | {
            "filename": names,
            "img": [image[..., number] for number in range(image.shape[-1])],
            "img_shape": image.shape,
            "ori_shape": image.shape,
            "pad_shape": image.shape,
            "scale_factor": 1.0,
            "img_norm_cfg": {
                "mean": np.zeros(channels, np.float32),
                "std": np.ones(channels, np.float32),
                "to_rgb": False,
            },
        }

    def _read(self, names: Sequence[str]) -> list[bytes]:
        args = dict(self.file_client_args)
        backend = args.pop("backend", "disk")
        if backend == "disk":
            return [Path(name).read_bytes() for name in names]
        if self._client is None:
            self._client = FFRecordBackend(**args) if backend == BACKEND else _client(backend, args)
        if backend == BACKEND:
            contents: list[bytes] = self._client.get(list(names))
            return contents
        return [self._client.get(name) for name in names]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(to_float32={self.to_float32}, color_type={self.color_type!r})"


def _client(backend: str, args: dict[str, Any]) -> Any:
    """Make another backend, from whichever library has it."""
    for name in _CLIENTS:
        if (found := _imported(name)) is not None and hasattr(found, "FileClient"):
            return found.FileClient(backend, **args)
    raise BadOption(f"backend {backend!r} needs mmengine or mmcv, and neither is installed")


def _image(data: bytes, color_type: str) -> Any:
    """Decode an image as mmcv does, or the same with Pillow if mmcv is not installed."""
    mmcv = _imported("mmcv")
    if mmcv is not None and hasattr(mmcv, "imfrombytes"):
        return mmcv.imfrombytes(data, flag=color_type)
    import numpy as np

    modes = {"color": "RGB", "grayscale": "L", "unchanged": None}
    if color_type not in modes:
        raise BadOption(f"color_type={color_type!r} is not known without mmcv", expected=", ".join(modes))
    with open_image(data) as opened:
        try:
            refuse_large_image(opened, Budget(_LARGEST))
        except TooLarge as error:
            raise NbdataError(
                "an image would take too much memory when decoded", expected=f"at most {_LARGEST:,} bytes",
                got="{} x {} pixels".format(*opened.size), remedy="If you trust it, install mmcv, which decodes it",
            ) from error  # fmt: skip
        plain = with_8_bits(opened)
        mode = modes[color_type] or (plain.mode if plain.mode in ("L", "RGB", "RGBA") else "RGB")
        array = np.array(plain.convert(mode))
    if array.ndim == 3:  # R, G, B, and maybe A
        array[..., :3] = array[..., 2::-1].copy()
    return array


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def register() -> list[str]:
    """Register the backend and the step with the installed libraries; return what was registered where.

    Importing this module calls it; calling it again changes nothing.
    """
    done = list[str]()
    for name in _CLIENTS:
        library = _imported(name)
        base = getattr(library, "BaseStorageBackend", None)
        if base is None:
            continue
        kind = type("FFRecordBackend", (FFRecordBackend, base), {"__doc__": FFRecordBackend.__doc__})
        library.FileClient.register_backend(BACKEND, kind, force=True)
        if hasattr(library, "register_backend"):  # mmengine, for backend_args
            library.register_backend(BACKEND, kind, force=True)
        done.append(f"{name}: backend {BACKEND}")
    for name, registry in _REGISTRIES:
        found = getattr(_imported(name), registry, None)
        if found is not None:
            found.register_module(module=LoadMultiViewImageFromFilesHF, force=True)
            done.append(f"{name}.{registry}: LoadMultiViewImageFromFilesHF")
    return done


register()
