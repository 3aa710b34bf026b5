"""The bounded cache on disk: its capacity, its folder, its contents, and the order of its items."""
