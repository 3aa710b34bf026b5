"""Changes samples with a function or a command of the caller before they go into shards; never in the agent."""
