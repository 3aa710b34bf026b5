"""Tar shards in stores: which are meant, their bytes, and the index of what they hold."""
