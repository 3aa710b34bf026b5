"""Formats of packed and grouped data sets: how files form samples, and how they are named."""
