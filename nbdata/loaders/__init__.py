"""Thin adapters to training frameworks; each module here imports only its own framework."""
