"""Libraries that open files through fsspec, which are large to install, over a real S3 server: ``make test-files``."""
