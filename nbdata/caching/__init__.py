"""The bounded cache on disk: its room, its folder, and the order in which items pass through it."""
