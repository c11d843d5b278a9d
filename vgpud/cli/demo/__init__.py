"""`vgpu demo`, and the private daemon and simulated device that it runs on."""
