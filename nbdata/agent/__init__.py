"""The engine's process: launch, socket, table of jobs, clients and what they hold, idle end."""
