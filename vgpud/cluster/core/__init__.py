"""Pure: what Slurm shows becomes events of the queue, and what the queue wants becomes calls of scontrol."""
