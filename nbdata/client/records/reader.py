"""Reads FFRecord files by number, as NumPy arrays: from the disk, or straight from a store."""

from __future__ import annotations

import operator
import os
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nbdata.client.reading.recipe import refuse_secrets
from nbdata.client.reading.records.opened import StoredRecords, headers_of, listed
from nbdata.errors import BadOption, NbdataError, NotFound
from nbdata.formats.ffrecord import SUFFIX, refuse_wrong
from nbdata.paths import canonical, is_url, path_text
from nbdata.reading.pieces import Content
from nbdata.reading.records.local import LocalFile, LocalRecords
from nbdata.redaction import redacted
from nbdata.sizes import counted
from nbdata.threads import ForkLock
from nbdata.verbs.samples import SampleSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FileReader"]


class FileReader:
    """Samples of FFRecord files by number, as NumPy arrays of uint8.

    Many threads may use it, also after a fork. A pickled reader opens its files again where it is loaded.

    Parameters
    ----------
    fname : str, os.PathLike, list or tuple
        A file, a folder of ``.ffr`` files (taken in the order of their names), or several of these; paths or URLs.
    check_data : bool, default True
        Compare headers, and each sample that is read, with their CRC-32. Without it, on the disk only the shape of
        headers is checked.
    mapped : bool, default False
        Give views of the mapped files instead of copies; only for files on the disk. Views are faster and
        read-only. While one exists, truncating the file kills the process.
    storage_options : dict, optional
        Options of stores, by their fsspec names. Use ``env:NAME`` for secrets if the reader is to be pickled.

    Attributes
    ----------
    n : int
        The number of samples.
    fnames : list of str
    check_data : bool

    Raises
    ------
    NotFound
        If there is no such file, or no ``.ffr`` file in a folder.
    BadArchive
        If a file is damaged, too short, or was never finished.
    ChecksumMismatch
        If a header does not match its CRC-32.

    Examples
    --------
    >>> reader = FileReader("train.ffr")  # doctest: +SKIP
    >>> first, last = reader.read([0, reader.n - 1])  # doctest: +SKIP
    """

    def __init__(
        self,
        fname: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        check_data: bool = True,
        *,
        mapped: bool = False,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        self.check_data, self._mapped = check_data, mapped
        places = _given(fname)
        self._records: LocalRecords | _Stored | None
        self._operation: SampleSource | None = None
        if any(map(is_url, places)):
            if mapped:
                raise BadOption(
                    "mapped=True is for files on the disk", path=redacted(places[0]), remedy="Pull them"
                )
            verify = "auto" if check_data else "none"
            self._operation = SampleSource(
                source=tuple(places), verify=verify, storage_options=storage_options
            )
            self._records = _Stored(self._operation)
            self.fnames = [file.url for file in self._records.files]
        else:
            self.fnames = [name for place in places for name in _named(place)]
            self._records = LocalRecords([LocalFile(path) for path in self.fnames], compare=check_data)
        self.n = self._records.heads.count
        if check_data:
            self.validate()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._operation is None:
            return _opened, (self.fnames, self.check_data, self._mapped, None)
        refuse_secrets(self._operation)
        return _opened, (
            list(self._operation.sources),
            self.check_data,
            False,
            self._operation.storage_options,
        )

    def _open(self) -> LocalRecords | _Stored:
        if self._records is None:
            raise BadOption("this FileReader was closed", remedy="Open another one")
        return self._records

    def read(self, indices: Sequence[int]) -> list[NDArray[np.uint8]]:
        """Return several samples at once, in the order requested; each may come more than once.

        The arrays are writable, and are parts of one block of memory, which lives as long as any of them. Copy a sample
        that you keep much longer than the rest of its batch.

        Parameters
        ----------
        indices : sequence of int
            From 0; any number of them.

        Raises
        ------
        BadOption
            If an index is out of range.
        ChecksumMismatch
            If the bytes of a sample are wrong.
        """
        records = self._open()
        numbers = self._checked(indices)
        np = _numpy()
        if isinstance(records, _Stored):
            return [np.frombuffer(bytearray(data), np.uint8) for data in records.read(numbers)]
        if self._mapped:
            return self._views(records, numbers)
        runs, places, size = records.layout(numbers)
        buffer = np.empty(size, np.uint8)
        records.read_into(memoryview(buffer), runs)
        return [buffer[begin:end] for begin, end in places]

    def _views(self, records: LocalRecords, numbers: list[int]) -> list[NDArray[np.uint8]]:
        np = _numpy()
        found = []
        for number in numbers:
            file, own = records.heads.find(number)
            opened = records.files[file]
            start, end = opened.head.place(own)
            view = np.frombuffer(opened.all(), np.uint8)[start:end]
            if self.check_data:
                refuse_wrong(opened.head, own, view)
            found.append(view)
        return found

    def read_one(self, index: int) -> NDArray[np.uint8]:
        """Return one sample."""
        return self.read([index])[0]

    def _checked(self, indices: Iterable[int]) -> list[int]:
        numbers = list(map(operator.index, indices))
        for number in numbers:
            if not 0 <= number < self.n:
                raise BadOption(
                    f"there is no sample {number:,}",
                    expected=f"0 to {self.n - 1:,}" if self.n else "none: there are no samples",
                    remedy="Indices do not count from the end: write reader.n - 1 for the last one"
                    if number < 0 else "reader.n says how many there are",
                )  # fmt: skip
        return numbers

    def validate(self) -> None:
        """Check the headers of all files once more.

        Raises
        ------
        BadArchive, ChecksumMismatch
            If one is damaged.
        """
        self._open().heads.check()

    def get_offsets(self, file_index: int) -> NDArray[np.int64]:
        """Return the offsets of a file's samples, followed by the size of the file."""
        head = self._open().heads[file_index]
        offsets: NDArray[np.int64] = _numpy().array([*head.starts, head.size], "int64")
        return offsets

    def get_checksums(self, file_index: int) -> NDArray[np.uint32]:
        """Return the CRC-32 of each sample of a file."""
        crcs: NDArray[np.uint32] = _numpy().array(self._open().heads[file_index].crcs, "uint32")
        return crcs

    def close(self) -> None:
        """Release the files; arrays that were given out stay valid."""
        if isinstance(self._records, _Stored):
            self._records.close()
        self._records = None

    def __enter__(self) -> FileReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        files = counted(len(self.fnames), "files")
        return f"<FileReader of {files}: {counted(self.n, 'samples')}>"


class _Stored:
    """Files in stores; each process opens them itself."""

    def __init__(self, operation: SampleSource) -> None:
        self._operation = operation
        self.files = listed(operation)
        for file in self.files:
            if not file.key.endswith(SUFFIX):
                raise BadOption(f"the name of an FFRecord file ends in {SUFFIX}", path=file.url)
        self.heads = headers_of(operation, self.files).heads
        self._lock = ForkLock()
        self._reading: StoredRecords | None = None

    def read(self, numbers: Sequence[int]) -> list[Content]:
        with self._lock:
            if self._reading is None or self._reading.pid != os.getpid():
                self._reading = StoredRecords(self._operation, self.files, self.heads)
                self._closing = weakref.finalize(self, self._reading.close)
            reading = self._reading
        return reading.read(reading.plan([numbers]))

    def close(self) -> None:
        if self._reading is not None:
            self._closing()


def _opened(
    fnames: list[str], check_data: bool, mapped: bool, storage_options: dict[str, Any] | None
) -> FileReader:
    return FileReader(fnames, check_data, mapped=mapped, storage_options=storage_options)


def _given(fname: object) -> list[str]:
    """Return the given places in their canonical spelling."""
    given: list[Any] = list(fname) if isinstance(fname, (list, tuple)) else [fname]
    for one in given:
        if path_text(one) is None:
            raise BadOption(f"fname: {one!r} is no path", expected="a path, or a list of paths")
    if not given:
        raise BadOption("fname: no file was named", expected="a file, a folder or a list of them")
    return [canonical(one, name="fname") for one in given]


def _named(path: str) -> list[str]:
    """List the files on the disk at a path."""
    if not os.path.isdir(path):
        if not path.endswith(SUFFIX):
            raise BadOption(f"the name of an FFRecord file ends in {SUFFIX}", path=path)
        return [path]
    names = sorted(name for name in os.listdir(path) if name.endswith(SUFFIX) and name[0] != ".")
    found = [file for name in names if not os.path.isdir(file := os.path.join(path, name))]
    if not found:
        raise NotFound(
            f"there is no {SUFFIX} file in this folder", path=path,
            remedy="Folders inside it are not looked into: name the right one",
        )  # fmt: skip
    return found


def _numpy() -> Any:
    try:
        import numpy as np
    except ImportError:
        raise NbdataError(
            "FileReader gives NumPy arrays, and NumPy is not installed",
            remedy="pip install numpy",
        ) from None
    return np
