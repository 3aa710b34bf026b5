"""Packed and grouped data sets: what a sample is, and how its files are named."""
