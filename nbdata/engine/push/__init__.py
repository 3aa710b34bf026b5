"""push: sends files on the disk to a store."""
