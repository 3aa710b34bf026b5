"""AIStore: the server of the tests, and what nbdata does with it."""
