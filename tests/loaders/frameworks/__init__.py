"""Samples inside real training frameworks, which are large to install: ``make test-frameworks``."""
