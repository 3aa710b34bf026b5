"""Archives that other programs write: made here by those programs, and what nbdata makes of each."""
