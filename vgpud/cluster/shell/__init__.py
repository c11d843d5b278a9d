"""The shells: Slurm's programs and their output, the files that others read, the network of switches."""
