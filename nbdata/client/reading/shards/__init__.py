"""Samples in tar shards: found, streamed in order or shuffled, and resumed."""
