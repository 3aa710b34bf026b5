"""The campaign: a verb again and again behind a proxy that spoils it, and a look at every byte afterwards.

A run is one line (`pull`, `push` or `pack`) of some 300 small objects and two big ones, or `untar_volumes` of an
archive of the same in some 20 volumes, or a pass through tar shards of them (`stream`), and faults by a seed
(`seeded.Seeded`). It may end in two ways:

- *right*: the line says that it went well, and every file is, byte for byte, what it was to be;
- *said*: the line ends with an error of nbdata's; nothing wrong stands under a final name, and the same command, said
  again without faults, goes well, and is right.

Everything else is a fault of nbdata, and is told: wrong bytes, a line that does not end in time, an error that is an
accident, a line that cannot be completed. Bytes that are flipped on the way can be noticed only where the store vouches
for the object; where it does not, they are counted as *unguarded*. An extraction writes while it reads, and learns at
the end of a volume, or of what is compressed in one piece, that its bytes are wrong: members that were written of it
before are counted as *unsure*, and have to be right when the line was said again. So are samples of a shard whose
bytes turn out wrong at its end.

The lines are carried out by one agent for all runs, as users' are, and not in this process: the proxy has an
interpreter for itself then, and an agent that loses a thread or a connection with each fault is found out. A stream is
read by this process.
"""

from __future__ import annotations

import gzip
import io
import random
import secrets
import tarfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import zstandard

import nbdata
from nbdata.errors import NbdataError, TransferFailed
from nbdata.operation import Job, Operation
from tests.faults.proxy import FaultProxy, Tally
from tests.faults.scene import BIG, OPAQUE, PACKED, Scene, differences, files_of, objects_of
from tests.faults.seeded import Seeded

__all__ = ["EXTRACTIONS", "PACKS", "RIGHT", "SAID", "STALL", "STREAMS", "Result", "environment", "run_all"]

#: How runs may end; whatever else `Result.end` says is a fault of nbdata.
RIGHT, SAID = "right", "said, and right when said again"
#: Seconds of silence after which nbdata is told to give a connection up: as long as a busy disk may take at most.
STALL = 2.0
# Seconds within which a line must end.
_BOUND = 180.0
#: Runs with this number or a higher one are extractions, packs, and streams.
EXTRACTIONS, PACKS, STREAMS = 10_000, 20_000, 30_000
# Bytes of a shard or volume that a pack makes, and the archives that it makes; a big object has a shard of its own.
_SHARD = 20_000_000
_ARCHIVES = ("tar", "tar.gz", "tar.zst", "zip")
# Of so many runs one has a doomed object, and one an object that is overwritten meanwhile.
_DOOMED, _REPLACED = 8, 5
# The same of extractions.
_DOOMED_VOLUMES = 3


@dataclass
class Result:
    """What became of one run.

    Attributes
    ----------
    end : str
        `RIGHT`, `SAID`, or what is wrong.
    errors : Counter
        Classes of the errors that were said, of single objects and of the whole.
    retries : int
        As the job counts them.
    tally : Tally
        Of the line with faults.
    again : int
        Bytes of objects that went over the wire beyond those of what was moved.
    unsure : int
        Files that were wrong when an error was said.
    unguarded : int
        Objects that are wrong by a byte that was flipped where the store vouches for nothing.
    left : int
        Uploads that are begun at the store and not finished.
    """

    number: int
    verb: str
    end: str = RIGHT
    errors: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    retries: int = 0
    tally: Tally = field(default_factory=Tally)
    again: int = 0
    unsure: int = 0
    unguarded: int = 0
    left: int = 0

    @property
    def good(self) -> bool:
        """Whether it ended as it may."""
        return self.end in (RIGHT, SAID)

    @property
    def line(self) -> str:
        """It in one line."""
        errors = ", ".join(f"{count} × {name}" for name, count in self.errors.items())
        return (
            f"{self.number:4} {self.verb}: {len(self.tally.faults):3} faults, {self.retries:3} retries, "
            f"{self.again / 1e6:6.1f} MB again, {self.seconds:5.1f} s: {self.end}{f' ({errors})' if errors else ''}"
        )


def environment(scene: Scene, proxy: FaultProxy) -> dict[str, str]:
    """The variables with which lines go through the proxy."""
    return {
        **scene.server.environment(),
        "AWS_ENDPOINT_URL": proxy.url,
        "NBDATA_HOST": "agent",
        "NBDATA_STALL_TIMEOUT": str(STALL),
    }


def run_all(
    scene: Scene,
    *,
    seed: int,
    numbers: Iterable[int],
    told: Callable[[str], None],
    switch: Callable[[dict[str, str]], None],
) -> Iterator[Result]:
    """The runs of these numbers, pull and push in turn, and extractions.

    `switch` sets the variables that lines are to be said with.
    """
    with FaultProxy(scene.server.url, opaque=OPAQUE, replace=scene.replace) as proxy:
        switch(environment(scene, proxy))
        for number in numbers:
            result = _Run(scene, proxy, seed, number).result()
            told(result.line)
            yield result


class _Run:
    """One run."""

    def __init__(self, scene: Scene, proxy: FaultProxy, seed: int, number: int) -> None:
        self._scene, self._proxy = scene, proxy
        verb = _verb_of(number)
        self._result = Result(number, verb)
        self._bucket = f"faults-{number}-{secrets.token_hex(4)}"
        source = random.Random(f"{seed} {number}")
        if verb == "untar_volumes":
            self._url, self._volumes = scene.volumes(PACKED[number % len(PACKED)])
            doomed = "" if source.randrange(_DOOMED_VOLUMES) else source.choice(list(self._volumes))
            self._plan = Seeded(f"{seed} {number}", doomed=doomed, volumes=True)
            return
        if verb == "stream":
            doomed = "" if source.randrange(_DOOMED_VOLUMES) else f"x-{source.randrange(12):03}.tar"
            self._plan = Seeded(f"{seed} {number}", doomed=doomed, volumes=True)
            return
        # One of three doomed ones is big.
        doomed = source.choice(BIG) if not source.randrange(3) else source.choice(list(scene.files))
        self._plan = Seeded(
            f"{seed} {number}",
            doomed="" if source.randrange(_DOOMED) else doomed,
            replaced="" if source.randrange(_REPLACED) else source.choice(BIG),
        )

    def result(self) -> Result:
        """Do it, and look."""
        {
            "pull": self._pull,
            "push": self._push,
            "untar_volumes": self._extract,
            "pack": self._pack,
            "stream": self._stream,
        }[self._result.verb]()
        self._proxy.begin()
        return self._result

    def _pull(self) -> None:
        scene, target = self._scene, self._scene.target("pulled")
        old = scene.now()
        line = nbdata.Pull(f"s3://{scene.bucket}/", str(target))
        if self._said(line):
            self._again(sum(map(len, files_of(target).values())))
            # The whole of what was there before, if an object was replaced only when it had been read.
            self._look(files_of(target), old, whole=True)
            if (target / ".nbdata").exists():
                self._bad("its own folder is left in the target")
            return
        self._look(files_of(target) if target.exists() else {}, old)
        self._second(line)
        self._look(files_of(target), whole=True)

    def _push(self) -> None:
        scene = self._scene
        scene.server.create_bucket(self._bucket)
        line = nbdata.Push(str(scene.folder), f"s3://{self._bucket}/")
        try:
            if self._said(line):
                found = objects_of(scene.client, self._bucket)
                self._again(sum(map(len, found.values())))
                self._look(found, whole=True)
            else:
                self._look(objects_of(scene.client, self._bucket))
                self._second(line)
                self._look(objects_of(scene.client, self._bucket), whole=True)
            pending = scene.client.list_multipart_uploads(Bucket=self._bucket).get("Uploads", [])
            self._result.left = len(pending)
        finally:
            scene.client.delete_bucket(Bucket=self._bucket)

    def _extract(self) -> None:
        """To the disk, and a quarter to a store, where each small object can meet a fault; each for all forms."""
        if (self._result.number - EXTRACTIONS) // len(PACKED) % 4 == 1:
            self._extract_to_store()
            return
        target = self._scene.target("extracted")
        line = nbdata.UntarVolumes(self._url, str(target))
        if self._said(line):
            self._again(sum(self._volumes.values()))
        else:
            found = files_of(target) if target.exists() else {}
            self._result.unsure = len(differences(found, self._scene.files))
            self._second(line)
        self._look(files_of(target), whole=True)
        if (target / ".nbdata").exists():
            self._bad("its own folder is left in the target")

    def _extract_to_store(self) -> None:
        scene = self._scene
        scene.server.create_bucket(self._bucket)
        line = nbdata.UntarVolumes(self._url, f"s3://{self._bucket}/")
        try:
            if self._said(line):
                self._again(sum(self._volumes.values()) + sum(map(len, scene.files.values())))
            else:
                self._result.unsure = len(differences(objects_of(scene.client, self._bucket), scene.files))
                self._second(line)
            self._look(objects_of(scene.client, self._bucket), whole=True)
            pending = scene.client.list_multipart_uploads(Bucket=self._bucket).get("Uploads", [])
            self._result.left = len(pending)
        finally:
            scene.client.delete_bucket(Bucket=self._bucket)

    def _pack(self) -> None:
        """Into shards, and every second time into volumes of an archive, of each form in turn."""
        scene, turn = self._scene, self._result.number - PACKS
        scene.server.create_bucket(self._bucket)
        old, source, target = scene.now(), f"s3://{scene.bucket}/", f"s3://{self._bucket}/x"
        form = _ARCHIVES[turn // 2 % len(_ARCHIVES)] if turn % 2 else ""
        if form:
            line = nbdata.Pack(source, f"{target}.{form}", format=form, volume_size=_SHARD)
        else:
            line = nbdata.Pack(source, f"{target}-%03d.tar", by="file", shard_size=_SHARD)
        try:
            if self._said(line):
                made = objects_of(scene.client, self._bucket)
                self._again(sum(map(len, (*old.values(), *made.values()))))
                self._look(_members(made, form), old, whole=True)
            else:
                if not form:  # of an archive there may be later volumes only
                    self._look(_members(objects_of(scene.client, self._bucket)), old)
                self._second(line)
                self._look(_members(objects_of(scene.client, self._bucket), form), whole=True)
            pending = scene.client.list_multipart_uploads(Bucket=self._bucket).get("Uploads", [])
            self._result.left = len(pending)
        finally:
            scene.client.delete_bucket(Bucket=self._bucket)

    def _stream(self) -> None:
        url, wanted = self._scene.shards()
        result = self._result
        result.tally = self._proxy.begin(self._plan)
        began = time.monotonic()
        found, error = _streamed(url)
        result.seconds = time.monotonic() - began
        if error is None:
            self._again(sum(len(data) for _, data in wanted))
        else:
            result.end = SAID
            result.errors += _classes(error)
            result.unsure = sum(one != other for one, other in zip(found, wanted, strict=False))
            if not isinstance(error, NbdataError):
                self._bad(f"did not end as it may: {error!r}")
            self._proxy.begin()
            found, error = _streamed(url)
            if error is not None:
                self._bad(f"read again: {error}")
        if found != wanted:
            self._bad(f"{len(found)} samples of {len(wanted)}, or others")

    # -- a line -----------------------------------------------------------------------------------

    def _said(self, line: Operation) -> bool:
        """Say it, with faults; whether it went well."""
        result = self._result
        result.tally = self._proxy.begin(self._plan)
        began = time.monotonic()
        job = line.start()
        error = _error_of(job)
        result.seconds = time.monotonic() - began
        result.retries = job.snapshot().retries
        if error is None:
            return True
        result.end = SAID
        result.errors += _classes(error)
        if not isinstance(error, NbdataError):
            self._bad(f"did not end within {_BOUND:.0f} s")
        elif "internal error" in str(error):
            self._bad(f"an accident: {error}")
        return False

    def _second(self, line: Operation) -> None:
        """Say it again, without faults."""
        self._proxy.begin()
        self._scene.now()
        error = _error_of(line.start())
        if error is not None:
            self._bad(f"said again: {error}")

    def _again(self, moved: int) -> None:
        tally = self._result.tally
        self._result.again = tally.down.total() + tally.up.total() - moved

    # -- what came of it ----------------------------------------------------------------------------

    def _look(self, found: dict[str, bytes], *others: dict[str, bytes], whole: bool = False) -> None:
        """Compare all that stands under final names with what is to be there, or with `others`."""
        wanted = self._scene.now() if self._result.verb in ("pull", "pack") else self._scene.files
        wrong = differences(found, wanted, *others)
        flipped = {request.key for request, fault in self._result.tally.faults if fault.kind == "flip"}
        unguarded = {name for name in wrong if name.startswith(OPAQUE) and name in flipped}
        self._result.unguarded = len(unguarded)
        for name in wrong.keys() - unguarded:
            self._bad(f"{name}: {wrong[name]}")
        if whole and (missing := wanted.keys() - found.keys()):
            self._bad(f"{len(missing)} missing, such as {min(missing)}")

    def _bad(self, why: str) -> None:
        if self._result.good:
            self._result.end = why
        else:
            self._result.end += f"; {why}"


def _error_of(job: Job) -> Exception | None:
    """Why a job did not go well; TimeoutError if it does not end."""
    try:
        job.wait(_BOUND)
    except TimeoutError as error:
        job.cancel()
        return error
    except NbdataError as error:
        return error
    return None


def _verb_of(number: int) -> str:
    for first, verb in ((STREAMS, "stream"), (PACKS, "pack"), (EXTRACTIONS, "untar_volumes")):
        if number >= first:
            return verb
    return ("pull", "push")[number % 2]


def _members(objects: dict[str, bytes], form: str = "") -> dict[str, bytes]:
    """What is in all shards, or in the volumes of an archive of this form, as Python reads them."""
    found: dict[str, bytes] = {}
    if form:
        joined = b"".join(objects[name] for name in sorted(objects))
        if form == "zip":
            with zipfile.ZipFile(io.BytesIO(joined)) as zipped:
                return {name: zipped.read(name) for name in zipped.namelist()}
        if form == "tar.zst":
            joined = zstandard.ZstdDecompressor().stream_reader(joined, read_across_frames=True).read()
        objects = {".tar": gzip.decompress(joined) if form == "tar.gz" else joined}
    for name, data in objects.items():
        if name.endswith(".tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                found |= {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    return found


def _streamed(url: str) -> tuple[list[tuple[str, bytes]], Exception | None]:
    """The samples that a pass through shards gives, and why it did not end well; TimeoutError if it does not end."""
    found: list[tuple[str, bytes]] = []
    errors: list[Exception] = []

    def read() -> None:
        try:
            with nbdata.samples(url, quiet=True) as samples:
                found.extend(
                    (f"{sample['__key__']}.bin", bytes(sample["bin"])) for sample in samples.stream()
                )
        except Exception as error:
            errors.append(error)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(_BOUND)
    if reading.is_alive():
        return list(found), TimeoutError(f"no end within {_BOUND:.0f} s")
    return found, errors[0] if errors else None


def _classes(error: Exception) -> Counter[str]:
    """The classes of what went wrong: of each object, or of the whole."""
    if isinstance(error, TransferFailed) and error.report is not None:
        return Counter(row.detail["error"] for row in error.report.rows if row.action == "failed")
    return Counter([type(error).__name__])
