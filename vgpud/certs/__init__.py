"""Certificates of remote use: who has which one, in files that the daemon reads, and how they are made."""
