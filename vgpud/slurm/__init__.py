"""Steps of Slurm jobs: what they ask for, and the cgroup by which their programs are known. Pure."""
