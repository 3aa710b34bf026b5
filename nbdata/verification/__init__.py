"""What proves bytes: the checksums that stores keep, digests of what is read, and the two compared."""
