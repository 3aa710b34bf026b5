"""What counts as a sample, and how a listing with any names is divided into samples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbdata.formats.samples import by_sample, is_hidden, split_name


@pytest.mark.parametrize(
    ("path", "key", "extension"),
    [
        ("0001.jpg", "0001", "jpg"),
        ("a/0001.seg.png", "a/0001", "seg.png"),
        ("a.b/0001", "a.b/0001", ""),
        ("a/.hidden", "a/.hidden", ""),
        ("a/x.", "a/x", ""),
    ],
)
def test_the_key_ends_at_the_first_dot_of_the_name(path, key, extension):
    assert split_name(path) == (key, extension)


_NAMES = st.lists(
    st.sampled_from(["a", "a.d", "b", "1", "10", "1.x", "1.y", "1-", ".h"]), min_size=1, max_size=3
)


@given(st.sets(_NAMES.map("/".join)))
def test_each_sample_comes_once_with_all_its_files(paths):
    found = list(by_sample(sorted(paths), str))
    wanted: dict[str, list[str]] = {}
    for path in sorted(paths):
        wanted.setdefault(split_name(path)[0], []).append(path)
    assert len(found) == len(wanted)
    assert dict(found) == wanted


def test_few_samples_are_open_at_a_time():
    names = (f"{n:06}.{end}" for n in range(1000) for end in ("cls", "jpg"))
    taken = 0

    def counted():
        nonlocal taken
        for name in names:
            taken += 1
            yield name

    first = next(by_sample(counted(), str))
    assert first == ("000000", ["000000.cls", "000000.jpg"])
    assert taken == 3


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("img/._1.jpg", True), (".DS_Store", True), ("__MACOSX/1.jpg", True), ("x/__MACOSX/y/1.jpg", True),
        ("img/1.jpg", False), (".git/1.jpg", False), ("x__MACOSX/1.jpg", False), ("__MACOSX.jpg", False),
    ],
)  # fmt: skip
def test_files_that_macos_and_others_leave_beside_data_are_hidden(path: str, hidden: bool) -> None:
    assert is_hidden(path) is hidden
