"""Put the members of an archive into tar shards, on the disk or in a store."""
