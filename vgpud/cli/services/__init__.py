"""`vgpu service`."""
