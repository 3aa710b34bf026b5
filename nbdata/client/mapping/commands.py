"""Changes samples with a command, which runs once per sample in a folder with the sample's fields as files."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import threading
from types import TracebackType

from nbdata.client.mapping.folders import Folders
from nbdata.client.mapping.ordered import Sample
from nbdata.errors import BadOption, Cancelled, NbdataError
from nbdata.ready import is_ready

__all__ = ["CommandChanger"]

# The name of a sample's files, before the first dot.
_NAME = "sample"
# Bytes of the end of a command's stderr that are kept, and lines and characters of it that an error shows.
_KEPT, _LINES, _TOLD = 4096, 3, 400
# Seconds between two checks whether a command has ended, while another process holds its stderr open.
_LOOK_EVERY = 0.2


class CommandChanger:
    """Runs a command per sample; a `nbdata.client.mapping.ordered.Changer`, and a context manager.

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

    def __enter__(self) -> CommandChanger:
        self._folders.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folders.__exit__()

    def change(self, sample: Sample) -> list[Sample]:
        """See `Changer`."""
        fields = {name: value for name, value in sample.items() if not name.startswith("__")}
        try:
            with self._folders.one(sum(map(len, fields.values()))) as folder:
                for name, value in fields.items():
                    with open(os.path.join(folder, f"{_NAME}.{name}"), "xb") as file:
                        file.write(value)
                self._run(folder, sample["__key__"])
                changed = _read(folder, list(fields), sample["__key__"])
        except NbdataError:
            raise
        except OSError as error:
            raise NbdataError(
                f"--map: the sample {sample['__key__']!r} cannot be put into a temporary folder "
                f"({os.strerror(error.errno or 0)})",
                path=os.path.dirname(error.filename or "") or None,
                remedy="Make room there, or set TMPDIR to another folder",
            ) from error
        return [{"__key__": sample["__key__"], **changed}] if changed else []

    def _run(self, folder: str, key: str) -> None:
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
                f"--map: {words[0]} {how} for the sample {key!r}",
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


def _read(folder: str, before: list[str], key: str) -> dict[str, bytes]:
    """Read the fields in a folder: earlier ones in their order, then new ones."""
    names = {name.partition(".")[2] for name in os.listdir(folder) if name.startswith(f"{_NAME}.")}
    order = [name for name in before if name in names] + sorted(names - set(before))
    return {name: _content(os.path.join(folder, f"{_NAME}.{name}"), name, key) for name in order if name}


def _content(path: str, name: str, key: str) -> bytes:
    # A command may have unpacked a link from a sample; it must not lead to a file of the user.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        fd = -1
    if fd < 0 or not stat.S_ISREG(os.fstat(fd).st_mode):
        if fd >= 0:
            os.close(fd)
        raise BadOption(
            f"--map: the command left something else than a file as {_NAME}.{name} for the sample {key!r}",
            expected="a file that can be read",
        )
    with open(fd, "rb") as file:
        return file.read()
