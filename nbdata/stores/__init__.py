"""Where bytes live: a URL or path to a `Store` and a key. Implementations promise what `base` says."""
