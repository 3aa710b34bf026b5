"""Tab in a kernel where nbdata is loaded offers what it offers in a kernel without nbdata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kernel import Kernel
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kernel, Kernel]]:
    """Two kernels, without nbdata and with it."""
    folder = tmp_path_factory.mktemp("beside")
    with Kernel(folder) as without, Kernel(folder) as beside:
        assert without.run("pass").error is None
        assert beside.run("%load_ext nbdata").error is None
        for kernel in (without, beside):
            kernel.run("import os\n%config IPCompleter.jedi_compute_type_timeout = 1_000_000")
        yield without, beside


def completed(kernel: Kernel, code: str) -> dict[str, Any]:
    """Return the reply to a Tab behind some code; fail at once if the kernel gives none."""
    asked, after = kernel.client.complete(code), kernel.client.kernel_info()
    replies: dict[str, dict[str, Any]] = {}
    while after not in replies:
        reply = kernel.client.get_shell_msg(timeout=PATIENCE)
        replies[reply["parent_header"]["msg_id"]] = reply["content"]
    return replies[asked]


@pytest.mark.parametrize("code", ["os.pa", "pri", "x = o", "%timeit --", "import o", "%%ti"])
def test_tab_offers_the_same_as_without_nbdata(kernels: tuple[Kernel, Kernel], code: str) -> None:
    without, beside = (completed(kernel, code) for kernel in kernels)
    assert without["status"] == "ok"
    assert beside == without
