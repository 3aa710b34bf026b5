"""The programs that pack the corpus, each with the options that change the format.

A `Writer` packs one folder into one archive with a real program. ``python -m tests.archives.corpus.writers FOLDER``
packs all trees below a folder, for a look at the archives.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.archives.corpus.content import CONTENT, make_content
from tests.capabilities import why_missing

__all__ = ["WRITERS", "Writer", "pack"]

_HERE = Path(__file__).parent
_ALL = tuple(CONTENT)
_COMPRESS_JAR = "/usr/share/java/commons-compress.jar"


@dataclass(frozen=True)
class Writer:
    """A program with its options.

    Attributes
    ----------
    name : str
        Name of the program and the format.
    needs : tuple of str
        Required capabilities of the machine; see `tests.capabilities`.
    write : callable
        Packs the folder (first argument) into a file (second argument).
    suffix : str
        Suffix of the archive's name.
    trees : tuple of str
        The folders of `CONTENT` that it can pack.
    """

    name: str
    needs: tuple[str, ...]
    write: Callable[[Path, Path], str | None]
    suffix: str = ".tar"
    trees: tuple[str, ...] = _ALL


def pack(writer: Writer, folder: Path, target: Path) -> Path:
    """Pack a folder into an archive below `target`, and return the archive.

    Most formats cannot hold every name or time. Programs then leave a file out and report failure at the end, but still
    write a valid archive.
    """
    target.mkdir(parents=True, exist_ok=True)
    archive = target / f"{writer.name.replace(' ', '_')}-{folder.name}{writer.suffix}"
    said = writer.write(folder, archive)
    if not archive.is_file() or archive.stat().st_size == 0:
        raise RuntimeError(f"{writer.name} has written nothing: {said}")
    return archive


def _run(
    *words: str | Path, cwd: Path | None = None, stdin: bytes | None = None, stdout: Path | None = None
) -> str:
    """Run a program and return its standard error."""
    with open(stdout or os.devnull, "wb") as out:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=cwd,
            input=stdin,
            stdout=out,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            check=False,
        )
    return done.stderr.decode(errors="replace")[-2000:]


def _names(folder: Path) -> list[bytes]:
    """Return all paths below a folder, each folder before its content."""
    found = []
    for place, folders, files in os.walk(os.fsencode(folder)):
        inner = os.path.relpath(place, os.fsencode(folder))
        found += [os.path.normpath(os.path.join(inner, name)) for name in sorted(folders + files)]
    return sorted(found)


def _gnu(*options: str) -> Callable[[Path, Path], str | None]:
    def write(folder: Path, archive: Path) -> str:
        return _run("tar", "-cf", archive, *options, "--sort=name", "-C", folder, ".")

    return write


def _gnu_absolute(folder: Path, archive: Path) -> str:
    return _run("tar", "-cPf", archive, "--sort=name", f"--transform=s,^{folder}/*,/data/,", folder)


def _gnu_incremental(folder: Path, archive: Path) -> str:
    return _run("tar", "-cf", archive, "--listed-incremental=/dev/null", "-C", folder, ".")


def _gnu_appended(folder: Path, archive: Path) -> None:
    """Append each name with a separate run, as scripts do that add to an archive."""
    first, *others = sorted(path.name for path in folder.iterdir())
    _run("tar", "-cf", archive, "-C", folder, "--", f"./{first}")
    for name in others:
        _run("tar", "-rf", archive, "-C", folder, "--", f"./{name}")


def _bsd(*options: str) -> Callable[[Path, Path], str | None]:
    def write(folder: Path, archive: Path) -> str:
        return _run("bsdtar", "-cf", archive, *options, "-C", folder, ".")

    return write


def _python(format: int) -> Callable[[Path, Path], str | None]:  # noqa: A002
    def write(folder: Path, archive: Path) -> None:
        with tarfile.open(archive, "w", format=format) as tar:
            for name in _names(folder):
                with contextlib.suppress(ValueError):  # the format cannot hold it
                    tar.add(folder / os.fsdecode(name), os.fsdecode(name), recursive=False)

    return write


def _seven_zip(*options: str) -> Callable[[Path, Path], str | None]:
    def write(folder: Path, archive: Path) -> str:
        return _run(
            "7zz",
            "a",
            "-ttar",
            "-snl",
            "-snh",
            *options,
            archive,
            ".",
            cwd=folder,
        )

    return write


@functools.lru_cache(maxsize=1)
def _built_folder() -> Path:
    # Not below TMPDIR: tests have that anew for each file, and what is built here serves all files.
    folder = Path(tempfile.mkdtemp(prefix="nbdata-corpus-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.lru_cache(maxsize=1)
def _go_program() -> Path:
    program = _built_folder() / "go-tar"
    environment = {**os.environ, "GOCACHE": str(_built_folder() / "go"), "GO111MODULE": "off", "GOFLAGS": ""}
    subprocess.run(["go", "build", "-o", program, str(_HERE / "pack.go")], env=environment, check=True)
    return program


def _go(format: str) -> Callable[[Path, Path], str | None]:  # noqa: A002
    def write(folder: Path, archive: Path) -> str:
        return _run(_go_program(), format, archive, folder)

    return write


@functools.lru_cache(maxsize=1)
def _java_classes() -> Path:
    classes = _built_folder() / "java"
    _run("javac", "-cp", _COMPRESS_JAR, "-d", classes, _HERE / "Pack.java")
    return classes


def _java(format: str) -> Callable[[Path, Path], str | None]:  # noqa: A002
    def write(folder: Path, archive: Path) -> str:
        return _run("java", "-cp", f"{_COMPRESS_JAR}:{_java_classes()}", "Pack", format, archive, folder)

    return write


def _perl(folder: Path, archive: Path) -> str:
    script = (
        "use Archive::Tar; my $t = Archive::Tar->new; chomp(my @n = <STDIN>);"
        "$t->add_files(@n); $t->write($ARGV[0]) or die;"
    )
    return _run("perl", "-e", script, archive, cwd=folder, stdin=b"\n".join(_names(folder)))


def _busybox(folder: Path, archive: Path) -> str:
    return _run("busybox", "tar", "-cf", archive, "-C", folder, ".")


def _pax(format: str) -> Callable[[Path, Path], str | None]:  # noqa: A002
    def write(folder: Path, archive: Path) -> str:
        return _run("pax", "-w", "-x", format, "-f", archive, ".", cwd=folder)

    return write


def _cpio(format: str) -> Callable[[Path, Path], str | None]:  # noqa: A002
    def write(folder: Path, archive: Path) -> str:
        names = b"".join(name + b"\0" for name in _names(folder))
        return _run("cpio", "-o", "-0", "--quiet", "-H", format, cwd=folder, stdin=names, stdout=archive)

    return write


def _git(folder: Path, archive: Path) -> None:
    """Write a commit as a tarball; git keeps no empty folders, and gives all files one time."""
    with tempfile.TemporaryDirectory() as place:
        git = (
            "git",
            f"--git-dir={place}/.git",
            f"--work-tree={folder}",
            "-c",
            "user.name=x",
            "-c",
            "user.email=x",
        )
        _run("git", "init", "-q", place)
        _run(*git, "add", "-A", "-f", cwd=folder)
        _run(*git, "-c", "commit.gpgsign=false", "commit", "-q", "-m", "x", cwd=folder)
        _run(*git, "archive", "--format=tar", "-o", archive, "HEAD", cwd=folder)


def _deb(folder: Path, archive: Path) -> None:
    """Write the data part of a Debian package, as dpkg packs it."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "root")
        shutil.copytree(folder, root / "data", symlinks=True)
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN" / "control").write_text(
            "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.com>\nDescription: x\n"
        )
        (root / "DEBIAN").chmod(0o755)
        _run("dpkg-deb", "-Znone", "--root-owner-group", "--build", root, Path(place, "x.deb"))
        _run("ar", "p", Path(place, "x.deb"), "data.tar", stdout=archive)


def _npm(folder: Path, archive: Path) -> None:
    """Write a package as npm publishes it; npm leaves out links and empty folders."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "root")
        shutil.copytree(folder, root, symlinks=True)
        (root / "package.json").write_text('{"name": "x", "version": "1.0.0"}')
        _run("npm", "pack", "--silent", "--offline", "--pack-destination", place, cwd=root)
        shutil.move(Path(place, "x-1.0.0.tgz"), archive)


def _piped(*words: str) -> Callable[[Path, Path], str | None]:
    """Return a writer that pipes GNU tar through a compressor."""

    def write(folder: Path, archive: Path) -> None:
        with tempfile.NamedTemporaryFile(suffix=".tar") as plain:
            _run("tar", "-cf", plain.name, "--sort=name", "-C", folder, ".")
            with open(plain.name, "rb") as source, open(archive, "wb") as target:
                subprocess.run(words, stdin=source, stdout=target, check=True)

    return write


def _seven_zip_gzip(folder: Path, archive: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        plain = Path(place, "a.tar")
        _run("tar", "-cf", plain, "-C", folder, ".")
        _run("7zz", "a", "-tgzip", archive, plain)


_PLAIN = ("plain",)

WRITERS = [
    *(
        Writer(f"GNU tar {name}", (), _gnu(f"--format={name}"))
        for name in ("v7", "oldgnu", "gnu", "ustar", "posix")
    ),
    *(
        Writer(
            f"GNU tar {name} sparse",
            (),
            _gnu("-S", "--hole-detection=raw", *options),
            trees=("sparse", "long"),
        )
        for name, options in {
            "oldgnu": ["--format=oldgnu"],
            "gnu": ["--format=gnu"],
            "posix 0.0": ["--format=posix", "--sparse-version=0.0"],
            "posix 0.1": ["--format=posix", "--sparse-version=0.1"],
            "posix 1.0": ["--format=posix", "--sparse-version=1.0"],
        }.items()
    ),
    Writer("GNU tar sparse seek", (), _gnu("-S"), trees=("sparse",)),
    Writer("GNU tar label", (), _gnu("--label=a label"), trees=_PLAIN),
    Writer("GNU tar posix label", (), _gnu("--label=a label", "--format=posix"), trees=_PLAIN),
    Writer("GNU tar one block", (), _gnu("-b1"), trees=_PLAIN),
    Writer("GNU tar xattrs", (), _gnu("--format=posix", "--xattrs", "--acls"), trees=_PLAIN),
    Writer("GNU tar hard dereference", (), _gnu("--hard-dereference"), trees=("links",)),
    Writer("GNU tar absolute", (), _gnu_absolute, trees=("plain", "long")),
    Writer("GNU tar incremental", (), _gnu_incremental, trees=("plain", "links")),
    Writer("GNU tar appended", (), _gnu_appended, trees=("plain", "names")),
    *(
        Writer(f"bsdtar {name}", ("bsdtar",), _bsd(f"--format={name}"))
        for name in ("v7tar", "ustar", "pax", "paxr", "gnutar")
    ),
    *(
        Writer(f"Python {name}", (), _python(format_))
        for name, format_ in {
            "ustar": tarfile.USTAR_FORMAT,
            "gnu": tarfile.GNU_FORMAT,
            "pax": tarfile.PAX_FORMAT,
        }.items()
    ),
    Writer("7-Zip", ("7zz",), _seven_zip()),
    Writer("7-Zip posix", ("7zz",), _seven_zip("-mm=posix")),
    *(Writer(f"Go {name}", ("go",), _go(name)) for name in ("USTAR", "PAX", "GNU")),
    *(
        Writer(
            f"Java {name}",
            ("java",),
            _java(name),
            trees=("plain", "long", "names", "times"),
        )
        for name in ("posix", "gnu")
    ),
    Writer("Perl", ("perl",), _perl, trees=("plain", "long", "links", "times")),
    Writer("BusyBox", ("busybox",), _busybox),
    *(
        Writer(f"pax {name}", ("pax",), _pax(name), trees=("plain", "links", "times"))
        for name in ("ustar", "tar")
    ),
    *(Writer(f"cpio {name}", ("cpio",), _cpio(name), trees=("plain", "links")) for name in ("ustar", "tar")),
    Writer("git", ("git",), _git, trees=("plain", "long", "links", "names")),
    Writer("dpkg", ("dpkg-deb", "ar"), _deb, trees=("plain", "long", "links")),
    Writer("npm", ("npm",), _npm, ".tgz", trees=("plain", "long")),
    *(
        Writer(
            f"GNU tar through {' '.join(words)}",
            ("zstd",) if words[0] == "zstd" else (),
            _piped(*words),
            f".tar.{suffix}",
            trees=_PLAIN,
        )
        for suffix, words in (
            ("gz", ("gzip", "-c")),
            ("gz", ("gzip", "-c", "--rsyncable")),
            ("bz2", ("bzip2", "-c")),
            ("xz", ("xz", "-c", "-0")),
            ("xz", ("xz", "-c", "-0", "-T2", "--block-size=65536")),
            ("xz", ("xz", "-c", "-0", "--check=sha256")),
            ("zst", ("zstd", "-c", "-q")),
            ("zst", ("zstd", "-c", "-q", "--long=27", "--check")),
        )
    ),
    *(
        Writer(f"bsdtar {option}", ("bsdtar",), _bsd(f"--{option}"), f".tar.{suffix}", trees=_PLAIN)
        for option, suffix in (("gzip", "gz"), ("bzip2", "bz2"), ("xz", "xz"), ("zstd", "zst"))
    ),
    Writer("7-Zip gzip", ("7zz",), _seven_zip_gzip, ".tar.gz", trees=_PLAIN),
]


def main() -> None:
    """Pack all trees below a folder, and print the missing programs."""
    target = Path(sys.argv[1])
    content = make_content(target / "content")
    for writer in WRITERS:
        if missing := why_missing(writer.needs):
            print(f"{writer.name}: {missing}")
            continue
        for tree in writer.trees:
            try:
                print(pack(writer, content / tree, target / "archives"))
            except RuntimeError as error:
                print(f"{writer.name}, {tree}: {error}")


if __name__ == "__main__":
    main()
