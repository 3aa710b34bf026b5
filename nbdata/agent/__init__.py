"""The agent: the engine's own process, with its launch, its socket, its jobs and its clients."""
