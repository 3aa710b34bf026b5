"""Samples changed by a function or a command of the caller, on their way into shards; never in the agent."""
