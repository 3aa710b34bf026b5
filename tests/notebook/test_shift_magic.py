"""``%shift`` in a real kernel: cells open files of a bucket, and what the magic says is true."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kernel import Kernel

Put = Callable[[dict[str, bytes]], str]


def test_cells_open_files_of_a_bucket_until_it_is_off(kernel: Kernel, put: Put) -> None:
    url = put({"d/a.txt": b"one"}) + "d"
    kernel.run("from glob import glob\nfrom os.path import exists")  # names from before
    assert "shift is off" in kernel.run("%shift").text
    assert kernel.run("%shift on").text.startswith("shift is on for all stores: open, os, glob,")
    read = f"print(open('{url}/a.txt').read(), glob('{url}/*'), exists('{url}/a.txt'))"
    assert kernel.run(read).text == f"one ['{url}/a.txt'] True\n"
    kernel.run("%nbdata shift on s3")  # again, with other places
    assert kernel.run("%shift status").text.startswith("shift is on for s3:")
    assert kernel.run("%shift off").text == "shift is off\n"
    assert "No such file" in str(kernel.run(read).error)
    assert (
        kernel.run("other = nbdata.shift()" if kernel.run("import nbdata").error is None else "").error
        is None
    )
    assert "still on, by nbdata.shift() in Python" in kernel.run("%shift off").text
    assert kernel.run("other.off()\n%shift status").text == "shift is off\n"


@pytest.mark.needs("mount")
def test_a_cell_mounts_and_lists_the_mounts(kernel: Kernel, put: Put) -> None:
    url = put({"d/a.txt": b"one"}) + "d"
    assert f"<mount of {url} at " in _said(kernel, f"%mount {url} m")
    assert kernel.run("print(open('m/a.txt').read())").text == "one\n"
    assert url in _said(kernel, "%mount")
    assert "is unmounted" in _said(kernel, "%unmount m")
    assert "no mounts" in _said(kernel, "%nbdata mount")


def _said(kernel: Kernel, line: str) -> str:
    shown = kernel.run(line)
    assert shown.error is None
    return shown.text + "".join(shown.displays)


@pytest.mark.long
def test_what_is_wrong_is_said_in_a_line(kernel: Kernel) -> None:
    for line, told in (
        ("%shift up", "'up' is no action (expected %shift on, %shift off or %shift status)"),
        ("%shift on s4", "'s4' is no protocol of a store"),
        ("%shift on --option", "--option needs a value"),
        ("%shift on --fast", "unknown option --fast"),
        ("%shift off now", "takes nothing more"),
        ("%shift on https --option token=env:HOME", "would go to every web server"),
    ):
        assert told in str(kernel.run(line).error)
    assert "is saved with this cell" in kernel.run("%shift on s3 --option secret=abc --option key=k").text
    assert "abc" not in kernel.run("%shift status").text
    kernel.run("%shift off")
    assert "%shift on s3://bucket --option profile=work" in kernel.run("%shift --help").text
