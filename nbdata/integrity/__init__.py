"""Digests while streaming, checksum files, the ETags of stores, and what a check finds.

This room knows no store and no task: it is handed names, a ``read(name) -> bytes`` and the bytes themselves.

==================  ================================================================
`digests`           hash bytes in order, or parts of a file in whatever order they land
`etags`             what an S3 ETag says about the content, and making one
`checksum_files`    read and write sidecars and manifests, line by line
`checksum_names`    which files hold checksums, told by their names
`expectations`      which digest each file of a data set should have, and who says so
`verdicts`          ok, mismatch, missing, extra, unverifiable: the rules
==================  ================================================================
"""
