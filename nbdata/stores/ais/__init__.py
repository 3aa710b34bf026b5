"""Buckets of AIStore, over its native API, and the cluster map that says where redirects may lead."""
