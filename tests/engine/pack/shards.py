"""Shards for tests that cut, choose and sort them, on the disk and in a store."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import nbdata
from tests.conftest import client_of
from tests.faults.scene import objects_of

__all__ = ["NUMBER", "WHOLE", "Shelf", "fields_of", "members", "shelf", "tar_of"]

#: Samples of `Shelf.shards`.
NUMBER = 60


def fields_of(number: int) -> dict[str, bytes]:
    """Return the fields of a sample: a picture that is none, its class, and some JSON."""
    return {
        "cls": str(number * 7 % NUMBER).encode(),
        "info.json": b'{"number": %d}' % number,
        "jpg": bytes([number]) * (100 + 13 * number),
    }


WHOLE = {f"{n:04}": fields_of(n) for n in range(NUMBER)}


def tar_of(samples: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """Return a tar of samples, as any program could have written it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for key, fields in samples.items():
            for name, data in fields.items():
                member = tarfile.TarInfo(f"{key}.{name}")
                member.size, member.mtime, member.uname = len(data), 1_600_000_000, "somebody"
                archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def members(shard: bytes) -> list[tuple[str, bytes]]:
    """Return the members of a shard in their order, read with Python's tarfile."""
    with tarfile.open(fileobj=io.BytesIO(shard)) as archive:
        return [(one.name, archive.extractfile(one).read()) for one in archive]  # type: ignore[union-attr]


class Shelf:
    """A place for shards: a folder, or a bucket."""

    def __init__(
        self, root: str, put: Callable[[dict[str, bytes]], Any], client: Any = None, bucket: str = ""
    ) -> None:
        self.root, self._put, self._client, self._bucket = root, put, client, bucket

    @classmethod
    def folder(cls, path: Path) -> Shelf:
        """Return a shelf on the disk."""

        def put(files: dict[str, bytes]) -> None:
            for name, data in files.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(data)

        path.mkdir(exist_ok=True)
        return cls(f"{path}/", put)

    @classmethod
    def store(cls, server: Any, bucket: str, put: Callable[[dict[str, bytes]], str]) -> Shelf:
        """Return a shelf in a bucket."""
        return cls(put({}), put, client_of(server), bucket)

    def put(self, files: dict[str, bytes]) -> None:
        """Write files, by their paths."""
        self._put(files)

    def shards(
        self, *, shards: int = 3, prefix: str = "in-", order: Sequence[int] = range(NUMBER)
    ) -> list[str]:
        """Write shards of `NUMBER` samples, and return their places."""
        each = -(-len(order) // shards)
        names = [f"{prefix}{number}.tar" for number in range(shards)]
        for number, name in enumerate(names):
            self.put(
                {name: tar_of({f"{n:04}": fields_of(n) for n in order[number * each : (number + 1) * each]})}
            )
        return [self.root + name for name in names]

    def read(self, below: str) -> dict[str, bytes]:
        """Return the files below a folder, by their paths there."""
        if self._client is None:
            base = Path(self.root + below)
            files = {str(p.relative_to(base)): p.read_bytes() for p in sorted(base.rglob("*")) if p.is_file()}
            return {name: data for name, data in files.items() if not name.startswith(".nbdata")}
        found = objects_of(self._client, self._bucket)
        return {key[len(below) :]: data for key, data in sorted(found.items()) if key.startswith(below)}

    def samples(self, below: str) -> Iterator[tuple[str, dict[str, bytes]]]:
        """Yield the samples of the shards below a folder, in their order."""
        for name in self.read(below):
            if name.endswith(".tar"):
                samples = nbdata.samples(f"{self.root}{below}{name}")
                for sample in samples.stream():
                    yield sample["__key__"], {k: v for k, v in sample.items() if not k.startswith("__")}
                samples.close()


@pytest.fixture(params=["disk", "store"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path, inline: None) -> Iterator[Shelf]:
    """A place for shards: a folder, then a bucket."""
    if request.param == "disk":
        yield Shelf.folder(tmp_path / "shelf")
        return
    names = ("s3", "bucket", "put")
    yield Shelf.store(*(request.getfixturevalue(name) for name in names))
