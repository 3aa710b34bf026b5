"""What keeps disks and stores in order: limits, and what nbdata left behind."""
