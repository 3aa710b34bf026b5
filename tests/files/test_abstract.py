"""fsspec's own suite for file systems, over each of nbdata's stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.tests import abstract

from nbdata.files import FileSystem
from tests.files.conftest import KINDS, Home, home_of


def _param(kind: str) -> Any:
    """Return a store as a parameter; `make test` takes one of them."""
    marks = [pytest.mark.long] if kind != "moto" else []
    if kind == "az":
        marks.append(pytest.mark.needs("azurite"))
    return pytest.param(kind, marks=marks)


_FEW = pytest.mark.in_ci("*-False-None-*", "*-True-1-*")


class Fixtures(abstract.AbstractFixtures):
    """The file system that the tests of fsspec use, and an empty folder in it."""

    @pytest.fixture(params=[_param(kind) for kind in KINDS])
    def home(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
        yield home_of(request.param, request, tmp_path)
        FileSystem.clear_instance_cache()

    @pytest.fixture
    def fs(self, home: Home) -> FileSystem:
        return home.files

    @pytest.fixture
    def fs_path(self, home: Home) -> str:
        return home.path

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def supports_empty_directories(self, home: Home) -> bool:
        return home.kind in ("local", "memory")


@pytest.mark.long
class TestCopy(Fixtures, abstract.AbstractCopyTests):
    """Copies within the store."""


class TestGet(Fixtures, abstract.AbstractGetTests):
    """Copies to the disk."""

    test_get_glob_edge_cases = _FEW(abstract.AbstractGetTests.test_get_glob_edge_cases)


class TestPut(Fixtures, abstract.AbstractPutTests):
    """Copies from the disk."""

    test_put_glob_edge_cases = _FEW(abstract.AbstractPutTests.test_put_glob_edge_cases)


class TestOpen(Fixtures, abstract.AbstractOpenTests):
    """Exclusive opening."""


class TestPipe(Fixtures, abstract.AbstractPipeTests):
    """Bytes to files."""
