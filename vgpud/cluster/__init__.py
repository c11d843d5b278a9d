"""`vgpu cluster`: the queue over many nodes. Slurm starts, kills and accounts; the queue's own machine decides."""
