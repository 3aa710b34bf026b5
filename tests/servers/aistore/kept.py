"""The objects of one node: bytes in files, and what is known of them in a JSON file beside each.

Checksums are as in ``cmn/cos/cksum.go``: ``xxhash`` and ``xxhash2`` are both XXH64 with seed 0, in hex.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
import json
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import google_crc32c
from awscrt.checksums import XXHash, combine_crc32c

from tests.servers.aistore.answering import Answered

__all__ = ["Bucket", "Kept", "Object", "checksum_of"]


class _Digest(Protocol):
    def update(self, data: bytes, /) -> object: ...

    def hexdigest(self) -> str: ...


class _XxHash:
    def __init__(self) -> None:
        self._hash = XXHash.new_xxhash64()

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def hexdigest(self) -> str:
        return self._hash.finalize().hex()


class _Crc32c:
    def __init__(self) -> None:
        self._crc = 0

    def update(self, data: bytes) -> None:
        self._crc = google_crc32c.extend(self._crc, data)

    def hexdigest(self) -> str:
        return f"{self._crc:08x}"


def _digest(kind: str) -> _Digest:
    if kind in ("xxhash", "xxhash2"):
        return _XxHash()
    return _Crc32c() if kind == "crc32c" else hashlib.new(kind)


def checksum_of(kind: str, data: bytes) -> str:
    """The checksum of some bytes, in hex."""
    digest = _digest(kind)
    digest.update(data)
    return digest.hexdigest()


@dataclass
class Bucket:
    """The properties of a bucket, as far as they matter here.

    Attributes
    ----------
    checksum : str
        The type of the checksums that it keeps (``checksum.type``).
    of_ranges : bool
        Whether the checksum of a range goes with it (``checksum.enable_read_range``).
    versioning : bool
    """

    provider: str
    name: str
    checksum: str = "xxhash2"
    of_ranges: bool = False
    versioning: bool = True

    @property
    def id(self) -> str:
        """The bucket in messages, as ``cmn.Bck.Cname`` writes it."""
        return f"{self.provider}://{self.name}"


@dataclass
class Object:
    """What is known of an object.

    Attributes
    ----------
    file : str
        The name of the file with its bytes.
    parts : list of int
        The sizes of the parts that it was uploaded in.
    """

    name: str
    file: str
    size: int
    kind: str
    checksum: str
    version: str
    modified: int
    custom: dict[str, str] = field(default_factory=dict)
    parts: list[int] = field(default_factory=list)
    accessed: int = 0

    @property
    def etag(self) -> str:
        """The ETag, without quotes (``LOM.ETag`` in ``core/lom.go``): a backend's, an MD5, or one that is made up."""
        if "ETag" in self.custom:
            return self.custom["ETag"]
        if not self.checksum:
            return ""
        if self.kind == "md5" and not self.parts:
            return self.checksum
        return f"v1-{self.checksum}-{self.modified:x}"


@dataclass
class _Upload:
    bucket: str
    name: str
    custom: dict[str, str]
    parts: dict[int, tuple[str, int, str, str]] = field(default_factory=dict)  # file, size, CRC32C, MD5
    whole: _Digest | None = None  # as long as the parts come in order
    next: int = 1


class Kept:
    """Objects below a folder. Safe to use from many threads."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.RLock()
        self.buckets: dict[str, Bucket] = {}
        self._objects: dict[str, dict[str, Object]] = {}
        self._sorted: dict[str, list[str]] = {}
        self._uploads: dict[str, _Upload] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob("*.bucket"):
            self.add_bucket(Bucket(**json.loads(file.read_text())))
        for file in folder.glob("*.json"):
            told = json.loads(file.read_text())
            bucket_id = told.pop("bucket")
            self._objects[bucket_id][told["name"]] = Object(**told)

    def add_bucket(self, bucket: Bucket) -> None:
        """Make a bucket."""
        with self._lock:
            self.buckets[bucket.id] = bucket
            self._objects.setdefault(bucket.id, {})
            name = hashlib.sha256(bucket.id.encode()).hexdigest()[:16]
            (self._folder / f"{name}.bucket").write_text(json.dumps(dataclasses.asdict(bucket)))

    def bucket(self, provider: str, name: str) -> Bucket:
        """Return a bucket, or answer that there is none (``cmn.ErrBckNotFound``)."""
        found = self.buckets.get(f"{provider}://{name}")
        if found is None:
            raise Answered(404, f'bucket "{provider}://{name}" does not exist', "ErrBckNotFound")
        return found

    def named(self, name: str) -> Bucket:
        """Return a bucket by its name alone, as the S3 door finds it (``meta.InitByNameOnly``)."""
        for bucket in self.buckets.values():
            if bucket.name == name:
                return bucket
        raise Answered(404, f'bucket "{name}" does not exist', "NoSuchBucket")

    def find(self, bucket: Bucket, name: str) -> Object:
        """Return an object, or answer that there is none (``cos.ErrNotFound``)."""
        with self._lock:
            found = self._objects[bucket.id].get(name)
        if found is None:
            raise Answered(404, f"{bucket.id}/{name} does not exist", "ErrNotFound")
        return found

    def open(self, found: Object) -> int:
        """Open the bytes of an object."""
        found.accessed = time.time_ns()
        try:
            return os.open(self._folder / found.file, os.O_RDONLY)
        except FileNotFoundError as error:  # replaced since it was found
            raise Answered(404, f"{found.name} does not exist", "ErrNotFound") from error

    def listed(self, bucket: Bucket, prefix: str, after: str, limit: int) -> list[Object]:
        """Return the first objects behind a name, in the order of their names."""
        with self._lock:
            objects = self._objects[bucket.id]
            names = self._sorted.get(bucket.id)
            if names is None:
                names = self._sorted[bucket.id] = sorted(objects, key=_in_bytes)
            start = max(
                bisect.bisect_left(names, _in_bytes(prefix), key=_in_bytes),
                bisect.bisect_right(names, _in_bytes(after), key=_in_bytes) if after else 0,
            )
            wanted = itertools.takewhile(lambda name: name.startswith(prefix), names[start : start + limit])
            return [objects[name] for name in wanted]

    # -- writing ----------------------------------------------------------------------------------

    def put(
        self,
        bucket: Bucket,
        name: str,
        body: Iterable[bytes],
        size: int,
        given: tuple[str, str],
        custom: dict[str, str],
    ) -> Object:
        """Write an object. It is there once all its bytes are.

        A checksum that came along is compared (``putOI.write`` in ``ais/tgtobj.go``), unless the bucket keeps none.
        """
        own, promised = _digest_or_none(bucket.checksum), None
        if own is not None and given[1]:
            promised = own if given[0] == bucket.checksum else _digest(given[0])
        file, count = self._fresh(), 0
        try:
            with open(self._folder / file, "wb") as out:
                for data in body:
                    out.write(data)
                    count += len(data)
                    for digest in {id(one): one for one in (own, promised) if one is not None}.values():
                        digest.update(data)
            if count != size:
                raise Answered(400, "unexpected EOF")
            kept = own.hexdigest() if own is not None else ""
            if promised is not None:
                got = kept if promised is own else promised.hexdigest()
                if got != given[1]:
                    raise Answered(
                        500, f"BAD DATA CHECKSUM: {given[0]}[{given[1]}] != {got} ({bucket.id}/{name})"
                    )
        except BaseException:
            (self._folder / file).unlink(missing_ok=True)
            raise
        kind = bucket.checksum if kept else ""
        return self._add(bucket, Object(name, file, count, kind, kept, "", time.time_ns(), custom))

    def _add(self, bucket: Bucket, made: Object) -> Object:
        with self._lock:
            objects = self._objects[bucket.id]
            before, made.accessed = objects.get(made.name), made.modified
            # Versions of an own bucket are numbers from 1 on (``LOM.IncVersion``).
            if bucket.versioning and not made.version:
                made.version = str(int(before.version or 0) + 1 if before else 1)
            if bucket.provider != "ais":  # a backend's ETag, an MD5 for objects in one piece
                made.custom.setdefault("ETag", self._md5(made))
            objects[made.name] = made
            if before is None:
                self._sorted.pop(bucket.id, None)
        data = json.dumps(dataclasses.asdict(made) | {"bucket": bucket.id})
        (self._folder / f"{made.file}.new").write_text(data)
        os.replace(self._folder / f"{made.file}.new", self._folder / f"{made.file}.json")
        if before is not None:
            self._remove(before)
        return made

    def _md5(self, made: Object) -> str:
        return hashlib.md5((self._folder / made.file).read_bytes(), usedforsecurity=False).hexdigest()

    def delete(self, bucket: Bucket, name: str) -> None:
        """Delete an object; answer that there is none, if so."""
        found = self.find(bucket, name)
        with self._lock:
            self._objects[bucket.id].pop(name, None)
            self._sorted.pop(bucket.id, None)
        self._remove(found)

    def take(self, bucket: Bucket, told: dict[str, Any], body: Iterator[bytes]) -> None:
        """Take over an object from another node, with all that is known of it."""
        file = self._fresh()
        with open(self._folder / file, "wb") as out:
            for data in body:
                out.write(data)
        self._add(bucket, Object(**{**told, "file": file}))

    def _remove(self, old: Object) -> None:
        for name in (f"{old.file}.json", old.file):
            (self._folder / name).unlink(missing_ok=True)

    def _fresh(self) -> str:
        return secrets.token_hex(12)

    # -- uploads in parts (``ais/tgtmpt.go``) -------------------------------------------------------

    def begin(self, bucket: Bucket, name: str, custom: dict[str, str]) -> str:
        """Begin an upload; return its id."""
        upload_id = secrets.token_hex(8)
        with self._lock:
            whole = _digest_or_none(bucket.checksum)
            self._uploads[upload_id] = _Upload(bucket.id, name, custom, whole=whole)
        return upload_id

    def _upload(self, bucket: Bucket, name: str, upload_id: str) -> _Upload:
        found = self._uploads.get(upload_id)
        if found is None or (found.bucket, found.name) != (bucket.id, name):
            raise Answered(404, f"{upload_id} does not exist", "NoSuchUpload")
        return found

    def part(
        self, bucket: Bucket, name: str, upload_id: str, number: int, body: Iterable[bytes], size: int
    ) -> str:
        """Keep a part; return its MD5. A part has at least one byte (``ups._put``)."""
        upload = self._upload(bucket, name, upload_id)
        if size <= 0:
            raise Answered(400, f"{bucket.id}/{name}: put-part invalid size ({size})")
        with self._lock:
            whole = upload.whole if number == upload.next else None
            if whole is None:
                upload.whole = None
        crc, md5, count, file = _Crc32c(), hashlib.md5(usedforsecurity=False), 0, self._fresh()
        with open(self._folder / file, "wb") as out:
            for data in body:
                out.write(data)
                count += len(data)
                for digest in (crc, md5, whole):
                    if digest is not None:
                        digest.update(data)
        if count != size:
            raise Answered(400, f"part {number} size mismatch ({count} vs {size})")
        with self._lock:
            upload.next = number + 1
            upload.parts[number] = (file, count, crc.hexdigest(), md5.hexdigest())
        return md5.hexdigest()

    def parts(self, bucket: Bucket, name: str, upload_id: str) -> dict[int, tuple[int, str]]:
        """Return size and MD5 of each part so far."""
        parts = self._upload(bucket, name, upload_id).parts
        return {number: (size, md5) for number, (_, size, _, md5) in sorted(parts.items())}

    def uploads(self, bucket: Bucket) -> list[tuple[str, str]]:
        """Return name and id of each unfinished upload."""
        with self._lock:
            return sorted((one.name, key) for key, one in self._uploads.items() if one.bucket == bucket.id)

    def complete(
        self, bucket: Bucket, name: str, upload_id: str, numbers: list[int], *, of_s3: bool
    ) -> Object:
        """Make the object. All parts must be named (``_checkParts``).

        Its checksum is of the bucket's type if the parts came in order, else a CRC32C (``Ufest.WholeChecksum``).
        """
        upload = self._upload(bucket, name, upload_id)
        if sorted(numbers) != [*range(1, len(upload.parts) + 1)] or not numbers:
            raise Answered(
                400,
                f"partial completion is not allowed: requested {len(numbers)} parts, have {len(upload.parts)}",
            )
        parts = [upload.parts[number] for number in range(1, len(numbers) + 1)]
        file, crc = self._fresh(), 0
        with open(self._folder / file, "wb") as out:
            for part, size, own, _ in parts:
                out.write((self._folder / part).read_bytes())
                crc = combine_crc32c(crc, int(own, 16), size)
        kind, kept = ("crc32c", f"{crc:08x}")
        if bucket.checksum == "none":
            kind = kept = ""
        elif upload.whole is not None and upload.next == len(parts) + 1:
            kind, kept = bucket.checksum, upload.whole.hexdigest()
        custom = dict(upload.custom)
        if of_s3:
            whole = hashlib.md5(b"".join(bytes.fromhex(one[3]) for one in parts), usedforsecurity=False)
            custom["ETag"] = f"{whole.hexdigest()}-{len(parts)}"
        sizes = [one[1] for one in parts]
        made = Object(name, file, sum(sizes), kind, kept, "", time.time_ns(), custom, sizes)
        made = self._add(bucket, made)
        self.abort(bucket, name, upload_id)
        return made

    def abort(self, bucket: Bucket, name: str, upload_id: str) -> None:
        """Forget an upload and its parts."""
        upload = self._upload(bucket, name, upload_id)
        with self._lock:
            self._uploads.pop(upload_id, None)
        for file, *_ in upload.parts.values():
            (self._folder / file).unlink(missing_ok=True)


def _digest_or_none(kind: str) -> _Digest | None:
    return None if kind == "none" else _digest(kind)


def _in_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
