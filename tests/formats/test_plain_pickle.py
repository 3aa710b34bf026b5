"""Pickles of plain data are read; a function that a pickle names is never called."""

from __future__ import annotations

import collections
import contextlib
import functools
import operator
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbdata.errors import BadArchive, BadOption, NbdataError
from nbdata.formats.plain_pickle import load_plain

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
NUMBERS = st.integers() | st.floats(allow_nan=False) | st.complex_numbers(allow_nan=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text() | st.binary()
PLAIN = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(), inner)
        | st.dictionaries(st.tuples(LEAVES, st.tuples(st.text(), st.text())), inner)
        | st.dictionaries(st.text(), inner).map(collections.OrderedDict)
        | st.frozensets(st.integers())
        | st.sets(st.text())
        | st.binary().map(bytearray)
    ),
    max_leaves=20,
)


@given(PLAIN, st.sampled_from(PROTOCOLS))
def test_plain_data_comes_back_as_it_was(value: Any, protocol: int) -> None:
    found = load_plain(pickle.dumps(value, protocol), "it")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["?", "i1", ">u2", "<i4", "u8", "f2", ">f4", "f8", "c16", "S3", "U3"])
def test_arrays_come_back_as_they_were(protocol: int, kind: str) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(kind)
    several = {
        "c": array,
        "f": np.asfortranarray(array),
        "part": array[:, ::2],
        "k": array.transpose(2, 0, 1),
        "none": array[:0],
        "one": array[0, 0, 0],
        "nested": [(array, {"again": array})],
        "kind": array.dtype,
    }
    found = load_plain(pickle.dumps(several, protocol), "it")
    for name in ("c", "f", "part", "k", "none"):
        assert type(found[name]) is np.ndarray
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], several[name])
    assert found["one"] == several["one"]
    assert found["kind"] == array.dtype
    assert found["nested"][0][0] is found["nested"][0][1]["again"] is found["c"]
    found["c"][:] = found["c"]  # it is writable


class Calls:
    """Is pickled as a function call."""

    def __init__(self, function: Any, *args: Any, state: Any = None) -> None:
        self.call = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def hostile(folder: Path) -> dict[str, Any]:
    mark = f"touch {folder / 'ran'}"
    return {
        "system": Calls(os.system, mark),
        "in a list": [1, Calls(os.system, mark)],
        "in an array of objects": np.array([Calls(os.system, mark)], object),
        "eval": Calls(eval, f"__import__('os').system({mark!r})"),
        "getattr": Calls(getattr, os, "system"),
        "popen": Calls(subprocess.Popen, ["touch", str(folder / "ran")]),
        "partial": functools.partial(os.system, mark),
        "attribute": operator.attrgetter("system"),
        "a class": Path,
        "a path": Path("/x"),
        "an array by a call": Calls(np.ndarray, (1,), "O", bytes(8)),
        "a named function": np.ndarray,
        "a record array": np.zeros(2, [("a", "f4")]),
        "dates": np.zeros(2, "M8[s]"),
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", hostile(Path()))
def test_pickles_beyond_plain_data_are_refused_and_not_run(tmp_path: Path, name: str, protocol: int) -> None:
    try:
        data = pickle.dumps(hostile(tmp_path)[name], protocol)
    except (TypeError, pickle.PicklingError):  # modules cannot be pickled
        data = b"cos\ngetattr\n."
    with pytest.raises(NbdataError):
        load_plain(data, "it")
    assert not (tmp_path / "ran").exists()


def test_the_error_names_what_it_is_and_what_to_do() -> None:
    with pytest.raises(BadOption, match=r"meta.pkl is a pickle with posix.system, .* allow_pickle=True"):
        load_plain(pickle.dumps(os.system), "meta.pkl")


REFUSED = {
    "a persistent object": b"Pid\n.",
    "an extension of copyreg": b"\x80\x02\x82\x01.",
    "a name on the stack that is not in the table": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "a name with dots": b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.__init__\x93.",
    "a state for a function of the table": b"c_codecs\nencode\n}Vx\nI1\ns\x86b.".replace(b"\x86", b"N\x86"),
    "a new object of a class of the table": b"cbuiltins\nset\n)\x81.",
    "bytes as large as a number says": b"cbuiltins\nbytes\n(I99999999999\ntR.",
    "a bytearray as large as a number says": b"cbuiltins\nbytearray\n(I99999999999\ntR.",
    "an array whose type has fields": b"cnumpy\ndtype\n(Vf8\ntR(I3\nV<\nN(Va\nt}I8\nI1\nI0\ntb.",
    "an array without its state": b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntVb\ntR.",
    "a transposed array without its axes": b"cnumpy.core.numeric\n_frombuffer\n(C\x08"
    + bytes(8)
    + b"cnumpy\ndtype\n(Vf8\ntR(I1\ntVK\ntR.",
    "cut off": pickle.dumps([1, 2, 3])[:-3],
    "empty": b"",
    "no pickle": b"\xff\xd8\xff\xe0 a picture",
}


@pytest.mark.parametrize("name", REFUSED)
def test_odd_pickles_are_refused(name: str) -> None:
    with pytest.raises(NbdataError):
        load_plain(REFUSED[name], "it")


def test_an_array_that_says_it_is_larger_than_its_bytes_is_refused() -> None:
    data = pickle.dumps(np.arange(4, dtype="f8"), 4)
    changed = data.replace(b"K\x04\x85", b"K\x07\x85")
    assert changed != data
    with pytest.raises(BadArchive, match="size of an array"):
        load_plain(changed, "it")


@given(st.data())
def test_any_flipped_byte_is_an_error_or_plain_data(data: st.DataObject) -> None:
    whole = bytearray(pickle.dumps({"a": np.arange(5), "b": [1.5, "text", (None, b"x")]}))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(NbdataError):
        load_plain(bytes(whole), "it")


@pytest.mark.parametrize(
    "data", [b"\x80\x04Nr\xff\xff\xff\x0f.", b"Np200000000\n.", b"\x80\x02X\x01\0\0\0ar\0\0\2\0\x86."]
)
def test_a_remembered_object_with_a_huge_number_is_refused(data: bytes) -> None:
    """CPython would make a table as long as that number: 4 GiB for the first of these."""
    with pytest.raises(BadArchive, match=r"object number [\d,]+ of a pickle that has fewer"):
        load_plain(data, "it")


@pytest.mark.long
def test_numbers_of_remembered_objects_may_be_sparse() -> None:
    assert load_plain(b"\x80\x02Nr\0\xff\0\0.", "it") is None
    many = [str(number) for number in range(70_000)]
    for protocol in PROTOCOLS:
        assert load_plain(pickle.dumps([many, many[::-1]], protocol), "it") == [many, many[::-1]]


_BYTES = b"\x80\x04B\0\0\1\0" + bytes(65536) + b"\x94"
_ITEMS = b"\x80\x04]\x94(" + b"K\1" * 1000 + b"e"


@pytest.mark.parametrize(
    "data",
    [
        _BYTES + b"0(" + b"cbuiltins\nbytearray\nh\0\x85R" * 100 + b"t.",
        _ITEMS + b"0(" + b"cbuiltins\nfrozenset\nh\0\x85R" * 1000 + b"t.",
        _ITEMS + b"0(" + b"cbuiltins\nset\nh\0\x85R" * 1000 + b"t.",
        b"\x80\x04X\0\0\1\0" + b"a" * 65536 + b"\x94X\6\0\0\0latin1\x940("
        + b"c_codecs\nencode\nh\0h\1\x86R" * 100 + b"t.",
    ],
    ids=["bytearray", "frozenset", "set", "encode"],
)  # fmt: skip
def test_one_content_is_not_copied_again_and_again(data: bytes) -> None:
    with pytest.raises(BadArchive, match="copies of one content"):
        load_plain(data, "it")


def test_a_dict_takes_no_attributes() -> None:
    made = collections.OrderedDict(a=1)
    made.more = {"b": 2}  # type: ignore[attr-defined]
    with pytest.raises(BadArchive, match="attributes of a dict"):
        load_plain(pickle.dumps(made), "it")


def test_an_ordered_dict_that_holds_itself_comes_back() -> None:
    made: Any = collections.OrderedDict(a=[])
    made["a"].append(made)
    found = load_plain(pickle.dumps([made, made]), "it")
    assert type(found[0]) is collections.OrderedDict
    assert found[0]["a"][0] is found[0] is found[1]


_LEVELS = 27  # 2**27 steps: more than so small a pickle may take, and yet they end if nothing refuses them


def _nested(again: bytes = b"2") -> bytes:
    """Return the instructions that make a tuple of two equal tuples of two equal tuples, and so on."""
    return b")" + (again + b"\x86") * _LEVELS


_BY_NUMBER = b")" + b"".join(b"q%ch%c\x86" % (number, number) for number in range(_LEVELS))
_BY_LINE = b")" + b"".join(b"p%d\ng%d\n\x86" % (number, number) for number in range(_LEVELS))
_BY_LONG = b")" + b"".join(b"r%c\0\0\0j%c\0\0\0\x86" % (number, number) for number in range(_LEVELS))
_IN_ORDER = b")" + b"".join(b"\x94h%c\x86" % number for number in range(_LEVELS))
_MARKED = b")" + b"".join(b"q%c0(h%ch%ct" % (number, number, number) for number in range(_LEVELS))


@pytest.mark.parametrize("nested", [_nested(), _BY_NUMBER, _BY_LINE, _BY_LONG, _IN_ORDER, _MARKED])
def test_a_key_whose_hash_would_not_end_is_refused(nested: bytes) -> None:
    """A hash is computed in C, where no interrupt ends it."""
    with pytest.raises(BadArchive, match="hashes would not end"):
        load_plain(b"\x80\x04}" + nested + b"Ns.", "it")


@pytest.mark.parametrize(
    "data",
    [
        b"}(%bNu.",
        b"(%bNd.",
        b"\x8f(%b\x90.",
        b"(%b\x91.",
        b"cbuiltins\nset\n]%ba\x85R.",
        b"cbuiltins\nset\n((%bltR.",
        b"cbuiltins\nfrozenset\n%b\x85\x85R.",
        b"ccollections\nOrderedDict\n]]%baNaa\x85R.",
        b"ccollections\nOrderedDict\n%bN\x86\x85\x85R.",
        b"(}(1%b01})N}%bNs.",
    ],
)
def test_no_way_to_make_a_key_leaves_its_hash_out(data: bytes) -> None:
    with pytest.raises(BadArchive, match="hashes would not end"):
        load_plain(b"\x80\x04" + data.replace(b"%b", _nested()), "it")


def test_many_keys_share_one_bound() -> None:
    """Each of them alone may take its steps: there are a million of them, in 20 KB."""
    one = b")" + b"2\x86" * 18 + b"q\0"
    with pytest.raises(BadArchive, match="hashes would not end"):
        load_plain(b"\x80\x04" + one + b"0](" + b"cbuiltins\nset\nh\0\x85\x85R" * 1000 + b"e.", "it")


def test_a_deep_key_is_refused() -> None:
    """The hash of one of a million levels overflows the C stack, which ends the process."""
    with pytest.raises(BadArchive, match="hashes would not end"):
        load_plain(b"\x80\x04}N" + b"\x85" * 5000 + b"Ns.", "it")


def test_the_shape_and_the_axes_of_an_array_are_plain_numbers() -> None:
    array = pickle.dumps(np.zeros((2, 3)).transpose(1, 0)[:, ::1], 5)
    assert load_plain(array, "it").shape == (3, 2)
    begin = b"cnumpy._core.numeric\n_frombuffer\n(C\0cnumpy\ndtype\n(X\2\0\0\0f8\x89\x88tRq\xff"
    nested = _nested() + b"N\x86" + _nested() + b"K\1\x86"
    for rest in (
        b"(" + b"K\1" * 65 + b"tU\1CtR.",
        b"K\0\x8a\x09" + b"\1" * 9 + b"\x86U\1CtR.",
        b"K\0K\1\x86U\1K(" + nested + b"ttR.",
    ):
        with pytest.raises(BadArchive, match=r"the (shape|axes) of an array"):
            load_plain(b"\x80\x04" + begin + rest, "it")


def test_classes_that_were_registered_by_number_are_not_taken() -> None:
    """CPython keeps those that other pickles loaded, and asks nobody then."""
    import copyreg

    copyreg.add_extension("os", "getcwd", 240)
    try:
        assert pickle.loads(b"\x80\x04\x82\xf0)R.") == os.getcwd()
        with pytest.raises(BadArchive, match="the instruction"):
            load_plain(b"\x80\x04\x82\xf0)R.", "it")
    finally:
        copyreg.remove_extension("os", "getcwd", 240)


def test_what_is_remembered_with_and_without_a_number_is_refused() -> None:
    with pytest.raises(BadArchive, match="both with and without a number"):
        load_plain(b"\x80\x04]q\1)\x94\x86.", "it")
