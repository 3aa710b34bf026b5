"""How a process reaches an engine: the agent's socket, or inline."""
