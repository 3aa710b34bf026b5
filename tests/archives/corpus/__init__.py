"""Archives written here by other programs, and tests that compare how nbdata unpacks them."""
