"""One job: what it is given, its states and progress, whose turn it is, what it hands out, and its rows on disk."""
