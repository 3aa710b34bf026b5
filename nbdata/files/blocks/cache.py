"""The cache of one mount: which versions it has, their blocks, and what waits to be written."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from nbdata.errors import ChecksumMismatch, NbdataError, StoreUnavailable
from nbdata.files.blocks.folder import BlockFolder
from nbdata.files.blocks.kept_version import KeptVersion
from nbdata.files.blocks.listings import MOST_NAMES, KeptListing, keep_listing, kept_listing
from nbdata.files.blocks.reach import Reach
from nbdata.files.blocks.version_file import BLOCK, PAGE, VersionFile, crc_of, name_of
from nbdata.files.blocks.writing import Writer
from nbdata.files.connections import Place
from nbdata.files.fetching import First, fetch, first_bytes
from nbdata.reading.pieces import Content, Piece
from nbdata.redaction import redacted
from nbdata.signed_urls import without_signature
from nbdata.sizes import format_duration, format_size
from nbdata.stores.base import ObjectInfo

__all__ = ["BlockCache", "Compared"]

# The most versions whose files are open at a time; further ones are read without the cache.
_MOST_OPEN = 256
# Blocks that were read last, which are held for reads of parts of them.
_RECENT = 16
# Seconds that the end of a mount may take to write what waits.
_ENDING = 3.0


class Compared(Protocol):
    """What an open file knows of the comparison with the checksum in the store.

    Attributes
    ----------
    proven : bool or None
        True once all bytes were compared with a checksum, False if there is none; None before.
    wrong : Exception or None
        What is wrong with them.
    """

    proven: bool | None
    wrong: ChecksumMismatch | None


class BlockCache:
    """The cache of one mount; safe to use from many threads.

    Parameters
    ----------
    folder : BlockFolder
    place : Place
        The folder that is mounted.
    verify : str
        See `nbdata.verbs.options.Verifying`.
    say : callable
        Writes a line to the log.

    Attributes
    ----------
    reach : Reach
        Whether the store answers.
    """

    def __init__(self, folder: BlockFolder, place: Place, verify: str, say: Callable[[str], None]) -> None:
        self._folder, self._place, self._verify, self._say = folder, place, verify, say
        self._of = redacted(f"{place.store.server}\n{without_signature(place.folder.place)}")
        # Without a name of the server, another account's folder of the same name would look the same.
        self._tells_server = bool(place.store.server) or place.folder.place.startswith(
            ("http://", "https://")
        )
        self.reach = Reach(place)
        self._writer = Writer(folder, say)
        self._lock = threading.Lock()
        self._versions: dict[str, KeptVersion] = {}
        self._open = Counter[str]()  # how many open files there are of each
        self._too_many = 0
        self._recent: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._read = self._fetched = self._damaged = 0

    # -- versions ----------------------------------------------------------------------------------

    def enter(self, info: ObjectInfo) -> KeptVersion | None:
        """Return a version for an open file, to be left; None if it cannot be kept, or too many are open."""
        if not (name := self._name(info)):
            return None
        with self._lock:
            if len(self._open) >= _MOST_OPEN and name not in self._open:
                self._too_many += 1
                return None
            self._open[name] += 1
        version = self._version(info, only_kept=False)
        if version is None:
            self._left(name)
        return version

    def _name(self, info: ObjectInfo) -> str:
        """Return the name of the file of a version; '' if it is read without the cache."""
        return name_of(self._of, info) if self._folder.suits(info.size) else ""

    def leave(self, version: KeptVersion) -> None:
        """Let go of a version that was entered."""
        self._left(version.name)
        self._release(version)

    def _left(self, name: str) -> None:
        with self._lock:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]

    def _version(self, info: ObjectInfo, *, only_kept: bool) -> KeptVersion | None:
        name = self._name(info)
        if not name:
            return None
        known = self._versions.get(name)
        for settle in list(known.settlings) if known is not None else ():
            settle()  # one that was wrong is not used again
        with self._lock:
            version = self._versions.get(name)
            if version is None:
                file = self._folder.opened(name)
                if file is None and only_kept:
                    return None
                proven = False
                if file is not None:
                    info = file.info
                    with contextlib.suppress(OSError):
                        proven = self._verify != "none" and file.is_marked(self._verify)
                version = self._versions[name] = KeptVersion(name, info, file, proven=proven)
            version.users += 1
            return version

    def _release(self, version: KeptVersion) -> None:
        """Let go of a version that was found."""
        with self._lock:
            version.users -= 1
            if version.users:
                return
            if self._versions.get(version.name) is version:
                del self._versions[version.name]
            for key in [key for key in self._recent if key[0] == id(version)]:
                del self._recent[key]
            file, version.file = version.file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.touch()
            file.close()

    def settle(self, version: KeptVersion, compared: Compared) -> None:
        """Note what the comparison of an open file has shown so far."""
        if compared.wrong is not None:
            self._discard(version, "its bytes were wrong")
        elif compared.proven is not None and not version.proven:
            self._compared(version)

    def _compared(self, version: KeptVersion) -> None:
        """Mark a version, of which nothing is left to compare, once all that waits of it is written."""
        if self._verify != "none" and (crcs := version.crcs()) is not None:
            self._submit(version, 4 * len(crcs), lambda: self._mark(version, crcs))

    def _mark(self, version: KeptVersion, crcs: Sequence[int]) -> bool:
        if version.file is not None and not version.gone and version.crcs() is not None:
            version.proven = version.file.mark(self._verify, crcs)
        return True

    def _discard(self, version: KeptVersion, why: str) -> None:
        """Keep nothing of a version any more."""
        with self._lock:
            if version.gone:
                return
            version.gone = True
            with contextlib.suppress(OSError):
                if version.file is not None and version.file.is_linked:
                    self._folder.remove(version.name)
            if self._versions.get(version.name) is version:
                del self._versions[version.name]
        self._say(f"the cache drops what it has of {version.info.key}: {why}")

    # -- blocks ------------------------------------------------------------------------------------

    def keeps(self, version: KeptVersion) -> bool:
        """Whether blocks of a version can be written just now; if not, whole blocks are not worth fetching."""
        return not version.gone and not self._writer.is_paused

    def block(
        self, version: KeptVersion, number: int, fetched: Callable[[], bytes], again: Callable[[], bytes]
    ) -> bytes:
        """Return a block: one that is held or on the disk, else what `fetched` returns, which is then kept.

        Threads that want the same block wait for the first one. If its bytes are not those that were compared with the
        checksum, it is fetched by `again`.

        Raises
        ------
        NbdataError
            If it cannot be fetched.
        ChecksumMismatch
            If it is fetched again, and differs from what was compared with the checksum.
        """
        key = id(version), number
        while True:
            with version.lock:
                data = self._recent.get(key) or version.pending.get(number)
                if data is not None:
                    return data
                before = version.coming.get(number)
                if before is None:
                    version.coming[number] = mine = threading.Event()
                    break
            before.wait()
        try:
            data = self._from_disk(version, number)
            if data is None:
                data = self._fetch(version, number, fetched, again)
            with self._lock:
                self._recent[key] = data
                while len(self._recent) > _RECENT:
                    self._recent.popitem(last=False)
            return data
        finally:
            with version.lock:
                del version.coming[number]
            mine.set()

    def _from_disk(self, version: KeptVersion, number: int) -> bytes | None:
        file = version.file
        if file is None or version.gone:
            return None
        try:
            found = file.read(number)
        except (ValueError, OSError) as error:
            self._damaged += 1
            self._say(f"a block of {version.info.key} in the cache is damaged: {error}")
            with contextlib.suppress(OSError):
                file.damaged(number)
            return None
        if found is None:
            return None
        self._read += 1
        version.given(number, found[1])
        return found[0]

    def _fetch(
        self, version: KeptVersion, number: int, fetched: Callable[[], bytes], again: Callable[[], bytes]
    ) -> bytes:
        data = self.reach.run(fetched)
        self._fetched += 1
        try:
            self.keep(version, number, data)
        except ChecksumMismatch:
            data = self.reach.run(again)
            self.keep(version, number, data)
        return data

    def keep(self, version: KeptVersion, number: int, data: bytes) -> None:
        """Keep a block that was fetched.

        Raises
        ------
        ChecksumMismatch
            If it differs from what was compared with the checksum.
        """
        crc, known = crc_of(data), version.known(number)
        if version.proven and known is None:
            self._discard(version, "its table is damaged")
            raise ChecksumMismatch(
                "what was compared with the checksum is no longer known", path=version.info.key
            )
        if known is not None and known != crc:
            raise ChecksumMismatch(
                "these bytes differ from those that were compared with the checksum",
                path=version.info.key,
                expected=f"CRC-32C {known:08x}",
                got=f"{crc:08x}",
            )
        version.given(number, crc)
        with version.lock:
            if number in version.pending:
                return
            version.pending[number] = data
        if not self._submit(version, len(data), lambda: self._write(version, number, data, crc), number):
            version.pending.pop(number, None)

    def _submit(self, version: KeptVersion, size: int, work: Callable[[], bool], number: int = -1) -> bool:
        with self._lock:
            version.users += 1

        def after() -> None:
            version.pending.pop(number, None)
            self._release(version)

        if self._writer.submit(size + PAGE, work, after):
            return True
        self._release(version)
        return False

    def _write(self, version: KeptVersion, number: int, data: bytes, crc: int) -> bool:
        """Write a block, in the writer's thread."""
        if version.gone:
            return True
        if version.file is not None and not version.file.is_linked:  # it was deleted, as by a cleanup
            version.gone = True
            return True
        if version.file is None:
            try:
                version.file = self._folder.made(version.name, self._of, version.info)
            except (ValueError, OSError) as error:
                if isinstance(error, OSError) and error.errno not in (errno.EFBIG, errno.EINVAL):
                    raise
                version.gone = (
                    True  # it alone cannot be kept: its key is too long, or the disk has no such files
                )
                self._writer.left_out += 1
                return True
        file = version.file
        if file is None:
            return False
        if file.has(number):
            if file.known(number) != crc:  # another mount has fetched other bytes
                version.tear()
                if not file.is_marked():  # else those are right
                    file.forget(number)
            return True
        if not self._folder.take(len(data)):
            return False
        file.write(number, data, crc)
        self._remove_gone(version, file)
        return True

    def _remove_gone(self, version: KeptVersion, file: VersionFile) -> None:
        """Delete the file of a version that turned out to be wrong while it was written."""
        if version.gone and file.is_linked:
            self._folder.remove(version.name)

    # -- whole files -------------------------------------------------------------------------------

    def first(self, place: Place, listed: ObjectInfo) -> tuple[First, bool]:
        """Ask for the start of a file; of one that is kept only whether it is still that version.

        If the store does not answer, a version that was listed so and is kept counts as the present one.

        Returns
        -------
        First
            The start, perhaps nothing of it, and the version.
        bool
            Whether the store has answered.
        """
        kept = self._version(listed, only_kept=True)
        if kept is None:
            try:
                return self.reach.run(lambda: first_bytes(place)), True
            except StoreUnavailable:
                if listed.size == 0 and listed.etag and self._tells_server:
                    return First(listed, b""), False
                raise
        try:
            info = self.reach.run(lambda: place.retrying(lambda: place.store.head(place.key)))
            return First(info, b""), True
        except StoreUnavailable:
            if not self._tells_server:
                raise
            return First(kept.info, b""), False
        finally:
            self._release(kept)

    def fetch(self, place: Place, pieces: Sequence[Piece], verify: str) -> list[Content | NbdataError]:
        """Return small whole objects, as `nbdata.files.fetching.fetch` does, those that are kept from the disk."""
        found: list[Content | NbdataError | None] = [self._whole(piece.info) for piece in pieces]
        missing = [number for number, one in enumerate(found) if one is None]
        if missing:
            came: Sequence[Content | NbdataError]
            try:
                came = self.reach.run(lambda: _fetched(place, [pieces[number] for number in missing], verify))
            except StoreUnavailable as error:
                came = [error] * len(missing)
            for number, content in zip(missing, came, strict=True):
                found[number] = content
                if not isinstance(content, NbdataError):
                    self._keep_whole(pieces[number].info, bytes(content))
        return [one for one in found if one is not None]

    def _whole(self, info: ObjectInfo) -> Content | None:
        version = self._version(info, only_kept=True) if info.size <= BLOCK else None
        if version is None:
            return None
        try:
            return self._from_disk(version, 0) if version.proven or self._verify == "none" else None
        finally:
            self._release(version)

    def _keep_whole(self, info: ObjectInfo, data: bytes) -> None:
        if (
            not 0 < len(data) == info.size <= BLOCK
            or (version := self._version(info, only_kept=False)) is None
        ):
            return
        try:
            with contextlib.suppress(ChecksumMismatch):
                self.keep(version, 0, data)
                self._compared(version)
        finally:
            self._release(version)

    # -- listings ----------------------------------------------------------------------------------

    def keep_names(self, prefix: str, names: Mapping[str, ObjectInfo | None], size: int) -> None:
        """Keep a listing, which takes so many bytes of memory until it is written, unless it is too long."""
        if len(names) > MOST_NAMES:
            self._writer.left_out += 1
            return
        self._writer.submit(size, lambda: keep_listing(self._folder, self._of, prefix, dict(names)))

    def kept_names(self, prefix: str) -> KeptListing | None:
        """Return the last listing of a folder that was kept, if the store's name tells that it is of this one."""
        return kept_listing(self._folder, self._of, prefix) if self._tells_server else None

    # -- the end, and what is told -----------------------------------------------------------------

    def lines(self, now: float, oldest: float | None) -> list[str]:
        """Return what people are told: how it goes, and whether the store answers.

        Parameters
        ----------
        now : float
            Seconds since 1970.
        oldest : float or None
            When the oldest of the kept listings that are shown was made; None if none is shown.
        """
        writer, down = self._writer, self.reach.down
        lines = [
            f"cache: {format_size(self._folder.used)} of {format_size(self._folder.most)} in {self._folder.path}",
            f"blocks from the cache: {self._read:,}, fetched: {self._fetched:,}, damaged: {self._damaged:,}, "
            f"waiting: {writer.waiting:,}, left out: {writer.left_out + self._too_many:,}"
            + (f" ({writer.trouble})" if writer.trouble else ""),
        ]
        if down is None:
            lines.append("store: answers")
        else:
            lines.append(
                f"store: does not answer, for {format_duration(max(0.0, now - down))}; files are those of the cache"
            )
        if oldest is not None:
            lines.append(f"listings from the cache: up to {format_duration(max(0.0, now - oldest))} old")
        return lines

    def close(self) -> None:
        """Write what waits, within a few seconds."""
        self._writer.close(_ENDING)


def _fetched(place: Place, pieces: Sequence[Piece], verify: str) -> list[Content | NbdataError]:
    """Fetch small objects; raise StoreUnavailable if that is what all of them met."""
    found = fetch(place, pieces, verify)
    if all(isinstance(one, StoreUnavailable) for one in found):
        raise next(one for one in found if isinstance(one, StoreUnavailable))
    return found
