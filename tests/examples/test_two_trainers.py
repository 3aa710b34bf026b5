"""The example of two notebooks that train from one loader service, in two kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel import Kernel
from tests.waiting import wait_until

NOTEBOOKS = Path(__file__).parents[2] / "examples/two-trainers"


def cells(name: str) -> Iterator[str]:
    """The cells of code of a notebook."""
    for cell in json.loads((NOTEBOOKS / name).read_text())["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


@pytest.mark.long
def test_two_notebooks_train_from_what_is_decoded_once(tmp_path: Path) -> None:
    with Kernel(tmp_path) as first, Kernel(tmp_path) as second:
        *before, trains, ends = cells("first.ipynb")
        opens, counts, closes = cells("second.ipynb")
        for cell in before:
            assert first.run(cell).error is None
        running = first.start(trains)
        wait_until((tmp_path / "service.txt").exists)
        assert second.run(opens).error is None
        counted = second.run(counts)
        assert (counted.error, counted.displays) == (None, ["array([64, 64, 64])"])
        trained = first.collect(running)
        assert (trained.error, trained.text) == (None, "12 batches, mean 0.500\n")
        for kernel, cell in ((second, closes), (first, ends)):
            assert kernel.run(cell).error is None
