"""A Jupyter server for the tests of nbdata's routes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server for the tests of one file; it uses the folders of that file."""
    with Lab(tmp_path_factory.mktemp("lab")) as running:
        yield running
