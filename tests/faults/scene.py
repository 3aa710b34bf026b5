"""The campaigns' test data, and comparisons byte for byte that do not use nbdata."""

from __future__ import annotations

import io
import random
import shutil
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path

from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.faults.trees import FORMS, pack, put_parts
from tests.s3_client import S3Client

__all__ = ["BIG", "OPAQUE", "PACKED", "Scene", "differences", "files_of", "objects_of"]

MIB = 1 << 20
#: Objects that are transferred in three parts; the last part is short.
BIG = ("b/first.bin", "d/second.bin")
BIG_SIZE = 40_000_000
#: Prefix of keys for which the store gives no checksum.
OPAQUE = "c/opaque/"
SMALL_SIZE = 2_000
#: Sets of volumes, each with all the data. The store gives no checksum for the volumes of the last set.
PACKED = (*FORMS, f"{OPAQUE}one.tar.gz")
# Size of a volume, and of a piece that is compressed separately.
_VOLUME, _FRAME = 4_000_000, 4 * MIB
# Samples per shard.
_SAMPLES = 25
# Part sizes of the multipart uploads at the store: one differs from nbdata's part size, the other equals it.
_PARTS = {BIG[0]: 8 * MIB, BIG[1]: 16 * MIB}


def _content(source: random.Random) -> dict[str, bytes]:
    """Create small and big objects that are mixed in the order of a listing."""
    names = [f"a/{number:03}.bin" for number in range(150)]
    names += [f"c/{number:03}.bin" for number in range(120)]
    names += [f"{OPAQUE}{number:03}.bin" for number in range(30)]
    found = {name: source.randbytes(SMALL_SIZE) for name in names}
    return found | {name: source.randbytes(BIG_SIZE) for name in BIG}


class Scene:
    """A bucket to pull from and a folder to push from; both start with the same content.

    Attributes
    ----------
    folder : Path
        The folder to push; it never changes.
    files : dict of str to bytes
        Content of the folder by relative path.
    """

    def __init__(self, server: EmbeddedServer, work: Path, *, seed: int) -> None:
        source = random.Random(seed)
        self.server, self.work = server, work
        self.files = _content(source)
        self._content = dict(self.files)
        self._spare = {name: source.randbytes(BIG_SIZE) for name in BIG}
        self._lock = threading.Lock()
        self.client = client_of(server)
        self.folder = work / "source"
        for name, data in self.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(data)
        self.bucket = f"faults-source-{seed}"
        server.create_bucket(self.bucket)
        for name, data in self._content.items():
            self._put(name, data)
        self._volumes: dict[str, dict[str, int]] = {}
        self._sharded = False

    def _put(self, key: str, data: bytes) -> None:
        part = _PARTS.get(key)
        if part is None:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=data)
        else:
            put_parts(self.client, self.bucket, key, io.BytesIO(data), part)

    def volumes(self, form: str) -> tuple[str, dict[str, int]]:
        """Return the URL of a set of volumes in `PACKED`, and their sizes by key. The set is packed on first use."""
        bucket = f"{self.bucket}-packed"
        if not self._volumes:
            self.server.create_bucket(bucket)
        if form not in self._volumes:
            made = self._volumes[form] = {}

            def put(key: str, data: bytes) -> None:
                self.client.put_object(Bucket=bucket, Key=key, Body=data)
                made[key] = len(data)

            pack(form, self._pack, put, volume=_VOLUME, frame=_FRAME)
        return f"s3://{bucket}/{form}/", self._volumes[form]

    def shards(self) -> tuple[str, list[tuple[str, bytes]]]:
        """Return the URL of tar shards with all data except one big object, and their samples.

        They are made on first use.
        """
        bucket, samples = f"{self.bucket}-shards", list(self.files.items())[: -len(BIG) + 1]
        url = f"s3://{bucket}/x-{{000..{-(-len(samples) // _SAMPLES) - 1:03}}}.tar"
        if not self._sharded:
            self._sharded = True
            self.server.create_bucket(bucket)
            for number, first in enumerate(range(0, len(samples), _SAMPLES)):
                packed = io.BytesIO()
                with tarfile.open(fileobj=packed, mode="w") as archive:
                    for name, data in samples[first : first + _SAMPLES]:
                        member = tarfile.TarInfo(name)
                        member.size = len(data)
                        archive.addfile(member, io.BytesIO(data))
                self.client.put_object(Bucket=bucket, Key=f"x-{number:03}.tar", Body=packed.getvalue())
        return url, samples

    def _pack(self, archive: tarfile.TarFile) -> None:
        for name, data in self.files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))

    def replace(self, key: str) -> None:
        """Overwrite a big object with another one of the same size."""
        with self._lock:
            self._content[key], self._spare[key] = self._spare[key], self._content[key]
            self._put(key, self._content[key])

    def now(self) -> dict[str, bytes]:
        """Return the bucket's current content. Not valid during a `replace`."""
        with self._lock:
            return dict(self._content)

    def target(self, name: str) -> Path:
        """Return an empty folder to pull into, with this name."""
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def close(self) -> None:
        """Remove the bucket and the pulled files."""
        self.client.delete_bucket(Bucket=self.bucket)
        if self._volumes:
            self.client.delete_bucket(Bucket=f"{self.bucket}-packed")
        if self._sharded:
            self.client.delete_bucket(Bucket=f"{self.bucket}-shards")
        self.client.close()
        shutil.rmtree(self.work, ignore_errors=True)


def files_of(folder: Path) -> dict[str, bytes]:
    """Read the files with final names below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".nbdata" not in path.parts
    }


def objects_of(client: S3Client, bucket: str) -> dict[str, bytes]:
    """Read all objects of a bucket directly from the store, by key."""
    listed = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    assert len(listed) < 1000, "a listing of one page"
    keys = [entry["Key"] for entry in listed]
    return {key: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


def differences(found: Mapping[str, bytes], *truths: Mapping[str, bytes]) -> dict[str, str]:
    """Return the names in `found` whose content matches none of `truths`, with the difference from the first."""
    wrong = {}
    for name, data in found.items():
        if any(data == truth.get(name) for truth in truths):
            continue
        wanted = truths[0].get(name)
        if wanted is None:
            wrong[name] = "ought not to be there"
        elif len(data) != len(wanted):
            wrong[name] = f"{len(data):,} bytes in place of {len(wanted):,}"
        else:
            others = sum(a != b for a, b in zip(data, wanted, strict=True))
            wrong[name] = f"{others:,} of {len(wanted):,} bytes are others"
    return wrong
