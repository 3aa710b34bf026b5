"""Disk space: how much is free, which limits apply, and how much running jobs have reserved."""
