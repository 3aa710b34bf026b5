"""Changes samples with a command, which runs in a folder with the fields of one sample, or of many, as files.

The files of a single sample are ``sample.EXT``, those of many ``sample-000000.EXT`` and so on. The file
``sample.__key__`` has the key.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Generator, Iterable
from types import TracebackType
from typing import TypeVar

from nbdata.client.mapping.folders import Folders
from nbdata.client.mapping.ordered import Sample
from nbdata.errors import BadOption, Cancelled, NbdataError
from nbdata.ready import is_ready

__all__ = ["CommandChanger", "ManyChanger", "folders_of"]

# The name of a sample's files, before the first dot, and of one of many samples.
_NAME, _NUMBERED = "sample", "sample-{:06}"
# The field with the key; most bytes of it.
_KEY, _LONGEST_KEY = "__key__", 4096
# A file of a sample, with its number and its field.
_FILE = re.compile(r"sample(?:-(\d{1,12}))?\.(.+)", re.DOTALL)
# Most bytes of the samples of one folder, unless a single one has more.
_MOST_BYTES = 64 << 20
# Bytes of the end of a command's stderr that are kept, and lines and characters of it that an error shows.
_KEPT, _LINES, _TOLD = 4096, 3, 400
# Seconds between two checks whether a command has ended, while another process holds its stderr open.
_LOOK_EVERY = 0.2


_Own = TypeVar("_Own", bound="_Commands")


class _Commands:
    """Runs a command in folders with samples; a context manager.

    Parameters
    ----------
    words : list of str
        The command, run without a shell; ``{}`` stands for the folder, which otherwise comes last.
    workers : int
        Most commands at a time.
    """

    def __init__(self, words: list[str], workers: int) -> None:
        self.workers = workers
        self._words = words if any("{}" in word for word in words) else [*words, "{}"]
        self._folders = Folders(workers)
        self._lock, self._stopped = threading.Lock(), False
        self._running: set[subprocess.Popen[bytes]] = set()

    def __enter__(self: _Own) -> _Own:
        self._folders.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folders.__exit__()

    def _changed(self, samples: dict[str, Sample], said: str) -> list[Sample]:
        """Return what the command makes of some samples, which are given by the names of their files."""
        try:
            with self._folders.one(sum(map(_size, samples.values()))) as folder:
                for name, sample in samples.items():
                    _put(folder, name, sample)
                self._run(folder, said)
                return _Left(folder, samples, said).samples()
        except NbdataError:
            raise
        except OSError as error:
            raise NbdataError(
                f"--map: {said} cannot be put into a temporary folder ({os.strerror(error.errno or 0)})",
                path=os.path.dirname(error.filename or "") or None,
                remedy="Make room there, or set TMPDIR to another folder",
            ) from error

    def _run(self, folder: str, said: str) -> None:
        """Run the command; NbdataError if it fails."""
        words = [word.replace("{}", folder) for word in self._words]
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that all its child processes can be ended with it
            )
        except (OSError, ValueError) as error:
            why = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
            raise BadOption(
                f"--map: {words[0]} cannot be run ({why})",
                remedy="Check its name and rights; it is run without a shell",
            ) from error
        with process:
            try:
                with self._lock:
                    self._running.add(process)
                    if self._stopped:
                        _kill(process)
                errors = _errors_of(process)
                status = process.wait()
            finally:
                with self._lock:
                    self._running.discard(process)
                    stopped = self._stopped
        if stopped:
            raise Cancelled("--map has ended")
        if status:
            how = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
            raise NbdataError(
                f"--map: {words[0]} {how} for {said}",
                got=errors or None,
                remedy="To leave a sample out, delete its files and end with status 0",
            )

    def stop(self) -> None:
        """See `Changer`."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and all processes that it started."""
    if process.returncode is None:  # else its pid may belong to another process
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _errors_of(process: subprocess.Popen[bytes]) -> str:
    """Return the last lines of a command's stderr; waits for its end."""
    assert process.stderr is not None
    fd, end = process.stderr.fileno(), b""
    while True:
        if is_ready(fd, _LOOK_EVERY):
            data = os.read(fd, 65536)
            if not data:
                break
            end = (end + data)[-_KEPT:]
        elif process.poll() is not None:  # a process that it started still runs
            break
    lines = [line.strip() for line in end.decode(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-_LINES:])[-_TOLD:]


class CommandChanger(_Commands):
    """Runs a command per sample; a `nbdata.client.mapping.ordered.Changer`."""

    def change(self, sample: Sample, /) -> list[Sample]:
        """See `Changer`."""
        return self._changed({_NAME: sample}, f"the sample {sample[_KEY]!r}")


class ManyChanger(_Commands):
    """Runs a command per folder of samples; see `folders_of`."""

    def change(self, samples: list[Sample], /) -> list[Sample]:
        """See `Changer`."""
        first, last = samples[0][_KEY], samples[-1][_KEY]
        named = {_NUMBERED.format(number): sample for number, sample in enumerate(samples)}
        return self._changed(named, f"the samples {first!r} to {last!r}")


def folders_of(samples: Iterable[Sample], most: int) -> Generator[list[Sample], None, None]:
    """Yield the samples of one folder after the other: at most so many, and 64 MiB unless it is a single one."""
    together, size = list[Sample](), 0
    for sample in samples:
        more = _size(sample)
        if together and (len(together) == most or size + more > _MOST_BYTES):
            yield together
            together, size = [], 0
        together.append(sample)
        size += more
    if together:
        yield together


def _fields(sample: Sample) -> dict[str, bytes]:
    return {name: value for name, value in sample.items() if not name.startswith("__")}


def _size(sample: Sample) -> int:
    return sum(map(len, _fields(sample).values()))


def _put(folder: str, name: str, sample: Sample) -> None:
    """Write the files of a sample."""
    for field, value in {**_fields(sample), _KEY: _bytes_of(sample[_KEY])}.items():
        with open(os.path.join(folder, f"{name}.{field}"), "xb") as file:
            file.write(value)


def _bytes_of(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


class _Left:
    """The samples that a command left in its folder.

    Parameters
    ----------
    folder : str
    before : dict of str to Sample
        The samples that it got, by the names of their files.
    said : str
        The samples that it got, for errors.
    """

    def __init__(self, folder: str, before: dict[str, Sample], said: str) -> None:
        self._folder, self._before, self._said = folder, before, said

    def samples(self) -> list[Sample]:
        """Read the samples: those with a number if there are any, in the order of their numbers."""
        found: dict[int, dict[str, list[str]]] = {}
        for entry in os.listdir(self._folder):
            match = _FILE.fullmatch(entry)
            if match:
                number, name = int(match[1] or -1), entry[: match.start(2) - 1]
                found.setdefault(number, {}).setdefault(name, []).append(match[2])
        single, made = found.pop(-1, {}), list[Sample]()
        for _, names in sorted(found.items()):
            made += [self._sample(name, fields) for name, fields in sorted(names.items()) if fields != [_KEY]]
        if not made:
            made = [self._sample(name, fields) for name, fields in single.items() if fields != [_KEY]]
        keys = [sample[_KEY] for sample in made]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise BadOption(
                f"--map: the command made two samples with the key {twice!r} of {self._said}",
                remedy=f"Write another one into {_NUMBERED.format(0)}.{_KEY} and so on",
            )
        return made

    def _sample(self, name: str, fields: list[str]) -> Sample:
        """Read one sample: earlier fields in their order, then new ones."""
        old = list(_fields(self._before.get(name) or next(iter(self._before.values()))))
        order = [field for field in old if field in fields] + sorted({*fields} - {*old, _KEY})
        if hidden := [field for field in order if field.startswith("__")]:
            raise BadOption(
                f"--map: the field {hidden[0]!r} of {self._said} would be lost",
                remedy="Give it a name without two underscores",
            )
        key = self._key(name, has_file=_KEY in fields)
        return {_KEY: key, **{field: self._content(name, field) for field in order}}

    def _key(self, name: str, *, has_file: bool) -> str:
        """Return the key of a sample: from its file, else that of the sample with its name, or made of it."""
        own = self._before.get(name)
        if has_file:
            text = self._content(name, _KEY, most=_LONGEST_KEY)
            key = text.decode("utf-8", "surrogateescape").removesuffix("\n")
            if not key or len(text) > _LONGEST_KEY:
                raise BadOption(f"--map: {name}.{_KEY} holds no key, for {self._said}", expected="one line")
            return key
        if own is not None:
            return str(own[_KEY])
        if list(self._before) == [_NAME]:
            return f"{self._before[_NAME][_KEY]}{name.removeprefix(_NAME)}"
        raise BadOption(
            f"--map: the command made {name} of {self._said}, and no key for it",
            remedy=f"Write its key into {name}.{_KEY}",
        )

    def _content(self, name: str, field: str, *, most: int | None = None) -> bytes:
        # A command may have unpacked a link from a sample; it must not lead to a file of the user.
        try:
            path = os.path.join(self._folder, f"{name}.{field}")
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            fd = -1
        if fd < 0 or not stat.S_ISREG(os.fstat(fd).st_mode):
            if fd >= 0:
                os.close(fd)
            raise BadOption(
                f"--map: the command left something else than a file as {name}.{field} for {self._said}",
                expected="a file that can be read",
            )
        with open(fd, "rb") as file:
            return file.read() if most is None else file.read(most + 1)
