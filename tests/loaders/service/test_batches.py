"""A batch comes back as it was, without a copy of large data; a receiver refuses what does not fit."""

from __future__ import annotations

import json
import math
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nbdata.errors import BadOption, NbdataError
from nbdata.loaders.service import batches
from nbdata.loaders.service.batches import decoded, encoded, in_pieces, joined

DTYPES = ["?", "i1", "<i4", ">i4", "u8", "f2", "<f4", ">f8", "c8", "c16"]
TENSORS = ["bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "complex64"]
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def arrays() -> st.SearchStrategy[Any]:
    def filled(dtype: str, shape: tuple[int, ...]) -> Any:
        return (np.arange(math.prod(shape)).reshape(shape) % 3).astype(dtype)

    return st.builds(filled, st.sampled_from(DTYPES), SHAPES)


def tensors() -> st.SearchStrategy[Any]:
    def filled(name: str, shape: tuple[int, ...]) -> Any:
        return (torch.arange(math.prod(shape)).reshape(shape) % 3).to(getattr(torch, name))

    return st.builds(filled, st.sampled_from(TENSORS), SHAPES)


LEAVES = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats()
    | st.text(st.characters()) | st.binary(max_size=40) | arrays() | tensors()
)  # fmt: skip
BATCHES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and (one == other).all())
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one == other or one != one


def sent(batch: Any) -> Any:
    """Return a batch after its way, over buffers of its own."""
    content = encoded(batch)
    return decoded(content.header, [bytearray(frame) for frame in content.frames])


@given(batch=BATCHES)
def test_a_batch_comes_back_as_it_was(batch: Any) -> None:
    assert same(sent(batch), batch)


def test_large_arrays_and_tensors_are_views_of_what_was_received_and_may_be_written() -> None:
    batch = {
        "images": torch.arange(300_000, dtype=torch.float32).reshape(3, -1),
        "array": np.zeros((500, 500), np.uint8)[:, ::2],
        "label": torch.tensor([1, 2]),
        "scalar": np.float32(1.5),
    }
    content = encoded(batch)
    assert len(content.frames) == 3, "one for what is small, and one for each that is large"
    frames = [bytearray(frame) for frame in content.frames]
    got = decoded(content.header, frames)
    assert same(got, batch)
    frames[1][:4] = np.float32(7).tobytes()
    assert got["images"][0, 0] == 7
    got["array"][0, 0] = 9
    assert frames[2][0] == 9
    got["label"] += 1
    # What is sent is the array itself.
    assert np.shares_memory(np.frombuffer(content.frames[1], np.float32), batch["images"].numpy())


Point = namedtuple("Point", "x y")


class Text(str):
    """A str that would come back as another type."""


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({1}, "got builtins.set"),
        (Point(1, 2), "Point"),
        (Text("x"), "Text"),
        (np.array([object()]), "an array of object"),
        (np.array(["x"]), "an array of <U1"),
        (np.array([1], "M8[s]"), "datetime64"),
        (np.longdouble(1), "an array of"),
        (torch.eye(2).to_sparse(), "torch.sparse"),
        (torch.empty(2, device="meta"), "on meta"),
        (torch.nn.Parameter(torch.ones(1)), "Parameter"),
        ({1: 2}, "the key 1"),
        ({"": 1, 0: 2}, "the key 0"),
        (1 << 64, "a larger int"),
        (lambda: 0, "function"),
    ],
)
def test_anything_else_is_refused_by_name(value: Any, told: str) -> None:
    with pytest.raises(BadOption, match=r"cannot hand over batch\['a'\]\[1\]") as raised:
        encoded({"a": [0, value]})
    assert told in str(raised.value)


def test_a_batch_that_holds_itself_or_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadOption, match="at most 32 levels"):
        encoded(endless)
    monkeypatch.setattr(batches, "FRAME_MOST", 1 << 20)
    with pytest.raises(BadOption, match="in one value"):
        encoded(bytes(1 << 21))
    monkeypatch.setattr(batches, "_FRAMES", 3)
    with pytest.raises(BadOption, match="large values"):
        encoded([np.zeros(1 << 17)] * 4)


@pytest.mark.parametrize(
    "node",
    [
        ["n", "<f4", [2], 0, 0, 4],
        ["n", "<f4", [1], 0, 0, 400],
        ["n", "<f4", [-1, -1], 0, 0, 4],
        ["n", "<f4", [-1], 0, 0, 8],
        ["n", "<f4", [1], 0, -4, 4],
        ["n", "<f4", [1], 9, 0, 4],
        ["n", "|O", [1], 0, 0, 8],
        ["n", "O8", [1], 0, 0, 8],
        ["n", "<f4", "x", 0, 0, 4],
        ["n", "<f4", [1 << 40, 1 << 40], 0, 0, 4],
        ["n", "<f4", [True], 0, 0, 4],
        ["n", "<f4", [1] * 65, 0, 0, 4],
        ["T", "__class__", [1], 0, 0, 4],
        ["T", "float32", [3], 0, 0, 4],
        ["T", "quint8", [4], 0, 0, 4],
        ["b", 0, 0, 99],
        ["b", 0, 0],
        ["b", 0, True, 1],
        ["d", ["a"]],
        ["d", [1, 2]],
        ["x", 1],
        [["l"]],
        [],
        {"a": 1},
    ],
)
def test_a_header_that_does_not_fit_its_frames_is_refused(node: Any) -> None:
    with pytest.raises(NbdataError, match="cannot be read"):
        decoded(json.dumps(["l", node]).encode(), [bytes(8)])


@pytest.mark.parametrize("header", [b"{", b"\xff", b"[" * 5000 + b"]" * 5000, b'["l"' * 100 + b"]" * 100])
def test_a_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(NbdataError, match="cannot be read"):
        decoded(header.replace(b'"l"[', b'"l",['), [b""])


def test_values_that_share_their_bytes_are_refused() -> None:
    """Else a small message would take any memory: bytes are copied."""
    place = ["b", 0, 0, 1 << 16]
    assert decoded(json.dumps(["l", place]).encode(), [bytes(1 << 16)]) == [bytes(1 << 16)]
    with pytest.raises(NbdataError, match="more bytes than its frames"):
        decoded(json.dumps(["l", place, place]).encode(), [bytes(1 << 16)])


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 30])
def test_frames_come_back_whole_from_pieces(size: int) -> None:
    frames = [memoryview(bytes(range(size))), memoryview(b"other"), memoryview(b"")]
    pieces = list(in_pieces(frames, 8))
    assert max(map(len, pieces)) <= 8
    assert [bytes(frame) for frame in joined(pieces, 8)] == [bytes(frame) for frame in frames]


def test_more_than_a_batch_may_have_is_refused() -> None:
    with pytest.raises(NbdataError, match="cannot be read"):
        batches.refuse_too_many(1 << 15, 10)
    with pytest.raises(NbdataError, match="cannot be read"):
        batches.refuse_too_many(3, 5 << 30)
    with pytest.raises(NbdataError, match="cannot be read"):
        decoded(b"[]", [])
