"""Shared parts of plans: inspecting sources and targets, decisions, and the room and uploads that work needs."""
