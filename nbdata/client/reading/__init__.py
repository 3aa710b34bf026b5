"""Samples read straight to memory by the process that uses them: no agent, no disk.

What touches the disk goes through the agent; nothing here does but the index in the state folder.
"""
