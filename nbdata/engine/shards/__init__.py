"""The verb shards: report the content of shards, and check that they are complete."""
