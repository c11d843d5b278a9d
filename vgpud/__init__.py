"""vgpud: one GPU shared by several programs, each held to its own slice of SM time and memory."""

__version__ = "0.1.0"
