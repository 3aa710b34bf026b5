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


@pytest.mark.in_ci(
    "!*times",
    "!Go USTAR*",
    "!Python ustar*",
    "!bsdtar v7tar*",
    "!bsdtar ustar*",
    "!GNU tar v7 *",
    "!GNU tar ustar*",
    "!bsdtar paxr*",
    "!7-Zip posix *",
    40,
)
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


@pytest.mark.in_ci(5)
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

For everybody who gets data as archives, or makes archives of it. This page says which archives `untar_volumes` unpacks,
what it makes of them on a disk, in a store and in tar shards, and what `pack` makes. Tests in `tests/archives/corpus/`
generate this page.

`untar_volumes` unpacks tar in all its formats (v7, ustar, pax, and GNU tar with long names and sparse files), plain or
compressed with gzip, bzip2, xz, Zstandard or LZ4 (`pip install lz4`), and [zip](#zip). Tests pack folders with the
programs below. They compare the result of nbdata with the results of GNU tar and bsdtar: names, contents, links, times,
and executable bits. Owners and groups are not kept. Permissions are those of Python's `data` filter.

| program | formats |
|---|---|
{writers}
The folders hold files with sizes around the block size of tar, and path components of up to 255 bytes. They also hold
hard and symbolic links, sparse files, names that are not ASCII or not UTF-8, and times before 1970 and in 2300. The
archives that CPython uses to test its own parser are unpacked too.

Some defects are repaired, with a note in the report:

- A slash at the start of a name is removed.
- A single zero block inside the archive is skipped.
- Up to 64 KiB of other data after the end of gzip or bzip2, and 256 KiB after that of a zip, are ignored.
  `--delete-volumes` then keeps the volumes.
- Members of a kind that the standard does not define are written as files.

A note also says if more than 64 KiB of zeros follow the end. `tar` pads to 10,240 bytes by default, but a failed
transfer leaves zeros in place of members. If the zeros fill whole volumes, `--delete-volumes` keeps those.

Volumes that GNU tar makes itself (`tar --multi-volume`) are joined without the headers that it repeats in each. One
that begins without such a header is refused: its beginning is missing.

`--delete-volumes` deletes volumes only when every byte in them is accounted for: by the members that were written, by
the structure of the archive, or as padding. Volumes of which something else is left stay, and the report says so.

If an archive consists of independently compressed pieces, up to four processors decompress them in parallel, and an
interrupted command resumes at the last finished piece. Such pieces are the blocks of bzip2; gzip members that state
their size (made by `bgzip`, `mgzip` and `pgzip`); and Zstandard frames of up to 16 MiB of content that state their
size, or that `pzstd` made. One processor decompresses what `gzip`, `zstd` and `pigz` make as one piece, and also xz and
LZ4.

## Volumes, and several archives in one folder

SOURCE is the first volume, a folder, a glob, or a file that lists the volumes. Such a file is a checksum file, as
`md5sum` writes it, or a plain list with one name per line, called `NAME.lst` or `NAME.list`. In Python, SOURCE can also
be a list. Volumes are joined in the order of the list; a checksum file of numbered volumes may have any order, and may
also list other files. Names with backslashes are those of Windows; of absolute names the common folder is that of the
list. A list may name volumes below a link; they are read, and `--delete-volumes` keeps them and says so.

An archive with a volume that is repeated, is empty, or is missing between others is refused before any of it is
written. The plan names a volume that is smaller than the others. A missing last volume is noticed only at the end of
the data, or if a checksum file beside the volumes lists it.

Archives in subfolders of SOURCE are found if the folder itself holds none.

Names alone do not make a volume. If files are called like volumes (`a.part1.tar.gz`, `x.tar.gz-part-aa` …), but each
begins as an archive does and the first one ends as one, they are archives of their own; a note says so. One that you
name is then taken alone. `--delete-volumes` deletes them when all are unpacked. To have them joined all the same, list
them in a file `NAME.lst`, and name that.

If a folder or a glob holds several archives, each is unpacked into its own folder below TARGET: `train.tar.gz.00 …` and
`val.zip` become `train/` and `val/`. The rows of plan and report name the archive. An error in one archive is reported
at the end, and the others are unpacked. `--set NAME`, with or without the suffix, selects one archive, which is
unpacked into TARGET itself; if repeated, it selects several. A command that has unpacked several archives remembers
them. So it still uses their folders when `--delete-volumes` has deleted all but one. One command takes up to 1,000
archives.

## Checksums of the volumes

Each volume that is read from its start to its end is compared with the checksum that the store has of it, and with its
digest in a checksum file: `VOLUME.md5` (`.sha256` …), or a list such as `MD5SUMS` or `all.md5`, beside the volumes or
wherever `--against` says. A list may name the volumes with the folder that they are in, also that of another machine.
The plan names the checksum files; plan and report say if they have no digest of the volumes; the report says how many
volumes match. No separate pass over the data is needed:

    untar_volumes s3://bucket/volumes/ s3://bucket/files/ --against s3://bucket/md5/

If the store has another MD5 of a volume than the checksum file, or checksum files contradict each other, nothing is
unpacked. A wrong volume that only its bytes reveal ends the command, which names it; the files of this volume are
written anew when the command is run again. If all was unpacked without such a comparison, the next command that finds
checksum files reads the volumes once more to compare them, before `--delete-volumes` deletes any. A resumed command may
begin within a volume, which then cannot be compared; the report says so. A digest of the joined archive is not used,
and zip archives are not compared as a whole. `--verify none` compares nothing, and ignores volumes that only a list
names.

## Single compressed files

Examples are `x.csv.gz`, `x.json.zst`, `dump.sql.xz.00 …`. If the name says that the content is a single file, and the
content is no tar archive, it is written as `x.csv`, `x.json`, `dump.sql`, with the time of the (first) volume. The file
gets this name only after the checksum of the compressed data was compared at its end. Its size is not known before. So
disk space is reserved while the file grows, and a store with multipart uploads gets it in parts. An interrupted command
starts over. A file called `.tar.gz` or the like that contains no tar archive is refused: it is damaged, or an error
page. Name such a file itself as SOURCE: in a folder, only files that are cut into volumes are found.

## Zip

nbdata reads the directory of a zip archive, which is at its end. `--list` reads only the directory, and `--members`
only the named members, also in a store. It supports:

- the methods Stored, Deflate, bzip2, LZMA and Zstandard, and the 64-bit form;
- names in UTF-8, times of Info-ZIP and NTFS, permissions and symbolic links as `zip` and 7-Zip store them;
- sets that `zip -s` split (`.z01` … `.zip`), also joined into one file, and archives that `split` or 7-Zip cut
  (`.zip.001` …, `.z00` …);
- archives behind a program that unpacks them (a self-extracting `.exe`: name it as SOURCE);
- several archives one after another in one file, up to 100: the members of all are taken, with a note. Of a name in
  two of them, the last content counts, and the volumes are kept.

Names that are not marked as UTF-8 are in the code page of the computer that made the archive: 932 in Japan, 936 in
China. Nothing says which, so nbdata guesses it from all names together, with a note; `--names-encoding cp932` decides.
Names that a Unix program wrote stay as they are unless you give it. Info-ZIP's field of the Unicode path counts.

Tests pack with `zip`, 7-Zip, bsdtar, `jar` and Python. Each member is compared with its CRC-32. An interrupted command
reads only the missing members. `--delete-volumes` deletes the volumes at the end. Bytes before, between and behind the
members that belong to none of them are counted, with a note; they may be members that the directory does not list, and
the volumes are kept.

## Memory

An archive says itself how much memory its decoder needs, so nbdata limits it: a window (Zstandard) or dictionary (xz,
LZMA in zip) of more than 128 MiB is an error that names both sizes. `zstd` refuses the same without `--long`, and `xz
-9e` needs 64 MiB. `--max-window 2GiB` (in Python `max_window=`) allows what `zstd --long=31` writes; `samples`,
`shards` and `pack --map` have it too. gzip, bzip2 and LZ4 need less than 1 MiB. Threads that decompress side by side
take only pieces of up to 16 MiB, so they do not multiply the window. These are limited as well:

| data | limit |
|---|---|
| headers of a tar member: long names, pax records, the map of a sparse file | 4 MiB; global records 64 KiB |
| pax records, and numbers in maps of sparse files, of all members | 2^20, and 64 a member, 1 for 256 bytes of content |
| the header of a gzip member | 256 KiB |
| the directory of a zip archive, or those of several in one file | 512 MiB |
| names of members, folders and links, in memory and in records | 512 MiB, and 16 bytes a byte of the archive |

## More than the disk holds

An archive that is larger than the disk can go straight [into a store](#into-a-store), or through the disk
[in rounds](guarantees.md#disk-space) with `--ignore-space --skip-written`.

## Into a store

TARGET may be a URL: `untar_volumes s3://bucket/volumes/ s3://bucket/files/`. The volumes may also be on the disk or on
a web server. Only records of progress are written to the disk. Each file becomes an object while the archive is read.
Small files are sent many at a time, those over 8 MiB in parts if the store has multipart uploads. Each object is
compared with the checksum in the store's response. At most 64 MiB of members are in memory, or one part of
a file above 640 GB (10,000 parts of 64 MiB): at most 512 MiB, unless `--part-size` is larger. Larger files are refused.
As with `push`, times and permissions are not kept. A store has no limit as a disk has: `--max-expansion` sets one, for
all files with the zeros of sparse ones and the copies that links become.

| in the archive | in the store |
|---|---|
| a hard link | an object with the content of the file that it names |
| a symbolic link to a file of the archive | the same, made at the end |
| a symbolic link to a folder, or to a file that was not unpacked | left out and named |
| a folder | no object; empty folders are named |
| a name that is not UTF-8 | fails, because keys are UTF-8; the rest is stored |
| a name that a volume of the archive has | `UnsafeMember` |

Run the same command again to resume. An object that is unchanged since it was recorded, or that has the MD5 of the
file, is not sent again. The volumes are read again from the last point that their compression allows; the report says
where. An object that another program has replaced since is restored if this archive made it, and is a conflict if
another archive made it. `--delete-volumes` deletes the volumes at the end, unless something was left out or failed.

## Into tar shards

TARGET may name shards, in a store or on the disk: `untar_volumes s3://bucket/volumes/
's3://bucket/shards/train-%06d.tar'`. Neighbouring files with the same name up to the first dot form a sample, as in
WebDataset. The samples go into shards in the order of the archive, at most `--shard-size` bytes per shard (256 MiB).
Files in the order that `pack` uses make the same shards, byte for byte. There is no `--shard-count`, because the number
of samples is known only at the end. An index of the shards is written beside them, as by `pack`. Nothing is unpacked to
the disk in between.

| in the archive | in the shards |
|---|---|
| a file with a key and an extension | a field of its sample, with its name in the archive |
| a hard link, a symbolic link | left out and named: readers of samples skip links |
| a name without key or extension, not in UTF-8, or reserved by WebDataset (`__meta__/…`) | left out and named |
| a field that its sample has already (`a.JPG` and `a.jpg`, or a repeated name) | left out and named |
| a folder | not kept; empty folders are named |
| the files of a sample that are not all neighbours | several samples with this key; the report counts them |
| a sample of more than 32 MiB | starts a shard, since it is held in memory until it is known to fit |
| a single compressed file | `BadArchive` |

If two members of a sample have the same name, the first one counts, because it may already be in a shard. The second is
reported as left out. (In a folder or a store the last one counts, as with `tar`.) Repeated keys are counted among the
first 1,048,576 keys. A resumed command compares only the keys after the point where it resumed, and its note says "at
least".

A shard gets its name when it is whole. The index of shards that are being replaced is removed first. Run the same
command again to resume between two shards: shards that are unchanged since they were recorded are not written again. If
the volumes must be read past them, their content is compared with a digest. Existing shards with these names that the
command did not make are refused; `--overwrite always` replaces them. If a volume has such a name, shards are always
refused. With several archives, each gets its shards in its own folder. In a store without multipart uploads, a shard
has at most 64 MiB, and so has a sample. A target that denies access ends the command.

## What pack makes

`pack SOURCE TARGET --format tar|tar.gz|tar.zst|zip` does the opposite: a folder, or everything below a prefix of a
store, becomes one archive on the disk or in a store. Its paths are relative to SOURCE, as with `tar -C SOURCE`.
`--volume-size` cuts it into volumes `TARGET.000`, `TARGET.001` and so on (a zip starts with `TARGET.001`, as with
7-Zip), which `cat` joins. A volume of a compressed tar ends at the end of a frame, a little before SIZE. `--md5` writes
`VOLUME.md5` beside each volume. GNU tar, bsdtar, unzip, 7-Zip and `untar_volumes` unpack it: tests compare names,
contents, links, times and executable bits.

| in the source | in the archive |
|---|---|
| a file, an object | a file; time in seconds (of an object, from the store), mode 755 if executable, else 644 |
| a symbolic link on the disk | a symbolic link; links are not followed |
| several names of one file (hard links) | several files, each with the content |
| an empty folder on the disk | a folder; other folders exist by the paths of their files |
| a sparse file | a file with zeros |
| owners, groups, other permissions, extended attributes | not kept |
| sockets, pipes, devices | left out and named |
| a key that is not a path, such as `a//b` or one below `.nbdata/` | `BadOption`, unless `--exclude` leaves it out |
| `--sort`, `--mtime TIME` | members in the order of their names, all with the same time: the same bytes in each run |

A tar is compressed in frames of up to 4 MiB, each one a separate gzip member or Zstandard frame. So programs that
support it can decompress several at a time. A gzip member states its size in its header, as with mgzip and pgzip.
Headers are ustar, with pax if a name, size or time needs it. A zip uses the 64-bit form if it needs it, and UTF-8
names.

Each object is compared with its checksum while it is read, and each volume with the store's response. A volume gets its
name when all objects in it are verified. From a store to a store, no disk space is used.

Run the same command again to keep the volumes that are still right and to make the others. It removes its own surplus
volumes, and its own archive in the other form (`TARGET` beside `TARGET.000`). Existing archives that it did not make
are refused before the start. `--overwrite always` replaces them, except volumes with higher numbers and the other form.
A zip starts over, and its volumes get their names when all of it is written. In a store without multipart uploads, a
volume has at most 64 MiB; the content of a zip in volumes, and each file of a tar in volumes, has at most 128 MiB.

## What is refused

| what the archive has | error | why, and what to do |
|---|---|---|
{rows}"""
