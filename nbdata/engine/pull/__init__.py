"""pull: what is in a store comes to the disk."""
