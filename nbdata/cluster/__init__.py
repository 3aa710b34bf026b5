"""Parts of an operation on the workers of dask.distributed: opening a cluster, dealing parts, and performing one.

`nbdata.engine.job.dealing` says what a part is; what verbs do with parts lies with them. Nothing of Dask is imported
before a job asks for a cluster.
"""
