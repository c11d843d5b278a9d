"""Elastic jobs: how many workers pay off, and which are replaced."""
