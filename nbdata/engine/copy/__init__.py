"""copy: copy objects from a store to another place, without using the disk."""
