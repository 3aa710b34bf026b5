"""Compute digests, read and write checksum files, interpret ETags, and define the verdicts of a check.

This package knows no store and no job. It gets names, a ``read(name) -> bytes`` function and the bytes themselves.

==================  ================================================================
`digests`           hash bytes in order, or parts of a file in any order
`etags`             read and compute S3 ETags
`checksum_files`    read and write sidecars and manifests, line by line
`checksum_names`    recognise checksum files by their names
`expectations`      find each file's expected digest, and its source
`verdicts`          ok, mismatch, missing, extra, unverifiable: the rules
==================  ================================================================
"""
