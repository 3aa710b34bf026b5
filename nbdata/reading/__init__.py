"""Lists the samples of a store and reads their bytes; for training loops (`client.reading`) and for jobs."""
