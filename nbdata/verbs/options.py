"""Options that several verbs share, declared once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from nbdata.clusters import address_of, is_encrypted, is_open
from nbdata.errors import ROOM_THEN_AGAIN, BadOption
from nbdata.moments import is_duration, moment_of
from nbdata.operation import Operation
from nbdata.option import Option, option
from nbdata.paths import is_url

__all__ = [
    "FACE_OPTIONS",
    "Connecting",
    "Dealing",
    "Decompressing",
    "Fetching",
    "Filtering",
    "HoldingSamples",
    "Leading",
    "Mirroring",
    "Selecting",
    "Storing",
    "Verifying",
    "Writing",
    "check_part_size",
    "refuse_pairs",
]

# Bytes per second; at a lower rate a server would close the connection.
_SLOWEST = 10_000

# Least and most bytes of a window: see `nbdata.archives.windows`.
_WINDOWS = (128 << 20, 2 << 30)

# Options of the faces; they are no part of the operation itself.
FACE_OPTIONS: dict[str, Option] = {
    "dry_run": Option(
        "Show the plan (objects, bytes, disk space, deletions) and change nothing. Space is counted in blocks, mostly "
        "of 4 KiB, so small files need more space than they have bytes.",
        kind="flag",
        short="n",
    ),
    "background": Option("Run in the background: return the Job at once.", kind="flag", short="b"),
    "quiet": Option("Show no progress and no result.", kind="flag", short="q"),
}


@dataclass(frozen=True)
class Connecting(Operation):
    """Verbs that send requests to a store: the credentials, and the number of concurrent requests."""

    storage_options: dict[str, Any] | None = option(
        None,
        "Storage options by their fsspec names (key, secret, endpoint_url, anon, profile …). The value env:NAME is "
        "read from the environment variable NAME; connection=NAME gives those of a connection that JupyterLab's panel "
        "keeps. Repeatable.",
        kind="pairs",
        binding=True,
        identity=False,
    )
    fs: Any = option(
        None,
        "An fsspec file system object, used instead of one made from the URL.",
        kind="object",
        binding=True,
        identity=False,
    )
    concurrency: int | None = option(
        None,
        "Number of concurrent requests, 1 to 256 (default: adapts to the store, up to 64).",
        kind="count",
        identity=False,
        metavar="N",
        expected="1 to 256",
    )

    def check(self) -> None:
        super().check()
        if self.concurrency is not None and not 1 <= self.concurrency <= 256:
            raise BadOption(f"--concurrency: {self.concurrency} is out of range", expected="1 to 256")


@dataclass(frozen=True)
class Fetching(Operation):
    """Verbs that read objects, which may be on a web server."""

    allow_html: bool = option(
        False,
        "Take a web page for the content of a file such as data.bin, if a web server gives one in its place. Without "
        "this it is an error: mostly it is a login, or a question whether you are human.",
        kind="flag",
        identity=False,
    )


@dataclass(frozen=True)
class Leading(Operation):
    """Verbs whose SOURCE may be an index of shards, which names other files."""

    trust_index: bool = option(
        False,
        "Open also shards that a JSON index in a store names outside its own folder. Servers that SOURCE does not name "
        "get no credentials. An index on this disk may always name shards anywhere.",
        kind="flag",
        identity=False,
    )


def refuse_slow(max_rate: int | None) -> None:
    """Raise BadOption for a limit so low that it must be a slip."""
    if max_rate is not None and max_rate < _SLOWEST:
        raise BadOption(
            f"--max-rate: {max_rate} bytes a second is too little",
            expected=f"at least {_SLOWEST} bytes a second",
            remedy="Write it as 5MB or 500k",
        )


@dataclass(frozen=True)
class Storing(Connecting):
    """Verbs that move bytes between a store and another place."""

    max_rate: int | None = option(
        None,
        "Limit the bandwidth to SIZE bytes per second, such as 10MB or 10MB/s (default: no limit).",
        kind="size",
        per_second=True,
        identity=False,
        metavar="SIZE",
    )
    on_error: str = option(
        "raise",
        "What to do if an object fails. raise: do the rest, then raise TransferFailed with the Report; stop: end at "
        "the first failure; report: do the rest, then return the Report.",
        choices=("raise", "stop", "report"),
        identity=False,
    )
    ignore_space: bool = option(
        False, "Start even if the plan needs more space than is free.", kind="flag", identity=False
    )

    def check(self) -> None:
        super().check()
        refuse_slow(self.max_rate)


@dataclass(frozen=True)
class Writing(Storing):
    """Verbs that write into a local folder and record the files that they wrote there."""

    skip_written: bool = option(
        False,
        "Treat files as done that an earlier run of this command wrote and that were moved away from TARGET since, "
        "for example by push --delete-source. Keep TARGET itself.",
        kind="flag",
        identity=False,
    )

    def check(self) -> None:
        super().check()
        if self.skip_written and getattr(self, "overwrite", "") == "always":
            raise BadOption(
                "--skip-written and --overwrite always exclude each other", remedy="Leave one of them out"
            )

    @property
    def room_elsewhere(self) -> str:
        if self.skip_written:
            return ""
        return (
            ", but writes files again that you move away from its target: to do that, cancel it and run it with "
            "--skip-written"
        )

    @property
    def with_less(self) -> str:
        if self.skip_written and not self.ignore_space:
            return "add --ignore-space: --skip-written then works in rounds, until there is no space left"
        return super().with_less

    @property
    def with_room(self) -> str:
        target = self.places()[1]
        if self.skip_written:
            return f"Make room, also by moving files away from {target}, and run the command again to resume"
        return f"{ROOM_THEN_AGAIN}, with --skip-written if you move files away from {target}"


@dataclass(frozen=True)
class Filtering(Operation):
    """Verbs that can filter the objects in their source by path and time.

    Filters of paths are globs on the path relative to the source; ``*`` stays in a folder, ``**`` crosses
    folders, and a pattern without a slash looks at the last component only. Each option of this group
    looks at one object by itself; `nbdata.transfer.selection.Filters` applies all of them.
    """

    include: tuple[str, ...] = option(
        (),
        "Take only objects whose path matches GLOB: * stays within a folder, ** crosses folders, and a GLOB without a "
        "slash looks at the file name only. Repeatable.",
        kind="texts",
        metavar="GLOB",
    )
    exclude: tuple[str, ...] = option(
        (),
        "Leave out objects whose path matches GLOB, also if --include matches them. Repeatable.",
        kind="texts",
        metavar="GLOB",
    )
    newer_than: str | None = option(
        None,
        "Take only objects that were changed at WHEN or later. WHEN is a date, such as 2026-11-20 or "
        "2026-11-20T12:00Z (UTC without an offset), or how long ago, such as 90m, 12h, 7d or 2w. An object of a store "
        "was changed when it was uploaded.",
        kind="moment",
        metavar="WHEN",
    )
    older_than: str | None = option(
        None,
        "Take only objects that were changed before WHEN; see --newer-than.",
        kind="moment",
        metavar="WHEN",
    )

    @property
    def filtered(self) -> bool:
        """True if there are filters."""
        return bool(self.filters_given)

    @property
    def filters_given(self) -> list[str]:
        """The flags of the filters that the user gave."""
        given = self.options_in(Filtering).items()
        return [f"--{name.replace('_', '-')}" for name, value in given if value not in (None, ())]

    def refuse_filters(self, what: str, remedy: str) -> None:
        """Raise BadOption if there are filters, as a source of this kind cannot be filtered."""
        if self.filtered:
            given = self.filters_given
            raise BadOption(
                f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} {what}", remedy=remedy
            )

    def refuse_durations(self) -> None:
        """Raise BadOption if a filter is relative to now, but has to mean the same again, or in another process."""
        for name in ("newer_than", "older_than"):
            text = getattr(self, name)
            if text is not None and is_duration(text):
                date = datetime.fromtimestamp(moment_of(text), timezone.utc).strftime("%Y-%m-%dT%H:%MZ")
                raise BadOption(
                    f"--{name.replace('_', '-')}: {text} ago is another moment with each start",
                    expected="a date, so that every process and every run takes the same",
                    remedy=f"Write {date}",
                )


@dataclass(frozen=True)
class Selecting(Filtering):
    """Verbs that can select a part of the objects that pass their filters; see `nbdata.transfer.selection`."""

    max_files: int | None = option(
        None, "Take only the first N objects in key order.", kind="count", metavar="N"
    )
    max_bytes: int | None = option(
        None,
        "Take the first objects in key order that fit into SIZE together; stop before the first that would exceed it.",
        kind="size",
        metavar="SIZE",
    )
    sample: str | None = option(
        None,
        "Take a reproducible random part: a number of objects, or a share such as 5%.",
        kind="sample",
        metavar="N|P%",
    )
    seed: int = option(0, "Seed of --sample.", kind="count", metavar="N")
    files_from: str | None = option(
        None,
        "Take only the relative paths listed in FILE, one per line. In a terminal - means standard input.",
        kind="path",
        metavar="FILE",
    )

    @property
    def partial(self) -> bool:
        """True if a time, a sample, a limit or a list selects a part of the objects whose paths pass the filters."""
        spared = ("include", "exclude", "seed")  # a mirror knows the paths; a seed selects nothing by itself
        selecting = self.options_in(Selecting).items()
        return any(value is not None for name, value in selecting if name not in spared)


@dataclass(frozen=True)
class Mirroring(Selecting, Storing):
    """Verbs that copy objects from one place to another and skip those that are there already, unchanged."""

    overwrite: str = option(
        "changed",
        "What to do with existing objects. changed: replace those that differ, but fail for an object that was changed "
        "on both sides since the last run, in either direction; always: replace all; never: keep all.",
        choices=("changed", "always", "never"),
    )
    size_only: bool = option(False, "Treat objects of equal size as unchanged.", kind="flag")
    delete: bool = option(False, "Mirror: delete objects in TARGET that SOURCE does not have.", kind="flag")
    force: bool = option(
        False,
        "With --delete: proceed even if that deletes objects that this command found in TARGET and never wrote, or "
        "that were changed since.",
        kind="flag",
        identity=False,
    )

    def check(self) -> None:
        super().check()
        if not self.delete:
            return
        if self.partial:
            raise BadOption(
                "--delete with a time, a sample, a limit or a file list would delete what was merely not selected",
                remedy="Leave out --delete, or what selects a part",
            )
        target = self.places()[1].rstrip("/")
        if target in ("", os.path.expanduser("~")) or (
            target.partition("://")[2].strip("/") == "" and is_url(target)
        ):
            raise BadOption(f"--delete refuses {target or '/'}", remedy="Mirror into a folder of its own")


@dataclass(frozen=True)
class Dealing(Operation):
    """Verbs whose work can be dealt in parts to the workers of a cluster."""

    cluster: Any = option(
        None,
        "Let the workers of a cluster of dask.distributed do the work. local: start one on this machine, with a "
        "process for each core (local:N: with N); tls://HOST:PORT: the scheduler of a cluster that runs. In Python "
        "also a distributed.Client. Needs distributed and cryptography.",
        kind="cluster",
        identity=False,
        metavar="ADDRESS|local[:N]",
    )
    insecure_cluster: bool = option(
        False,
        "Use a scheduler on another machine although it has no TLS: whoever reaches its port can run code as you.",
        kind="flag",
        identity=False,
    )
    send_credentials: bool = option(
        False,
        "Send the workers the credentials that the stores get from here, in place of those that they have: only over "
        "TLS, and only those that end by themselves (of a role, an SSO login, a token). Newer ones follow.",
        kind="flag",
        identity=False,
    )

    def check(self) -> None:
        super().check()
        if self.cluster is None:
            if self.send_credentials:
                raise BadOption("--send-credentials needs --cluster", remedy="Leave it out")
            return
        if self.send_credentials and not is_encrypted(self.cluster):
            raise BadOption(
                f"--send-credentials: {address_of(self.cluster)} has no TLS, so others could read them",
                expected="tls://HOST:PORT",
                remedy="Start the scheduler with TLS, or set credentials on the workers",
            )
        if getattr(self, "fs", None) is not None:
            raise BadOption(
                "--cluster and fs= exclude each other: a file system of this process is not on the workers",
                remedy="Leave one of them out",
            )
        if is_open(self.cluster) and not self.insecure_cluster:
            raise BadOption(
                f"--cluster: {address_of(self.cluster)} has no TLS, so whoever reaches it can run code as you",
                expected="tls://HOST:PORT",
                remedy="Start the scheduler with TLS, or add --insecure-cluster in a network of your own",
            )


@dataclass(frozen=True)
class Verifying(Operation):
    """Verbs that compare the fetched bytes with the checksums in the store."""

    verify: str = option(
        "auto",
        "auto: compare with the checksum that the store has of an object, hashed while the bytes arrive; none: do not "
        "compare; md5, sha256, crc32c: compare, and fail if the store does not have this one.",
        choices=("auto", "none", "md5", "sha256", "crc32c"),
    )


@dataclass(frozen=True)
class Decompressing(Operation):
    """Verbs that read compressed archives, which say themselves how much memory it takes to decompress them."""

    max_window: int | None = option(
        None,
        "Allow archives whose compression needs a window (xz: a dictionary) of up to SIZE in memory, at most 2GiB. "
        "Default: 128 MiB, as for zstd without --long.",
        kind="size",
        metavar="SIZE",
        identity=False,
    )

    def check(self) -> None:
        super().check()
        if self.max_window is not None and not _WINDOWS[0] <= self.max_window <= _WINDOWS[1]:
            raise BadOption(
                f"--max-window: {self.max_window} bytes is out of range", expected="128MiB to 2GiB"
            )


@dataclass(frozen=True)
class HoldingSamples(Decompressing):
    """Verbs that hold samples of tar shards in memory."""

    max_sample: int | None = option(
        None,
        "Allow samples of up to SIZE in tar shards that are read as a stream. Each is held in memory as a whole, and a "
        "larger one is an error before it is read. Default: 1 GiB.",
        kind="size",
        metavar="SIZE",
        identity=False,
    )

    def check(self) -> None:
        super().check()
        if self.max_sample is not None and self.max_sample < 1:
            raise BadOption("--max-sample: 0 bytes hold no sample", expected='a size, such as "4GiB"')


def refuse_pairs(operation: Operation, first: str, others: tuple[str, ...]) -> None:
    """Raise BadOption if `first` is set together with one of `others`."""
    if getattr(operation, first):
        for other in others:
            if getattr(operation, other):
                raise BadOption(
                    f"--{first.replace('_', '-')} and --{other.replace('_', '-')} exclude each other",
                    remedy="Leave one of them out",
                )


def check_part_size(size: int | None) -> None:
    """Raise BadOption if S3 does not allow parts of this size."""
    if size is not None and not 5 << 20 <= size <= 5 << 30:
        raise BadOption(
            f"--part-size: {size} bytes is out of range", expected="5 MiB to 5 GiB, as S3 requires"
        )
