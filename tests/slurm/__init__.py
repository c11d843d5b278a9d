"""Slurm: requests of steps, their slices on a daemon, the scripts, and a real Slurm of the tests' own."""
