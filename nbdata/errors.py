"""The tree of all errors that nbdata raises.

::

    NbdataError
    ├── BadOption          (ValueError)         an option or a combination makes no sense
    ├── NotFound           (FileNotFoundError)  no such object, bucket or folder; nothing matched
    ├── AccessDenied       (PermissionError)    the store or the disk refuses
    ├── StoreUnavailable   (ConnectionError)    no answer, after retries
    ├── NotEnoughSpace     (OSError, ENOSPC)    before the start, or a disk that fills meanwhile
    ├── SourceChanged                           the object changed while it was read
    ├── ChecksumMismatch                        the bytes are not the expected ones
    ├── MissingVolume                           a hole in a set of volumes
    ├── BadArchive                              damaged or truncated data
    ├── UnsafeMember                            a member or key that would leave the target
    ├── TransferFailed                          finished with failures; carries the Report
    ├── AgentUnavailable   (ConnectionError)    the process that does the work cannot be reached
    └── Cancelled                               a user cancelled

Every error says what was expected, what came and what to do. It travels between processes as plain data
(`NbdataError.to_dict`, `error_from_dict`). Where Python has a builtin for the case, the class derives from that too, so
``except FileNotFoundError`` works.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import re
from types import TracebackType
from typing import Any, ClassVar

from nbdata.redaction import frames_leak, printable, scrub, scrub_data, shortened

__all__ = [
    "ROOM_THEN_AGAIN",
    "AccessDenied",
    "AgentUnavailable",
    "BadArchive",
    "BadOption",
    "Cancelled",
    "ChecksumMismatch",
    "MissingVolume",
    "NbdataError",
    "NotEnoughSpace",
    "NotFound",
    "SourceChanged",
    "StoreUnavailable",
    "TransferFailed",
    "UnsafeMember",
    "cleaned",
    "error_from_dict",
    "without_calls",
]

#: What to do about a full disk; an operation may know more (`Operation.with_room`).
ROOM_THEN_AGAIN = "Make room and run the command again to resume"
# How PyTorch raises the error of a DataLoader's worker again: with this text as its only argument.
_OF_A_WORKER = re.compile(r"Caught \w+ in [^\n]+\.\nOriginal Traceback \(most recent call last\):\n")


class NbdataError(Exception):
    """Base of all errors that nbdata raises on purpose.

    Parameters
    ----------
    message : str
        What happened, as one sentence without a full stop.
    path : str, optional
        The local path or URL that the error concerns.
    expected, got : str, optional
        What was expected there, and what came.
    remedy : str, optional
        What the user can do, as one sentence without a full stop.
    details : dict, optional
        Further facts as JSON-able values (sizes, names, a Report).
    """

    errno_code: ClassVar[int | None] = None

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.message = message
        self.path = path
        self.expected = expected
        self.got = got
        self.remedy = remedy
        self.details: dict[str, Any] = dict(details or {})
        self.scrub()
        if self.errno_code is not None:
            # For classes that are OSErrors too: callers tell those apart by `errno`.
            setattr(self, "errno", self.errno_code)  # noqa: B010

    def scrub(self) -> None:
        """Remove known secrets and text that looks like a secret; shorten what is too long to read."""
        self.message = scrub(self.message)
        if not _OF_A_WORKER.match(self.message):
            self.message = shortened(self.message)
        self.path, self.expected, self.got, self.remedy = (
            value if value is None else shortened(scrub(str(value)))
            for value in (self.path, self.expected, self.got, self.remedy)
        )
        self.details = scrub_data(self.details)
        self.args = (self.message,)

    def __str__(self) -> str:
        text = self.message
        if self.path is not None and self.path not in text:
            text = f"{text}: {self.path}"
        if self.expected is not None and self.got is not None:
            text += f" (expected {self.expected}, got {self.got})"
        elif self.expected is not None:
            text += f" (expected {self.expected})"
        elif self.got is not None:
            text += f" (got {self.got})"
        if self.remedy:
            text = f"{text}. {self.remedy}"
        # The text contains keys, which may come from anyone. Only the lines of a worker's traceback stay lines.
        lines = text.split("\n") if text is self.message and _OF_A_WORKER.match(text) else [text]
        return "\n".join(map(printable, lines))

    @property
    def lines(self) -> list[str]:
        """The error as lines for a terminal or a cell."""
        return str(self).split("\n")

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-able data; `error_from_dict` rebuilds it."""
        return {
            "class": type(self).__name__,
            "message": self.message,
            "path": self.path,
            "expected": self.expected,
            "got": self.got,
            "remedy": self.remedy,
            "details": self.details,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return (error_from_dict, (self.to_dict(),))


class BadOption(NbdataError, ValueError):
    """An option, or a combination of options, makes no sense."""


class NotFound(NbdataError, FileNotFoundError):
    """There is no such object, bucket or folder, or nothing matched."""

    errno_code = errno.ENOENT


class AccessDenied(NbdataError, PermissionError):
    """The store or the disk refuses; names the source of the credentials, never a key."""

    errno_code = errno.EACCES


class StoreUnavailable(NbdataError, ConnectionError):
    """The store did not answer, after retries."""


class NotEnoughSpace(NbdataError, OSError):
    """The data does not fit: known before the start, or the disk filled meanwhile.

    ``details`` holds ``needed`` and ``free`` in bytes, ``limit`` in bytes or None, ``source`` (the name of the limit),
    ``root`` (the limited folder, or a path on the disk) and ``disks`` (paths of disks with enough room).
    """

    errno_code = errno.ENOSPC

    @property
    def lines(self) -> list[str]:
        """What is needed, what is free, and what to do: a line each, if the numbers are known."""
        lines = self.details.get("lines")
        if not isinstance(lines, dict):
            return super().lines
        shown = [
            f"{lines['what']}: {self.path}",
            f"  needed  {lines['needed']}",
            f"  free    {lines['free']}",
        ]
        ways = (self.remedy or "").split(". ")
        shown += [f"  {'to do' if not number else '':5}   {way}" for number, way in enumerate(ways) if way]
        return [printable(line) for line in shown]


class SourceChanged(NbdataError):
    """The object changed while it was being read."""


class ChecksumMismatch(NbdataError):
    """The bytes that came do not have the expected checksum."""


class MissingVolume(NbdataError):
    """A volume of a set is missing."""


class BadArchive(NbdataError):
    """Damaged or truncated archive data; ``details["offset"]`` says where, in bytes."""


class UnsafeMember(NbdataError):
    """An archive member or key would be written outside its target."""


class TransferFailed(NbdataError):
    """Some objects failed and the rest was done; `report` has the counts and the failures."""

    @property
    def report(self) -> Any:
        """The Report of the whole operation, or None if it could not be fetched."""
        return getattr(self, "_report", None)

    @report.setter
    def report(self, report: Any) -> None:
        self._report = report


class AgentUnavailable(NbdataError, ConnectionError):
    """The agent, the process that moves the bytes, died or cannot be started."""


class Cancelled(NbdataError):
    """The job was cancelled; finished work is kept, and the command resumes."""


_CLASSES: dict[str, type[NbdataError]] = {
    cls.__name__: cls
    for cls in (
        NbdataError,
        BadOption,
        NotFound,
        AccessDenied,
        StoreUnavailable,
        NotEnoughSpace,
        SourceChanged,
        ChecksumMismatch,
        MissingVolume,
        BadArchive,
        UnsafeMember,
        TransferFailed,
        AgentUnavailable,
        Cancelled,
    )
}


def error_from_dict(data: dict[str, Any]) -> NbdataError:
    """Rebuild an error from `NbdataError.to_dict`; an unknown class becomes the base class."""
    cls = _CLASSES.get(str(data.get("class")), NbdataError)
    return cls(
        str(data.get("message", "")),
        path=data.get("path"),
        expected=data.get("expected"),
        got=data.get("got"),
        remedy=data.get("remedy"),
        details=data.get("details"),
    )


class WithheldError(Exception):
    """Replaces, in a chain of causes, an error of another library that showed a secret."""


def cleaned(error: BaseException, outer: BaseException | None = None) -> BaseException:
    """Return the same error without secrets in its chain of causes or in the local variables of its traceback.

    A `WithheldError` with the harmless part of the text replaces a cause that shows a secret. Tracebacks are kept,
    except those whose variables show a secret, as IPython's verbose mode would. Variables of finished calls are
    released: they may hold buffers of megabytes for as long as the error is kept. The error that the caller was
    handling at the call, `outer`, belongs to the caller and stays unchanged.
    """
    seen = {id(outer)}
    chain: list[BaseException] = [error]
    while chain:
        at = chain.pop()
        if id(at) in seen:
            continue
        seen.add(id(at))
        if isinstance(at, NbdataError):
            at.scrub()
        if frames_leak(at.__traceback__):
            at.__traceback__ = None
        _let_go(at.__traceback__)
        quiet = at.__suppress_context__
        at.__cause__, at.__context__ = _showable(at.__cause__), _showable(at.__context__)
        at.__suppress_context__ = quiet  # assigning a cause changes it
        chain += [inner for inner in (at.__cause__, at.__context__) if inner is not None]
    return error


def without_calls(error: BaseException) -> BaseException:
    """Return the same error, without the tracebacks of its chain of causes.

    For an error that is kept for long. The calls of a traceback hold functions with all their closures, and clearing
    the variables does not release those.
    """
    seen = set[int]()
    chain: list[BaseException | None] = [error]
    while chain:
        at = chain.pop()
        if at is not None and id(at) not in seen:
            seen.add(id(at))
            at.__traceback__ = None
            chain += [at.__cause__, at.__context__]
    return error


_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _let_go(trace: TracebackType | None) -> None:
    while trace is not None:
        # Clearing the frame of a suspended generator would end it.
        if trace.tb_frame.f_code.co_flags & _GENERATOR:
            trace = trace.tb_next
            continue
        with contextlib.suppress(RuntimeError):  # a call that is still running
            trace.tb_frame.clear()
            # Before Python 3.13, reading f_locals left a copy of the variables; reading it again renews the copy.
            trace.tb_frame.f_locals  # noqa: B018
        trace = trace.tb_next


def _showable(error: BaseException | None) -> BaseException | None:
    if error is None or isinstance(error, (NbdataError, WithheldError)):
        return error
    text = f"{error!r}\n{error}"
    if scrub(text) == text:
        return error
    return WithheldError(scrub(f"{type(error).__name__}: {error}"))
