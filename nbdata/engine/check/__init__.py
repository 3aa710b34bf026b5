"""md5check: files compared with what vouches for them, and checksum files written."""
