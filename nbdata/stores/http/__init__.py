"""http and https: the client that moves bodies for all stores over HTTP, and the store that only reads."""
