"""Small verbs for nbdata itself: what a place holds, and items to try the rest with."""
