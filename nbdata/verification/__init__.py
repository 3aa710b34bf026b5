"""Verify bytes: compute digests of what is read, and compare them with the checksums that stores keep."""
