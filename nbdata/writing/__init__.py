"""Writes samples to a store: shards that grow while they are sent, and the index beside them."""
