"""What `vgpu tune` finds, beside the full grid of what it tries."""
