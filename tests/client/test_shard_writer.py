"""write_shards: the samples that a program writes can be read back, and failures leave nothing behind."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import nbdata
from nbdata.demo.server import EmbeddedServer
from nbdata.errors import BadOption, NbdataError, NotEnoughSpace
from tests.conftest import client_of
from tests.faults.proxy import AFTER, BEFORE, BODY, HEAD, Fault, FaultProxy
from tests.faults.scene import objects_of
from tests.faults.test_lines import proxy
from tests.formats.test_shards import found_by_webdataset

__all__ = ["proxy"]

MIB = 1 << 20
_CHANGING = ("part", "put", "create", "complete")


def samples_of(count: int, size: int = 3000) -> list[dict[str, Any]]:
    source = np.random.default_rng(count)
    return [
        {"__key__": f"{'ä' if number % 3 else 'a'}/{number:04}", "bin": source.bytes(size), "cls": number}
        for number in range(count)
    ]


def written(target: Any, samples: Iterable[dict[str, Any]], **options: Any) -> None:
    """Write samples to a target, or with an existing writer."""
    with nbdata.write_shards(target, **options) if isinstance(target, str) else target as shards:
        for sample in samples:
            shards.write(sample)


def back(samples: Any) -> list[dict[str, Any]]:
    return [
        {name: int(value) if name == "cls" else value for name, value in one.items() if name != "__url__"}
        for one in samples
    ]


def pending(s3: EmbeddedServer, bucket: str) -> int:
    client = client_of(s3)
    found = client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    client.close()
    return len(found)


def there(s3: EmbeddedServer, bucket: str) -> dict[str, bytes]:
    client = client_of(s3)
    found = objects_of(client, bucket)
    client.close()
    return found


@pytest.mark.parametrize("target", ["s3", "disk", "memory"])
def test_what_is_written_comes_back(target: str, s3: EmbeddedServer, bucket: str, tmp_path: Path) -> None:
    folder = {"s3": f"s3://{bucket}/", "disk": f"{tmp_path}/", "memory": f"memory://{bucket}/"}[target]
    samples = samples_of(30)
    with nbdata.write_shards(f"{folder}x-%03d.tar", shard_size=50_000) as shards:
        for sample in samples:
            shards.write(sample)
    assert (shards.samples, len(samples)) == (30, 30)
    read = nbdata.samples(f"{folder}x-*.tar", ahead_bytes="1MB")
    assert back(read.stream()) == samples
    assert "is closed" in repr(shards)
    assert "30 samples in 4 shards" in repr(shards)
    read.close()
    if target == "s3":
        said = json.loads(there(s3, bucket)["x.json"])
    elif target == "disk":
        said = json.loads((tmp_path / "x.json").read_bytes())
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "x-000.tar", "x-001.tar", "x-002.tar", "x-003.tar", "x.json",
        ]  # fmt: skip
        found = [found_by_webdataset(path) for path in sorted(tmp_path.glob("*.tar"))]
        assert [key for key, _ in itertools.chain(*found)] == [one["__key__"] for one in samples]
    else:
        return
    assert sum(one["nsamples"] for one in said["shardlist"]) == 30
    assert all(len(one["md5sum"]) == 32 for one in said["shardlist"])


def test_a_large_shard_is_sent_in_parts_and_has_the_bytes_of_one_on_the_disk(
    s3: EmbeddedServer, bucket: str, tmp_path: Path
) -> None:
    samples = samples_of(25, MIB)
    for folder in (f"s3://{bucket}/", f"{tmp_path}/"):
        written(f"{folder}x-{{0..9}}.tar", samples, shard_size="20MiB")
    found = there(s3, bucket)
    for name in ("x-0.tar", "x-1.tar"):
        assert found[name] == (tmp_path / name).read_bytes()
    assert json.loads(found["x.json"])["shardlist"][0]["etag"].endswith("-3")
    assert pending(s3, bucket) == 0
    verified = nbdata.shards("verify", f"s3://{bucket}/x-*.tar", quiet=True)
    assert verified.ok
    assert nbdata.cleanup(tmp_path, dry_run=True).actions == {}


def test_values_are_encoded_by_their_extension(tmp_path: Path) -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    values = {
        "png": pixels, "seg.png": Image.fromarray(pixels), "jpg": pixels, "cls": np.int64(7), "txt": "grün",
        "json": {"a": [1, "ü"]}, "npy": np.eye(3), "npz": {"x": np.arange(3)}, "mp": {"b": 1}, "raw": bytearray(b"ab"),
        "up": "text",
    }  # fmt: skip
    with nbdata.write_shards(f"{tmp_path}/", encoders={"up": lambda text: text.upper().encode()}) as shards:
        shards.write({"__key__": "a", "__url__": "passed over", **values})
    (sample,) = nbdata.samples(f"{tmp_path}/shard-000000.tar").stream()
    decoded = nbdata.decode(sample, images="numpy")
    assert (decoded["png"] == pixels).all()
    assert (decoded["seg.png"] == pixels).all()
    assert decoded["jpg"].shape == (4, 4, 3)
    assert [decoded[name] for name in ("cls", "txt", "json", "mp", "raw", "up")] == [
        7, "grün", {"a": [1, "ü"]}, {"b": 1}, b"ab", b"TEXT",
    ]  # fmt: skip
    assert (decoded["npy"] == np.eye(3)).all()
    assert (decoded["npz"]["x"] == np.arange(3)).all()


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ({"cls": b"1"}, "has no key"),
        ({"__key__": "", "cls": b"1"}, "has no key"),
        ({"__key__": 7, "cls": b"1"}, "has no key"),
        (b"a", "has no key"),
        ({"__key__": "a"}, "no fields"),
        ({"__key__": "a.b", "cls": b"1"}, "in another one"),
        ({"__key__": "a", "JPG": b"1"}, "in another one"),
        ({"__key__": "__meta__/a", "cls": b"1"}, "in no sample"),
        ({"__key__": "a", "pkl": {"a": 1}}, "would be pickled"),
        ({"__key__": "a", "npy": np.array([object()])}, "cannot be written as npy"),
        ({"__key__": "a", "npz": {"x": np.array([object()])}}, "arrays of objects"),
        ({"__key__": "a", "cls": "seven"}, "cannot be written as number"),
        ({"__key__": "a", "txt": 7}, "cannot be written as text"),
        ({"__key__": "a", "xyz": 7}, "there is no encoder for int"),
        ({"__key__": "before", "cls": b"1"}, "two neighbours have the key"),
    ],
)
def test_what_would_not_come_back_is_refused_and_the_rest_is_written(
    sample: Any, said: str, tmp_path: Path
) -> None:
    with nbdata.write_shards(f"{tmp_path}/x-%d.tar") as shards:
        shards.write({"__key__": "before", "cls": 1})
        with pytest.raises(BadOption, match=said):
            shards.write(sample)
        shards.write({"__key__": "after", "cls": 2})
    assert [one["__key__"] for one in nbdata.samples(f"{tmp_path}/x-0.tar").stream()] == ["before", "after"]


def test_shards_that_are_there_are_replaced_only_if_that_is_said(tmp_path: Path) -> None:
    def write(count: int, **options: Any) -> None:
        written(f"{tmp_path}/x-%d.tar", samples_of(count), shard_samples=10, **options)

    write(30)
    (tmp_path / "x-other.tar").write_bytes(b"mine")
    with pytest.raises(BadOption, match="3 shards are there"):
        write(10)
    write(20, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x-0.tar", "x-1.tar", "x-other.tar", "x.json"]
    assert back(nbdata.samples(f"{tmp_path}/x-[0-9].tar").stream()) == samples_of(20)
    assert len(json.loads((tmp_path / "x.json").read_bytes())["shardlist"]) == 2
    with nbdata.write_shards(f"{tmp_path}/x-%d.tar", overwrite=True):
        pass  # neither writes nor deletes
    assert (tmp_path / "x-0.tar").exists()


def test_an_error_in_the_block_leaves_the_whole_shards_and_no_index(s3: EmbeddedServer, bucket: str) -> None:
    def samples() -> Iterator[dict[str, Any]]:
        yield from samples_of(21, MIB)
        raise ZeroDivisionError

    shards = nbdata.write_shards(f"s3://{bucket}/x-%d.tar", shard_size="12MiB")
    with pytest.raises(ZeroDivisionError):
        written(shards, samples())
    assert list(there(s3, bucket)) == ["x-0.tar"]
    assert pending(s3, bucket) == 0
    with pytest.raises(NbdataError, match="has failed"):
        shards.write(samples_of(1)[0])


@pytest.mark.parametrize(
    ("kind", "where"),
    [("reset", BODY), ("refuse", BEFORE), ("swallow", AFTER), ("flip", BODY), ("drop", HEAD)],
)
@pytest.mark.in_ci("swallow-after")
def test_faults_of_the_line_are_mended(
    kind: str, where: str, proxy: FaultProxy, s3: EmbeddedServer, bucket: str
) -> None:
    fault = Fault(kind, where, share=0.5)
    proxy.plan = lambda request, before: fault if request.action in _CHANGING and not before else None
    samples = samples_of(20, MIB)
    written(f"s3://{bucket}/x-%d.tar", samples)
    assert back(nbdata.samples(f"s3://{bucket}/x-0.tar").stream()) == samples
    assert pending(s3, bucket) == 0


def test_a_disk_that_is_too_small_is_told_before_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBDATA_QUOTA", f"2MB:{tmp_path}")
    with pytest.raises(NotEnoughSpace):
        written(f"{tmp_path}/x-%d.tar", samples_of(30, 100_000), shard_size="1500kB")
    assert [path.name for path in tmp_path.iterdir()] == ["x-0.tar"]


_KILLED = """
import os, sys
import nbdata
with nbdata.write_shards(sys.argv[1], shard_size="16MiB") as shards:
    for number in range(60):
        shards.write({"__key__": f"{number:03}", "bin": os.urandom(1 << 20)})
        if number == int(sys.argv[2]):
            print("there", flush=True)
            sys.stdin.read()
"""


@pytest.mark.parametrize("at", [3, 12, 40])
@pytest.mark.in_ci("3")
def test_a_killed_program_leaves_whole_shards_and_what_it_left_is_given_up_by_the_next(
    at: int, s3: EmbeddedServer, bucket: str
) -> None:
    url = f"s3://{bucket}/x-%d.tar"
    program = subprocess.Popen(
        [sys.executable, "-c", _KILLED, url, str(at)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ),
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdin is not None
    assert program.stdout.readline() == b"there\n"
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    program.stdout.close()
    program.stdin.close()
    whole = [name for name in there(s3, bucket) if name.endswith(".tar")]
    assert len(whole) == (at + 1) // 15 - ((at + 1) % 15 == 0)
    for name in whole:
        assert len(list(nbdata.samples(f"s3://{bucket}/{name}").stream())) == 15
    samples = samples_of(40, MIB)
    written(url, samples, shard_size="16MiB", overwrite=True)
    assert back(nbdata.samples(f"s3://{bucket}/x-*.tar").stream()) == samples
    assert pending(s3, bucket) == 0


def test_an_upload_that_cannot_be_remembered_is_aborted(
    s3: EmbeddedServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later run would find it."""

    def full(*_: object) -> None:
        raise NotEnoughSpace("the disk is full")

    monkeypatch.setattr("nbdata.writing.own_uploads.remember", full)
    with pytest.raises(NotEnoughSpace):
        written(f"s3://{bucket}/x-%d.tar", samples_of(10, MIB))
    assert pending(s3, bucket) == 0


def test_another_process_and_what_was_interrupted_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = nbdata.write_shards(f"{tmp_path}/x-%d.tar")
    shards.write(samples_of(1)[0])
    child = os.fork()
    if not child:
        try:
            shards.write(samples_of(1)[0])
        except NbdataError as error:
            os._exit(0 if "belongs to the process" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(shards._shard), "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            shards.write({"__key__": "b", "cls": 1})
    with pytest.raises(NbdataError, match="interrupted amid a sample"):
        shards.close()
    with pytest.raises(NbdataError, match="has failed"):
        shards.close()
    assert list(tmp_path.iterdir()) == []


def test_more_shards_than_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="numbers for 2 shards"):
        written(f"{tmp_path}/x-{{0..1}}.tar", samples_of(3), shard_samples=1)
