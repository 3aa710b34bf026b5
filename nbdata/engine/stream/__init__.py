"""cache_stream: items pass through a bounded folder, ahead of who uses them."""
