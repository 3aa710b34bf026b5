"""nbdata unpacks other programs' archives as GNU tar and bsdtar do, or a table gives the reason why not."""

from __future__ import annotations

import sysconfig
import tarfile
from pathlib import Path

import pytest

import nbdata
from nbdata.demo.server import EmbeddedServer
from tests.archives.corpus.compare import compare
from tests.archives.corpus.content import make_content
from tests.archives.corpus.refused import REFUSED, Refused
from tests.archives.corpus.writers import WRITERS, Writer, pack
from tests.conftest import client_of
from tests.pages import same_page

pytestmark = pytest.mark.usefixtures("inline")

_OF_PYTHON = Path(sysconfig.get_paths()["stdlib"], "test")
_ARCHIVES_OF_PYTHON = [
    path
    for name in ("testtar.tar", "testtar.tar.xz", "recursion.tar")
    for path in (_OF_PYTHON / name, _OF_PYTHON / "archivetestdata" / name)
    if path.exists()
]


@pytest.fixture(scope="session")
def packed_content(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_content(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize(
    ("writer", "tree"),
    [
        pytest.param(w, tree, id=f"{w.name} {tree}", marks=pytest.mark.needs(*w.needs))
        for w in WRITERS
        for tree in w.trees
    ],
)
@pytest.mark.needs("bsdtar")
def test_an_archive_gives_what_tar_and_bsdtar_give(
    writer: Writer, tree: str, packed_content: Path, tmp_path: Path
) -> None:
    found = compare(pack(writer, packed_content / tree, tmp_path / "archive"), tmp_path)
    assert found.error is None
    assert found.differences == []
    assert found.members > 0


@pytest.mark.needs("bsdtar")
@pytest.mark.parametrize("archive", _ARCHIVES_OF_PYTHON, ids=lambda path: path.name)
def test_the_archives_that_python_tests_itself_with(archive: Path, tmp_path: Path) -> None:
    if archive.name == "recursion.tar":  # it has a header that describes itself, and nothing else
        with pytest.raises(nbdata.BadArchive, match="ends too early"):
            nbdata.untar_volumes(archive, tmp_path / "out", quiet=True)
        return
    with tarfile.open(archive) as tar:
        names = [member.name for member in tar if not member.isdev()]
    found = compare(archive, tmp_path, members=[name.replace("[", "[[]") for name in names])
    assert found.error is None
    assert found.differences == []
    assert found.members >= len(names) * 0.9  # some names occur twice


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.what)
def test_what_is_refused_is_refused_for_its_reason(case: Refused, tmp_path: Path) -> None:
    archive = tmp_path / f"a{case.suffix}"
    case.make(archive)
    with pytest.raises(getattr(nbdata, case.error), match=case.says):
        nbdata.untar_volumes([str(archive)], tmp_path / "out", quiet=True)
    assert not list((tmp_path / "out").rglob(".nbdata"))


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.what)
def test_what_is_refused_is_refused_for_a_store_too_and_leaves_nothing_elsewhere(
    case: Refused, tmp_path: Path, bucket: str, s3: EmbeddedServer
) -> None:
    archive = tmp_path / f"a{case.suffix}"
    case.make(archive)
    with pytest.raises(getattr(nbdata, case.error), match=case.says):
        nbdata.untar_volumes([str(archive)], f"s3://{bucket}/deep/out/", quiet=True)
    client = client_of(s3)
    keys = [entry["Key"] for entry in client.list_objects_v2(Bucket=bucket).get("Contents", [])]
    assert all(key.startswith("deep/out/") and ".nbdata" not in key for key in keys)
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    client.close()


def test_the_table_of_archives_is_the_committed_one() -> None:
    rows = "".join(f"| {case.what} | {case.error} | {case.why} |\n" for case in REFUSED)
    same_page("archives.md", _PAGE.format(rows=rows, writers=_writers()))


def _writers() -> str:
    programs: dict[str, list[str]] = {}
    for writer in WRITERS:
        program = next(p for p in _PROGRAMS if writer.name.startswith(p))
        programs.setdefault(program, []).append(writer.name.removeprefix(program).strip() or "as it is")
    return "".join(f"| {program} | {', '.join(formats)} |\n" for program, formats in programs.items())


_PROGRAMS = (
    "GNU tar", "bsdtar", "Python", "7-Zip", "Go", "Java", "Perl", "BusyBox", "pax", "cpio", "git", "dpkg", "npm"
)  # fmt: skip

_PAGE = """\
# Which archives are unpacked

For those who have an archive that somebody else made. This page is made by `tests/archives/corpus/`.

`untar_volumes` unpacks tar in all its formats (v7, ustar, pax, GNU tar's with long names and sparse files), plain or
compressed by gzip, bzip2, xz, Zstandard or LZ4 (`pip install lz4`), and [zip](#zip). Tests pack folders with the
programs below and compare what nbdata makes of each archive with what GNU tar and bsdtar make of it: names, contents,
links, times, and what is executable. Owners and groups are left out, and permissions are those of Python's `data`
filter.

| program | formats |
|---|---|
{writers}
The folders hold files of many sizes about the blocks of tar, names of up to 255 bytes in each place, hard and symbolic
links, sparse files, names that are not ASCII or not UTF-8, and times before 1970 and in 2300. The archives that CPython
tests its own parser with are unpacked, too.

What is put right is said in a note of the report: a slash at the start of a name is taken off, one zero block amid the
archive is passed over, up to 64 KiB of something else behind the end of gzip or bzip2 are left out, and members of a
kind that the standard does not know are taken for files. Where something is left out, `--delete-volumes` keeps the
volumes. A note says, too, if more than 64 KiB of zeros lie behind the end: `tar` pads to 10,240 bytes unless it is told
otherwise, but a failed transfer leaves zeros where members should be. If they fill whole volumes, these are kept.

Volumes that GNU tar makes itself (`tar --multi-volume`) are joined, too, without the headers that it repeats in each.

Where an archive consists of pieces that are compressed independently, up to four processors decompress them side by
side: the blocks of bzip2, gzip members that carry their size (as `bgzip`, `mgzip` and `pgzip` write them), and
Zstandard frames of up to 16 MiB of content that tell its size, or were written by `pzstd`. An interrupted line goes on
at the last of these pieces. What `gzip`, `zstd` and `pigz` make in one piece is decompressed by one, and so are xz and
LZ4.

## Volumes, and several archives in one folder

SOURCE is the first volume, a folder, a glob, or a file that lists the volumes: a checksum file such as `md5sum` writes,
or a plain list, one name a line, that is called `NAME.lst` or `NAME.list`. In Python it may be a list. A list is in the
order in which the volumes are joined; checksums of numbered volumes may be in any order, and of other files too.
A volume that is there twice or empty, or missing between others, is refused before anything is written; one that is
smaller than its equals is named in the plan. That the last one is missing shows only at the end of the data, or if
SOURCE is a checksum file that names it.

Where a folder or a glob holds several archives, each is unpacked into a folder of its own below TARGET:
`train.tar.gz.00 …` and `val.zip` become `train/` and `val/`. The rows of plan and report tell the archive. What is
wrong with one is reported at the end, and the others are unpacked. `--set NAME`, with or without the suffix, picks one,
which goes into TARGET itself; given again, it picks several. A line that has unpacked several remembers which they
were, so that it means the same when the volumes of all but one are deleted. One line takes up to 1,000.

## Single compressed files

`x.csv.gz`, `x.json.zst`, `dump.sql.xz.00 …`: where the name says that the content is one file, and no tar archive
begins in it, it is written as `x.csv`, `x.json`, `dump.sql`, with the time of the (first) volume. Nothing stands under
that name before the checksum of the compressed data was compared at its end. How large it becomes is not known before;
room on the disk is reserved while it grows, and a store that takes parts gets it in parts. A line that was interrupted
begins it anew. What is called `.tar.gz` or the like and holds no tar archive is refused: it is damaged, or an error
page. Such a file is named itself: in a folder only those are looked for that are cut into volumes.

## Zip

A zip archive is read by its directory, which stands at its end: `--list` reads that alone, and `--members` only the
members that are named, also in a store. Stored, Deflate, bzip2, LZMA and Zstandard are known, the 64-bit form, names
in UTF-8, times of Info-ZIP and NTFS, permissions and symbolic links as `zip` and 7-Zip keep them, and sets that `zip
-s` split (`.z01` … `.zip`); a zip that `split` or 7-Zip cut (`.zip.001` …) is joined. Tests pack with `zip`, 7-Zip,
bsdtar, `jar` and Python. Each member is compared with its CRC-32; a line that was interrupted reads only the members
that are missing. Volumes are deleted at the end.

## Into a store

TARGET may be a URL: `untar_volumes s3://bucket/volumes/ s3://bucket/files/`, also from volumes on the disk or on a
web server. Nothing is written to the disk but records of what was done. A file becomes an object while the archive is
read: small ones many at a time, those over 8 MiB in parts, where the store takes parts. Each is compared with what
the store answers. At most 64 MiB of members are in memory. Times and permissions are not kept, as by `push`.

| in the archive | in the store |
|---|---|
| a hard link | an object with the content of the file that it names |
| a symbolic link to a file of the archive | the same, made at the end |
| a symbolic link to a folder, or to nothing that was unpacked | left out and named |
| a folder | nothing; empty ones are named |
| a name that is not UTF-8 | fails, and the rest is stored: keys are UTF-8 |
| a name that a volume of the archive has | `UnsafeMember` |

The same command resumes where it was: an object that is as it was recorded, or else has the MD5 of the file, is not
sent again. The volumes are read again from the last place that their compression allows; the report says from where. An
object that somebody has replaced since is put right if this archive had made it, and is a conflict if another one
had. `--delete-volumes` deletes them at the end, unless something was left out or failed.

## Into tar shards

TARGET may be shards: `untar_volumes s3://bucket/volumes/ 's3://bucket/shards/train-%06d.tar'`, in a store or on the
disk. Neighbouring files with one name up to its first dot become a sample, as WebDataset has it, and samples become
shards in the archive's order, of `--shard-size` bytes at most (256 MiB). Files that stand in the order in which `pack`
takes them make the same shards, byte for byte. There is no `--shard-count`: how many samples there are shows only at
the end. Beside the shards an index of them is written, as by `pack`. Nothing is unpacked in between.

| in the archive | in the shards |
|---|---|
| a file with a key and an extension | a field of its sample, under its name in the archive |
| a hard link, a symbolic link | left out and named: readers of samples pass over links |
| a name without key or extension, not in UTF-8, or kept by WebDataset for itself (`__meta__/…`) | left out and named |
| a field that its sample has already (`a.JPG` and `a.jpg`, or one name twice) | left out and named |
| a folder | nothing; empty ones are named |
| a sample that comes again further on | one more sample; how many is told, as a `tar` of an unsorted folder has them |
| a sample of more than 32 MiB | begins a shard, since it is held until it is known to fit |
| a single compressed file | `BadArchive` |

Of two members of one name in a sample the first counts, since it may be in the shard by then, and the second is
reported as left out; in a folder or a store the last one counts, as with `tar`. Keys that come again are counted among
the first 1,048,576; a line that goes on compares those from there on, and says "at least".

A shard has its name when it is whole, and an index of shards that are being replaced is removed before. The command
resumes between two shards: those that are there as they were recorded are not written again; where the volumes have to
be read past them, their content is compared with a digest. Shards under these names that the line has not made are
refused, unless `--overwrite always` says to replace them; where a volume has such a name, shards are always refused.
Of several archives each gets shards in a folder of its own. A store that takes whole objects only (no multipart
uploads) takes shards of 64 MiB at most, and no sample that is larger. A target that denies access ends the command.

## What pack makes

`pack SOURCE TARGET --format tar|tar.gz|tar.zst|zip` is the way back: a folder, or what is below a prefix of a store,
becomes one archive on the disk or in a store. Its names begin below SOURCE, as with `tar -C SOURCE`. `--volume-size`
cuts it into volumes `TARGET.000`, `TARGET.001` and so on (of a zip `TARGET.001` first, as 7-Zip has it), which `cat`
joins; one of a compressed tar ends where a frame does, a little before SIZE. `--md5` writes `VOLUME.md5` beside each.
GNU tar, bsdtar, unzip, 7-Zip and `untar_volumes` unpack it: tests compare names, contents, links, times and what is
executable.

| of the source | in the archive |
|---|---|
| a file, an object | a file, with its time in whole seconds (that of the store), mode 755 if it may be run, else 644 |
| a symbolic link on the disk | a symbolic link; nothing is followed |
| names of one file (hard links) | files, each with the content |
| an empty folder on the disk | a folder; others come to be by what is in them |
| a sparse file | a file with zeros |
| owners, groups, other permissions, extended attributes | not kept |
| sockets, pipes, devices | left out and named |
| a key that is no path, such as `a//b` or one below `.nbdata/` | `BadOption`, unless `--exclude` leaves it out |
| `--sort`, `--mtime TIME` | members in the order of their names, all with one time: the same bytes each time |

A tar is compressed in frames of up to 4 MiB, each a gzip member or a Zstandard frame of its own, so that programs that
know how can unpack several at a time. A gzip member says its size in its header, as mgzip and pgzip do. Headers are
ustar, with pax where a name, size or time needs it; a zip has the 64-bit form where it needs it, and UTF-8 names.

Each object is compared with its checksum while it is read, and each volume with what the store answers; a volume has
its name when all objects in it are proven. From store to store nothing touches the disk. The same command keeps the
volumes that still hold what they should and makes the others; volumes of its own that are too many are removed, and so
is the archive that it made in the other form, `TARGET` beside `TARGET.000`. What it has not made is refused before the
start: `--overwrite always` replaces it, but for volumes of higher numbers and the other form. A zip begins anew, and
its volumes have their names when all of it is written. Where a store takes whole objects only (no multipart uploads), a
volume may have 64 MiB; the content of a zip in volumes, and each file of a tar in volumes, 128 MiB.

## What is refused

| what the archive has | error | why, and what to do |
|---|---|---|
{rows}"""
