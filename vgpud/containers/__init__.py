"""Containers: the socket that `vgpu-runtime` asks, CDI devices, and the watch over running containers."""
