"""Tables: pandas, Arrow, Dask, polars, DuckDB and Hugging Face's datasets read and write them through nbdata.

Each result is compared with that of the same library over the same file on the disk.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import datasets
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from pandas.testing import assert_frame_equal
from tqdm import tqdm

import nbdata
from tests.files.large.conftest import Bucket, Place

ROWS = 60_000


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return a table whose parquet file has several row groups and about 4 MB."""
    chance = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "number": np.arange(ROWS),
            "value": chance.random(ROWS),
            "kind": chance.choice(["a", "b", "été"], ROWS),
            "when": pd.Timestamp("2026-01-01") + pd.to_timedelta(chance.integers(0, 10**6, ROWS), "s"),
        }
    )


def groups(table: pd.DataFrame, path: str) -> None:
    """Write a table to a parquet file with six row groups."""
    table.to_parquet(path, row_group_size=ROWS // 6, compression="none")


# -- pandas --------------------------------------------------------------------------------------------

#: How pandas writes and reads each format; what is read must not depend on where it lies.
FORMATS: dict[str, tuple[Callable[..., Any], Callable[..., pd.DataFrame]]] = {
    "parquet": (pd.DataFrame.to_parquet, pd.read_parquet),
    "csv": (lambda table, place: table.to_csv(place, index=False), pd.read_csv),
    "csv.gz": (lambda table, place: table.to_csv(place, index=False), pd.read_csv),
    "csv.zst": (lambda table, place: table.to_csv(place, index=False), pd.read_csv),
    "csv.zip": (lambda table, place: table.to_csv(place, index=False), pd.read_csv),
    "jsonl": (
        lambda table, place: table.to_json(place, orient="records", lines=True, date_format="iso"),
        lambda place: pd.read_json(place, lines=True),
    ),
    "feather": (pd.DataFrame.to_feather, pd.read_feather),
    "pkl": (pd.DataFrame.to_pickle, pd.read_pickle),
}
COMPRESSIONS = {"csv.gz": "gzip", "csv.zst": "zstd", "csv.zip": "zip"}


@pytest.mark.parametrize("kind", FORMATS)
def test_pandas_reads_and_writes_by_a_url(place: Place, table: pd.DataFrame, kind: str) -> None:
    write, read = FORMATS[kind]
    if place.start == "s3://" and kind == "parquet":  # else pandas takes Arrow's client for s3
        write, read = (functools.partial(one, storage_options={}) for one in (write, read))
    if place.start == "nbdata::s3://" and "csv." in kind:  # pandas sees the end of such a name not
        write = functools.partial(pd.DataFrame.to_csv, index=False, compression=COMPRESSIONS[kind])
        read = functools.partial(pd.read_csv, compression=COMPRESSIONS[kind])
    name, store = f"table.{kind}", place.store
    FORMATS[kind][0](table, store.local(name))
    expected = FORMATS[kind][1](store.local(name))
    store.send(name)
    assert_frame_equal(read(place(name)), expected)
    write(table, place(f"out.{kind}"))
    assert_frame_equal(FORMATS[kind][1](store.fetched(f"out.{kind}")), expected)


def test_pandas_takes_a_file_system_and_open_files(store: Bucket, table: pd.DataFrame) -> None:
    table.to_parquet(store.path("out.parquet"), filesystem=store.files)
    found = pd.read_parquet(store.path("out.parquet"), columns=["kind"], filesystem=store.files)
    assert_frame_equal(found, table[["kind"]])
    with nbdata.open(store.url("out.csv"), "w", encoding="utf-8", newline="") as file:
        table.to_csv(file, index=False)
    table.to_csv(store.local("out.csv"), index=False)
    assert Path(store.fetched("out.csv")).read_bytes() == Path(store.local("out.csv")).read_bytes()
    with nbdata.open(store.url("out.csv"), encoding="utf-8", newline="") as file:
        parts = list(pd.read_csv(file, chunksize=7_000))
    assert_frame_equal(pd.concat(parts), pd.read_csv(store.local("out.csv")))


# -- Arrow ---------------------------------------------------------------------------------------------


def test_arrow_writes_partitions_and_reads_them_with_a_filter(store: Bucket, table: pd.DataFrame) -> None:
    rows = pa.Table.from_pandas(table)
    layout = ds.partitioning(pa.schema([("kind", pa.string())]), flavor="hive")

    def written(folder: str, **options: Any) -> None:
        ds.write_dataset(
            rows, folder, format="parquet", partitioning=layout, max_rows_per_file=8_000,
            max_rows_per_group=2_000, existing_data_behavior="delete_matching", **options,
        )  # fmt: skip

    written(store.local("parts"))
    for _ in range(2):  # the second time what is there is deleted
        written(store.path("parts"), filesystem=store.files)
    here, there = (
        ds.dataset(folder, partitioning=layout, **options)
        for folder, options in (
            (store.local("parts"), {}),
            (store.path("parts"), {"filesystem": store.files}),
        )
    )
    assert there.count_rows() == ROWS
    assert {path.partition("parts/")[2] for path in there.files} == {
        path.partition("parts/")[2] for path in here.files
    }
    only = (ds.field("kind") == "été") & (ds.field("value") < 0.1)
    for chosen in (None, only):
        found, expected = (one.to_table(filter=chosen).sort_by("number") for one in (there, here))
        assert found.equals(expected)
    assert ds.dataset(store.fetched("parts"), partitioning=layout).count_rows() == ROWS


def test_arrow_reads_and_writes_single_files(store: Bucket, table: pd.DataFrame) -> None:
    rows = pa.Table.from_pandas(table)
    pq.write_table(rows, store.path("t.parquet"), filesystem=store.files, row_group_size=10_000)
    assert pq.read_table(store.fetched("t.parquet")).equals(rows)
    file = pq.ParquetFile(store.path("t.parquet"), filesystem=store.files, pre_buffer=True)
    assert file.num_row_groups == 6
    assert file.read_row_group(3, ["value"]).equals(rows.select(["value"]).slice(30_000, 10_000))
    with nbdata.open(store.url("t.arrow"), "wb") as target, pa.ipc.new_file(target, rows.schema) as writer:
        writer.write_table(rows)
    with nbdata.open(store.url("t.arrow"), "rb") as source:
        assert pa.ipc.open_file(source).read_all().equals(rows)
    with nbdata.open(store.url("t.feather"), "wb") as target:
        feather.write_feather(rows, target)
    assert feather.read_table(store.fetched("t.feather")).equals(rows)


# -- polars --------------------------------------------------------------------------------------------


def test_polars_reads_and_writes_open_files(store: Bucket, table: pd.DataFrame) -> None:
    frame = pl.from_pandas(table)
    with nbdata.open(store.url("t.parquet"), "wb") as file:
        frame.write_parquet(file)
    with nbdata.open(store.url("t.csv"), "wb") as file:
        frame.write_csv(file)
    assert pl.read_parquet(store.fetched("t.parquet")).equals(frame)
    expected = pl.read_csv(store.fetched("t.csv"), try_parse_dates=True)
    with nbdata.open(store.url("t.parquet"), "rb") as file:
        assert pl.read_parquet(file, columns=["value"]).equals(frame.select("value"))
    with nbdata.open(store.url("t.csv"), "rb") as file:
        assert pl.read_csv(file, try_parse_dates=True).equals(expected)
    with nbdata.open(store.url("t.parquet"), "rb") as file:
        assert (
            pl.scan_parquet(file)
            .filter(pl.col("kind") == "b")
            .collect()
            .equals(frame.filter(pl.col("kind") == "b"))
        )
    scanned = pl.scan_pyarrow_dataset(ds.dataset(store.path("t.parquet"), filesystem=store.files))
    assert scanned.filter(pl.col("number") < 5).collect().equals(frame.head(5))


def test_polars_reads_parquet_by_a_url_with_arrow(store: Bucket, table: pd.DataFrame) -> None:
    table.to_parquet(store.local("t.parquet"))
    store.send("t.parquet")
    found = pl.read_parquet(store.named("t.parquet"), columns=["kind"], use_pyarrow=True)
    assert found.equals(pl.from_pandas(table[["kind"]]))


# -- DuckDB --------------------------------------------------------------------------------------------


@pytest.fixture
def duck(store: Bucket) -> Any:
    """A connection that knows ``nbdata://bucket/…``."""
    with duckdb.connect() as connection:
        connection.register_filesystem(store.files)
        yield connection


def test_duckdb_reads_columns_and_globs(store: Bucket, duck: Any, table: pd.DataFrame) -> None:
    for number, part in enumerate(np.array_split(np.arange(ROWS), 3)):
        table.iloc[part].to_parquet(store.local(f"parts/k={number}/p.parquet"), row_group_size=5_000)
    store.send("parts")
    ask = "select k, kind, count(*), sum(number) from read_parquet('{}') where value < 0.3 group by all order by all"
    place = f"nbdata://{store.path('parts/*/*.parquet')}"
    expected = duck.execute(ask.format(f"{store.local('parts')}/*/*.parquet")).fetchall()
    assert len(expected) == 9
    assert duck.execute(ask.format(place)).fetchall() == expected
    assert duck.execute(ask.format(f"nbdata://{store.path('parts/**/*.parquet')}")).fetchall() == expected


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_duckdb_copies_to_and_reads_back(store: Bucket, duck: Any, table: pd.DataFrame, kind: str) -> None:
    duck.register("rows", table)
    place = f"nbdata://{store.path(f'out/t.{kind}')}"
    duck.execute(f"copy (select number, kind from rows order by number) to '{place}' (format {kind})")
    for found in (place, store.fetched(f"out/t.{kind}")):
        counts = duck.execute(f"select count(*), sum(number), max(kind) from '{found}'").fetchall()
        assert counts == [(ROWS, ROWS * (ROWS - 1) // 2, "été")]


def test_duckdb_writes_partitions(store: Bucket, duck: Any, table: pd.DataFrame) -> None:
    duck.register("rows", table)
    place = f"nbdata://{store.path('parts')}"
    duck.execute(
        f"copy (select number, kind from rows) to '{place}' (format parquet, partition_by (kind), overwrite_or_ignore)"
    )
    found = pd.read_parquet(store.fetched("parts")).sort_values("number")
    assert list(found["number"]) == list(table["number"])
    assert list(found["kind"].astype(str)) == list(table["kind"])


# -- Dask ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # between Dask and pandas
def test_dask_reads_and_writes_parquet_and_csv(place: Place, table: pd.DataFrame) -> None:
    frame = dd.from_pandas(table, npartitions=4)
    frame.to_parquet(place("parquet"), write_index=False)
    frame.to_csv(place("csv/*.csv"), index=False)
    found = dd.read_parquet(place("parquet")).compute().reset_index(drop=True)
    assert_frame_equal(found.astype(table.dtypes), table)
    assert_frame_equal(pd.read_parquet(place.store.fetched("parquet")).astype(table.dtypes), table)
    found = dd.read_csv(place("csv/*.csv"), parse_dates=["when"]).compute().reset_index(drop=True)
    assert_frame_equal(found.astype(table.dtypes), table)


# -- datasets ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def quiet_datasets() -> Iterator[None]:
    """Have datasets show no bars, whose thread would stay, and make the folder that it keeps to its end."""
    datasets.disable_progress_bars()
    tqdm.monitor_interval = 0
    datasets.fingerprint.get_temporary_cache_files_directory()
    with pytest.MonkeyPatch.context() as patch:  # libraries for numbers set it when they are imported
        patch.setenv("KMP_DUPLICATE_LIB_OK", "True")
        yield
    datasets.enable_progress_bars()


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_datasets_loads(
    place: Place, table: pd.DataFrame, tmp_path: Path, kind: str, streaming: bool
) -> None:
    if streaming and "::" in place.start:  # there datasets mixes up the parts of a chained URL
        return
    few = table.head(1000).drop(columns="when")
    for part in range(2):
        FORMATS[kind][0](few.iloc[part * 500 : part * 500 + 500], place.store.local(f"d/{part}.{kind}"))
    place.store.send("d")
    loader = {"jsonl": "json"}.get(kind, kind)
    found = load_dataset(
        loader,
        data_files=place(f"d/*.{kind}"),
        split="train",
        streaming=streaming,
        cache_dir=str(tmp_path / "c"),
    )
    assert [(row["number"], row["kind"]) for row in found] == list(
        zip(few["number"], few["kind"], strict=True)
    )


def test_datasets_saves_and_loads_folders(place: Place, tmp_path: Path) -> None:
    made = datasets.Dataset.from_dict({"a": list(range(500)), "day": [dt.date(2026, 1, 1)] * 500})
    made.save_to_disk(place("saved"), num_shards=3)
    assert datasets.load_from_disk(place("saved"))[:] == made[:]
    assert datasets.load_from_disk(place.store.fetched("saved"))[:] == made[:]
