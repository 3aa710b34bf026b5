"""cache_stream: fetch items ahead of their consumer into a folder of bounded size; also the cache of samples."""
