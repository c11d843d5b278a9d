"""The acceptance run of the queue over many nodes: mixed jobs on a real Slurm of two nodes, with kills."""
