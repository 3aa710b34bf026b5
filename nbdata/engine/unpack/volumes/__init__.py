"""The volumes of an archive: find them, read them, compare them with checksum files, and delete them."""
