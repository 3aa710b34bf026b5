"""Samples in FFRecord files: opened, read by number, and streamed."""
