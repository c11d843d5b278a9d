"""The queue over many nodes: what a decision costs, and what placement by models of GPUs and of jobs is worth."""
