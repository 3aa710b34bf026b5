"""pack: samples of loose objects, files or shards into tar shards."""
