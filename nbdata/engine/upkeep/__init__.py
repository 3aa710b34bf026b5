"""Upkeep of disks and stores: set limits, and clean up leftovers of nbdata."""
