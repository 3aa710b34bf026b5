"""What the loader services of this user tell of themselves, for the panel: small files beside their address files.

A service writes its file once a second while something changes, without a sync: it tells of this moment only. Who reads
it needs no ZeroMQ and no key.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from dataclasses import asdict, dataclass
from typing import Any

from nbdata.bounded import parse_json
from nbdata.errors import NbdataError
from nbdata.lock_files import held
from nbdata.own_files import read_small
from nbdata.runtime import runtime_folder

__all__ = ["CONSUMERS", "KIND", "Consuming", "ServiceStatus", "services", "tell"]

#: The ending of the files.
KIND = "status"
#: The most consumers that a file names. It counts all.
CONSUMERS = 32
# The most bytes of a file, and the most services that are listed.
_LONGEST, _MOST = 64 << 10, 256
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


@dataclass(frozen=True)
class Consuming:
    """A trainer of a service.

    Attributes
    ----------
    name : str
        ``HOST:PROCESS``.
    used : int
        Batches that it has used since it connected.
    waits : float
        The share of the last seconds in which it had asked for a batch and had none, from 0 to 1.
    """

    name: str
    used: int
    waits: float


@dataclass(frozen=True)
class ServiceStatus:
    """A loader service at one moment.

    Attributes
    ----------
    name : str
    process : int
        The number of its process, for people. Whether it lives is told by a lock.
    listen : str
        ``ipc``, or ``tcp://HOST:PORT``.
    mode : {"share", "broadcast"}
    began : float
        When it started, in seconds since 1970.
    epoch : int
    used, of : int
        Batches of this epoch that are used, and those that it has; -1 if that is not known.
    rate, byte_rate : float
        Batches and bytes that it sent a second, over the last seconds.
    held, ahead : int
        Bytes of batches that are ready or not used yet, and how many there may be.
    waits : float
        The share of the last seconds in which the loader waited for the trainers, from 0 to 1.
    count, needed : int
        Trainers that are connected, and how many must ask for an epoch before it begins.
    consumers : tuple of Consuming
        At most 32 of them.
    """

    name: str
    process: int
    listen: str
    mode: str
    began: float
    epoch: int = 0
    used: int = 0
    of: int = -1
    rate: float = 0.0
    byte_rate: float = 0.0
    held: int = 0
    ahead: int = 0
    waits: float = 0.0
    count: int = 0
    needed: int = 1
    consumers: tuple[Consuming, ...] = ()


def tell(path: str, status: ServiceStatus) -> None:
    """Write the file of a service, whole or not at all. Does nothing if that fails: serving matters more."""
    with contextlib.suppress(OSError):
        with open(f"{path}.new", "w", encoding="utf-8", opener=_opened) as file:
            json.dump(asdict(status), file)
        os.replace(f"{path}.new", path)


def services() -> list[ServiceStatus]:
    """Return the services of this user that run now, by their names; at most 256. What is no status is left out."""
    folder, found = f"{runtime_folder()}/services", list[ServiceStatus]()
    with contextlib.suppress(OSError):
        for entry in sorted(os.listdir(folder)):
            name, _, kind = entry.rpartition(".")
            if kind == KIND and _NAME.fullmatch(name) and len(found) < _MOST:
                with contextlib.suppress(OSError, NbdataError, ValueError, TypeError, KeyError):
                    if held(f"{folder}/{name}.lock"):
                        found.append(_read(f"{folder}/{entry}", name))
    return found


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _read(path: str, name: str) -> ServiceStatus:
    told = parse_json(read_small(path, _LONGEST))
    consumers = tuple(
        Consuming(str(one["name"])[:80], int(one["used"]), _real(one["waits"]))
        for one in told["consumers"][:CONSUMERS]
    )
    return ServiceStatus(
        name, int(told["process"]), str(told["listen"])[:300], str(told["mode"])[:20], _real(told["began"]),
        int(told["epoch"]), int(told["used"]), int(told["of"]), _real(told["rate"]), _real(told["byte_rate"]),
        int(told["held"]), int(told["ahead"]), _real(told["waits"]), int(told["count"]), int(told["needed"]),
        consumers,
    )  # fmt: skip


def _real(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number
