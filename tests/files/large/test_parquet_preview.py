"""The panel's preview of Parquet, which pyarrow reads in a process of its own."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nbdata.client.previewing import Previewing
from nbdata.demo.server import EmbeddedServer

Put = Callable[[dict[str, bytes]], str]


def test_the_first_rows_of_parquet_are_a_table(
    seaweedfs: EmbeddedServer, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    few, many, wide = io.BytesIO(), io.BytesIO(), io.BytesIO()
    pq.write_table(pa.table({"name": ["a", None], "of": [[1, 2], [3]]}), few)
    numbers = pa.table({f"c{n}": [str(row * n) * 3 for row in range(100_000)] for n in range(8)})
    pq.write_table(numbers, many, compression="none")
    assert len(many.getvalue()) > 8 << 20
    pq.write_table(pa.table({f"c{n}": [n] for n in range(60)}), wide)
    url = put(
        {
            "few.parquet": few.getvalue(),
            "many.parquet": many.getvalue(),
            "wide.parquet": wide.getvalue(),
            "spoilt.parquet": few.getvalue()[:-200] + b"\xff" * 192 + few.getvalue()[-8:],
        }
    )
    shown = Previewing(f"{url}few.parquet").preview()
    assert (shown.rows, shown.is_cut) == ([["name", "of"], ["a", "[1, 2]"], ["", "[3]"]], False)
    shown = Previewing(f"{url}many.parquet").preview()
    assert (len(shown.rows), shown.is_cut) == (201, True), shown
    shown = Previewing(f"{url}wide.parquet").preview()
    assert (len(shown.rows[0]), shown.is_cut) == (50, True)
    assert "cannot be read" in Previewing(f"{url}spoilt.parquet").preview().why
