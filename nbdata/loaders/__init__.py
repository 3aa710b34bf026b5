"""Thin adapters to training frameworks; each module imports its own framework, and nothing else here does."""
