"""What plans have in common: sources and targets looked at, decisions, and the room and uploads that work needs."""
