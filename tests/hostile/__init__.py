"""What an enemy, or another program, may leave in folders that nbdata works in."""
