"""Small verbs that move no data: list and sum up a place, complete URLs, and probe nbdata itself."""
