"""Unpack into a folder on the disk."""
