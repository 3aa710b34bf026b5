"""The fault campaign: runs commands behind a proxy that injects faults, and checks every byte afterwards.

A run is one command with faults chosen by a seed (`seeded.Seeded`). The command is one of these:

- `pull`, `push` or `pack` of some 300 small objects and two big ones;
- `untar_volumes` of an archive with the same content in some 20 volumes;
- `stream`, a pass through tar shards with that content.

A run may end in two ways:

- *right*: the command succeeds, and every file is correct byte for byte.
- *said*: the command fails with an nbdata error, and no file with a final name is wrong. The same command, repeated
  without faults, succeeds with correct files.

Any other end is reported as a bug in nbdata: wrong bytes, a command that exceeds its time limit, an unexpected kind of
error, or a command that cannot be completed.

Flipped bytes can be detected only if the store has a checksum of the object. Objects without a checksum that arrive
wrong are counted as *unguarded*. An extraction writes while it reads: it detects wrong bytes only at the end of a
volume, or of a separately compressed piece. Members that it wrote from wrong bytes before that are counted as *unsure*,
and must be correct after the repeated command. The same holds for samples of a shard that turns out wrong at its end.

As for users, one agent outside this process carries out the commands of all runs. So the proxy has an interpreter to
itself, and a thread or connection that the agent leaks with each fault is detected. This process reads the streams.
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

#: Permitted ends of a run; any other `Result.end` describes a bug in nbdata.
RIGHT, SAID = "right", "said, and right when said again"
#: Seconds without a byte after which nbdata gives up a connection. It is the longest pause that a busy disk may cause.
STALL = 2.0
# Seconds within which a command must end.
_BOUND = 180.0
#: Numbers of runs: extractions, packs and streams start at these.
EXTRACTIONS, PACKS, STREAMS = 10_000, 20_000, 30_000
# Size of a packed shard or volume, and the formats of packed archives. A big object gets its own shard.
_SHARD = 20_000_000
_ARCHIVES = ("tar", "tar.gz", "tar.zst", "zip")
# One run in this many has a doomed object (all its requests fail), or an object that is overwritten meanwhile.
_DOOMED, _REPLACED = 8, 5
# One extraction in this many has a doomed volume.
_DOOMED_VOLUMES = 3


@dataclass
class Result:
    """The outcome of one run.

    Attributes
    ----------
    end : str
        `RIGHT`, `SAID`, or a description of the bug.
    errors : Counter
        Classes of the reported errors, for single objects and for the whole command.
    retries : int
        Number of retries that the job reports.
    tally : Tally
        The proxy's tally of the command with faults.
    again : int
        Bytes of objects that were transferred more than once.
    unsure : int
        Files that were wrong when an error was reported.
    unguarded : int
        Objects that are wrong because a byte was flipped and the store has no checksum.
    left : int
        Uploads that were started and not finished at the store.
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
        """True if the run ended in a permitted way."""
        return self.end in (RIGHT, SAID)

    @property
    def line(self) -> str:
        """The outcome as one line of text."""
        errors = ", ".join(f"{count} × {name}" for name, count in self.errors.items())
        return (
            f"{self.number:4} {self.verb}: {len(self.tally.faults):3} faults, {self.retries:3} retries, "
            f"{self.again / 1e6:6.1f} MB again, {self.seconds:5.1f} s: {self.end}{f' ({errors})' if errors else ''}"
        )


def environment(scene: Scene, proxy: FaultProxy) -> dict[str, str]:
    """Return the environment variables that route commands through the proxy."""
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
    """Yield the results of the runs with these numbers: alternately pull and push, and extractions.

    `switch` sets the environment variables for the commands.
    """
    with FaultProxy(scene.server.url, opaque=OPAQUE, replace=scene.replace) as proxy:
        switch(environment(scene, proxy))
        for number in numbers:
            result = _Run(scene, proxy, seed, number).result()
            told(result.line)
            yield result


class _Run:
    """One run of the campaign."""

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
        # A third of the doomed objects are big.
        doomed = source.choice(BIG) if not source.randrange(3) else source.choice(list(scene.files))
        self._plan = Seeded(
            f"{seed} {number}",
            doomed="" if source.randrange(_DOOMED) else doomed,
            replaced="" if source.randrange(_REPLACED) else source.choice(BIG),
        )

    def result(self) -> Result:
        """Perform the run and check the result."""
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
            # The complete earlier content is correct too, if an object was replaced only after it had been read.
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
        """Extract to the disk. A quarter of the runs extract to a store, where each small object can meet a fault."""
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
        """Pack into shards, or in every second run into the volumes of an archive; the formats alternate."""
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
                if not form:  # later volumes alone are no readable archive
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

    # -- the command ------------------------------------------------------------------------------

    def _said(self, line: Operation) -> bool:
        """Run the command with faults; True if it succeeds."""
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
        """Run the command again without faults."""
        self._proxy.begin()
        self._scene.now()
        error = _error_of(line.start())
        if error is not None:
            self._bad(f"said again: {error}")

    def _again(self, moved: int) -> None:
        tally = self._result.tally
        self._result.again = tally.down.total() + tally.up.total() - moved

    # -- the result ---------------------------------------------------------------------------------

    def _look(self, found: dict[str, bytes], *others: dict[str, bytes], whole: bool = False) -> None:
        """Compare all files with final names with the expected content, or with one of `others`."""
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
    """Wait for a job and return its error, if any; TimeoutError if it does not end."""
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
    """Return the members of all shards, or of the volumes of an archive in this format, read with Python's modules."""
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
    """Return the samples of a pass through shards, and the error if it failed; TimeoutError if it does not end."""
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
    """Count the classes of an error: of each object's error, or of the whole command's."""
    if isinstance(error, TransferFailed) and error.report is not None:
        return Counter(row.detail["error"] for row in error.report.rows if row.action == "failed")
    return Counter([type(error).__name__])
