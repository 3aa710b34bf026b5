"""md5check: compare files with known checksums, and write checksum files."""
