"""What `nbdata.shift` is on for, and what it does not reach, in words."""

from __future__ import annotations

import sys

from nbdata.files.shifted.uses import active
from nbdata.redaction import redacted
from nbdata.rendering import printable

__all__ = ["IN_C", "described", "loaded_in_c"]

#: Libraries that open files in C, or in other ways of their own, and what to give them instead.
IN_C = {
    "av": 'av.open(nbdata.open(URL, "rb"))',
    "cv2": 'cv2.imdecode(np.frombuffer(open(URL, "rb").read(), np.uint8), cv2.IMREAD_COLOR)',
    "decord": 'decord.VideoReader(nbdata.open(URL, "rb"))',
    "duckdb": "duckdb.register_filesystem(nbdata.filesystem(URL)), then nbdata://bucket/file",
    "h5py": 'h5py.File(nbdata.open(URL, "rb"))',
    "lmdb": "nbdata.pull",
    "netCDF4": "nbdata.pull, or xarray with engine='h5netcdf' over nbdata.open(URL, \"rb\")",
    "pandas": "nbs3://bucket/file for s3://bucket/file, or nbdata.files.use_for",
    "polars": 'pl.read_parquet(nbdata.open(URL, "rb"))',
    "pyarrow": "filesystem=nbdata.filesystem(URL)",
    "rasterio": 'rasterio.open(nbdata.open(URL, "rb"))',
    "safetensors": 'safetensors.torch.load(open(URL, "rb").read())',
    "soundfile": 'soundfile.read(nbdata.open(URL, "rb"))',
    "tensorflow": 'tf.io.decode_… over open(URL, "rb").read()',
    "torch": 'torch.save(…, nbdata.open(URL, "wb")); torch.load takes the URL',
    "torchaudio": 'torchaudio.load(nbdata.open(URL, "rb"))',
    "torchvision": 'torchvision.io.decode_image over open(URL, "rb").read()',
    "zarr": "nbs3://bucket/array for s3://bucket/array",
}


def loaded_in_c() -> dict[str, str]:
    """Return those of `IN_C` that this process has imported."""
    return {name: instead for name, instead in IN_C.items() if name in sys.modules}


def described() -> str:
    """Return a text for people: what it is on for, and what of this process it does not reach."""
    uses = list(active)
    if not uses:
        return "shift is off"
    places = sorted({redacted(place) for one in uses for place in one.places})
    everywhere = any(not one.places for one in uses)
    what = "all stores" if everywhere else printable(", ".join(places))
    lines = [f"shift is on for {what}: open, os, glob, shutil and pathlib take URLs"]
    if len(uses) > 1:
        lines[0] += f" ({len(uses)} uses; it goes off with the last)"
    if in_c := loaded_in_c():
        lines.append("not reached, as they open files by themselves:")
        lines += [f"  {name}: {instead}" for name, instead in in_c.items()]
    return "\n".join(lines)
