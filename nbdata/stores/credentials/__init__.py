"""Who asks, where other packages find that out: tokens, profiles, and options that stores read alike."""
