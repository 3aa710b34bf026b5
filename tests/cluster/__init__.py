"""Tests of operations on the workers of dask.distributed."""
