"""`vgpu cluster`."""
