"""The index: a record of moved objects, which decides whether a file is unchanged, never by time or size alone.

There is one file per pair of source and target, in the user's state folder. For each relative path it holds the store's
ETag or version and size, and the local file's stat after the transfer (size, mtime_ns, ctime_ns, inode). A file is
unchanged if the listing matches the record **and** the local stat does. Size and mtime alone lose data, since extracted
files have old times. So does a stat without the inode: two folders that exchange their names keep all times.

The format is append-only lines as in `keyed_lines`, which keeps only offsets in memory, so a million records take a
tenth of a gigabyte. The first line has the target folder, its device and its inode, and a digest of the servers of both
ends. An index of another folder that had the same name is therefore not used, nor one of a bucket of the same name on
another server, and `written_below` can list the targets of earlier jobs. A torn tail (a kill
during a write) ends reading and is cut off before the next append. The last line of a path wins.

Records are written after the move, and the file is synced at the end. A record that is about to become false is
announced before that, and synced. Otherwise, after a crash, a file replaced just before would look as if another
program had changed it and its source.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from json.encoder import encode_basestring_ascii as _text
from typing import NamedTuple

from nbdata.disk import disk_error, is_full, make_folders, sync_folder
from nbdata.errors import NbdataError
from nbdata.optional_calls import fdatasync, fsync
from nbdata.own_files import folder_of, taken, through_no_link
from nbdata.paths import is_inside, is_url
from nbdata.sealed_lines import format_line, parse_line, seal
from nbdata.signed_urls import without_signature
from nbdata.transfer.keyed_lines import KeyedLines, key_of

__all__ = ["Index", "Record", "index_file", "recorded_below", "written_below"]

_VERSION = 3


class Record(NamedTuple):
    """One moved object: its tag from the store, and the local file's stat after the move.

    `size` is the object's size. It is -1 if what is at the target existed before and was only compared: see `ours`. The
    inode is 0 if there is no local file, or if an older nbdata made the record.
    """

    tag: str
    size: int
    local_size: int
    mtime_ns: int
    ctime_ns: int
    inode: int = 0

    @classmethod
    def of(cls, tag: str, size: int, found: os.stat_result) -> Record:
        """Return the record of an object and its local file."""
        return cls(tag, size, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)

    @property
    def ours(self) -> bool:
        """Whether nbdata wrote the file or object at the target, and so may delete it."""
        return self.size >= 0

    def local_same(self, found: os.stat_result) -> bool:
        """Whether the local file looks as it did when recorded."""
        same = (found.st_size, found.st_mtime_ns, found.st_ctime_ns) == self[2:5]
        return same and self.is_file(found)

    def is_file(self, found: os.stat_result) -> bool:
        """Whether the local file is the recorded one, as far as the inode tells."""
        return self.inode in (0, found.st_ino)


# The numbers of values in a record: an older nbdata left the inode out.
_FIELDS = (len(Record._fields) - 1, len(Record._fields))


class Index:
    """The records of one source and target. Many threads may call `put`.

    Parameters
    ----------
    folder : str
        The state folder.
    source, target : str
        Canonical places. Only a hash of them is in the file's name, since a source may hold a secret. What only signs a
        URL does not count.
    identity : tuple of (st_dev, st_ino) or None
        The identity of the target folder. None if it does not exist; then no record is valid.
    servers : str
        The servers of both ends: records of others are not valid.

    Raises
    ------
    NbdataError
        If the disk cannot read the index. A damaged index has the records before the damage.
    """

    def __init__(
        self, folder: str, source: str, target: str, identity: tuple[int, int] | None, servers: str = ""
    ) -> None:
        # The target folder. Nothing of a URL is kept, since it may hold a secret.
        written = "" if is_url(target) else target.rstrip("/") or "/"
        self._begin(index_file(folder, source, target), written, identity, _digest(servers))

    @classmethod
    def at(cls, path: str, target: str, identity: tuple[int, int]) -> Index:
        """Open the index in a file whose header names this target, whatever server it came from."""
        index = cls.__new__(cls)
        index._begin(path, target, identity, None)
        return index

    def _begin(self, path: str, target: str, identity: tuple[int, int] | None, servers: str | None) -> None:
        self.path, self.target = path, target
        self._identity, self._servers = identity, servers
        self._records = KeyedLines()
        self._lines = 0
        self._good = 0  # length of the file's valid beginning, in bytes
        self._fd = -1
        self._named = False  # True once the file's name is known to be on disk
        self._lock, self._syncing = threading.Lock(), threading.Lock()
        self._synced = 0  # bytes of the file that are known to be on disk
        self._announced: set[str] = set()
        self._needed = True
        self.problem = ""  # the reason why nothing is recorded any more
        self._load()

    def _load(self) -> None:
        try:
            self._records.read_from(self.path)
            for offset, line in self._records.scan():
                if offset:
                    self._records.take(offset, line)
                elif self._identity is None or not self._is_header(parse_line(line)):
                    break
                self._lines += 1
                self._good = offset + len(line)
        except FileNotFoundError:
            pass
        except OSError as error:  # without its records, files that were edited here would count as unknown
            raise taken(self.path) or disk_error(error, self.path) from error
        except (TypeError, ValueError):
            self._records.clear()
            self._lines = self._good = 0

    def is_of(self, source: str, target: str, identity: tuple[int, int] | None, servers: str) -> bool:
        """Whether the index is of this source and target on these servers, and nothing was written to it."""
        mine = os.path.basename(self.path) == _name(source, target) and self._servers == _digest(servers)
        return mine and self._identity == identity and self._fd < 0

    def get(self, path: str) -> Record | None:
        """Return the record of a relative path, or None."""
        line = self._records.find(key_of(path))
        return None if line is None else _record_in(line)[1]

    def records(self) -> Iterator[tuple[str, Record]]:
        """Yield all recorded relative paths with their records."""
        for line in self._records.live(self._good):
            path, record = _record_in(line)
            if record is not None:
                yield path, record

    def paths(self) -> list[str]:
        """Return all recorded relative paths."""
        return [path for path, _ in self.records()]

    def open(self, identity: tuple[int, int], *, needed: bool = True) -> None:
        """Open the index for writing, once the target folder exists.

        If records are not `needed`, a full disk only ends the recording: see `problem`.
        """
        if self._fd >= 0:
            return
        self._needed = needed
        if self._identity != identity:
            self._identity, self._lines, self._good = identity, 0, 0
            self._records.clear()
        try:
            make_folders(os.path.dirname(self.path), 0o700)
            if self._lines > 1000 and self._lines > 3 * len(self._records):
                self._compact()
            self._fd = through_no_link(self.path, os.O_RDWR | os.O_CREAT)
            os.ftruncate(self._fd, self._good)
            os.lseek(self._fd, 0, os.SEEK_END)
            with contextlib.suppress(OSError):  # some disks cannot sync folders
                sync_folder(os.path.dirname(self.path))
            if not self._good:
                header = format_line(self._header(*identity))
                _write(self._fd, header)
                self._good = len(header)
            self._records.read_from(self.path)
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        """Stop recording, if the work can do without; earlier records stay.

        A missing record costs only a comparison in the next run.
        """
        told = taken(self.path) or disk_error(error, self.path)
        if self._needed or not is_full(error):
            raise told from error
        self.problem = f"not all could be recorded, and what was not is compared the next time: {told}"
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._good)

    def _forget(self, paths: Iterable[str]) -> None:
        """Drop all records if a known path's new one is lost: its old one is false, and none cost only comparisons."""
        if any(self.get(path) is not None for path in paths):
            self._records.clear()
            self._announced.clear()
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
                fdatasync(self._fd)

    def _header(self, device: int, inode: int) -> list[object]:
        return ["nbdata-index", _VERSION, device, inode, self.target, self._servers or ""]

    def _is_header(self, line: list[object] | None) -> bool:
        """Whether a first line is that of this index; one that is opened by its path takes over the servers."""
        assert self._identity is not None
        if self._servers is None and line and isinstance(line[-1], str):
            self._servers = line[-1]
        return line == self._header(*self._identity)

    def _compact(self) -> None:
        assert self._identity is not None
        fresh = self.path + ".new"
        with open(fresh, "wb", opener=through_no_link) as file:
            file.write(format_line(self._header(*self._identity)))
            file.writelines(self._records.live(self._good))
            file.flush()
            fsync(file.fileno())
        with folder_of(self.path) as (at, name):
            os.replace(f"{name}.new", name, src_dir_fd=at, dst_dir_fd=at)
        self._records.clear()
        self._lines = self._good = 0
        self._load()

    def put(self, records: Mapping[str, Record | None]) -> None:
        """Append records (None removes the path). They are in the file on return, and on disk after `close`."""
        with self._lock:
            at = self._good
            lines = self._append(records)
            for line in lines:
                self._records.take(at, line)
                at += len(line)
            if lines:
                self._announced.difference_update(records)

    def _append(self, records: Mapping[str, Record | None]) -> list[bytes]:
        """Append records to the file, and return their lines. Returns none if recording has ended."""
        lines = [_line_of(path, record) for path, record in records.items()]
        data = b"".join(lines)
        if not self.problem:
            try:
                _write(self._fd, data)
            except OSError as error:
                self._lose(error)
        if self.problem:
            self._forget(records)
            return []
        self._good += len(data)
        self._lines += len(records)
        return lines

    def announce(
        self, tags: Mapping[str, str], looks: Mapping[str, os.stat_result] | None = None, *, new: bool = False
    ) -> None:
        """Record on disk that the records of some paths are about to change.

        Paths without a record are skipped, except with `new`.

        A path without a later `put` gets its old record back in `close`.

        Parameters
        ----------
        tags : dict of str to str
            The store's tag of the new bytes, or '' if not known yet.
        looks : dict of str to os.stat_result, optional
            The stat of each local file, if the local files stay as they are.
        """
        with self._lock:
            known = {path: tag for path, tag in tags.items() if new or self.get(path) is not None}
            if not known:
                return
            announced: dict[str, Record | None] = {
                path: Record(tag, 0, -1, 0, 0) for path, tag in known.items()
            }
            for path, found in (looks or {}).items():
                announced[path] = Record.of(known[path], found.st_size, found)
            if not self._append(announced):
                return
            self._announced.update(known)
            end = self._good
        with self._syncing:  # one sync serves all threads that wait for it
            if self._synced < end:
                with self._lock:
                    end = self._good
                try:
                    fdatasync(self._fd)
                except OSError as error:
                    with self._lock:
                        self._lose(error)
                        self._forget(known)
                self._synced = end

    def sync(self) -> None:
        """Sync all records, and the file's name, to disk.

        This lasts only if the state folder is not in memory.
        """
        try:
            fdatasync(self._fd)
            if not self._named:
                folder = os.path.dirname(self.path)
                for path in (folder, os.path.dirname(folder)):
                    sync_folder(path)
                self._named = True
        except OSError as error:
            raise disk_error(error, self.path) from error

    def close(self) -> None:
        """Sync the file to disk, and close it."""
        if self._fd >= 0 and not self.problem:
            with self._lock, contextlib.suppress(NbdataError):
                self._append({path: self.get(path) for path in sorted(self._announced)})
                self._announced.clear()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                fdatasync(fd)
            os.close(fd)


def index_file(folder: str, source: str, target: str) -> str:
    """The path of the index of a source and a target in a state folder. One job at a time may write it."""
    return os.path.join(folder, "index", _name(source, target))


def _digest(servers: str) -> str:
    return hashlib.sha256(servers.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _name(source: str, target: str) -> str:
    text = f"{without_signature(source).rstrip('/')}\0{target.rstrip('/')}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:32] + ".log"


def written_below(folder: str, path: str) -> Iterator[Index]:
    """Yield the index of each target folder that `recorded_below` finds."""
    for file, target, identity in recorded_below(folder, path):
        with contextlib.suppress(OSError, ValueError):
            yield Index.at(file, target, identity)


def recorded_below(folder: str, path: str) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """Yield the target folders with an index that are still the same folders and lie below or around `path`.

    Each comes with the file of its index before it, and its identity (st_dev, st_ino) after it.

    Parameters
    ----------
    folder : str
        The state folder.
    path : str
        Absolute, without symbolic links.
    """
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(os.path.join(folder, "index"))):
            file = os.path.join(folder, "index", name)
            if not name.endswith(".log"):
                continue
            with contextlib.suppress(OSError, ValueError):
                with open(file, "rb", opener=through_no_link) as lines:
                    header = parse_line(lines.readline(1 << 16))
                if header is None or header[:2] != ["nbdata-index", _VERSION] or not header[4]:
                    continue
                target = str(header[4])
                found = os.stat(target)
                same = [found.st_dev, found.st_ino] == header[2:4]
                real = os.path.realpath(target)
                if same and (is_inside(real, path) or is_inside(path, real)):
                    yield file, target, (found.st_dev, found.st_ino)


def _record_in(line: bytes) -> tuple[str, Record | None]:
    """Parse a line to its path, and its record if it is of this version."""
    path, *rest = parse_line(line) or [""]
    return str(path), Record(*rest) if len(rest) in _FIELDS else None  # CRC'd: ours


def _line_of(path: str, record: Record | None) -> bytes:
    """Make the line that `format_line` makes, but faster, because there are many."""
    if record is None:
        return seal(f"[{_text(path)}]")
    tag, size, local_size, mtime_ns, ctime_ns, inode = record
    return seal(f"[{_text(path)},{_text(tag)},{size},{local_size},{mtime_ns},{ctime_ns},{inode}]")


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
