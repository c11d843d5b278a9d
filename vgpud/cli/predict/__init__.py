"""`vgpu predict`."""
