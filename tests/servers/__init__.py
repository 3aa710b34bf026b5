"""Servers of the tests that are the project's own: stand-ins for systems that cannot be installed here."""
