"""Tar shards in stores: the shards of a source, their bytes, and the index of their samples."""
