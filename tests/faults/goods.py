"""Test data for the small-disk campaign: trees, volumes of an archive, and items to stream, all of small size."""

from __future__ import annotations

import io
import random
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of

__all__ = ["Goods", "blocks_of", "folders_of"]

# Size of an object that is transferred in parts.
_BIG = 17_500_000
_VOLUME = 1_000_000


def blocks_of(files: Mapping[str, bytes], block: int) -> int:
    """Count the bytes of the blocks that files occupy."""
    return sum(-(-len(data) // block) * block for data in files.values())


def folders_of(files: Mapping[str, bytes]) -> int:
    """Count the folders that contain files, including the target."""
    return len({str(above) for name in files for above in Path(name).parents})


class Goods:
    """A bucket with all test data, and its content.

    Attributes
    ----------
    tree, one, other : dict of str to bytes
        Trees to pull: about 21 MB with an object in parts, and two of about 8 MB.
    members, volumes : dict of str to bytes
        The unpacked content of a set of volumes, about 14 MB, and the set, half as large.
    items : dict of str to bytes
        Items to stream: about 10 MB.
    """

    def __init__(self, server: EmbeddedServer, work: Path, *, seed: int) -> None:
        source = random.Random(f"{seed} goods")
        self.server, self.work = server, work
        work.mkdir(parents=True)
        self.tree = _tree(source, small=80, middling=4) | {"e/big.bin": source.randbytes(_BIG)}
        self.one, self.other = (_tree(source, small=60, middling=12) for _ in range(2))
        self.members = {
            f"m{number % 4}/{number:02}.bin": source.randbytes(size // 2) + bytes(size // 2)
            for number, size in enumerate([*(source.randrange(2_000, 400_000) for _ in range(56)), 3_000_000])
        }
        self.volumes = _volumes(self.members)
        self.items = {
            f"{number:02}.bin": source.randbytes(source.randrange(200_000, 900_000)) for number in range(18)
        }
        self.bucket = f"disks-source-{seed}"
        self._client = client_of(server)
        server.create_bucket(self.bucket)
        for prefix, files in self.all.items():
            for name, data in files.items():
                self._client.put_object(Bucket=self.bucket, Key=f"{prefix}/{name}", Body=data)

    @property
    def all(self) -> dict[str, dict[str, bytes]]:
        """All files, by their folder in the bucket."""
        names = ("tree", "one", "other", "volumes", "items")
        return {name: getattr(self, name) for name in names}

    def url(self, name: str) -> str:
        """Return the URL of a folder in the bucket."""
        return f"s3://{self.bucket}/{name}/"

    def close(self) -> None:
        """Remove the bucket."""
        self._client.delete_bucket(Bucket=self.bucket)
        self._client.close()
        shutil.rmtree(self.work, ignore_errors=True)


def _tree(source: random.Random, *, small: int, middling: int) -> dict[str, bytes]:
    found = {f"a/{number:02}.bin": source.randbytes(source.randrange(12_000)) for number in range(small // 2)}
    found |= {
        f"c/d/{number:02}.bin": source.randbytes(source.randrange(12_000)) for number in range(small // 2)
    }
    return found | {
        f"b/{number:02}.bin": source.randbytes(source.randrange(300_000, 900_000))
        for number in range(middling)
    }


def _volumes(members: Mapping[str, bytes]) -> dict[str, bytes]:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    whole = packed.getvalue()
    return {
        f"set.tar.gz.{number:03}": whole[at : at + _VOLUME]
        for number, at in enumerate(range(0, len(whole), _VOLUME), 1)
    }
