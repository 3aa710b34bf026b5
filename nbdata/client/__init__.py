"""How a process reaches an engine: through the agent's socket, or in the process itself."""
