"""The jobs that fill a cache: with the items of a cache_stream (`item_cache`), or with objects for samples."""
