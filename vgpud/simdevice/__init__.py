"""The simulated device as seen from Python: its process, its state page, its log."""
