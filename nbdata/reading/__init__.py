"""The samples of a store: which there are, and their bytes; for a training loop (`client.reading`) and for jobs."""
