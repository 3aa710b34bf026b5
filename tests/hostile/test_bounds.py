"""No data decides how much memory is taken: each reader refuses it, by name, below a stated peak.

Each case runs in a process of its own, whose peak is measured.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import subprocess
import sys
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import zstandard
from PIL import Image

from nbdata.formats.ffrecord import HeadWriter
from nbdata.formats.packed_folder import MARK
from tests.hostile import bombs
from tests.waiting import PATIENCE

GIB = 1 << 30
# What nbdata itself takes, with its stores, its threads and NumPy.
_OWN = 160 << 20

_RUN = """
import json, re, sys
import nbdata
error = None
try:
    exec(sys.argv[1])
except nbdata.NbdataError as caught:
    error = str(caught)
# Not `ru_maxrss`, which begins with the memory of the process that started this one.
peak = int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
print(json.dumps([error, peak << 10]))
"""
UNPACK = "nbdata.untar_volumes(sys.argv[2], sys.argv[2] + '.d', quiet=True)"
LIST = "nbdata.untar_volumes(sys.argv[2], list=True, quiet=True)"
STREAM = "[sample for sample in nbdata.samples(sys.argv[2], quiet=True).stream()]"
SHUFFLE = "[sample for sample in nbdata.samples(sys.argv[2], quiet=True).stream(shuffle=True)]"
VERIFY = "nbdata.shards('verify', sys.argv[2], quiet=True)"
INDEX = "nbdata.shards('index', sys.argv[2], quiet=True)"
PACK = "nbdata.pack(sys.argv[2], sys.argv[2] + '.d/', quiet=True)"
MAPPED = "nbdata.pack(sys.argv[2], sys.argv[2] + '.d/', map=dict, quiet=True)"
DECODE = "nbdata.decode({'__key__': 'k', sys.argv[2].rpartition('.')[2]: open(sys.argv[2], 'rb').read()})"
PICKLE = (
    "from nbdata.formats.plain_pickle import load_plain; load_plain(open(sys.argv[2], 'rb').read(), 'it')"
)
SUMS = (
    "from nbdata.integrity.checksum_files import parse_checksums; "
    "found = parse_checksums(open(sys.argv[2], 'rb').read(), name=sys.argv[2]); "
    "assert found.problems and not found.entries"
)
# Stores an index beside `a.txt`, as another user can, that says it has 2 GiB.
CLAIMED = """
import os, shutil
from nbdata.formats.sample_index import IndexWriter
from nbdata.formats.sample_objects import SampleObject
folder = os.path.dirname(sys.argv[2])
with nbdata.samples(folder, refresh="always", include="*.txt") as samples:
    place, about = samples.save_index(), samples.index.about
writer = IndexWriter()
writer.add("a", [SampleObject("txt", "a.txt", 2 << 30, '"x"')])
with open(place, "wb") as file:
    file.writelines(writer.pieces(about))
shutil.rmtree(os.environ["NBDATA_STATE_DIR"] + "/samples")
with nbdata.samples(folder, refresh="never", include="*.txt") as samples:
    assert samples.index.bytes == 2 << 30
    samples.fetch([0])
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str, str, bytes], tuple[str | None, int]]:
    """Return a function that runs a reader on a file with these bytes: the error, and the peak."""

    def run(reader: str, name: str, data: bytes) -> tuple[str | None, int]:
        path = tmp_path / name
        path.write_bytes(data)
        done = subprocess.run(
            [sys.executable, "-c", _RUN, reader, str(path)], cwd=tmp_path, capture_output=True, timeout=PATIENCE,
            env={"NBDATA_HOST": "inline", "NBDATA_STATE_DIR": str(tmp_path / "state"), "PATH": "/usr/bin:/bin",
                 "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        error, peak = json.loads(done.stdout.decode().splitlines()[-1])
        print(f"{name}: {peak >> 20} MiB, {error}")
        return error, peak

    return run


Run = Callable[[str, str, bytes], "tuple[str | None, int]"]


@pytest.mark.in_ci(2)
@pytest.mark.parametrize("reader", [UNPACK, LIST, STREAM, SHUFFLE, VERIFY, MAPPED])
def test_an_archive_with_a_window_of_2_gib_is_refused_with_the_window(run: Run, reader: str) -> None:
    blob = bombs.zstd_of_zeros(31, 2 * GIB, bombs.tar_with("a.bin", 2 * GIB))
    assert len(blob) < 100_000
    error, peak = run(reader, "x.tar.zst", blob)
    assert error is not None
    assert "at most 128 MiB" in error
    assert "2,048 MiB in its header" in error
    assert "--max-window" in error
    assert "x.tar.zst" in error
    assert peak < _OWN


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("reader", [UNPACK, STREAM, VERIFY])
def test_an_archive_of_xz_with_a_dictionary_of_1_gib_is_refused_with_it(run: Run, reader: str) -> None:
    error, peak = run(reader, "x.tar.xz", bombs.xz_with_dictionary(GIB))
    assert error is not None
    assert "1,024 MiB in its header" in error
    assert peak < _OWN


@pytest.mark.in_ci(1)
@pytest.mark.parametrize(
    "blob", [bombs.zip_of_lzma(GIB), bombs.zip_of_zstd(30, GIB)], ids=["LZMA", "Zstandard"]
)
def test_a_zip_member_with_a_large_window_is_refused_with_it(run: Run, blob: bytes) -> None:
    error, peak = run(UNPACK, "x.zip", blob)
    assert error is not None
    assert "1,024 MiB in its header" in error
    assert "the member a needs a larger window" in error
    assert peak < _OWN


@pytest.mark.long
def test_the_blocks_of_a_frame_are_not_decompressed_all_at_once(run: Run) -> None:
    """Four bytes give 128 KiB: a few KiB of input once made blocks of 256 MiB, and eight of them were read ahead."""
    blob = bombs.zstd_of_zeros(17, 3 * GIB + 1024, bombs.tar_with("a.bin", 3 * GIB))
    error, peak = run(LIST, "x.tar.zst", blob)
    assert error is None
    assert peak < _OWN


@pytest.mark.in_ci(2)
@pytest.mark.parametrize("name", ["x.tar.zst", "x.tar"])
@pytest.mark.parametrize("reader", [STREAM, SHUFFLE, MAPPED])
def test_a_sample_that_is_too_large_is_refused_before_it_is_read(run: Run, reader: str, name: str) -> None:
    head = bombs.tar_with("a.bin", 3 * GIB)
    data = bombs.zstd_of_zeros(17, 3 * GIB, head) if name.endswith("zst") else head + bytes(10_000)
    error, peak = run(reader, name, data)
    assert error is not None
    assert "too large to hold in memory by its member a.bin" in error
    assert "--max-sample" in error
    assert name in error
    assert peak < _OWN


def test_a_sample_of_many_small_fields_is_bounded_too(run: Run) -> None:
    members = b"".join(bombs.tar_with(f"a.{number}", 0) for number in range(1000))
    small = STREAM.replace("quiet=True", "quiet=True, max_sample='200kB'")
    error, _ = run(small, "x.tar", members + bytes(1024))
    assert error is not None
    assert "too large to hold in memory" in error


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("reader", [VERIFY, "nbdata.shards('ls', sys.argv[2], quiet=True)"])
def test_what_holds_no_samples_reads_members_of_any_size_in_blocks(run: Run, reader: str) -> None:
    blob = bombs.zstd_of_zeros(17, 3 * GIB + 1024, bombs.tar_with("a.bin", 3 * GIB))
    error, peak = run(reader, "x.tar.zst", blob)
    assert error is None
    assert peak < _OWN


LOOK = "nbdata.shards('ls', sys.argv[2], quiet=True)"


@pytest.mark.in_ci("many")
@pytest.mark.parametrize("samples", ["one", "many"])
def test_names_of_fields_count_by_the_memory_that_they_take(run: Run, samples: str) -> None:
    names = (f"{number if samples == 'many' else 'k'}.{number}" + "😀" * 4000 for number in range(8000))
    error, peak = run(LOOK, "x.tar", b"".join(map(bombs.tar_with_name, names)) + bytes(1024))
    assert (error is None) == (samples == "many")
    assert peak < 120 << 20


def test_a_stream_holds_one_sample_at_a_time(run: Run) -> None:
    size, count = 200 << 20, 3
    members = (bombs.zstd_of_zeros(17, size, bombs.tar_with(f"{n}.bin", size)) for n in range(count))
    reader = "for sample in nbdata.samples(sys.argv[2], quiet=True).stream(): del sample"
    error, peak = run(reader, "x.tar.zst", b"".join(members) + bombs.zstd_of_zeros(17, 1024))
    assert error is None
    assert peak < size + _OWN


def test_folders_within_folders_do_not_fill_the_memory(run: Run) -> None:
    deep = b"".join(bombs.tar_with(f"{number}/" + "a/" * 2000 + "x", 0) for number in range(150))
    error, peak = run(LIST, "x.tar", deep + bytes(1024))
    assert error is not None
    assert "would fill the memory" in error
    assert peak < _OWN + (128 << 20)


@pytest.mark.long
def test_long_names_of_many_members_do_not_fill_the_memory(run: Run) -> None:
    """Each takes a few bytes of the archive here, and 64 KB in memory and in records."""
    long = ("😀" * 50 + "/") * 80
    members = (bombs.tar_with_name(f"{long}{number}") for number in range(9000))
    error, peak = run(LIST, "x.tar.zst", zstandard.compress(b"".join(members) + bytes(1024)))
    assert error is not None
    assert "would fill the memory" in error
    assert peak < _OWN + (192 << 20)


@pytest.mark.long
def test_names_of_megabytes_are_listed_short(run: Run) -> None:
    members = (bombs.tar_with_name(str(n) + "😀" * (1020 << 10)) for n in range(8))
    error, peak = run(LIST, "x.tar", b"".join(members) + bytes(1024))
    assert error is None
    assert peak < _OWN


def test_a_hole_takes_its_size_once(run: Run) -> None:
    error, peak = run(STREAM, "x.tar", bombs.tar_with_hole("a.bin", GIB // 2) + bytes(1024))
    assert error is None
    assert peak < _OWN + GIB // 2 + (64 << 20)


def test_an_index_is_made_of_members_of_any_size_in_blocks(run: Run, tmp_path: Path) -> None:
    with open(tmp_path / "large.tar", "wb") as file:
        file.write(bombs.tar_with("a.bin", GIB // 2))
        file.truncate(GIB // 2 + 512 + 1024)
    head = bombs.tar_with("a.bin", 0)
    index = INDEX.replace("sys.argv[2]", repr(str(tmp_path / "large.tar")))
    error, peak = run(index, "x.tar", head)
    assert error is None
    assert peak < _OWN + (128 << 20)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.npz", lambda: bombs.npz(2 * GIB)),
        ("x.npz", lambda: bombs.npz(400 << 20, "abcdef")),
        ("x.npy", lambda: bombs.npy("(1000000, 1000000)")),
        ("x.json", lambda: b"[" + b"{}," * 10_000_000 + b"{}]"),
        ("x.msgpack", lambda: b"\xdd\x01\x00\x00\x00" + b"\x90" * (1 << 24)),
        ("x.png", lambda: bombs.png(13_000, 13_000)),
    ],
    ids=["npz", "npz of several", "npy", "json", "msgpack", "png"],
)
@pytest.mark.in_ci("npz", "png", 1)
def test_a_field_that_decodes_to_too_much_is_refused(run: Run, name: str, data: Callable[[], bytes]) -> None:
    blob = data()
    error, peak = run(DECODE, name, blob)
    assert error is not None
    assert f"the field '{name.rpartition('.')[2]}' of the sample 'k' would take too much memory" in error
    assert f"at most {GIB:,} bytes" in error
    assert peak < GIB + _OWN + 3 * len(blob)


def picture(kind: str, mode: str) -> bytes:
    """Return a picture of 25 million pixels."""
    if kind == "webp":
        return bombs.webp(5000, 5000)
    file = io.BytesIO()
    Image.new(mode, (5000, 5000)).save(file, kind, compress_level=1)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "mode", "pixel"), [("webp", "RGBA", 23), ("png", "LA", 15), ("png", "P", 12)]
)
@pytest.mark.in_ci("webp-RGBA-23")
def test_a_picture_takes_no_more_than_it_counts(run: Run, kind: str, mode: str, pixel: int) -> None:
    for counted in (pixel - 1, pixel):
        limit = counted * 5000 * 5000
        reader = DECODE.removesuffix(")") + f", images='numpy', max_bytes={limit})"
        error, peak = run(reader, f"x.{kind}", picture(kind, mode))
        assert (error is None) == (counted == pixel)
        assert peak < limit + (80 << 20)


def test_a_notebook_shows_no_picture_that_takes_much_memory(run: Run) -> None:
    reader = "assert 'data:image' not in nbdata.samples(sys.argv[2].rpartition('/')[0])._repr_html_()"
    error, peak = run(reader, "x.webp", bombs.webp(9000, 9000))
    assert error is None
    assert peak < _OWN


_SHARED = b"\x80\x04B" + (1 << 20).to_bytes(4, "little") + bytes(1 << 20) + b"\x94"
_COPIED = _SHARED + b"0(" + b"cbuiltins\nbytearray\nh\x00\x85R" * 3000 + b"t."


@pytest.mark.parametrize("data", [b"\x80\x04Nr\xff\xff\xff\x0f.", b"Np200000000\n.", _COPIED])
def test_a_pickle_takes_no_more_than_it_has(run: Run, data: bytes) -> None:
    error, peak = run(PICKLE, "x.pkl", data)
    assert error is not None
    assert peak < _OWN


def test_an_honest_pickle_is_read(run: Run) -> None:
    error, _ = run(PICKLE, "x.pkl", pickle.dumps([bytearray(b"x") * 9, {1, 2}], protocol=2))
    assert error is None


def test_an_index_does_not_decide_how_many_digests_a_shard_takes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(bombs.tar_with("a.bin", 4 << 20) + bytes((4 << 20) + 1024))
    size = (tmp_path / "a.tar").stat().st_size
    for etag, part_size in (("0" * 32 + "-7", 1), ("0" * 32 + f"-{-(-size // 40)}", 40)):
        entry = {"url": "a.tar", "nsamples": 1, "filesize": size, "etag": etag, "part_size": part_size}
        index = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [entry]}
        error, peak = run(VERIFY, "index.json", json.dumps(index).encode())
        assert error is None
        assert peak < _OWN


@pytest.mark.in_ci(1)
@pytest.mark.parametrize(
    ("folder", "what"), [(8000, "too many times"), (300_000, "more than 8,192 characters")]
)
def test_the_names_of_a_packed_folder_take_no_more_than_its_size_allows(
    run: Run, folder: int, what: str
) -> None:
    files = OrderedDict((f"{number:x}.a", 0) for number in range(40_000))
    names = MARK + pickle.dumps(OrderedDict([("d" * folder, files)]), protocol=4)
    head = HeadWriter()
    head.add(1, zlib.crc32(b"x"))
    head.add(len(names), zlib.crc32(names))
    error, peak = run("nbdata.samples(sys.argv[2])", "a.ffr", b"".join(head.pieces()) + b"x" + names)
    assert error is not None
    assert what in error
    assert peak < _OWN


@pytest.mark.long
@pytest.mark.parametrize("step", [b"\x94", b"(", b"h\x00)R"])
def test_the_instructions_of_a_packed_folder_do_not_fill_the_memory(run: Run, step: bytes) -> None:
    """Each makes one more entry of the memo or of the stack."""
    begin = MARK + b"\x80\x04ccollections\nOrderedDict\nq\x00)R"
    names = begin + step * ((4 << 20) // len(step)) + b"."
    head = HeadWriter()
    for _ in range(1000):
        head.add(1, zlib.crc32(b"x"))
    head.add(len(names), zlib.crc32(names))
    error, peak = run("nbdata.samples(sys.argv[2])", "a.ffr", b"".join(head.pieces()) + b"x" * 1000 + names)
    assert error is not None
    assert "more than" in error
    assert "instructions" in error
    assert peak < _OWN + (200 << 20)


def test_the_base_of_an_index_takes_no_memory_for_each_shard(run: Run) -> None:
    shards = [{"url": f"{number}.tar", "nsamples": 1} for number in range(1000)]
    index = {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "base": "a" * 400_000 + "/",
        "shardlist": shards,
    }
    error, peak = run("nbdata.samples(sys.argv[2])", "index.json", json.dumps(index).encode())
    assert error is not None
    assert "a base that is too long for so many shards" in error
    assert peak < _OWN


def test_the_size_that_an_index_claims_takes_no_memory(run: Run) -> None:
    error, peak = run(CLAIMED, "a.txt", b"short")
    assert error is not None
    assert "a.txt" in error
    assert peak < _OWN


@pytest.mark.in_ci(1)
@pytest.mark.parametrize("count", [1, 256], ids=["one", "many"])
def test_the_size_that_a_server_claims_takes_no_memory(run: Run, count: int) -> None:
    claimed = 2 * GIB
    head = HeadWriter()
    for _ in range(count):
        head.add(claimed // count, 0)
    with lying(b"".join(head.pieces()), claimed + 10_000) as url:
        error, peak = run(f"nbdata.samples('{url}/a.ffr', verify='none').fetch(range({count}))", "x", b"")
    assert error is not None
    assert "a.ffr" in error
    assert peak < _OWN


@contextmanager
def without_a_size() -> Iterator[str]:
    """Serve a folder with one object of 1 GiB, whose size is not said."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()

        def do_GET(self) -> None:
            if not self.path.endswith("/"):
                self.do_HEAD()
                with suppress(OSError):
                    for _ in range(1 << 10):
                        self.wfile.write(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
                    self.wfile.write(b"0\r\n\r\n")
                return
            page = b"<title>Index of /</title><a href=1.jpg>1.jpg</a>"
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_an_object_without_a_size_ends_at_a_bound(run: Run) -> None:
    with without_a_size() as url:
        error, peak = run("nbdata.samples(open(sys.argv[2]).read())[0]", "url", url.encode())
    assert error is not None
    assert "1.jpg" in error
    assert "at most 256 MiB" in error
    assert peak < _OWN + (320 << 20)


@contextmanager
def lying(data: bytes, size: int) -> Iterator[str]:
    """Serve an object that is said to have a size; it has these bytes, zeros behind them, and no range above 1 MiB."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(200, size)

        def do_GET(self) -> None:
            first, _, last = self.headers["range"].removeprefix("bytes=").partition("-")
            begin, length = int(first), int(last) + 1 - int(first)
            if length > 1 << 20:
                self.answer(403, 0)
            else:
                self.answer(206, length, f"bytes {first}-{last}/{size}")
                self.wfile.write(data[begin : begin + length].ljust(length, b"\0"))

        def answer(self, status: int, length: int, content_range: str | None = None) -> None:
            self.send_response(status)
            self.send_header("etag", '"x"')
            self.send_header("accept-ranges", "bytes")
            self.send_header("content-length", str(length))
            if content_range is not None:
                self.send_header("content-range", content_range)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


_SUM = b"0" * 32


@pytest.mark.long
def test_large_checksum_files_are_read_one_by_one(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(12):
        (data / f"{number:02d}.bin").write_bytes(b"x")
        with open(data / f"{number:02d}.bin.md5", "wb") as file:
            file.truncate(60 << 20)
    (data / "12.bin").write_bytes(b"x")
    (data / "12.bin.md5").write_text("9dd4e461268c8034f5c8564e155c67a6")
    error, peak = run("nbdata.md5check(sys.argv[2].rpartition('/')[0] + '/data', quiet=True)", "x", b"")
    assert error is not None
    assert "12 of 25 cannot be read" in error
    assert peak < _OWN + 3 * (60 << 20)


@pytest.mark.parametrize(
    "text",
    [  # made when they are used: they take 200 MB
        lambda: b"00000000 b\n" * 4_000_000,
        lambda: b"\n" * (64 << 20),
        lambda: b"\\" + _SUM + b"  " + b"a" * 8_000_000,
        lambda: b"-----BEGIN PGP SIGNATURE-----\n" + b"a\n" * 4_000_000 + b"-----END PGP SIGNATURE-----",
        lambda: b"%%%% HASHDEEP-1.0\n%%%% " + b"a" * 1_000_000 + b",filename\n" + b"a,x\n" * 1000,
        lambda: (
            b"%%%% HASHDEEP-1.0\n%%%% " + b"md5," * 12_000_000 + b"filename\n" + (_SUM + b",") * 999 + b"x"
        ),
        lambda: b"path,md5\n" + b"," * (60 << 20),
    ],
    ids=[
        "short lines",
        "no lines",
        "an escaped name",
        "a signature",
        "a long column",
        "many columns",
        "a wide row",
    ],
)
@pytest.mark.in_ci("short lines")
def test_a_list_of_checksums_takes_no_more_than_its_size_allows(run: Run, text: Callable[[], bytes]) -> None:
    _, peak = run(SUMS, "crc32sums.gz", gzip.compress(text(), 1))
    assert peak < _OWN + 6 * (64 << 20)
