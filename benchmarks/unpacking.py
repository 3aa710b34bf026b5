"""Rows of ``make bench`` for checking, unpacking and packing, compared with ``md5sum`` and ``tar``."""

from __future__ import annotations

import hashlib
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from bench import BIN, COMMANDS, Bench, Side, same, slug, timed


def checked(bench: Bench, name: str) -> None:
    """Compare md5check with md5sum, both with the same checksum file."""
    row = f"md5check {name}"
    if bench.only not in row:
        return
    source, (count, size) = bench.source(name, store=False), bench.data(name)
    sums = source / "MD5SUMS"
    lines = (f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(source.iterdir()))
    sums.write_text("".join(lines))
    sides = [
        Side("nbdata", lambda _: [str(BIN / "nbdata"), "md5check", str(source), "-q"]),
        Side("md5sum", lambda _: ["bash", "-c", f"cd '{source}' && md5sum -c --quiet MD5SUMS"]),
    ]
    bench.row(row, sides, count * size)
    sums.unlink()


def extracted(bench: Bench) -> None:
    """Extract 20,000 files of 20 KB from 9 gz volumes; compare with ``tar xz`` after ``cat`` or ``s5cmd cat``.

    Unpacked files are removed only at the end. ext4 without a journal does not reuse inodes that were freed within the
    last minute. It checks each of them whenever a file is created, which would slow down every tool.
    """
    for folders in (100, 1):
        where = f"in {folders} folders" if folders > 1 else "in one folder"
        rows = {
            kind: f"extract 20,000 × 20 KB from 9 gz volumes {kind}, {where}"
            for kind in ("on the disk", "in S3")
        }
        if any(bench.only in row for row in rows.values()):
            source, volumes = _packed(bench, folders)
            place = f"s3://bench/volumes-{folders}"
            timed(COMMANDS["s5cmd"]["push"](str(volumes), place))
            each = " ".join(f"'{place}/{path.name}'" for path in sorted(volumes.iterdir()))
            _extracted(bench, rows["on the disk"], source, str(volumes), f"cat '{volumes}'/*")
            _extracted(
                bench,
                rows["in S3"],
                source,
                f"{place}/",
                f"for v in {each}; do '{BIN}/s5cmd' cat \"$v\"; done",
            )
    for path in bench.work.glob("unpacked-*"):
        shutil.rmtree(path)


def moved(bench: Bench) -> None:
    """Unpack archives of a store into the store.

    Compare with a download by s5cmd, ``cat | tar``, and an upload by s5cmd.
    """
    many = "20,000 × 20 KB from 9 gz volumes in S3, to S3"
    if bench.only in many:
        source, volumes = _packed(bench, 100)
        _moved(bench, many, source, volumes, int(20_000 * bench.scale) * 20_000)
    large = "2 GB in one file from 9 gz volumes in S3, to S3"
    if bench.only in large:
        source, size = bench.work / "large-source", int(2e9 * bench.scale)
        source.mkdir()
        with (source / "large.bin").open("wb") as file:
            for start in range(0, size, 20_000_000):
                file.write(random.randbytes(12_000_000) + bytes(min(8_000_000, size - start)))
        _moved(bench, large, source, _cut(bench, source, "large-volumes"), size)
        shutil.rmtree(source)


def packed(bench: Bench) -> None:
    """Pack objects of a store into volumes there, and unpack these; compare with ``tar | split`` and s5cmd."""
    count = int(20_000 * bench.scale)
    row = "pack 20,000 × 20 KB from S3 to volumes in S3, as {}"
    rows = {form: row.format(form) for form in ("tar", "tar.gz", "tar.zst")}
    unpack = "extract 20,000 × 20 KB from zst volumes of pack on the disk"
    if not any(bench.only in one for one in (*rows.values(), unpack)):
        return
    source = _files(bench, 100)
    place = "s3://bench/to-pack"
    timed(COMMANDS["s5cmd"]["push"](str(source), place))
    s5cmd, work = str(BIN / "s5cmd"), bench.work / "packed-by-hand"

    def line(form: str, target: str) -> list[str]:
        return [
            *(str(BIN / "nbdata"), "pack", f"{place}/", f"{target}/all.{form}", "--format", form),
            *("--volume-size", "30MB", "-q"),
        ]

    def theirs(form: str) -> Callable[[int], list[str]]:
        packs = {"tar": "cat", "tar.gz": "gzip -1", "tar.zst": "zstd -q -T0"}[form]

        def by_hand(number: int) -> list[str]:
            said = (
                f"mkdir -p '{work}/in' '{work}/v' && '{s5cmd}' cp '{place}/*' '{work}/in/' && "
                f"tar c -C '{work}/in' . | {packs} | split -b 30000000 -d -a 3 - '{work}/v/all.{form}.' && "
                f"'{s5cmd}' cp '{work}/v/' 's3://bench/packed-{form}-s5cmd{number}/' && rm -r '{work}'"
            )
            return ["bash", "-c", said]

        return by_hand

    def after(form: str, tool: str) -> Callable[[int], None]:
        def look(number: int) -> None:
            made, volumes, out = f"s3://bench/packed-{form}-{tool}{number}", work / "look", work / "out"
            timed([s5cmd, "cp", f"{made}/*", f"{volumes}/"])
            out.mkdir(parents=True)
            option = {"tar": "", "tar.gz": "z", "tar.zst": " --zstd"}[form]
            timed(["bash", "-c", f"cat '{volumes}'/* | tar x{option} -C '{out}'"])
            assert same(source, out), f"{tool} packed other bytes"
            shutil.rmtree(work)
            timed([s5cmd, "rm", f"{made}/*"])

        return look

    for form, name in rows.items():
        if bench.only in name:

            def ours(number: int, form: str = form) -> list[str]:
                return line(form, f"s3://bench/packed-{form}-nbdata{number}")

            by_hand = Side("s5cmd, tar \\| split, s5cmd", theirs(form), after(form, "s5cmd"))
            bench.row(name, [Side("nbdata", ours, after(form, "nbdata")), by_hand], count * 20_000)
    if bench.only in unpack:
        timed(line("tar.zst", "s3://bench/packed"), agent=True)
        timed([s5cmd, "cp", "s3://bench/packed/*", f"{bench.work}/packed-volumes/"])
        volumes = bench.work / "packed-volumes"
        out = f"{bench.work}/unpacked-zst"

        def unpacked(number: int) -> list[str]:
            return [str(BIN / "nbdata"), "untar_volumes", f"{volumes}/", f"{out}-nbdata{number}", "-q"]

        def tar(number: int) -> list[str]:
            target = f"{out}-tar{number}"
            return ["bash", "-c", f"mkdir '{target}' && cat '{volumes}'/* | tar x --zstd -C '{target}'"]

        def right(tool: str) -> Callable[[int], None]:
            def look(number: int) -> None:
                assert same(source, Path(f"{out}-{tool}{number}")), f"{tool} unpacked other bytes"

            return look

        sides = [Side("nbdata", unpacked, right("nbdata")), Side("cat \\| tar x --zstd", tar, right("tar"))]
        bench.row(unpack, sides, count * 20_000)
    timed([s5cmd, "rm", f"{place}/*"])


def _moved(bench: Bench, row: str, source: Path, volumes: Path, size: int) -> None:
    place, made = f"s3://bench/{volumes.name}", f"s3://bench/made-{volumes.name}"
    timed(COMMANDS["s5cmd"]["push"](str(volumes), place))

    def ours(number: int) -> list[str]:
        return [str(BIN / "nbdata"), "untar_volumes", f"{place}/", f"{made}-nbdata{number}/", "-q"]

    def theirs(number: int) -> list[str]:
        work, s5cmd = f"{bench.work}/by-hand-{number}", str(BIN / "s5cmd")
        said = (
            f"mkdir -p '{work}/v' '{work}/out' && '{s5cmd}' cp '{place}/*' '{work}/v/' && "
            f"cat '{work}'/v/* | tar xz -C '{work}/out' && '{s5cmd}' cp '{work}/out/' '{made}-s5cmd{number}/' && "
            f"rm -r '{work}'"
        )
        return ["bash", "-c", said]

    def after(tool: str) -> Callable[[int], None]:
        def look(number: int) -> None:
            out = bench.work / "looked-at"
            timed([str(BIN / "s5cmd"), "cp", f"{made}-{tool}{number}/*", f"{out}/"])
            assert same(source, out), f"{tool} stored other bytes"
            shutil.rmtree(out)
            timed([str(BIN / "s5cmd"), "rm", f"{made}-{tool}{number}/*"])

        return look

    sides = [Side("nbdata", ours, after("nbdata")), Side("s5cmd, cat \\| tar, s5cmd", theirs, after("s5cmd"))]
    bench.row(row, sides, size)
    shutil.rmtree(volumes)


def _packed(bench: Bench, folders: int) -> tuple[Path, Path]:
    """Create files of 20 KB and the volumes of their archive."""
    source = _files(bench, folders)
    return source, _cut(bench, source, f"unpacked-volumes-{folders}")


def _files(bench: Bench, folders: int) -> Path:
    """Create files of 20 KB, of which gzip saves nearly half."""
    source = bench.work / f"unpacked-source-{folders}"
    for number in range(int(20_000 * bench.scale)):
        path = source / (f"{number % folders:02d}" if folders > 1 else "") / f"{number:05d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.randbytes(12_000) + bytes(8_000))
    return source


def _cut(bench: Bench, source: Path, name: str) -> Path:
    """Create the volumes of a folder's archive."""
    volumes = bench.work / name
    volumes.mkdir()
    whole = bench.work / "all.tar.gz"
    with tarfile.open(whole, "w:gz", compresslevel=1) as archive:
        archive.add(source, arcname=".")
    part = -(-whole.stat().st_size // 9)
    with whole.open("rb") as file:
        for number in range(9):
            (volumes / f"all.tar.gz.{number:02d}").write_bytes(file.read(part))
    whole.unlink()
    return volumes


def _extracted(bench: Bench, row: str, source: Path, volumes: str, read: str) -> None:
    if bench.only not in row:
        return
    out = f"{bench.work}/unpacked-{slug(row)}"

    def after(tool: str) -> Callable[[int], None]:
        def look(number: int) -> None:
            assert same(source, Path(f"{out}-{tool}{number}")), f"{tool} unpacked other bytes"

        return look

    def ours(number: int) -> list[str]:
        return [str(BIN / "nbdata"), "untar_volumes", volumes, f"{out}-nbdata{number}", "-q"]

    def theirs(tool: str, then: str) -> Side:
        def tar(number: int) -> list[str]:
            target = f"{out}-{tool}{number}"
            return ["bash", "-c", f"mkdir '{target}' && ({read}) | tar xz -C '{target}'{then}"]

        name = "s5cmd cat \\| tar xz" if volumes.startswith("s3:") else "cat \\| tar xz"
        return Side(f"{name}, then sync" if then else name, tar, after(tool))

    # nbdata reports success when the files are on the disk, tar when they are in memory. So tar runs a second time,
    # with sync.
    sides = [Side("nbdata", ours, after("nbdata")), theirs("tar", ""), theirs("synced", " && sync")]
    bench.row(row, sides, int(20_000 * bench.scale) * 20_000)
