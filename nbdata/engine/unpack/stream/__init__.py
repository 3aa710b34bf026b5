"""The members of an archive, read from its volumes one after the other."""
