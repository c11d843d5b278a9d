"""A device: programs outside slices on it, what is done about them, its faults, and speeds of models. Pure."""
