"""HTTP and HTTPS: the client that all stores over HTTP use, and the read-only store for plain web servers."""
