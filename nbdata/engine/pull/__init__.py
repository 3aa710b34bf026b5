"""pull: fetches objects of a store to the disk."""
