"""Credentials from other packages (tokens, profiles), and storage options that several stores share."""
