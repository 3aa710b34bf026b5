"""Storage back ends: resolve a URL or path to a `Store` and a key. `base` defines the interface."""
