"""Certificates of remote use: which user has which one, in files that the daemon reads, and how they are made."""
