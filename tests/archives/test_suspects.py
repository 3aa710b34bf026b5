"""nbdata guesses which volumes of a set are damaged from their sizes alone, and names them in the error."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest

from nbdata.archives.stream import DAMAGED, FOLLOWED, TRUNCATED, JoinedStream, bad_data
from nbdata.archives.suspects import name_suspects, odd_sized, refuse_empty
from nbdata.errors import MissingVolume


@dataclass(frozen=True)
class Sized:
    name: str
    size: int | None

    def open(self, offset: int, /) -> io.BytesIO:
        raise AssertionError("nobody need read it")


def sized(*sizes: int | None) -> list[Sized]:
    return [Sized(f"v{number}", size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ((700, 700, 300, 700, 100), ["v2"]),
        ((700, 700, 300, 100), ["v2"]),
        ((700, 300, 700), ["v1"]),
        ((300, 700, 700, 100), ["v0"]),
        ((700, 300, 700, 200, 700, 700), ["v1", "v3"]),
        ((700, 700, 700, 100), []),  # the last one may have any size
        ((700, 700), []),
        ((300, 700), []),
        ((500, 300, 700, 100), []),  # cut into other sizes
        ((700, 300, 400, 700, 100), []),
        ((700, 700, None, 300, 700), []),
        ((None, None, None, None), []),
        ((), []),
    ],
)
def test_a_volume_that_is_smaller_than_most_others_is_odd(
    sizes: tuple[int | None, ...], names: list[str]
) -> None:
    assert [volume.name for volume in odd_sized(sized(*sizes))] == names


def test_a_volume_after_the_position_that_was_read_is_not_suspected() -> None:
    volumes = sized(700, 700, 700, 300, 700, 700)
    assert [volume.name for volume in odd_sized(volumes, before=2_200)] == ["v3"]
    assert odd_sized(volumes, before=2_100) == []


@pytest.mark.parametrize(
    ("sizes", "named"),
    [((0, 7), "v0"), ((7, 0, 7), "v1"), ((7, 7, 0), "v2"), ((0, 7, 0), "v0, v2"), ((None, 0), "v1")],
)
def test_an_empty_volume_of_several_is_refused(sizes: tuple[int | None, ...], named: str) -> None:
    with pytest.raises(MissingVolume, match=named) as caught:
        refuse_empty(sized(*sizes), "a.tar")
    assert caught.value.details["missing"] == named.split(", ")


@pytest.mark.parametrize("sizes", [(0,), (None, None), (7, None), (7, 7), ()])
def test_a_single_empty_volume_or_one_of_unknown_size_is_not_refused(sizes: tuple[int | None, ...]) -> None:
    refuse_empty(sized(*sizes), "a.tar")


MB = 1 << 20


@pytest.mark.parametrize(
    ("fault", "sizes", "says"),
    [
        (DAMAGED, (9, 9, 9), "That volume, or one before or just behind it, is damaged, too short or out of order"),
        (DAMAGED, (9, 9, 5, 9, 9), r"Most likely v2 \(5,242,880 bytes\) is too short: others have 9,437,184"),
        (DAMAGED, (9, 9, 9, 9, 9, 5, 9), "That volume, or one before"),  # that one was not read yet
        (TRUNCATED, (9, 9, 9), "The last volumes may be missing, or one is too short or out of order"),
        (TRUNCATED, (9, 5, 9), r"Most likely v1 \(5"),
        (FOLLOWED, (9, 9, 9), r"That volume, .*run it again\. Check that all volumes belong to it"),
        (FOLLOWED, (9, 5, 9), r"Most likely v1 .*run it again\. Check that all volumes belong to it"),
    ],
)  # fmt: skip
def test_an_error_in_one_of_several_names_what_may_be_to_blame(
    fault: str, sizes: tuple[int, ...], says: str
) -> None:
    volumes = sized(*(size * MB for size in sizes))
    error = bad_data(fault, "it is bad", JoinedStream(volumes), 18 * MB, name="a.tar")
    name_suspects(error, volumes)
    with pytest.raises(type(error), match=says):
        raise error
    assert "what was unpacked last may be wrong" in str(error)


def test_where_no_volume_is_known_none_is_named() -> None:
    error = bad_data(DAMAGED, "it is bad", io.BytesIO(), 5, name="a.tar")
    name_suspects(error, sized(9, 9))
    assert "One of the volumes is damaged" in str(error)


def test_an_error_in_a_single_volume_mentions_no_others() -> None:
    error = bad_data(DAMAGED, "it is bad", JoinedStream(sized(9)), 5, name="a.tar")
    name_suspects(error, sized(9))
    assert "It is damaged, or not whole" in str(error)
    error = bad_data(TRUNCATED, "it ends", JoinedStream(sized(9)), 5, name="a.tar")
    name_suspects(error, sized(9))
    assert "It is cut off: fetch it again." in str(error)
