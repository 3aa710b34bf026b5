"""The commands of the machine-loss check, with the state before and the correct state after each."""

from __future__ import annotations

import io
import os
import random
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nbdata.demo.server import EmbeddedServer
from nbdata.operation import Context
from nbdata.stores.resolve import open_place
from nbdata.transfer.part_records import validator
from tests.conftest import client_of
from tests.faults.case import Case
from tests.faults.loss import Loss

__all__ = ["CASES", "lost"]

MIB = 1 << 20
_SIZE = 3_000
# The size of two of nbdata's parts, of which the last one is short.
_BIG, _BIG_SIZE = "m/big.bin", 17 * MIB + 77
_SENT_BIG, _SENT_PART = 33 * MIB, 5 * MIB

Build = Callable[["Place"], Case]


class Place:
    """A bucket and a folder for one case."""

    def __init__(self, server: EmbeddedServer, folder: Path, bucket: str) -> None:
        self.server, self.bucket = server, bucket
        self.root, self._folder = folder / "disk", folder
        for name in ("data", "state"):  # each of them is a separate file system
            (self.root / name).mkdir(parents=True)
        self.client = client_of(server)
        self.url = f"s3://{bucket}/"

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Upload objects."""
        for key, data in objects.items():
            self.client.put_object(Bucket=self.bucket, Key=key, Body=data)

    def put_parts(self, key: str, data: bytes) -> None:
        """Upload an object with the part size of the case's pushes, because the ETag depends on the part size."""
        place = {"Bucket": self.bucket, "Key": key}
        place["UploadId"] = self.client.create_multipart_upload(**place)["UploadId"]
        parts = []
        for number, at in enumerate(range(0, len(data), _SENT_PART), 1):
            sent = self.client.upload_part(**place, PartNumber=number, Body=data[at : at + _SENT_PART])
            parts.append({"PartNumber": number, "ETag": sent["ETag"]})
        self.client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})

    def delete(self, keys: list[str]) -> None:
        """Delete objects."""
        for key in keys:
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def objects(self) -> dict[str, bytes]:
        """Read all objects."""
        listed = self.client.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return {
            entry["Key"]: self.client.get_object(Bucket=self.bucket, Key=entry["Key"])["Body"].read()
            for entry in listed
        }

    def tags(self, objects: Mapping[str, bytes]) -> dict[tuple[str, str], bytes]:
        """Return each object's current tag, in nbdata's form, with its content."""
        store = open_place(self.url, Context("/", env={**os.environ, **self.server.environment()})).store
        return {(info.key, validator(info)): objects[info.key] for info in store.list("")}

    def before(self, case: Case) -> None:
        """Run a command before the recording starts."""
        case.record(self._folder / "before", self.server.environment())

    def source(self, name: str, files: Mapping[str, bytes]) -> Path:
        """Create a source folder with these files, which the failure does not affect."""
        return fill(self._folder / name, files)


def fill(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def _content(seed: int, *, small: int = 20, big: int = _BIG_SIZE) -> dict[str, bytes]:
    source = random.Random(seed)
    folders = ("a", "b/c", "b/d", "x/y/z")
    files = {f"{folders[n % 4]}/{n:02}.bin": source.randbytes(_SIZE) for n in range(small)}
    return files | ({_BIG: source.randbytes(big)} if big else {})


def _pull(place: Place, files: Mapping[str, bytes], **more: Any) -> Case:
    options = {"source": place.url, "target": str(place.root / "data/out"), **more}
    right = {path: [data] for path, data in files.items()}
    return Case(place.root, "pull", options, "data/out", right, place.tags(files))


def pull(place: Place) -> Case:
    """Pull into a new folder whose parent folders do not exist either."""
    files = _content(1, small=60)
    place.put(files)
    return _pull(place, files)


def pull_of_two(place: Place) -> Case:
    """Pull into new folders, with so few files that each one is synced separately."""
    files = {"one/1.bin": b"1" * _SIZE, "two/deep/2.bin": b"2" * _SIZE}
    place.put(files)
    return _pull(place, files)


def pull_of_changes(place: Place) -> Case:
    """Pull again with `delete`, after half of the source's objects have changed and some are gone."""
    old = _content(1)
    place.put(old)
    place.before(_pull(place, old))
    new = _content(2)
    tags = place.tags(old)
    changed = {path: new[path] for number, path in enumerate(sorted(old)) if number % 2 or path == _BIG}
    gone = [path for path in sorted(old) if path not in changed][:5]
    place.put(changed)
    place.delete(gone)
    now = {path: changed.get(path, data) for path, data in old.items() if path not in gone}
    case = _pull(place, now, delete=True)
    case.right = {path: [data, old[path]] for path, data in now.items()}
    case.tags = {**tags, **case.tags}
    case.gone = {path: old[path] for path in gone}
    return case


def extraction(place: Place) -> Case:
    """Extract an archive in volumes, with folders and links; the volumes are deleted at the end."""
    source = random.Random(3)
    files = {f"d{n % 3}/e{n % 2}/{n:02}.bin": source.randbytes(_SIZE) for n in range(40)}
    files["d0/large.bin"] = source.randbytes(2 * MIB)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        folder = tarfile.TarInfo("empty")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 1_500_000_000
            tar.addfile(member, io.BytesIO(data))
        for name, kind, link in (
            ("links/s", tarfile.SYMTYPE, "../d0/large.bin"),
            ("links/h", tarfile.LNKTYPE, "d1/e1/01.bin"),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            tar.addfile(member)
    packed = buffer.getvalue()
    volumes = {
        f"v/a.tar.gz.{number:02}": packed[at : at + 300_000]
        for number, at in enumerate(range(0, len(packed), 300_000))
    }
    place.put(volumes)

    def reset(_: set[str], deleted: set[str]) -> None:
        place.put(volumes)
        place.delete(list(deleted))

    files["links/h"] = files["d1/e1/01.bin"]
    return Case(
        place.root,
        "untar_volumes",
        {"source": f"{place.url}v/", "target": str(place.root / "data/out"), "delete_volumes": True},
        "data/out",
        {path: [data] for path, data in files.items()},
        links={"links/s": "../d0/large.bin"},
        reset=reset,
        deletes=frozenset(volumes),
    )


def _push(place: Place, source: Path, files: Mapping[str, bytes]) -> Case:
    def ended() -> list[str]:
        found = place.objects()
        return [f"{path} is not at the store" for path, data in files.items() if found.get(path) != data]

    options = {"source": str(source), "target": place.url, "part_size": _SENT_PART}
    return Case(place.root, "push", options, "", {}, whole=False, ended=ended)


def push(place: Place) -> Case:
    """Push small files, and one file that is sent in parts."""
    files = _content(4, big=_SENT_BIG)
    return _push(place, place.source("in", files), files)


def push_of_changes(place: Place) -> Case:
    """Push again after half of the files have changed."""
    old, new = _content(4, big=_SENT_BIG), _content(5, big=_SENT_BIG)
    source = place.source("in", old)
    place.before(_push(place, source, old))
    changed = {path: new[path] for number, path in enumerate(sorted(old)) if number % 2 or path == _BIG}
    fill(source, changed)

    def reset(made: set[str], _: set[str]) -> None:
        now = {path: changed[path] if path in made else data for path, data in old.items()}
        place.put_parts(_BIG, now.pop(_BIG))
        place.put(now)

    case = _push(place, source, {**old, **changed})
    case.reset = reset
    return case


def cleanup(place: Place) -> Case:
    """Clean up everything that was pulled."""
    files = _content(7, big=0)
    place.put(files)
    before = _pull(place, files)
    place.before(before)

    def ended() -> list[str]:
        left = [path for path in (place.root / "data/out").rglob("*") if path.is_file()]
        return [f"{path} is left" for path in left]

    options = {"source": str(place.root / "data/out"), "all": True}
    case = Case(place.root, "cleanup", options, "data/out", {}, before.tags, whole=False, ended=ended)
    case.gone = files
    return case


CASES: dict[str, Build] = {
    build.__name__.replace("_", " "): build
    for build in (pull, pull_of_two, pull_of_changes, extraction, push, push_of_changes, cleanup)
}


@contextmanager
def lost(name: str, server: EmbeddedServer) -> Iterator[Loss]:
    """Record a case, chosen by name. Meanwhile this process uses the case's state folder."""
    bucket = f"lost-{secrets.token_hex(6)}"
    server.create_bucket(bucket)
    folder = Path(tempfile.mkdtemp(prefix="nbdata-lost-"))
    place = Place(server, folder, bucket)
    before = os.environ.get("NBDATA_STATE_DIR", "")
    try:
        case = CASES[name](place)
        os.environ.update(case.environment)
        (folder / "scratch").mkdir()
        yield Loss(case, folder / "scratch", server.environment())
    finally:
        os.environ["NBDATA_STATE_DIR"] = before
        shutil.rmtree(folder)
        place.client.delete_bucket(Bucket=bucket)
        place.client.close()
