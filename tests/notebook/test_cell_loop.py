"""cache_stream in real kernels: the magic, a cell as the body of a loop, and what remains after a kernel's death."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel import Kernel
from tests.waiting import wait_until

Put = Callable[[dict[str, bytes]], str]

FOLDERS = {f"f{n:02}/a": bytes([n]) * 200_000 for n in range(12)}


def leftovers(folder: Path) -> bool:
    """True if caches are left below a folder."""
    return not wait_until(lambda: not list(folder.glob(".nbdata/cache-*")))


def running(kernel: Kernel, folder: Path, url: str, cell: str = "") -> str:
    """Start an endless loop, and return once its body runs."""
    endless = f"%%cache_stream {url} --max-size 2MB\nopen('in', 'w').close()\nwhile True: pass"
    begun = kernel.start(cell or endless)
    wait_until((folder / "in").exists)
    assert list(folder.glob(".nbdata/cache-*"))
    return begun


def test_the_magic_gives_an_iterable_and_one_plain_sentence_at_its_end(kernel: Kernel, put: Put) -> None:
    url = put(FOLDERS)
    assert kernel.run(f"it = %cache_stream {url} --max-size 2MB").error is None
    out = kernel.run("for path, size in it: print(path.rpartition('/')[2], size)")
    assert out.error is None
    assert out.text.split() == [word for n in range(12) for word in (f"f{n:02}", "200000")]
    assert "12 items, 2.4 MB" in out.displays[-1]
    assert "; your code " in out.displays[-1]


def test_a_stream_that_no_variable_has_fetches_nothing_and_says_what_to_do(
    kernel: Kernel, put: Put, tmp_path: Path
) -> None:
    url = put(FOLDERS)
    out = kernel.run(f"%cache_stream {url} --max-size 2MB")
    assert out.error is None
    assert f"<cache_stream {url}> is fetched once a loop asks for it. Add -o items" in out.text
    assert not leftovers(tmp_path)
    assert kernel.run("print(len(list(_)))").text.strip().startswith("12")
    kernel.run(f"%cache_stream {url} --max-size 2MB -o items")
    assert list(tmp_path.glob(".nbdata/cache-*")), "a variable has it: it fetches ahead"
    kernel.run("items.close()")
    kernel.run(f"items = %cache_stream {url} --max-size 2MB")
    assert kernel.run("items").text == f"<cache_stream {url}>\n"
    assert list(tmp_path.glob(".nbdata/cache-*")), "to show it ends nothing, for a variable has it"
    kernel.run("items.close()")


def test_the_cell_is_the_body_of_a_loop(kernel: Kernel, put: Put, tmp_path: Path) -> None:
    url = put(FOLDERS)
    out = kernel.run(
        f"%%cache_stream {url} --max-size 2MB -q\n"
        "path, size = item\n"
        "if item.key == 'f01':\n    continue\n"
        "if item.key == 'f03':\n    break\n"
        "print(item.key)\n"
        "%time x = 1\n"
    )
    assert out.error is None
    assert [line for line in out.text.splitlines() if line.startswith("f")] == ["f00", "f02"]
    assert not leftovers(tmp_path)
    assert kernel.run("print(item.key, x, [n for n in dir() if 'nbdata_items' in n])").text == "f03 1 []\n"


@pytest.mark.long
def test_an_error_in_the_body_shows_its_line_and_leaves_nothing(
    kernel: Kernel, put: Put, tmp_path: Path
) -> None:
    url = put(FOLDERS)
    out = kernel.run(f"%%cache_stream {url} --max-size 2MB -q\nx = 1\nif item.key == 'f02':\n    1 / 0\n")
    assert out.error is not None
    assert "ZeroDivisionError" in out.error
    assert "1 / 0" in re.sub(r"\x1b\[[0-9;]*m", "", out.error)
    assert "cell_loop.py" not in out.error
    assert not leftovers(tmp_path)


@pytest.mark.in_ci(1)
@pytest.mark.parametrize(("body", "told"), [("if\n", "SyntaxError"), ("# nothing\n", "BadOption")])
def test_a_body_that_is_none_is_told_before_anything_is_fetched(kernel: Kernel, body: str, told: str) -> None:
    out = kernel.run(f"%%cache_stream s3://nowhere/ --max-size 2MB\n{body}")
    assert out.error is not None
    assert told in out.error


@pytest.mark.long
def test_the_stop_button_ends_the_loop_and_leaves_nothing(kernel: Kernel, put: Put, tmp_path: Path) -> None:
    cell = running(kernel, tmp_path, put(FOLDERS))
    kernel.manager.interrupt_kernel()
    out = kernel.collect(cell)
    assert out.error is not None
    assert "KeyboardInterrupt" in out.error
    assert not leftovers(tmp_path)
    assert kernel.run("print(1)").text == "1\n"


@pytest.mark.parametrize("now", [True, False])
@pytest.mark.in_ci("True")
def test_a_restart_leaves_nothing(kernel: Kernel, put: Put, tmp_path: Path, now: bool) -> None:
    running(kernel, tmp_path, put(FOLDERS))
    kernel.restart(now=now)
    assert not leftovers(tmp_path)


def test_a_loop_that_waits_for_the_store_can_be_stopped(
    kernel: Kernel, put: Put, tmp_path: Path, s3: object
) -> None:
    """This also holds while it waits for bytes that never arrive."""
    from tests.faults.gate import Gate

    url = put(FOLDERS)
    with Gate(s3.url, limit=900_000) as gate:  # type: ignore[attr-defined]  # three folders are whole
        cell = running(
            kernel,
            tmp_path,
            url,
            f"import os; os.environ['AWS_ENDPOINT_URL'] = {gate.url!r}\n"
            f"it = get_ipython().run_line_magic('cache_stream', '{url} --max-size 2MB --concurrency 1')\n"
            "for item in it:\n    open('in', 'w').close()",
        )
        gate.wait_until_it_holds()
        kernel.manager.interrupt_kernel()
        out = kernel.collect(cell)
        assert gate.holds
    assert out.error is not None
    assert "KeyboardInterrupt" in out.error
    assert not leftovers(tmp_path)
