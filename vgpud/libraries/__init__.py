"""Library files: the driver at hand, the shim fitted to it, and the environment that loads it."""
