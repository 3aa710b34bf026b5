"""A Jupyter server for the tests of nbdata's routes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab server for all tests of this folder."""
    with Lab(tmp_path_factory.mktemp("lab")) as running:
        yield running
