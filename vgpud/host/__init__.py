"""What the daemon learns from the kernel of its host, and what it keeps there: locks, directories, limits."""
