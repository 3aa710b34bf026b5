"""How much room there is, who says so, and what running jobs have reserved of it."""
