"""The driver's pure core."""
