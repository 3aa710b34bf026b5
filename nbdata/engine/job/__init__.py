"""One job: its input, states and progress, its turn to run, the items it hands out, and its rows on disk."""
