"""Writes and reads a table with two processes of Dask: ``python dask_cluster.py BUCKET FOLDER``.

The processes find the store by their environment.
"""

from __future__ import annotations

import os
import sys

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import nbdata


def main(bucket: str, folder: str) -> None:
    """Have the workers write parts of a table, and sum them up."""
    table = pd.DataFrame({"number": np.arange(20_000), "kind": np.arange(20_000) % 5})
    expected = table.groupby("kind").number.sum().to_dict()
    with (
        dask.config.set({"temporary-directory": folder}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, security=True
        ) as cluster,
        Client(cluster) as client,
    ):
        dd.from_pandas(table, npartitions=6).to_parquet(f"nbs3://{bucket}/t", write_index=False)
        for options in ({"path": f"nbs3://{bucket}/t"}, {"path": f"{bucket}/t", "filesystem": _files()}):
            found = dd.read_parquet(**options).groupby("kind").number.sum().compute()
            assert found.to_dict() == expected, found
        client.run(nbdata.files.use_for, "s3")
        with nbdata.files.use_for("s3"):
            found = dd.read_parquet(f"s3://{bucket}/t").groupby("kind").number.sum().compute()
        assert found.to_dict() == expected, found
        processes = {*client.run(os.getpid).values()} - {os.getpid()}
    print(f"{len(processes)} workers, the same sums")


def _files() -> nbdata.files.FileSystem:
    return nbdata.filesystem("s3://")


if __name__ == "__main__":
    main(*sys.argv[1:])
