"""No text in a list of checksums takes time with the square of its length, whichever form the list has.

Each case is a list that grows. A list that is eight times as long may take 24 times as long. A quadratic reader takes
64 times as long. Processor time counts, of the thread alone, so other processes do not matter.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable

import pytest

from nbdata.integrity.checksum_files import parse_checksums
from nbdata.integrity.listed_names import DataNames, beside, resolve

DIGEST = "0" * 32
DEEP = "/".join("x" * 30)
# The smaller list takes at least this time, so that the measurement means something. A list of this length that does
# not is read fast enough.
_SECONDS, _LONGEST = 0.004, 4_000_000


def _seconds(work: Callable[[], object]) -> float:
    """Return the processor time of the fastest of three calls."""
    taken = []
    for _ in range(3):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return min(taken)


def _is_linear(work: Callable[[int], Callable[[], object]]) -> None:
    """Compare the time for lists of two lengths."""
    length = 4000
    while (small := _seconds(work(length))) < _SECONDS and 8 * length < _LONGEST:
        length *= 2
    if small >= _SECONDS:
        large = _seconds(work(8 * length))
        assert large < 24 * small, f"{length:,}: {small:.4f} s, {8 * length:,}: {large:.4f} s"


def test_a_quadratic_reader_would_be_noticed() -> None:
    with pytest.raises(AssertionError):
        _is_linear(lambda length: lambda: sum(1 for _ in range((length // 100) ** 2)))


def _table(length: int) -> str:
    return "Algorithm Hash Path\n--------- ---- ----\n" + f"MD5 aa x{' ' * length}y\n"


def _columns(length: int) -> str:
    return f"%%%% HASHDEEP-1.0\n%%%% {'a' * length},filename\n" + "a,x\n" * (length // 4)


def _signatures(length: int) -> str:
    return "-----BEGIN PGP SIGNATURE-----\n\n-----BEGIN PGP SIGNED MESSAGE-----\na: b\n" * (length // 60)


def _gzipped(length: int) -> bytes:
    return gzip.compress(b"") * (length // 20) + gzip.compress(b"x")


LISTS: dict[str, tuple[str, Callable[[int], str | bytes]]] = {
    "blanks": ("MD5SUMS", lambda length: f"{DIGEST} {' ' * length}\n"),
    "long": ("MD5SUMS", lambda length: "0" * length + "="),
    "escaped": ("MD5SUMS", lambda length: "\\" + DIGEST + "  " + "a\\n" * length + "\\x"),
    "BSD": ("MD5SUMS", lambda length: "MD5 (" + ")= a " * length),
    "BSD, no digest": ("MD5SUMS", lambda length: "MD5 (" + ") = " * length),
    "algorithm": ("MD5SUMS", lambda length: "A" * length + " (x) = 0"),
    "signatures": ("MD5SUMS", _signatures),
    "signature": ("MD5SUMS", lambda length: "-----BEGIN PGP SIGNATURE-----\n" + "\n" * length),
    "SFV": ("x.sfv", lambda length: f"x{' ' * length}y\n"),
    "SFV, digits": ("x.sfv", lambda length: f"x{' 0' * length}\n"),
    "Get-FileHash": ("x.txt", _table),
    "Format-List": (
        "x.txt",
        lambda length: "Algorithm : MD5\nHash : aa\nPath : x\n" + "x\n" * length,
    ),
    "certutil": ("x.txt", lambda length: "MD5 hash of x:\n" + "MD5 hash of " + ": " * length + "x\n"),
    "hashdeep": ("x.txt", _columns),
    "hashdeep, commas": ("x.txt", lambda length: "%%%% HASHDEEP-1.0\n%%%% a,filename\n" + "," * length),
    "CSV": ("x.csv", lambda length: "path" + ",md5" * 1000 + "\n" + "x\n" * length),
    "CSV, quotes": ("x.csv", lambda length: "path,md5\n" + '"' * length),
    "JSON": ("x.json", lambda length: '[{"path":"x","checksum":"' + "a:" * length + '"}]'),
    "JSON, keys": ("x.json", lambda length: '{"' + "a" * length + '":"' + "0" * length + '"}'),
    "members": ("MD5SUMS.gz", _gzipped),
}


@pytest.mark.in_ci(5)
@pytest.mark.parametrize("form", LISTS)
def test_a_list_is_read_in_linear_time(form: str) -> None:
    name, text = LISTS[form]

    def work(length: int) -> Callable[[], object]:
        data = text(length)
        encoded = data if isinstance(data, bytes) else data.encode()
        return lambda: parse_checksums(encoded, name=name)

    _is_linear(work)


def _names(name: Callable[[int], str], count: int = 1, folder: str = "") -> Callable[[int], object]:
    def work(length: int) -> Callable[[], object]:
        names = [name(length)] * count
        return lambda: resolve(names, DataNames({"f.bin", "g.bin"}), folder, folder)

    return work


@pytest.mark.in_ci(2)
@pytest.mark.parametrize(
    "name",
    [
        lambda length: "/" + "a/" * (length // 2) + "z",
        lambda length: "/" + "a/" * (length // 2) + "f.bin",
        lambda length: "a/" * (length // 2) + "z",
        lambda length: "../" * (length // 3) + "z",
        lambda length: "C:" + "\\a" * (length // 2),
        lambda length: "./" * (length // 2) + "z",
    ],
    ids=["absolute", "found", "relative", "above", "Windows", "dots"],
)
def test_a_name_of_many_parts_is_looked_for_in_linear_time(name: Callable[[int], str]) -> None:
    _is_linear(_names(name))
    _is_linear(lambda length: lambda: beside([name(length), name(length) + "2"]))


def test_names_of_many_parts_that_many_files_have_take_linear_time() -> None:
    files = {f"sub/{number}/{DEEP}": 1 for number in range(999)}
    names = [f"/h/{DEEP}"]

    def work(length: int) -> Callable[[], object]:
        return lambda: resolve(names * (length // len(DEEP)), DataNames(files), "sub", "sub")

    few, many = _seconds(work(600)), _seconds(work(60_000))
    assert many < 100 * few
