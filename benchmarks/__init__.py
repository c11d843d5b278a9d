"""Benchmarks of vgpud: each module is a command (`python -m benchmarks.<name> --help`)."""
