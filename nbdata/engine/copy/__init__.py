"""copy: what is in a store goes to another place, without the disk."""
