"""Tests that every shared option changes what its verb does, and the scenes in which it must."""
