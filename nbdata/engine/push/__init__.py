"""push: what is on the disk goes to a store."""
