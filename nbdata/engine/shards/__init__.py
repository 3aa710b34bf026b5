"""shards: what is in them, and whether they are whole."""
