"""The names and records of an archive's volumes: find the volumes that exist and still match."""

from __future__ import annotations

import hashlib

from nbdata.engine.pack.tar_stream import TarStream
from nbdata.engine.pack.volumes import Existing, Kept, recorded
from nbdata.engine.pack.zip_frames import ZipStream
from nbdata.formats.frames import LEAST_FRAME
from nbdata.transfer.index import Index
from nbdata.verbs.archive_names import SIDECAR
from nbdata.verbs.pack import Pack

__all__ = ["KnownVolumes", "TarVolumes", "ZipVolumes"]

# The version of the way in which volumes are made; another number makes all volumes anew.
_WAY = 1


class KnownVolumes:
    """The volumes that exist or may be made.

    Parameters
    ----------
    op : Pack
    most : int
        The largest number of volumes.
    existing : Existing
        The existing volumes and checksums, by name, and those of the archive in its other form.
    index : Index
        The records of the volumes.
    """

    def __init__(self, op: Pack, most: int, existing: Existing, index: Index) -> None:
        self._op, self.most, self._index = op, most, index
        self.there, self.otherwise = existing
        self._names = op.archive_names
        self._how = f"{op.archive} {op.volume_size or 0} {_WAY}"

    def name(self, number: int) -> str:
        """The name of a volume, by its number from 0."""
        return self._names.volume(number, self.most)

    def is_behind(self, name: str) -> bool:
        """True if it is a volume whose number is never reached."""
        number = self._names.number(name)
        return number is not None and number >= self.most

    def is_ours(self, name: str) -> bool:
        """True if it exists as this command has made it."""
        there = self.there.get(name) or self.otherwise.get(name)
        return recorded(self._index.get(name), there) is not None

    def others(self) -> list[str]:
        """Existing files of the archive under names that this command has neither written nor begun to write."""
        unknown = [name for name in self.there if not self._is_known(name)]
        return sorted(unknown + list(self.otherwise.keys() - {*self.superseded()}))

    def _is_known(self, name: str) -> bool:
        return self._index.get(name.removesuffix(SIDECAR)) is not None

    def superseded(self) -> list[str]:
        """This command's own volumes and checksums in the form that it no longer makes."""
        return sorted(
            name for name in self.otherwise if self._is_superseded(name, name.removesuffix(SIDECAR))
        )

    def _is_superseded(self, name: str, volume: str) -> bool:
        left = name != volume and volume not in self.otherwise  # the checksum of a deleted volume
        return self._is_known(name) if left else self.is_ours(volume)

    def _digest(self, facts: str) -> str:
        return hashlib.blake2b(f"{self._how}\0{facts}".encode(), digest_size=16).hexdigest()

    def _recorded(self, number: int, at: int) -> Kept | None:
        """The record of an existing volume that begins at an offset, if this command may keep it."""
        name = self.name(number)
        record = recorded(self._index.get(name), self.there.get(name))
        if record is None or self._op.overwrite == "always" or record.start != at:
            return None
        return None if self._op.md5 and not record.md5 else record


class TarVolumes(KnownVolumes):
    """The volumes of a tar: each is valid by itself."""

    def __init__(self, op: Pack, stream: TarStream, existing: Existing, index: Index) -> None:
        super().__init__(op, _most_volumes(op, stream.size), existing, index)
        self._stream = stream

    def digest(self, start: int, end: int) -> str:
        """A digest that distinguishes volumes of the same range."""
        return self._digest(self._stream.digest(start, end))

    def kept(self, number: int, at: int) -> Kept | None:
        """The record of an existing volume, if it is valid and begins at this offset; else None."""
        record = self._recorded(number, at)
        if record is None or record.end > self._stream.size:
            return None
        if not self._names.numbered and record.end != self._stream.size:
            return None
        return record if record.digest == self.digest(record.start, record.end) else None


class ZipVolumes(KnownVolumes):
    """The volumes of a zip: all are valid, or none."""

    def __init__(self, op: Pack, stream: ZipStream, existing: Existing, index: Index) -> None:
        super().__init__(op, -(-stream.most // op.volume_size) if op.volume_size else 1, existing, index)
        self._stream = stream

    def digest(self, total: int) -> str:
        """A digest that distinguishes archives of the same size."""
        return self._digest(f"{self._stream.digest()} {total}")

    def kept(self) -> list[Kept]:
        """The records of all volumes, if all exist and are valid; else empty."""
        found: list[Kept] = []
        while (one := self._recorded(len(found), found[-1].end if found else 0)) is not None:
            found.append(one)
            if len(found) == self.most:
                break
        total = found[-1].end if found else 0
        return found if all(one.digest == self.digest(total) for one in found) else []


def _most_volumes(op: Pack, size: int) -> int:
    """The largest number of volumes of a tar."""
    if op.volume_size is None:
        return 1
    if op.archive == "tar":
        return -(-size // op.volume_size)
    # Incompressible data grows a little, and up to a frame of each volume stays empty.
    return -(-(size + size // 500) // (op.volume_size * 7 // 8 - LEAST_FRAME // 2)) + 1
