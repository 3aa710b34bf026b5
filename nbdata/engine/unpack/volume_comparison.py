"""Compare the volumes of an archive with their checksum files: plan it, do it if all is unpacked, and report it."""

from __future__ import annotations

import contextlib
from typing import Any

from nbdata.engine.job.results import Results
from nbdata.engine.job.run import Run
from nbdata.engine.unpack.stream.member_stream import MemberStream
from nbdata.engine.unpack.volume_set import ArchiveSet
from nbdata.engine.unpack.volumes.checksum_files import ChecksumFiles, Published, source_of
from nbdata.engine.unpack.volumes.finding import VolumeList
from nbdata.engine.unpack.volumes.stored_volume import StoredVolume
from nbdata.engine.unpack.written import Written
from nbdata.errors import ChecksumMismatch
from nbdata.integrity.expectations import Expected
from nbdata.report import Plan
from nbdata.sizes import counted
from nbdata.verbs.untar_volumes import UntarVolumes

__all__ = ["compare_unpacked", "note_compared", "plan_comparison", "proven"]

_BLOCK = 1 << 20


def plan_comparison(
    out: Plan, op: UntarVolumes, archive_set: ArchiveSet, checksums: ChecksumFiles | None
) -> dict[int, Expected]:
    """Find the digests of the volumes, by their numbers, and note in the plan how they are used.

    If everything is unpacked, the volumes are read only if no earlier run has compared them with these digests.
    """
    volumes, published = archive_set.volumes, Published()
    is_zip = out.details.get("format", volumes.format) == "zip"
    if checksums is not None and not (op.list or op.verify == "none" or is_zip):
        published = checksums.published(volumes.volumes)
    out.details["published"], out.details["unusable"] = published.mark, published.notes
    out.details["compare"] = False
    if is_zip and checksums is not None and checksums.named:
        out.notes.append("a zip archive is not compared as a whole: each of its members has a checksum")
    if published.digests:
        where = source_of(published.digests.values())
        lacking = sum(not volume.gone for volume in volumes.volumes) - len(published.digests)
        more = f", except {counted(lacking, 'volumes')} without a digest" if lacking else ""
        if not archive_set.complete:
            out.notes.append(f"the volumes are compared with {where} while they are read{more}")
        elif not archive_set.written.was_compared(published.mark):
            out.details["compare"] = True
            out.bytes = sum(volumes.volumes[number].size or 0 for number in published.digests)
            out.notes.append(f"all is unpacked; its volumes are now compared with {where}{more}")
    out.notes += published.notes
    return published.digests


def compare_unpacked(
    run: Run, volumes: VolumeList, written: Written, results: Results, details: dict[str, Any], mark: int
) -> None:
    """Compare volumes that an earlier run has unpacked without that.

    Raises
    ------
    ChecksumMismatch
        If a volume is wrong. All that was unpacked is then in doubt, and written anew by the next run.
    """
    scratch = memoryview(bytearray(_BLOCK))
    for volume in volumes.volumes:
        if volume.published is None or volume.skipped:
            continue
        try:
            with contextlib.closing(volume.open(0)) as reader:
                while count := reader.readinto(scratch):
                    run.control.checkpoint()
                    run.control.advance(bytes=count)
        except ChecksumMismatch:
            written.doubt(0)
            raise
    if proven(volumes):
        written.complete(left_out=written.has_left_out(), compared=mark)
    _report(results, details, volumes.volumes)


def proven(volumes: VolumeList) -> bool:
    """True if this run has compared every volume that has a published digest."""
    return all(volume.proven for volume in volumes.volumes if volume.published is not None)


def note_compared(
    results: Results, details: dict[str, Any], volumes: VolumeList, stream: MemberStream
) -> None:
    """Report how many volumes match their published digests, and how many of a plain tar no checksum verified."""
    if stream.format == "zip":  # it is not read from end to end, and has a checksum for each member
        return
    read = volumes.volumes[stream.volume_begun :]
    _report(results, details, read)
    known = any(volume.published is not None for volume in read)
    unproven = sum(volume.size != 0 and not volume.proven for volume in read)
    if unproven and (known or (stream.format == "tar" and volumes.verified())):
        why = "no checksum is known" if stream.began.compressed == 0 else "or the run began within them"
        if stream.began.compressed:
            why = f"no checksum is known, {why}"
        results.notes.append(f"{unproven:,} of {counted(len(read), 'volumes')} could not be compared: {why}")


def _report(results: Results, details: dict[str, Any], read: tuple[StoredVolume, ...]) -> None:
    """Report how many volumes match their published digests."""
    published = [volume.published for volume in read if volume.published is not None and volume.proven]
    details["compared"] = len(published)
    if published:
        match = "matches" if len(published) == 1 else "match"
        results.notes.append(
            f"{len(published):,} of {counted(len(read), 'volumes')} {match} {source_of(published)}"
        )
