"""Samples read straight to memory by the process that uses them: no agent, no disk.

Only the index in the state folder is on disk. All other use of the disk goes through the agent.
"""
