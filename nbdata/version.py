"""The version of nbdata, for all who ask: the package, its wheel, the agent."""

__version__ = "0.1.0"
