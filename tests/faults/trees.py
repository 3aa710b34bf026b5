"""Trees of mixed files of any size: on the disk, in a bucket and packed into volumes. Copies are compared with them.

Everything is compared byte for byte with the tree on the disk, one block at a time. No tree is ever held in memory.
"""

from __future__ import annotations

import abc
import http.client
import os
import random
import secrets
import shutil
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import urlsplit

import zstandard
from isal import igzip, isal_zlib

from nbdata.demo.server import EmbeddedServer
from tests.conftest import client_of
from tests.waiting import PATIENCE

__all__ = ["FILES", "FORMS", "MIDDLING", "Tree", "on_disk", "pack", "put_parts", "stored"]

MIB = 1 << 20
#: Sets of volumes by format: plain tar, gzip in members, Zstandard in frames, and gzip in one piece, which has no
#: points to resume at.
FORMS = ("tar", "tar.gz", "tar.zst", "one.tar.gz")
# The sizes of the two big files are the tree's size divided by these numbers.
_FIRST, _SECOND = 5, 7
#: Number of files in a tree, and of medium-sized files, which together have some tens of MB in a tree of 2 GB.
FILES, MIDDLING = 326, 24
# Minimum size of the first big file, which must be sent in parts. It applies unless it exceeds half of the tree.
_IN_PARTS = 40_000_000
# Part size of uploads that are made without nbdata; it differs from nbdata's part size.
_PART = 8 * MIB
# The modification time of all members.
_TIME = 1_500_000_000
# Number of archive members that are links to files. They come in pairs: a symbolic link and a hard link.
_LINKS = 5


class Tree:
    """A folder of about 330 small, medium and big files, and a bucket with the same files.

    Attributes
    ----------
    folder : Path
        The folder; never changed.
    files : dict of str to Path
        The files, by their relative paths.
    members : dict of str to Path
        The unpacked content of the archives; each name, including links, maps to the file with its content.
    size : int
        Total size of all files.
    """

    def __init__(self, server: EmbeddedServer, work: Path, *, size: int, seed: int) -> None:
        self.server, self.work, self.client = server, work, client_of(server)
        self.folder = work / "tree"
        self.bucket = f"tree-{seed}-{secrets.token_hex(4)}"
        server.create_bucket(self.bucket)
        source = random.Random(f"{seed} tree {size}")
        sizes = _sizes(size, source)
        self.files = {name: self.folder / name for name in sizes}
        for name, length in sizes.items():
            _fill(self.files[name], length, source)
            self._upload(f"tree/{name}", self.files[name])
        self.size = sum(path.stat().st_size for path in self.files.values())
        self._linked = sorted(self.files)[:_LINKS]
        self.members = self.files | {
            f"links/{kind}-{number}": self.files[name]
            for number, name in enumerate(self._linked)
            for kind in ("soft", "hard")
        }
        self._packed: dict[str, int] = {}
        self._several = self._single = 0  # number of volumes, and size of one compressed file

    @property
    def url(self) -> str:
        """URL of the files in the bucket."""
        return f"s3://{self.bucket}/tree/"

    def volumes(self, form: str) -> tuple[str, int]:
        """Return the URL of a set of volumes and their total size. The set is packed on first use."""
        if form not in self._packed:
            volume, frame = self._volume_size, self._frame_size
            self._packed[form] = pack(form, self._pack, self._put, volume=volume, frame=frame)
        return f"s3://{self.bucket}/{form}/", self._packed[form]

    def several(self) -> str:
        """Return the URL of a folder with the volumes of two archives."""
        self._several = self._several or self._copied("tar.gz", "one") + self._copied("tar.zst", "two")
        return f"s3://{self.bucket}/several/"

    def _copied(self, form: str, name: str) -> int:
        """Copy a set of volumes under another name into the folder of several archives.

        Return the number of volumes.
        """
        self.volumes(form)
        listed = self.client.list_objects_v2(Bucket=self.bucket, Prefix=f"{form}/")["Contents"]
        for entry in listed:
            source = {"Bucket": self.bucket, "Key": entry["Key"]}
            target = entry["Key"].replace(f"{form}/set", f"several/{name}")
            self.client.copy_object(Bucket=self.bucket, Key=target, CopySource=source)
        return len(listed)

    def single(self) -> str:
        """Return the URL of a folder with the volumes of one compressed file that contains no archive."""
        if not self._single:
            volumes = _Volumes(self._put, "single/all.bin.gz", self._volume_size)
            sink = _Whole(volumes)
            for path in self.files.values():
                sink.write(path.read_bytes())
            sink.close()
            self._single = volumes.size
        return f"s3://{self.bucket}/single/"

    @property
    def _volume_size(self) -> int:
        return min(max(self.size // 40, 4_000_000), 64_000_000)

    @property
    def _frame_size(self) -> int:
        return max(self.size // 128, MIB)

    def _pack(self, archive: tarfile.TarFile) -> None:
        for name, path in self.files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = path.stat().st_size, _TIME
            with path.open("rb") as file:
                archive.addfile(member, file)
        for number, name in enumerate(self._linked):
            for kind, type_, target in (
                ("soft", tarfile.SYMTYPE, f"../{name}"),
                ("hard", tarfile.LNKTYPE, name),
            ):
                member = tarfile.TarInfo(f"links/{kind}-{number}")
                member.type, member.linkname, member.mtime = type_, target, _TIME
                archive.addfile(member)

    def _put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=data)

    def _upload(self, key: str, path: Path) -> None:
        if path.stat().st_size <= _PART:
            self._put(key, path.read_bytes())
            return
        with path.open("rb") as file:
            put_parts(self.client, self.bucket, key, file, _PART)

    def target(self, name: str) -> Path:
        """Return an empty folder to write into, with this name."""
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def close(self) -> None:
        """Remove everything."""
        self.client.delete_bucket(Bucket=self.bucket)
        self.client.close()
        shutil.rmtree(self.work, ignore_errors=True)


def put_parts(client: Any, bucket: str, key: str, file: BinaryIO, part: int) -> None:
    """Create an object by a multipart upload with the given part size."""
    place = {"Bucket": bucket, "Key": key}
    place["UploadId"] = client.create_multipart_upload(**place)["UploadId"]
    parts = []
    for number, data in enumerate(iter(lambda: file.read(part), b""), 1):
        sent = client.upload_part(**place, PartNumber=number, Body=data)
        parts.append({"PartNumber": number, "ETag": sent["ETag"]})
    client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})


def _sizes(size: int, source: random.Random) -> dict[str, int]:
    """Choose the sizes of small, medium and big files, mixed in the order of a listing."""
    small = {
        f"{'ace'[number % 3]}/{number:03}.bin": source.randrange(20_000)
        for number in range(FILES - MIDDLING - 2)
    }
    first = max(size // _FIRST, min(size // 2, _IN_PARTS))
    big = {"b/first.bin": first, "d/second.bin": size // _SECOND}
    left = max(0, size - sum(small.values()) - sum(big.values()))
    shares = [source.uniform(0.5, 1.5) for _ in range(MIDDLING)]
    middling = {
        f"{'bd'[number % 2]}/m{number:02}.bin": int(left * share / sum(shares))
        for number, share in enumerate(shares)
    }
    return dict(sorted({**small, **big, **middling}.items()))


def _fill(path: Path, size: int, source: random.Random) -> None:
    """Write a file of random bytes, half of which compress to nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while size:
            block = min(size, MIB)
            file.write(source.randbytes(block - block // 2) + bytes(block // 2))
            size -= block


# -- packing --------------------------------------------------------------------------------------------


def pack(
    form: str,
    fill: Callable[[tarfile.TarFile], None],
    put: Callable[[str, bytes], None],
    *,
    volume: int,
    frame: int,
) -> int:
    """Create the volumes of an archive below a prefix that ends in one of `FORMS`; return their total size."""
    kind = form.rpartition("/")[2]
    volumes = _Volumes(put, f"{form}/set.{kind.removeprefix('one.')}", volume)
    sink: _Sink = volumes
    if kind != "tar":
        sink = _Whole(volumes) if kind.startswith("one.") else _Frames(volumes, kind, frame)
    with tarfile.open(fileobj=cast("BinaryIO", sink), mode="w|") as archive:
        fill(archive)
    sink.close()
    return volumes.size


class _Sink(Protocol):
    """The output of an archive writer."""

    def write(self, data: bytes) -> int: ...
    def close(self) -> None: ...


class _Blocks(abc.ABC):
    """Cuts its input into blocks of a fixed size."""

    def __init__(self, block: int) -> None:
        self._block, self._held = block, bytearray()

    def write(self, data: bytes) -> int:
        self._held += data
        while len(self._held) >= self._block:
            self._next()
        return len(data)

    def _next(self) -> None:
        data = bytes(self._held[: self._block])
        del self._held[: self._block]
        self._give(data)

    @abc.abstractmethod
    def _give(self, block: bytes) -> None: ...

    def close(self) -> None:
        if self._held:
            self._next()


class _Volumes(_Blocks):
    """Cuts its input into volumes, each stored as an object."""

    def __init__(self, put: Callable[[str, bytes], None], stem: str, volume: int) -> None:
        super().__init__(volume)
        self._put, self._stem, self._number = put, stem, 0
        self.size = 0

    def _give(self, block: bytes) -> None:
        self._number += 1
        self._put(f"{self._stem}.{self._number:03}", block)
        self.size += len(block)


class _Frames(_Blocks):
    """Compresses fixed-size pieces of its input, each as a separate member or frame."""

    def __init__(self, sink: _Sink, form: str, frame: int) -> None:
        super().__init__(frame)
        self._sink = sink
        self._compress: Callable[[bytes], bytes] = (
            zstandard.ZstdCompressor(1).compress
            if form.endswith("zst")
            else lambda data: igzip.compress(data, 1)
        )

    def _give(self, block: bytes) -> None:
        self._sink.write(self._compress(block))

    def close(self) -> None:
        super().close()
        self._sink.close()


class _Whole:
    """Compresses the whole input as one gzip member."""

    def __init__(self, sink: _Sink) -> None:
        self._sink, self._packer = sink, isal_zlib.compressobj(1, wbits=zlib.MAX_WBITS | 16)

    def write(self, data: bytes) -> int:
        self._sink.write(self._packer.compress(data))
        return len(data)

    def close(self) -> None:
        self._sink.write(self._packer.flush())
        self._sink.close()


# -- comparing ------------------------------------------------------------------------------------------


def on_disk(tree: Tree, folder: Path, *, whole: bool, unpacked: bool = False) -> str:
    """Compare the files with final names below a folder with the tree; return '' if all are right.

    If `whole`, no file may be missing. For an `unpacked` archive, links and times must be those of the archive.
    """
    wanted = tree.members if unpacked else tree.files
    found = {
        str(Path(above, name).relative_to(folder)): Path(above, name)
        for above, _, names in os.walk(folder)
        for name in names
        if ".nbdata" not in Path(above).parts
    }
    for name, path in found.items():
        if name not in wanted:
            return f"{name} ought not to be there"
        if unpacked and path.lstat().st_mtime != _TIME:
            return f"{name} has another time"
        if name.startswith("links/"):
            twin = folder / wanted[name].relative_to(tree.folder)
            soft = path.is_symlink() and path.resolve() == twin.resolve()
            if not (soft if "/soft-" in name else not path.is_symlink() and path.samefile(twin)):
                return f"{name} is another link"
            continue
        with path.open("rb") as one, wanted[name].open("rb") as other:
            if not _alike(one, other):
                return f"{name} is wrong"
    return _missing(found.keys(), wanted) if whole else ""


def stored(tree: Tree, bucket: str, *, whole: bool) -> str:
    """Compare a bucket with the tree as `on_disk` does, read directly from the store."""
    listed = tree.client.list_objects_v2(Bucket=bucket).get("Contents", [])
    assert len(listed) < 1000, "a listing of one page"
    found = {entry["Key"] for entry in listed}
    host = urlsplit(tree.server.url)
    connection = http.client.HTTPConnection(host.hostname or "", host.port, timeout=PATIENCE)
    try:
        for name in sorted(found):
            if name not in tree.files:
                return f"{name} ought not to be there"
            place = {"Bucket": bucket, "Key": name}
            url = urlsplit(tree.client.generate_presigned_url("get_object", place))
            connection.request("GET", f"{url.path}?{url.query}")
            answer = connection.getresponse()
            assert answer.status == 200, (name, answer.status)
            with tree.files[name].open("rb") as file:
                if not _alike(cast("BinaryIO", answer), file):
                    connection.close()
                    return f"{name} is wrong"
    finally:
        connection.close()
    return _missing(found, tree.files) if whole else ""


def _alike(one: BinaryIO, other: BinaryIO) -> bool:
    return all(a == b for a, b in _blocks(one, other))


def _blocks(one: BinaryIO, other: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    while True:
        pair = one.read(MIB), other.read(MIB)
        yield pair
        if not all(pair):
            return


def _missing(found: Collection[str], wanted: Mapping[str, Path]) -> str:
    missing = wanted.keys() - set(found)
    return f"{len(missing)} missing, such as {min(missing)}" if missing else ""
