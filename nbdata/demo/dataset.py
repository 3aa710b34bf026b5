"""A real sample data set: the running Python's own files as a tar.gz stream, cut into volumes.

::

    FOLDER/compressed/site-00 … site-19     the stream in equal pieces; ``cat`` them and they are one tar.gz
    FOLDER/md5/site-00.md5 … site-19.md5    one line each, as ``md5sum`` writes it
    FOLDER/dataset.json                     its description; written last, so it exists only for a complete data set

It represents the data of a typical provider. The input is thousands of small real files that exist on every machine
without a download: the standard library, then the installed packages.

The same files, options and processor give the same bytes. Members are sorted and carry their own modification times and
permissions, and no user names. Only regular files are taken. Links, sockets, ``__pycache__``, unreadable files and
single big files are left out.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nbdata.demo.serverstate import claim, private, private_folder, remove
from nbdata.disk import write_file
from nbdata.errors import AccessDenied, BadOption, NotEnoughSpace
from nbdata.own_files import read_small
from nbdata.runtime import state_folder
from nbdata.seals import Seals
from nbdata.sizes import format_size, parse_size

__all__ = ["DEFAULT_LIMIT", "Dataset", "build_dataset"]

DEFAULT_LIMIT = 120_000_000
_FORMAT = 1
_BIG, _SMALL = 8_000_000, 64_000  # a member has at most a tenth of the wanted size, within these bounds
_BLOCK = 1 << 20
_MOST_BYTES = 4 << 20  # of dataset.json, with 10,000 volumes
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SKIP = frozenset({"__pycache__", "site-packages", "dist-packages"})  # packages are separate trees


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A finished data set on disk.

    Attributes
    ----------
    folder : Path
        Folder of the data set.
    name : str
        Prefix of the volumes' names.
    volumes : list of Path
        The pieces of the tar.gz stream, in order.
    bytes : int
        Total size of the volumes.
    members : int
        Files in the archive.
    member_bytes : int
        Total size of the files, unpacked.
    fingerprint : str
        SHA-256 over the volumes' digests; equal for equal bytes.
    """

    folder: Path
    name: str
    volumes: list[Path]
    bytes: int
    members: int
    member_bytes: int
    fingerprint: str

    @property
    def sidecars(self) -> list[Path]:
        """The md5 files, in the order of the volumes."""
        return [self.folder / "md5" / f"{volume.name}.md5" for volume in self.volumes]


def build_dataset(
    folder: str | os.PathLike[str], *, size: int | str | None = None, volumes: int = 20, name: str = "site"
) -> Dataset:
    """Make the data set in ``folder``, or return an existing one that was made with these options.

    An interrupted build leaves no ``dataset.json`` and starts from the beginning. If another process builds in the same
    folder, this call waits for it. The build needs disk space for the result and one more volume.

    Parameters
    ----------
    folder : path
        Created if missing, and marked as the demo's; only files of an earlier data set in it are replaced.
    size : int or str, optional
        Bytes of input, for example ``2GB``; exceeded by at most a tenth (or 64 kB). If there is more input than this,
        the first files are taken. If there is less, all of it is repeated under ``copy-0001/`` and so on. None:
        everything once, at most `DEFAULT_LIMIT`.
    volumes : int
        Number of volumes; the last may be shorter than the others.
    name : str
        Prefix of the volumes' names.

    Raises
    ------
    BadOption
        If an option is invalid, or the stream is too short for so many volumes.
    UnsafeMember
        If the folder has anything in it that was not made by this.
    AccessDenied, NotEnoughSpace
        If the disk refuses access or is full.
    """
    if not _NAME.fullmatch(name):
        raise BadOption(f"name: {name!r} is not a plain file name", expected="letters, digits, . _ -")
    if not 1 <= volumes <= 10_000:
        raise BadOption("volumes: not a number of volumes", expected="1 to 10000", got=str(volumes))
    wanted = None if size is None else parse_size(size)
    if wanted == 0:
        raise BadOption("size: a data set has at least one byte", got="0")
    where = Path(folder).absolute()
    trees = _trees()
    options = {
        "format": _FORMAT,
        "name": name,
        "size": wanted,
        "volumes": volumes,
        "python": sys.version.split()[0],
        "trees": [list(tree) for tree in trees],
    }
    try:
        private_folder(where)
        with open(where / "dataset.lock", "ab", opener=private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            claim(where, lock="dataset.lock")
            for part in ("compressed", "md5"):
                private_folder(where / part)
            made = _load(where, options)
            if made is None:
                _remove_old(where, name)
                made = _build(where, options, _members(trees, where, wanted))
            return made
    except OSError as exc:
        if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise AccessDenied(f"the data set cannot be made ({exc.strerror})", path=str(where)) from exc
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            remove(str(where / ".building"))
            raise NotEnoughSpace(
                "the data set does not fit",
                path=str(where),
                got=f"{format_size(shutil.disk_usage(where).free)} free",
                remedy="Give a smaller size",
            ) from exc
        raise


def _trees() -> list[tuple[str, str]]:
    """Return (prefix in the archive, folder) of each tree to take; each folder only once."""
    paths = sysconfig.get_paths()
    found: dict[str, str] = {}
    for key, prefix in (("stdlib", "stdlib"), ("purelib", "packages"), ("platlib", "packages-platform")):
        real = os.path.realpath(paths[key])
        if os.path.isdir(real):
            found.setdefault(real, prefix)
    return [(prefix, real) for real, prefix in found.items()]


def _members(trees: list[tuple[str, str]], own: Path, wanted: int | None) -> Iterator[tuple[str, str]]:
    """Yield (name in the archive, path) of each member; the caller stops at the wanted size."""
    biggest = max(_SMALL, min(_BIG, (DEFAULT_LIMIT if wanted is None else wanted) // 10))
    files = [
        (f"{prefix}/{name}", os.path.join(root, name), size)
        for prefix, root in trees
        for name, size in _files(root, os.path.realpath(own))
        if size <= biggest
    ]
    yield from ((name, path) for name, path, _ in files)
    copy = 1
    while wanted is not None and any(size for _, _, size in files):
        yield from ((f"copy-{copy:04d}/{name}", path) for name, path, _ in files)
        copy += 1


def _files(root: str, own: str, below: str = "") -> Iterator[tuple[str, int]]:
    """Yield the relative names and sizes of the readable regular files below a folder, in a fixed order."""
    try:
        with os.scandir(os.path.join(root, below)) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _SKIP and os.path.realpath(entry.path) != own:
                yield from _files(root, own, f"{below}{entry.name}/")
        elif entry.is_file(follow_symlinks=False) and entry.name.isprintable():
            if not os.access(entry.path, os.R_OK):
                continue
            yield f"{below}{entry.name}", entry.stat(follow_symlinks=False).st_size


def _build(where: Path, options: dict[str, Any], members: Iterator[tuple[str, str]]) -> Dataset:
    building = where / ".building"
    for part in ("compressed", "md5"):
        (building / part).mkdir(parents=True)
    stream = building / "stream"
    count, member_bytes = _compress(stream, members, options["size"])
    digests = _cut(stream, building, options["name"], options["volumes"])
    sizes = {name: (building / "compressed" / name).stat().st_size for name in digests}
    for name in digests:
        os.replace(building / "compressed" / name, where / "compressed" / name)
        os.replace(building / "md5" / f"{name}.md5", where / "md5" / f"{name}.md5")
    shutil.rmtree(building)
    text = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
    facts = {
        "options": options,
        "volumes": sizes,
        "bytes": sum(sizes.values()),
        "members": count,
        "member_bytes": member_bytes,
        "fingerprint": hashlib.sha256(text.encode()).hexdigest(),
    }
    facts["seal"] = _seals().of("dataset", facts)
    write_file(str(where / "dataset.json"), [json.dumps(facts, indent=1).encode() + b"\n"])
    return _dataset(where, facts)


def _compress(stream: Path, members: Iterator[tuple[str, str]], wanted: int | None) -> tuple[int, int]:
    """Write the tar.gz stream; returns the number of members and their bytes."""
    from isal import igzip_threaded

    count = total = 0
    limit = DEFAULT_LIMIT if wanted is None else wanted
    with (
        igzip_threaded.open(  # type: ignore[no-untyped-call]
            stream, "wb", compresslevel=2, threads=1, block_size=_BLOCK
        ) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_BLOCK) as tar,
    ):
        for name, path in members:
            if total >= limit:
                break
            try:
                file = open(path, "rb")  # noqa: SIM115 - only the opening may fail quietly
            except OSError:
                continue
            with file:
                info = _header(name, file)
                if wanted is None and total + info.size > limit:
                    break
                tar.addfile(info, file)
            count += 1
            total += info.size
    return count, total


def _header(name: str, file: IO[bytes]) -> tarfile.TarInfo:
    status = os.fstat(file.fileno())
    info = tarfile.TarInfo(name)
    info.size = status.st_size
    info.mtime = int(status.st_mtime)
    info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    return info


def _cut(stream: Path, building: Path, name: str, volumes: int) -> dict[str, str]:
    """Cut the stream into volumes with sidecars, starting at its end, so that it shrinks as they are written."""
    total = stream.stat().st_size
    each = -(-total // volumes)
    if each * (volumes - 1) >= total:
        raise BadOption(
            f"volumes: {format_size(total)} cannot be cut into {volumes} equal volumes",
            remedy="Give a greater size, or fewer volumes",
        )
    width = max(2, len(str(volumes - 1)))
    digests: dict[str, str] = {}
    with open(stream, "r+b") as source:
        for number in reversed(range(volumes)):
            volume = f"{name}-{number:0{width}d}"
            digest = hashlib.md5(usedforsecurity=False)
            source.seek(number * each)
            with open(building / "compressed" / volume, "wb") as target:
                while block := source.read(_BLOCK):
                    digest.update(block)
                    target.write(block)
            source.truncate(number * each)
            digests[volume] = digest.hexdigest()
            line = f"{digests[volume]}  {volume}\n"
            (building / "md5" / f"{volume}.md5").write_text(line, encoding="ascii")
    return dict(sorted(digests.items()))


def _load(where: Path, options: dict[str, Any]) -> Dataset | None:
    """Return the data set in the folder, if this user made it with these options, and it is complete."""
    try:
        facts = _facts(where)
        if not _seals().holds(facts.pop("seal"), "dataset", facts) or facts["options"] != options:
            return None
        made = _dataset(where, facts)
        sizes = [path.lstat().st_size for path in made.volumes]
        whole = sizes == list(facts["volumes"].values()) and all(
            stat.S_ISREG(path.lstat().st_mode) for path in (*made.volumes, *made.sidecars)
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return made if whole else None


def _facts(where: Path) -> Any:
    return json.loads(read_small(str(where / "dataset.json"), _MOST_BYTES))


def _seals() -> Seals:
    return Seals(state_folder())


def _dataset(where: Path, facts: dict[str, Any]) -> Dataset:
    return Dataset(
        folder=where,
        name=facts["options"]["name"],
        volumes=[where / "compressed" / volume for volume in facts["volumes"]],
        bytes=facts["bytes"],
        members=facts["members"],
        member_bytes=facts["member_bytes"],
        fingerprint=facts["fingerprint"],
    )


def _remove_old(where: Path, name: str) -> None:
    """Remove the files of earlier builds: first the marker, then its volumes and those with this name."""
    old: list[str] = []
    try:
        facts = _facts(where)
        old = [volume for volume in facts["volumes"] if _NAME.fullmatch(volume)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    for left in ("dataset.json", ".building"):
        remove(str(where / left))
    ours = re.compile(rf"{re.escape(name)}-\d{{2,5}}")
    for part, suffix in (("compressed", ""), ("md5", ".md5")):
        for file in os.listdir(where / part):
            volume = file.removesuffix(suffix)
            if volume in old or ours.fullmatch(volume):
                remove(str(where / part / file))
