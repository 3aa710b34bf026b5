"""The version of nbdata, as the package, its wheel and the agent report it."""

__version__ = "0.1.0"
