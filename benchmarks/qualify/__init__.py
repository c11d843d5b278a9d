"""`make qualify`: is a machine with a real device as we assume? Also measures the simulated one's constants."""
