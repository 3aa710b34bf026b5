"""The kill campaign for packing and for unpacking into a store: kills the agent with SIGKILL and repeats the command.

The commands pack files into shards and archives, and unpack archives into a store as objects or as shards. The moment
of the kill is chosen by bytes, as in `tests.faults.kills`: the proxy counts the bytes of samples that are read and of
shards that are sent.

After the kill each object with a final name is complete. The repeated command creates the others. Then all objects and
the index beside shards equal, byte for byte, the result of a command without a kill, and the store holds no unfinished
upload.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import nbdata
from nbdata.errors import AgentUnavailable, NbdataError
from nbdata.lock_files import held
from nbdata.operation import Operation
from nbdata.runtime import endpoint
from tests.faults.kills import RIGHT, agent
from tests.faults.proxy import FaultProxy, Tally
from tests.faults.trees import FORMS, Tree
from tests.waiting import wait_until

__all__ = ["ARCHIVES", "INTO_SHARDS", "OTHERS", "RECORDS", "SOURCES", "VOLUMES", "PackKilled", "kill_packs"]

#: Sources of a pack, in turn: files, and shards made of them. They are packed in order or shuffled.
SOURCES = ("files", "files, shuffled", "shards", "shards, shuffled")
#: Formats of archives in volumes into which files are packed, in turn.
ARCHIVES = tuple(f"files into {form}" for form in ("tar", "tar.gz", "tar.zst", "zip"))
#: Sources that are packed into FFRecord files, in turn.
RECORDS = ("files into ffrecord", "shards into ffrecord", "files, shuffled, into ffrecord")
#: Formats of volumes that are unpacked into the store as objects, in turn.
VOLUMES = tuple(f"volumes {form}" for form in FORMS)
#: Formats of volumes that are unpacked into tar shards, in turn.
INTO_SHARDS = tuple(f"{source} into shards" for source in VOLUMES)
#: Further volumes to unpack: two archives in one folder, and a single file of unknown size, whose upload grows.
OTHERS = ("several archives", "a single file")
# Approximate number of shards. One of them holds a single large file and is sent in parts that are read in order.
_SHARDS = 8
# Seconds within which a command must end, and the additional seconds per byte.
_BOUND, _SLOWEST = 120.0, 1 / 5_000_000


@dataclass
class PackKilled:
    """The outcome of one kill.

    Attributes
    ----------
    source : str
        An entry of `SOURCES`, `ARCHIVES`, `VOLUMES`, `INTO_SHARDS` or `OTHERS`.
    share : float
        The moment, as a share of the bytes that a pack moves.
    whole : int
        Shards or other objects with a final name after the kill.
    again : int
        Bytes of objects that were transferred twice.
    """

    number: int
    source: str
    share: float
    connections: int
    end: str = RIGHT
    whole: int = 0
    again: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """True if the run ended as required."""
        return self.end == RIGHT

    @property
    def line(self) -> str:
        """The outcome as one line of text."""
        what = "archive to a store" if self.source in (*VOLUMES, *INTO_SHARDS, *OTHERS) else "pack"
        return (
            f"{self.number:4} {what} of {self.source}: agent killed at {self.share:4.0%}, "
            f"{self.connections} connections, {self.whole} whole objects, "
            f"{self.again / 1e6:5.1f} MB again, {self.seconds:4.1f} s: {self.end}"
        )


def kill_packs(
    tree: Tree,
    *,
    seed: int,
    kills: int,
    sources: Sequence[str] = SOURCES,
    told: Callable[[str], None],
    switch: Callable[[dict[str, str]], None],
    over: Callable[[], bool] = lambda: False,
) -> Iterator[PackKilled]:
    """Perform this many kills until `over`; `switch` sets the environment variables of the commands."""
    with FaultProxy(tree.server.url) as proxy:
        switch({**tree.server.environment(), "AWS_ENDPOINT_URL": proxy.url, "NBDATA_HOST": "agent"})
        made = _Packs(tree, proxy)
        try:
            for number in range(kills):
                if over():
                    return
                chosen = random.Random(f"{seed} pack {number}")
                killed = PackKilled(
                    number, sources[number % len(sources)], chosen.random(), chosen.choice((1, 2, 8))
                )
                began = time.monotonic()
                made.kill(killed)
                killed.seconds = time.monotonic() - began
                told(killed.line)
                yield killed
        finally:
            made.close()


class _Packs:
    """Packs a tree again and again, each time to a new prefix in one bucket."""

    def __init__(self, tree: Tree, proxy: FaultProxy) -> None:
        self._tree, self._proxy, self._client = tree, proxy, tree.client
        self._bucket = f"packs-{secrets.token_hex(4)}"
        tree.server.create_bucket(self._bucket)
        # For each source: the digests of an uninterrupted pack's result, and the number of bytes that the pack moves.
        self._right: dict[str, tuple[dict[str, str], int]] = {}
        self._shards = ""

    def close(self) -> None:
        """Remove everything."""
        self._proxy.begin()
        self._client.delete_bucket(Bucket=self._bucket)

    def kill(self, killed: PackKilled) -> None:
        """Kill the agent during a command, check, run the command again and check again."""
        try:
            right, total = self._expected(killed.source)
            prefix = f"killed-{killed.number}/"
            line = self._line(killed.source, prefix, killed.connections)
            first = self._interrupted(line, max(1, int(total * killed.share)))
            found = self._found(prefix)
            killed.whole = len(found)
            self._look(found, right, whole=False)
            second = self._proxy.begin()
            try:
                line.start().wait(self._bound)
            except (NbdataError, TimeoutError) as error:
                raise _Wrong(f"said again: {error}") from error
            self._look(self._found(prefix), right, whole=True)
            killed.again = _bytes(first) + _bytes(second) - total
            left = self._client.list_multipart_uploads(Bucket=self._bucket).get("Uploads", [])
            if left:
                raise _Wrong(f"{len(left)} unfinished uploads")
        except _Wrong as wrong:
            killed.end = str(wrong)
        except Exception as error:  # of any kind: the other kills still have to run
            killed.end = f"an accident: {error!r}"

    def _interrupted(self, line: Operation, at: int) -> Tally:
        """Run a command and kill the agent when `at` bytes were carried."""
        victim = agent()
        tally = self._proxy.begin(at=at, then=lambda: os.kill(victim, signal.SIGKILL))
        try:
            line.start().wait(self._bound)
        except AgentUnavailable:
            pass
        except (NbdataError, TimeoutError) as error:
            raise _Wrong(f"it was to be killed: {error}") from error
        else:
            raise _Wrong("it went well, and was to be killed")
        wait_until(lambda: not held(endpoint().alive))
        return tally

    def _expected(self, source: str) -> tuple[dict[str, str], int]:
        if source not in self._right:
            if source.startswith("shards"):
                self._expected("files")  # its shards
            if source == "files":
                self._shards = f"s3://{self._bucket}/right-{len(self._right)}/x-*.tar"
            prefix = f"right-{len(self._right)}/"
            for _ in range(2):  # the first run also indexes shards
                tally = self._proxy.begin()
                self._line(source, prefix, 8, overwrite="always").start().wait(self._bound)
            self._right[source] = self._found(prefix), _bytes(tally)
        return self._right[source]

    def _line(self, source: str, prefix: str, connections: int, **options: str) -> Operation:
        if source in VOLUMES:
            url, _ = self._tree.volumes(source.partition(" ")[2])
            place = f"s3://{self._bucket}/{prefix}"
            return nbdata.UntarVolumes(url, place, concurrency=connections, **options)
        if source in OTHERS:
            url = self._tree.several() if source == OTHERS[0] else self._tree.single()
            place = f"s3://{self._bucket}/{prefix}"
            return nbdata.UntarVolumes(url, place, concurrency=connections, part_size=5 << 20, **options)
        if source in INTO_SHARDS:
            url, _ = self._tree.volumes(source.removesuffix(" into shards").partition(" ")[2])
            return nbdata.UntarVolumes(
                url, f"s3://{self._bucket}/{prefix}x-%03d.tar", shard_size=self._tree.size // _SHARDS,
                concurrency=connections, **options,
            )  # fmt: skip
        if source in ARCHIVES:
            form = source.rpartition(" ")[2]
            place = f"s3://{self._bucket}/{prefix}x.{form}"
            size = self._tree.size // _SHARDS
            return nbdata.Pack(
                self._tree.url, place, format=form, volume_size=size, md5=True, concurrency=connections,
                **options,
            )  # fmt: skip
        end = "ffr" if source in RECORDS else "tar"
        return nbdata.Pack(
            self._tree.url if source.startswith("files") else self._shards,
            f"s3://{self._bucket}/{prefix}x-%03d.{end}",
            by="file",
            shard_size=self._tree.size // _SHARDS,
            part_size=5 << 20,
            shuffle="shuffled" in source,
            concurrency=connections,
            **options,
        )

    @property
    def _bound(self) -> float:
        return _BOUND + 2 * self._tree.size * _SLOWEST

    def _found(self, prefix: str) -> dict[str, str]:
        """Return the digests of the objects below a prefix, read directly from the store."""
        found = {}
        for entry in self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix).get("Contents", []):
            body = self._client.get_object(Bucket=self._bucket, Key=entry["Key"])["Body"]
            digest = hashlib.blake2b()
            for block in iter(lambda body=body: body.read(1 << 20), b""):  # type: ignore[misc]
                digest.update(block)
            found[entry["Key"].removeprefix(prefix)] = digest.hexdigest()
        return found

    def _look(self, found: dict[str, str], right: dict[str, str], *, whole: bool) -> None:
        when = "at the end" if whole else "after the kill"
        for name, digest in found.items():
            if digest != right.get(name):
                raise _Wrong(f"{when}: {name} is wrong")
        if whole and (missing := right.keys() - found.keys()):
            raise _Wrong(f"{when}: {len(missing)} missing, such as {min(missing)}")


def _bytes(tally: Tally) -> int:
    return tally.down.total() + tally.up.total()


class _Wrong(Exception):
    """Raised if a run did not end as required."""
