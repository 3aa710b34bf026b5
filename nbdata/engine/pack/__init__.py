"""pack: pack samples from loose objects, files or shards into shards or archives, or back into files."""
