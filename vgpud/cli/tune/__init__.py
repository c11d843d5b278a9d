"""`vgpu tune`."""
