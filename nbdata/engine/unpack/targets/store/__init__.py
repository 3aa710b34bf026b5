"""Unpack into a store: each file becomes an object, and nothing touches the disk."""
